"""What a run learns besides what happens next: the table `[task]` of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foretell.models.attention.two_sided import Sight


@dataclass(frozen=True)
class PretrainOptions:
    """The type of masked events, from all others (paper, end of section 2)."""

    kind: ClassVar[str] = "pretrain"
    mask: float = 0.15  # share of the events that stay whose type is hidden, and told; BERT's
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
    """A property of sequences, or of each of their events, that the data tell under a key of their own."""

    kind: ClassVar[str] = "classify"
    label: str = ""  # the key: a value a sequence, or a list with one value an event
    history: Sight = "two-sided"  # what events see of each other

    def mistakes(self) -> list[str]:
        return (
            [] if self.label else ["task.label: which property is to be learned? Give --label FIELD, a key of the data"]
        )


Task = PretrainOptions | ClassifyOptions
TASKS: dict[str, type[Task]] = {task.kind: task for task in (PretrainOptions, ClassifyOptions)}
