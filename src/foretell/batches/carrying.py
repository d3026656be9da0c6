"""Long sequences part by part, for models whose past is a state of one size: what is kept after a part goes into the next.

Results equal those of the whole sequence, up to rounding; memory is that of a part. In training, gradients stop at the beginning
of a part (truncated back-propagation), and its initial state comes from earlier steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.batches.order import BatchOrder

PART_EVENTS = 8192  # at a time where nothing is learned; shorter sequences are read whole


@runtime_checkable
class CarriesState(Protocol):
    """A model that summarises the past in a state of fixed size: `encode` continues from `batch.carried`."""

    def encode(self, batch: Batch) -> Any: ...

    def carried_sizes(self) -> list[int]:
        """The size of each carried tensor, per row."""
        ...

    def carry(self, history: Any, batch: Batch) -> tuple[Tensor, ...]:
        """The state after each row's last event, without gradients: [B, …] each."""
        ...


@dataclass(frozen=True)
class EncodedPart:
    """The events from `first` on of some sequences, read after those before them."""

    first: int
    batch: Batch
    history: Any


def encoded_parts(model: Any, longest: int, make: Callable[[range | None], Batch]) -> Iterator[EncodedPart]:
    """Sequences of up to `longest` events, part after part; whole, where they are short or the model carries nothing.

    `make` gives the batch of a part, or the whole (None). Nothing of a part is kept once the next is asked for.
    """
    parts = _parts(model, longest)
    if not parts:
        batch = make(None)
        yield EncodedPart(0, batch, model.encode(batch))
    carried = None
    for part in parts:
        batch = replace(make(part), carried=carried)
        history = model.encode(batch)
        yield EncodedPart(part.start, batch, history)
        carried = model.carry(history, batch)


def lengths_of_parts(model: Any, lengths: np.ndarray) -> list[np.ndarray]:
    """The number of events in each part of each row, from its total."""
    parts = _parts(model, int(lengths.max(initial=0)))
    return [np.clip(lengths - part.start, 0, len(part)) for part in parts] or [lengths]


def _parts(model: Any, longest: int) -> list[range]:
    """None if sequences are read whole."""
    if longest <= PART_EVENTS or not isinstance(model, CarriesState):
        return []
    return [range(first, min(first + PART_EVENTS, longest)) for first in range(0, longest, PART_EVENTS)]


@dataclass(frozen=True)
class BatchPart:
    """A step of training: some sequences, and which of their events."""

    indices: np.ndarray
    events: range

    @property
    def begins(self) -> bool:
        """Whether nothing is carried into it."""
        return self.events.start == 0


class PartOrder(BatchOrder):
    """The batches of another order, each as parts of at most `events` events that follow one another."""

    def __init__(self, whole: BatchOrder, events: int) -> None:
        assert events >= 1
        super().__init__(whole.data, [])
        lengths = whole.data.lengths
        self.whole, self.parts = whole, list[BatchPart]()
        self.finished: dict[int, int] = {}  # from how many parts are done to how many batches are
        for place, indices in enumerate(whole.batches):
            longest = max(int(lengths[indices].max(initial=0)), 1)
            for first in range(0, longest, events):
                self.parts.append(BatchPart(indices, range(first, min(first + events, longest))))
            self.finished[len(self.parts)] = place + 1

    def __len__(self) -> int:
        return len(self.parts)

    def step(self, place: int) -> BatchPart:
        """The training data of the step at this position of the epoch."""
        return self.parts[place]

    def passed(self, count: int) -> None:
        if count in self.finished:
            self.whole.passed(self.finished[count])
