"""`foretell pretrain CONFIG.toml | --data`: teach an A-NHP's encoder the types of masked events, and leave a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli.train import pair, put, train_run
from foretell.errors import ForetellError

Option = typer.Option


def pretrain(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file with tables [data], [model], [train], [task].")
    ] = None,
    data: Annotated[str | None, Option(help="A folder, a file, or the name of embedded data (robocup).")] = None,
    run: Annotated[Path | None, Option(help="The folder to write; default: runs/DATA-anhp-pretrained.")] = None,
    resume: Annotated[Path | None, Option(help="A run folder to continue.")] = None,
    init: Annotated[Path | None, Option(help="A run to start from, pretrained or trained.")] = None,
    mask: Annotated[float | None, Option(help="Share of the events that stay whose type is hidden and told.")] = None,
    drop: Annotated[float | None, Option(help="Share of the events that are removed.")] = None,
    columns: Annotated[str, Option(help="Columns of a long table: sequence=patient,time=when,event=code.")] = "",
    dim: Annotated[int | None, Option(help="Dimension of the embeddings.")] = None,
    layers: Annotated[int | None, Option(help="Layers of attention.")] = None,
    heads: Annotated[int | None, Option(help="Attention heads.")] = None,
    epochs: Annotated[int | None, Option(help="Epochs at the most.")] = None,
    batch: Annotated[int | None, Option(help="Sequences a step.")] = None,
    lr: Annotated[float | None, Option(help="Learning rate.")] = None,
    patience: Annotated[int | None, Option(help="Epochs without a better dev score before stopping; 0: never.")] = None,
    seed: Annotated[int | None, Option(help="The same seed gives the same run.")] = None,
    device: Annotated[str | None, Option(help="cpu, cuda, cuda:1 or auto.")] = None,
    dtype: Annotated[str | None, Option(help="float32 or float64.")] = None,
    set_: Annotated[list[str] | None, Option("--set", help="Any key: --set train.clip=1 --set model.bos=true.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print a summary as JSON on stdout.")] = False,
    quiet: Annotated[bool, Option(help="No progress.")] = False,
) -> None:
    """The encoder learns to tell hidden types from all other events, past and future; `train --init` goes on from it."""
    flags = {
        "data": {"path": data},
        "model": {"dim": dim, "layers": layers, "heads": heads},
        "train": {
            "epochs": epochs,
            "batch": batch,
            "lr": lr,
            "patience": patience,
            "seed": seed,
            "device": device,
            "dtype": dtype,
            "init": None if init is None else str(init),
        },
        "task": {"mask": mask, "drop": drop},
    }
    given = {section: {k: v for k, v in table.items() if v is not None} for section, table in flags.items()}
    if columns:
        given["data"]["columns"] = dict(pair(part, "--columns") for part in columns.split(","))
    for text in set_ or []:
        put(given, text)
    if resume is not None:
        if config is not None or run is not None or any(given.values()):
            raise ForetellError("--resume continues a run exactly as it was begun: give nothing else with it")
        train_run(None, resume, as_json, quiet)
        return
    if config is None and not given["data"].get("path"):
        raise ForetellError(
            "nothing to pretrain on: give a CONFIG.toml, or --data with a folder, a file or an embedded name"
        )
    _check_task(config)
    given["task"]["kind"] = "pretrain"
    train_run((config, given), run, as_json, quiet)


def _check_task(config: Path | None) -> None:
    from foretell.train.config import read_config

    task = read_config(config).get("task", {}) if config is not None else {}
    found = task.get("kind", "pretrain") if isinstance(task, dict) else "pretrain"
    if found != "pretrain":
        raise ForetellError(
            f"{config}: task.kind = {found!r}, and this is pretraining: use `foretell train {config}`, or leave [task] out"
        )
