"""What a run learns: the options of `[task]`, and what the trainer asks of a task.

A task knows its loss and its score; the trainer knows epochs, early stopping and checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from torch import Tensor

from foretell.data import EventData
from foretell.models.attention.two_sided import Sight

if TYPE_CHECKING:
    from foretell.train.checkpoint import Progress
    from foretell.train.step import Adam


@dataclass(frozen=True)
class PretrainOptions:
    """The type of masked events, from all others (paper, end of section 2)."""

    kind: ClassVar[str] = "pretrain"
    mask: float = 0.15  # share of the remaining events whose type is hidden and predicted; BERT's
    drop: float = 0.1  # share of the events that are removed
    dev_rounds: int = 5  # corruptions of dev, the same after every epoch, that its score is the mean of

    def mistakes(self) -> list[str]:
        found = []
        if not 0.0 < self.mask <= 1.0:
            found.append(f"task.mask = {self.mask}: expected a share of the events above 0 and at most 1")
        if not 0.0 <= self.drop < 1.0:
            found.append(f"task.drop = {self.drop}: expected a share of the events from 0 to below 1")
        if self.dev_rounds < 1:
            found.append(f"task.dev_rounds = {self.dev_rounds}: expected 1 or more")
        return found


@dataclass(frozen=True)
class ClassifyOptions:
    """A property of sequences, or of each of their events, that the data have under a key of their own."""

    kind: ClassVar[str] = "classify"
    label: str = ""  # the key: one value per sequence, or a list with one value per event
    history: Sight = "two-sided"  # what events see of each other

    def mistakes(self) -> list[str]:
        return (
            [] if self.label else ["task.label: which property is to be learned? Give --label FIELD, a key of the data"]
        )


TaskOptions = PretrainOptions | ClassifyOptions
TASKS: dict[str, type[TaskOptions]] = {task.kind: task for task in (PretrainOptions, ClassifyOptions)}


@dataclass(frozen=True)
class TaskScore:
    """A score of held-out data, higher is better, and further entries for the metrics."""

    score: float
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepLoss:
    """What one update reports."""

    loss: Tensor  # summed, on the device
    count: int  # terms of the sum
    states: int = 0  # evaluations of the network at a time
    intensities: int = 0  # evaluations of single intensities


ModelT_co = TypeVar("ModelT_co", covariant=True)


class Task(Protocol[ModelT_co]):
    """What is learned and scored; the trainer calls `step` for every batch and `score` after every epoch."""

    @property
    def model(self) -> ModelT_co: ...

    @property
    def adam(self) -> Adam: ...

    def step(self, indices: np.ndarray, number: int) -> StepLoss:
        """Update the parameters once, from these sequences of the training data; `number` seeds what is drawn."""
        ...

    def score(self, data: EventData) -> TaskScore: ...

    def train_metrics(self, mean: float, progress: Progress, dev: EventData | None) -> dict[str, Any]:
        """The entries of an epoch's record about training, given the negative mean loss; `train` is its score."""
        ...
