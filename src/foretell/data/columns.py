"""Many sequences in flat arrays: 12 bytes an event, and an `EventSequence` only when one is asked for.

In: the columns of a split (times and types of all events, where each sequence starts and ends). Out: a
tuple-like of `EventSequence` views.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from foretell.data.sequence import NO_METADATA, EventSequence, read_only


@dataclass(frozen=True, eq=False)
class Columns(Sequence[EventSequence]):
    """Sequence `n` owns the events `offsets[n]:offsets[n + 1]`. The arrays are read-only and already checked."""

    times: np.ndarray  # float64 [events]
    types: np.ndarray  # int32 [events]
    offsets: np.ndarray  # int64 [sequences + 1]
    t_ends: np.ndarray  # float64 [sequences]
    ids: tuple[str, ...]
    metadata: tuple[Mapping[str, object], ...]
    unscored: np.ndarray | None = None  # bool [events]: True where an event is history only; None: nowhere

    def __post_init__(self) -> None:
        assert len(self.offsets) == len(self.t_ends) + 1 == len(self.ids) + 1 == len(self.metadata) + 1
        assert self.offsets[0] == 0 and self.offsets[-1] == len(self.times) == len(self.types)
        for name, dtype in (("times", np.float64), ("types", np.int32), ("offsets", np.int64), ("t_ends", np.float64)):
            array = getattr(self, name)
            assert array.dtype == dtype, name
            object.__setattr__(self, name, read_only(array))
        if self.unscored is not None:
            assert self.unscored.dtype == np.bool_ and len(self.unscored) == len(self.times)
            object.__setattr__(self, "unscored", read_only(self.unscored))

    @classmethod
    def of(cls, sequences: Iterable[EventSequence]) -> Columns:
        """The columns of sequences that exist already."""
        if isinstance(sequences, Columns):
            return sequences
        several = list(sequences)
        return cls(
            times=np.concatenate([np.zeros(0), *(one.times for one in several)]),
            types=np.concatenate([np.zeros(0, np.int32), *(one.types for one in several)]),
            offsets=offsets_of([len(one) for one in several]),
            t_ends=np.array([one.t_end for one in several], dtype=np.float64),
            ids=tuple(one.id for one in several),
            metadata=tuple(one.metadata or NO_METADATA for one in several),
            unscored=_marks(several) if any(one.unscored is not None for one in several) else None,
        )

    @property
    def lengths(self) -> np.ndarray:
        """Events of each sequence, int64 [sequences]."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> EventSequence: ...
    @overload
    def __getitem__(self, index: slice) -> Columns: ...
    def __getitem__(self, index: int | slice) -> EventSequence | Columns:
        if isinstance(index, slice):
            return self.select(range(*index.indices(len(self))))
        place = range(len(self))[index]
        start, stop = self.offsets[place], self.offsets[place + 1]
        return EventSequence.trusted(
            self.times[start:stop],
            self.types[start:stop],
            float(self.t_ends[place]),
            self.ids[place],
            self.metadata[place],
            None if self.unscored is None else self.unscored[start:stop],
        )

    def __iter__(self) -> Iterator[EventSequence]:
        return (self[place] for place in range(len(self)))

    def select(self, indices: Iterable[int]) -> Columns:
        """Some of the sequences, in the order asked for."""
        chosen = np.fromiter((range(len(self))[index] for index in indices), dtype=np.int64)
        lengths = self.lengths[chosen]
        offsets = offsets_of(lengths)
        events = np.repeat(self.offsets[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Columns(
            times=self.times[events],
            types=self.types[events],
            offsets=offsets,
            t_ends=self.t_ends[chosen],
            ids=tuple(self.ids[place] for place in chosen),
            metadata=tuple(self.metadata[place] for place in chosen),
            unscored=None if self.unscored is None else self.unscored[events],
        )


def _marks(sequences: Sequence[EventSequence]) -> np.ndarray:
    """Of all events; a sequence without marks has nothing unscored."""
    parts = [np.zeros(len(one), dtype=bool) if one.unscored is None else one.unscored for one in sequences]
    return np.concatenate([np.zeros(0, dtype=bool), *parts])


def offsets_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Lengths → where each one starts, with the total at the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, dtype=np.int64))])
