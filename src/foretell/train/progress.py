"""The callback that shows the progress of training: a bar over all epochs, the remaining time, and the best score so far."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from foretell.durations import short_duration
from foretell.train.callbacks import Callback
from foretell.train.progress_bar import Bar, training_bar
from foretell.wording import counted


@contextmanager
def with_progress(
    callbacks: Iterable[Callback], wanted: bool | None, epochs: int, patience: int
) -> Iterator[list[Callback]]:
    """Yield the callbacks, plus one that shows progress if `wanted`; see `training_bar`."""
    with training_bar(wanted) as shown:
        if shown is None:
            yield list(callbacks)
            return
        progress = TrainingProgress(shown, epochs, patience)
        yield [*callbacks, progress]
        progress.finish()


class TrainingProgress(Callback):
    """Moves a bar through all epochs of a run, and shows the longest remaining time and the best score so far."""

    def __init__(self, shown: Bar, epochs: int, patience: int = 0, title: str = "") -> None:
        self.shown, self.epochs, self.patience = shown, epochs, patience
        self.title = f"{title}: " if title else ""
        self.best, self.epoch = "", 0
        self.began: tuple[float, int] | None = None  # start time, and the number of steps before it
        shown.move(f"{self.title}preparing", 0, 0, "")

    def on_step(self, epoch: int, step: int, steps: int) -> None:
        """Update the bar; the remaining time is estimated from the finished part, including scoring."""
        done, of = (epoch - 1) * steps + step, self.epochs * steps
        now = time.monotonic()
        if self.began is None:  # the first step takes longer: it prepares what later steps use
            self.began = now, done
        since, before = self.began
        left = None
        if done > before:
            most = "at most " if self.patience else ""
            left = f"{most}{short_duration((now - since) / (done - before) * max(of - done, 0))} left"
        self.shown.move(self._words(epoch), done, of, left or "")

    def on_epoch(self, record: dict[str, Any]) -> None:
        """Remember the best score."""
        judged = "train" if record.get("dev") is None else "dev"
        score = record.get(judged)
        if score is not None and record.get("best_epoch", record["epoch"]) == record["epoch"]:
            self.best = f", best {judged} {score:.4f}"
        self.epoch = record["epoch"]
        if self.began is None:  # fits without steps
            self.shown.move(f"{self.title}iteration {record['epoch']}{self.best}", 0, 0, "")

    def finish(self) -> None:
        """Show the bar as complete."""
        self.shown.move(f"{self.title}{counted(self.epoch, 'epoch')}{self.best}", 1, 1, "")

    def _words(self, epoch: int) -> str:
        return f"{self.title}epoch {epoch} of {self.epochs}{self.best}"
