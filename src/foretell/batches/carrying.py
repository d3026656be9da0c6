"""Read long sequences part by part, for models whose past is a state of fixed size: the state after a part is the start of the next.

Results equal those of reading the whole sequence, up to rounding; memory is proportional to the length of a part. In training,
gradients stop at the beginning of a part (truncated back-propagation), and its initial state was computed in an earlier step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.batches.order import BatchOrder

PART_EVENTS = 8192  # events per part outside training; shorter sequences are read whole


@runtime_checkable
class CarriesState(Protocol):
    """A model that summarises the past in a state of fixed size, and whose `encode` continues from `batch.carried`."""

    def encode(self, batch: Batch) -> Any: ...

    def carried_sizes(self) -> list[int]:
        """The size of each carried tensor, per row."""
        ...

    def carry(self, history: Any, batch: Batch) -> tuple[Tensor, ...]:
        """Return the state after each row's last event, without gradients: tensors [B, …]."""
        ...


@dataclass(frozen=True)
class EncodedPart:
    """A part of some sequences, from event number `first` on, encoded with knowledge of the parts before it."""

    first: int
    batch: Batch
    history: Any


def encoded_parts(model: Any, longest: int, make: Callable[[range | None], Batch]) -> Iterator[EncodedPart]:
    """Yield the encoded parts of sequences of up to `longest` events; one part if they are short or the model carries no state.

    `make` returns the batch of a part, or of the whole sequences (None). A part is freed when the next one is requested.
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
    """Return the number of events in each part, one array [B] per part, from the total lengths [B]."""
    parts = _parts(model, int(lengths.max(initial=0)))
    return [np.clip(lengths - part.start, 0, len(part)) for part in parts] or [lengths]


def _parts(model: Any, longest: int) -> list[range]:
    """Return the ranges of events of the parts; an empty list if sequences are read whole."""
    if longest <= PART_EVENTS or not isinstance(model, CarriesState):
        return []
    return [range(first, min(first + PART_EVENTS, longest)) for first in range(0, longest, PART_EVENTS)]


@dataclass(frozen=True)
class BatchPart:
    """The data of one training step: which sequences, and which of their events."""

    indices: np.ndarray
    events: range

    @property
    def begins(self) -> bool:
        """Whether this is the first part, which starts without a carried state."""
        return self.events.start == 0


class PartOrder(BatchOrder):
    """The batches of another order, each cut into consecutive parts of at most `events` events."""

    def __init__(self, whole: BatchOrder, events: int) -> None:
        assert events >= 1
        super().__init__(whole.data, [])
        lengths = whole.data.lengths
        self.whole, self.parts = whole, list[BatchPart]()
        self.finished: dict[int, int] = {}  # the number of finished batches, by the number of finished parts
        for place, indices in enumerate(whole.batches):
            longest = max(int(lengths[indices].max(initial=0)), 1)
            for first in range(0, longest, events):
                self.parts.append(BatchPart(indices, range(first, min(first + events, longest))))
            self.finished[len(self.parts)] = place + 1

    def __len__(self) -> int:
        return len(self.parts)

    def step(self, place: int) -> BatchPart:
        """Return the training data of the step at this position in the epoch."""
        return self.parts[place]

    def passed(self, count: int) -> None:
        if count in self.finished:
            self.whole.passed(self.finished[count])
