"""Callbacks: what a training run tells the outside, and how the outside can end it; and Ctrl-C as a flag that long loops poll.

Errors raised in a callback end the run. With a run folder, its state is written first, so that `--resume` goes on from there.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any


class Callback:
    """Base class of callbacks for `fit`, `pretrain` and `classify`; override what is of interest.

    Example:
        >>> class DevScores(Callback):
        ...     def __init__(self) -> None:
        ...         self.scores = []
        ...     def on_epoch(self, record: dict) -> None:
        ...         self.scores.append(record["dev"])
    """

    def on_step(self, epoch: int, step: int, steps: int) -> None:
        """Called after every update: the epoch (from 1), and how many of its steps are done."""

    def on_epoch(self, record: dict[str, Any]) -> None:
        """Called after every epoch with its line of `metrics.jsonl`."""

    def on_checkpoint(self, path: Path) -> None:
        """Called after a checkpoint was written (only with a run folder)."""

    def stop(self) -> bool:
        """Asked after every step and epoch; True ends the run with a checkpoint and `TrainingInterrupt`."""
        return False


@dataclass(frozen=True)
class FunctionCallback(Callback):
    """A callback made of functions: the keyword arguments `on_step`, `on_epoch` and `stop` of `fit`."""

    step: Callable[[int, int, int], None] | None = None
    epoch: Callable[[dict[str, Any]], None] | None = None
    asked: Callable[[], bool] | None = None

    def on_step(self, epoch: int, step: int, steps: int) -> None:
        if self.step is not None:
            self.step(epoch, step, steps)

    def on_epoch(self, record: dict[str, Any]) -> None:
        if self.epoch is not None:
            self.epoch(record)

    def stop(self) -> bool:
        return self.asked is not None and self.asked()


class CallbackList(Callback):
    """Several callbacks as one; each gets a copy of the records."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = tuple(callbacks)

    def on_step(self, epoch: int, step: int, steps: int) -> None:
        for one in self.callbacks:
            one.on_step(epoch, step, steps)

    def on_epoch(self, record: dict[str, Any]) -> None:
        for one in self.callbacks:
            one.on_epoch(dict(record))

    def on_checkpoint(self, path: Path) -> None:
        for one in self.callbacks:
            one.on_checkpoint(path)

    def stop(self) -> bool:
        return any([one.stop() for one in self.callbacks])


@contextmanager
def stopping() -> Iterator[dict[str, bool]]:
    """Turns SIGINT and SIGTERM into a flag that long loops poll, `{"stop": False}`; a second signal raises KeyboardInterrupt."""
    flag = {"stop": False}

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if flag["stop"]:
            raise KeyboardInterrupt
        flag["stop"] = True

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
