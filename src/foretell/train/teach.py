"""A lesson run from its first step, or from a checkpoint, to its end; with a run folder, all of it on disk as it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.train.checkpoint import Progress, load_checkpoint, save_checkpoint
from foretell.train.config import TrainOptions, make_config
from foretell.train.lesson import Lesson
from foretell.train.loop import Listener, Loop
from foretell.train.run import RunFolder


@dataclass(frozen=True)
class Watched:
    """Where a run is written to and who is told of it; nothing of it changes what is learned."""

    run: RunFolder | None = None
    resume: bool = False
    on_step: Callable[[int, int, int], None] | None = None
    on_epoch: Callable[[dict[str, Any]], None] | None = None
    stop: Callable[[], bool] | None = None


def teach(
    lesson: Lesson, train: EventData, dev: EventData | None, options: TrainOptions, watched: Watched
) -> tuple[Progress, float]:
    """The lesson's model is left with its best parameters; what happened, and the best score, come back."""
    run = watched.run
    listener = Listener(
        step=watched.on_step or (lambda epoch, done, of: None),
        epoch=watched.on_epoch or (lambda record: None),
        checkpoint=(lambda loop: _keep(loop, run)) if run else (lambda loop: None),
        improved=(lambda loop: run.save_model(loop.model)) if run else (lambda loop: None),
        stop=watched.stop or (lambda: False),
    )
    found = load_checkpoint(run.checkpoint) if watched.resume and run is not None else None
    progress = Loop(lesson, train, dev, options, listener, found).run()
    assert progress.best is not None
    return progress, progress.best


def _keep(loop: Loop, run: RunFolder) -> None:
    save_checkpoint(run.checkpoint, loop.progress, loop.model, loop.best, loop.stepper.optimizer)
    run.write_metrics(loop.progress.records)


def changed(options: TrainOptions, changes: dict[str, Any], caller: str) -> TrainOptions:
    """With single options changed, their names and values checked."""
    if not changes:
        return options
    return make_config({"train": asdict(options) | changes}, caller).train


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("expected cpu, cuda, cuda:1 or auto")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ForetellError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return device
