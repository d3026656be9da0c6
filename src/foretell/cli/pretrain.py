"""`foretell pretrain CONFIG.toml | --data`: train an A-NHP's encoder to predict the types of masked events, and write a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli import flags
from foretell.cli.train import TrainRequest, add, check_source, resume_run, train_run
from foretell.errors import ForetellError
from foretell.models.registry import HeadOptions
from foretell.train.config import DataOptions, PretrainOptions, TrainOptions

# The options that apply only to models of the next event.
OTHERS = ("impossible", "train_fraction", "objective", "noise", "noise_streams", "integral", "points")


@flags.with_flags(
    {"data": DataOptions, "model": HeadOptions, "train": TrainOptions, "task": PretrainOptions}, but=OTHERS
)
def pretrain(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file with tables [data], [model], [train], [task].")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write; default: runs/DATA-anhp-pretrained.")
    ] = None,
    resume: flags.ResumeOption = None,
    columns: flags.ColumnsOption = "",
    log: flags.LogOption = None,
    set_: flags.SetOption = None,
    as_json: flags.SummaryOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Pretrain an encoder to predict the types of masked events from the events before and after; `train --init` continues from it."""
    request = TrainRequest(as_json, quiet, logs=flags.log_names(log))
    add(given, columns, set_)
    if resume is not None:
        return resume_run(resume, config is not None or out is not None or any(given.values()), request)
    check_source(config, given, "pretrain")
    _check_task(config)
    given["task"]["kind"] = "pretrain"
    train_run((config, given), out, request)


def _check_task(config: Path | None) -> None:
    from foretell.train.config import read_config

    task = read_config(config).get("task", {}) if config is not None else {}
    found = task.get("kind", "pretrain") if isinstance(task, dict) else "pretrain"
    if found != "pretrain":
        raise ForetellError(
            f"{config}: task.kind = {found!r}, and this is pretraining: use `foretell train {config}`, or leave [task] out"
        )
