"""Callbacks of `fit`, `pretrain` and `classify`: the base class `Callback`, and `CallbackList`, which combines several."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foretell.data import EventData
from foretell.models.build import Network
from foretell.train.config import TrainOptions


class Callback:
    """Base class of callbacks for `fit`, `pretrain` and `classify`; override the methods that you need.

    An error raised in a callback ends the training and leaves a checkpoint.

    Example:
        >>> class DevScores(ft.Callback):
        ...     def __init__(self) -> None:
        ...         self.scores = []
        ...     def on_epoch(self, record: dict) -> None:
        ...         self.scores.append(record["dev"])
    """

    def on_start(self, settings: dict[str, Any]) -> None:
        """Called before the first step, also when a run is resumed.

        Args:
            settings: the options of `model`, `train` and `data`.
        """

    def on_end(self) -> None:
        """Called when training has ended, also after a stop or an error."""

    def on_step(self, epoch: int, step: int, steps: int) -> None:
        """Called after every update.

        Args:
            epoch: the epoch, from 1.
            step: the number of finished steps of the epoch.
            steps: the number of steps in the epoch.
        """

    def on_epoch(self, record: dict[str, Any]) -> None:
        """Called after every epoch.

        Args:
            record: the epoch's line of `metrics.jsonl`.
        """

    def on_checkpoint(self, path: Path) -> None:
        """Called after a checkpoint was written; only with a run folder.

        Args:
            path: the checkpoint.
        """

    def stop(self) -> bool:
        """Called after every step and epoch; training stops if it returns True.

        Returns:
            True ends the run with a checkpoint and `TrainingInterrupt`.
        """
        return False


class CallbackList(Callback):
    """Combines functions and callbacks into one callback; each gets its own copy of the records."""

    def __init__(
        self,
        callbacks: Iterable[Callback],
        on_step: Callable[[int, int, int], None] | None = None,
        on_epoch: Callable[[dict[str, Any]], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.callbacks = tuple(callbacks)
        self.steps = [*([on_step] if on_step else []), *(one.on_step for one in self.callbacks)]
        self.epochs = [*([on_epoch] if on_epoch else []), *(one.on_epoch for one in self.callbacks)]
        self.stops = [*([stop] if stop else []), *(one.stop for one in self.callbacks)]

    @contextmanager
    def around(self, settings: dict[str, Any]) -> Iterator[CallbackList]:
        """Call `on_start` of each callback; at the end, even after an error, call `on_end` of those that were started."""
        begun: list[Callback] = []
        try:
            for one in self.callbacks:
                begun.append(one)
                one.on_start(copy.deepcopy(settings))
            yield self
        finally:
            for one in begun:
                one.on_end()

    def on_step(self, epoch: int, step: int, steps: int) -> None:
        for tell in self.steps:
            tell(epoch, step, steps)

    def on_epoch(self, record: dict[str, Any]) -> None:
        for tell in self.epochs:
            tell(dict(record))

    def on_checkpoint(self, path: Path) -> None:
        for one in self.callbacks:
            one.on_checkpoint(path)

    def stop(self) -> bool:
        return any([ask() for ask in self.stops])  # call all of them, even if one returns True


def run_settings(
    model: Network, options: TrainOptions, train: EventData, dev: EventData | None, **task: Any
) -> dict[str, Any]:
    """Return the settings for `Callback.on_start`: the options of the model and of training, and the sizes of the data."""
    shown = {name: value for name, value in model.spec().items() if isinstance(value, str | int | float | bool | None)}
    parts = {"train": train} | ({} if dev is None else {"dev": dev})
    return {
        "model": {"kind": model.kind, "parameters": sum(one.numel() for one in model.parameters()), **shown},
        "train": asdict(options),
        **({"task": task} if task else {}),
        "data": {
            "types": len(train.vocabulary),
            **{name: {"sequences": len(part), "events": part.event_count} for name, part in parts.items()},
        },
    }
