"""What `train` and `pretrain` have to say: where a run starts from, where it is written, and what came of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from foretell.errors import ForetellError
from foretell.models.start_from import Taken
from foretell.models.task_heads import Classifier
from foretell.train.config import RunConfig, read_config
from foretell.train.from_config import AnyTraining, initialised
from foretell.train.run import CONFIG, RunFolder
from foretell.train.task import ClassifyOptions, PretrainOptions

if TYPE_CHECKING:
    from foretell.data import Dataset, EventData
    from foretell.models.base import IntensityModel


def with_start(table: dict[str, Any]) -> dict[str, Any]:
    """A configuration that starts from a run has that run's model, but for what it says itself."""
    init = table.get("train", {}).get("init") if isinstance(table.get("train"), dict) else None
    model = table.get("model", {})
    if not init or not isinstance(init, str) or not isinstance(model, dict):
        return table
    if Path(init).is_file():
        raise ForetellError(f"--init {init}: this is a file, expected the folder of a run")
    theirs = read_config(RunFolder.open(init).path / CONFIG).get("model", {})
    if not isinstance(theirs, dict) or model.get("kind", theirs.get("kind")) != theirs.get("kind"):
        return table  # what does not fit is said where the two are put together
    return {**table, "model": {**theirs, **model}}


def started_from(
    config: RunConfig, model: IntensityModel, data: EventData, run: RunFolder | None, quiet: bool
) -> tuple[IntensityModel, Taken | None]:
    """`run` is the one that is resumed: it has a copy of what it started from."""
    if not config.train.init:
        return model, None
    source = RunFolder.open(config.train.init).network() if run is None else run.start()
    model, taken = initialised(config, model, source, data)
    if not quiet:
        typer.echo(f"started {taken.sentence()}", err=True)
    return model, taken


def default_folder(config: RunConfig) -> Path:
    name = f"{Path(config.data.path).name.split('.')[0]}-{config.model.kind}"
    if isinstance(config.task, PretrainOptions):
        name += "-pretrained"
    elif isinstance(config.task, ClassifyOptions):
        name += "-" + re.sub(r"[^\w.-]+", "-", config.task.label)
    return Path("runs") / name


def summary_of(
    result: AnyTraining, config: RunConfig, run: RunFolder, dataset: Dataset, taken: Taken | None
) -> dict[str, Any]:
    """The JSON of a finished run."""
    summary: dict[str, Any] = {
        "run": str(run.path),
        "best_epoch": result.best_epoch,
        "best": result.best,
        "epochs": len(result.records),
        "judged_on": "dev" if dataset.dev is not None else "train",
    }
    if config.task is None:
        summary["window"] = config.train.window
        last = result.records[-1] if result.records else {}
        if "states" in last:  # models that are fitted directly count nothing
            summary |= {
                "objective": config.train.objective,
                "states": last["states"],
                "intensities": last["intensities"],
            }
    else:
        summary["task"] = config.task.kind
        summary["accuracy"] = result.records[result.best_epoch - 1].get("dev_accuracy")
    if isinstance(result.model, Classifier):
        summary |= {"label": result.model.label, "of": result.model.of, "labels": list(result.model.labels)}
    if taken is not None:
        summary["init"] = taken.to_json()
    return summary


def said(summary: dict[str, Any], config: RunConfig) -> str:
    best, epoch, where = summary["best"], summary["best_epoch"], summary["judged_on"]
    if config.task is None:
        window = "" if config.train.window == "all" else f", window {config.train.window}"
        words = f"best log-likelihood on {where}: {best:.4f} nats an event (epoch {epoch}{window})"
        if config.train.objective == "nce":
            words += f"\nlooked at {summary['states']:,} states and {summary['intensities']:,} intensities"
        after = f"foretell evaluate {summary['run']}"
    else:
        what = "masked events" if isinstance(config.task, PretrainOptions) else f"labels of {summary['of']}"
        share = "" if summary["accuracy"] is None else f", {100 * summary['accuracy']:.1f} % right"
        words = f"best cross-entropy on {where}: {-best:.4f} nats for {what}{share} (epoch {epoch})"
        pretrained = isinstance(config.task, PretrainOptions)
        after = (
            f"foretell train --init {summary['run']} --data …" if pretrained else f"foretell evaluate {summary['run']}"
        )
    return f"{words}\nrun: {summary['run']}    next: {after}"
