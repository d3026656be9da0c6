"""`foretell train CONFIG.toml | --model --data`: fit a model and leave a run folder."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli.options import Impossible
from foretell.errors import ForetellError

if TYPE_CHECKING:
    from foretell.models.registry import ModelOptions

Option = typer.Option


def train(
    config: Annotated[Path | None, typer.Argument(help="A TOML file with tables [data], [model], [train].")] = None,
    model: Annotated[
        str | None, Option(help="anhp, andtt, ndtt, hawkes, poisson, …; andtt where there is a program.")
    ] = None,
    program: Annotated[Path | None, Option(help="Rules that become the network: P.ndtt, or robocup.")] = None,
    data: Annotated[str | None, Option(help="A folder, a file, or the name of embedded data (robocup).")] = None,
    run: Annotated[Path | None, Option(help="The folder to write; default: runs/DATA-MODEL.")] = None,
    resume: Annotated[Path | None, Option(help="A run folder to continue.")] = None,
    columns: Annotated[str, Option(help="Columns of a long table: sequence=patient,time=when,event=code.")] = "",
    impossible: Annotated[
        Impossible | None, Option(help="Events that the rules make impossible: an error, left out, or kept unscored.")
    ] = None,
    train_fraction: Annotated[float | None, Option(help="A share of the training data, such as 0.25.")] = None,
    dim: Annotated[int | None, Option(help="Dimension of the embeddings.")] = None,
    layers: Annotated[int | None, Option(help="Layers of attention.")] = None,
    heads: Annotated[int | None, Option(help="Attention heads.")] = None,
    epochs: Annotated[int | None, Option(help="Epochs at the most.")] = None,
    batch: Annotated[int | None, Option(help="Sequences a step.")] = None,
    lr: Annotated[float | None, Option(help="Learning rate.")] = None,
    patience: Annotated[int | None, Option(help="Epochs without a better dev score before stopping; 0: never.")] = None,
    objective: Annotated[str | None, Option(help="mle: maximum likelihood; nce: noise-contrastive estimation.")] = None,
    noise: Annotated[str | None, Option(help="Where the noise of nce comes from: poisson, hawkes or timed.")] = None,
    noise_streams: Annotated[int | None, Option(help="Streams of noise (nce).")] = None,
    integral: Annotated[str | None, Option(help="stratified, uniform or quadrature.")] = None,
    points: Annotated[int | None, Option(help="Integration points a gap.")] = None,
    seed: Annotated[int | None, Option(help="The same seed gives the same run.")] = None,
    device: Annotated[str | None, Option(help="cpu, cuda, cuda:1 or auto.")] = None,
    dtype: Annotated[str | None, Option(help="float32 or float64.")] = None,
    init: Annotated[Path | None, Option(help="A run to start from, pretrained or trained.")] = None,
    task: Annotated[str | None, Option(help="classify: learn a property of sequences or events; see --label.")] = None,
    label: Annotated[str | None, Option(help="The key of the data that has the property.")] = None,
    history: Annotated[str | None, Option(help="What events see when classified: two-sided or causal.")] = None,
    set_: Annotated[list[str] | None, Option("--set", help="Any key: --set train.clip=1 --set model.bos=true.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print a summary as JSON on stdout.")] = False,
    quiet: Annotated[bool, Option(help="No progress.")] = False,
) -> None:
    """Train a model on event data. Ctrl-C leaves a checkpoint that --resume continues."""
    flags = {
        "data": {
            "path": data,
            "impossible": None if impossible is None else impossible.value,
            "train_fraction": train_fraction,
        },
        "model": {
            "kind": model or ("andtt" if program is not None else None),
            "program": None if program is None else str(program),
            "dim": dim,
            "layers": layers,
            "heads": heads,
        },
        "train": {
            "epochs": epochs,
            "batch": batch,
            "lr": lr,
            "patience": patience,
            "objective": objective,
            "noise": noise,
            "noise_streams": noise_streams,
            "integral": integral,
            "points": points,
            "seed": seed,
            "device": device,
            "dtype": dtype,
            "init": None if init is None else str(init),
        },
        "task": {"kind": task or ("classify" if label or history else None), "label": label, "history": history},
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
            "nothing to train on: give a CONFIG.toml, or --data with a folder, a file or an embedded name"
        )
    _check_program(given["model"])
    train_run((config, given), run, as_json, quiet)


def _check_program(given: dict[str, Any]) -> None:
    if given.get("program") and "kind" in given:
        from foretell.models.registry import find_model, model_specs

        if not find_model(given["kind"]).about.has_rules:
            kinds = " and ".join(one.kind for one in model_specs() if one.has_rules)
            raise ForetellError(
                f"--program is for {kinds}, which are made of rules, and --model {given['kind']} has none: "
                "leave out one of the two"
            )


def train_run(what: tuple[Path | None, dict[str, Any]] | None, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """A run from a file and flags, or a run folder continued: whatever its configuration asks for."""
    from foretell.cli.open_run import settled_splits
    from foretell.cli.show import bar, epoch_line, print_json
    from foretell.cli.train_summary import default_folder, said, started_from, summary_of, with_start
    from foretell.train.config import make_config, read_config
    from foretell.train.fit import TrainingInterrupt
    from foretell.train.from_config import train_from_config
    from foretell.train.run import RunFolder, data_facts
    from foretell.train.splits import load_splits

    if what is None:
        assert folder is not None
        run = RunFolder.open(folder)
        config = run.config()
    else:
        path, given = what
        table = read_config(path) if path is not None else {}
        for section, values in given.items():
            if values or section in table:
                old = table.get(section, {})
                table[section] = {**old, **values} if isinstance(old, dict) else values
        config = make_config(with_start(table), str(path) if path is not None else "options")
        folder = default_folder(config) if folder is None else folder
        run = None
    dataset = load_splits(config.data)
    if Path(config.data.path).exists():  # the run can be opened again from anywhere
        config = replace(config, data=replace(config.data, path=str(Path(config.data.path).resolve())))
    config = replace(config, model=_found_again(config.model))
    if config.train.init:
        config = replace(config, train=replace(config.train, init=str(Path(config.train.init).resolve())))
    assert dataset.train is not None
    import torch

    from foretell.train.callbacks import stopping
    from foretell.train.fit import choose_device

    choose_device(config.train.device)
    dtype = getattr(torch, config.train.dtype)
    network = config.model.make(dataset.vocabulary, seed=config.train.seed, dtype=dtype)
    dataset, counts = settled_splits(network, dataset, Impossible(config.data.impossible), quiet)
    assert dataset.train is not None
    resuming = run is not None
    network, taken = started_from(config, network, dataset.train, run, quiet or as_json)
    if run is None:
        run = RunFolder.create(folder, config, data_facts(dataset) | {"impossible": counts})
        run.keep_program(network)
        if taken is not None:
            run.keep_start(RunFolder.open(config.train.init))
    elif not run.checkpoint.exists():
        resuming = False  # it was stopped before its first checkpoint: begin again
    run.tidy()
    with bar(quiet) as progress, stopping() as asked:
        try:
            result = train_from_config(
                config,
                network,
                dataset,
                run=run,
                resume=resuming,
                on_step=lambda epoch, done, of: progress.move(f"epoch {epoch}", done, of),
                on_epoch=lambda record: progress.keep(epoch_line(record)),
                stop=lambda: asked["stop"],
            )
        except ForetellError:
            if what is not None and not run.has_model:
                run.discard()  # nothing was learned: the next try may have the folder
            raise
        except TrainingInterrupt:
            typer.echo(f"interrupted; continue with: foretell train --resume {run.path}", err=True)
            raise typer.Exit(130) from None
    summary = summary_of(result, config, run, dataset, taken)
    if as_json:
        print_json(summary)
    else:
        typer.echo(said(summary, config))


def _found_again(options: ModelOptions) -> ModelOptions:
    """With the whole path of the program's file, so that the run can be opened again from anywhere; the name of a shipped one does."""
    program = getattr(options, "program", "")
    return replace(options, program=str(Path(program).resolve())) if program and Path(program).is_file() else options


def pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise ForetellError(f"{option} {text!r}: expected KEY=VALUE")
    return key.strip(), value.strip()


def put(given: dict[str, dict[str, Any]], text: str) -> None:
    key, value = pair(text, "--set")
    section, dot, name = key.partition(".")
    if not dot or section not in given:
        raise ForetellError(f"--set {text!r}: the key must begin with {', '.join(f'{s}.' for s in given)}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = tomllib.loads(f"value = {json.dumps(value)}")["value"]  # a bare word is a string
    given[section][name] = parsed
