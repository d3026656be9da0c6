"""Many sequences in flat arrays: 12 bytes per event, plus additional columns. An `EventSequence` is created on access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np

from foretell.data.attributes import Attribute, AttributeTable, SequenceAttributes, joined_tables
from foretell.data.frame_origin import NO_SOURCE, SequenceSource
from foretell.data.sequence import NO_METADATA, EventSequence, offsets_of, read_only
from foretell.errors import DataError


@dataclass(frozen=True, eq=False)
class ShardMap:
    """The shards of memory-mapped columns, and a function that releases their memory pages."""

    starts: np.ndarray  # int64 [shards + 1]: the first sequence of each shard, then the number of sequences
    release: Callable[[], None]


@dataclass(frozen=True, eq=False)
class Columns(Sequence[EventSequence]):
    """Sequence `n` owns the events `offsets[n]:offsets[n + 1]`. The arrays are read-only and already checked."""

    times: np.ndarray  # float64 [events]
    types: np.ndarray  # int32 [events]
    offsets: np.ndarray  # int64 [sequences + 1]
    t_ends: np.ndarray  # float64 [sequences]
    ids: Sequence[str]
    metadata: Sequence[Mapping[str, object]]
    unscored: np.ndarray | None = None  # bool [events]: True if an event is history only; None: all are scored
    starts: np.ndarray | None = None  # int64 [sequences]: absolute time of 0, nanoseconds since 1970; None: unknown
    scored_from: np.ndarray | None = None  # float64 [sequences]: all up to this time is history only; None: 0
    ends_assumed: np.ndarray | None = None  # bool [sequences]: True if t_end is only the last event's time; None: no
    attributes: Mapping[str, Attribute] = field(default_factory=dict)  # [events]: additional columns
    sequence_attributes: Mapping[str, Attribute] = field(default_factory=dict)  # [sequences]
    shards: ShardMap | None = None  # set if the arrays are memory-mapped; None: they are in memory

    def __post_init__(self) -> None:
        assert all(len(one) == len(self.times) for one in self.attributes.values())
        assert all(len(one) == len(self.ids) for one in self.sequence_attributes.values())
        for name, dtype in (("starts", np.int64), ("scored_from", np.float64), ("ends_assumed", np.bool_)):
            array = getattr(self, name)
            if array is not None:
                assert array.dtype == dtype and len(array) == len(self.ids), name
                object.__setattr__(self, name, read_only(array))
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
        """Make columns from existing sequences."""
        if isinstance(sequences, Columns):
            return sequences
        several = list(sequences)
        marked = any(one.unscored is not None for one in several)
        further = AttributeTable({}, {})
        if any(one.attributes is not None for one in several):
            further = joined_tables([one.attributes for one in several], [len(one) for one in several])
        return cls(
            times=np.concatenate([np.zeros(0), *(one.times for one in several)]),
            types=np.concatenate([np.zeros(0, np.int32), *(one.types for one in several)]),
            offsets=offsets_of([len(one) for one in several]),
            t_ends=np.array([one.t_end for one in several], dtype=np.float64),
            ids=tuple(one.id for one in several),
            metadata=tuple(one.metadata or NO_METADATA for one in several),
            unscored=np.concatenate([_unscored(one) for one in several]) if marked else None,
            starts=_given(np.int64, [one.start for one in several]),
            scored_from=_given(np.float64, [one.scored_from or None for one in several], 0.0),
            ends_assumed=_given(np.bool_, [one.end_assumed or None for one in several], False),
            attributes=further.of_events,
            sequence_attributes=further.of_sequences,
        )

    @cached_property
    def attribute_table(self) -> AttributeTable | None:
        """The attributes of all sequences as one table, or None if there are none."""
        if not self.attributes and not self.sequence_attributes:
            return None
        return AttributeTable(self.attributes, self.sequence_attributes)

    @property
    def lengths(self) -> np.ndarray:
        """The number of events of each sequence, int64 [sequences]."""
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
        return self.sequence(index)

    def sequence(self, index: int, source: SequenceSource = NO_SOURCE) -> EventSequence:
        """Return one sequence; `source` becomes its `source`."""
        place = range(len(self))[index]
        start, stop = self.offsets[place], self.offsets[place + 1]
        table = self.attribute_table
        return EventSequence.trusted(
            times=self.times[start:stop],
            types=self.types[start:stop],
            t_end=float(self.t_ends[place]),
            id=self.ids[place],
            metadata=self.metadata[place],
            unscored=None if self.unscored is None else self.unscored[start:stop],
            start=None if self.starts is None else int(self.starts[place]),
            scored_from=0.0 if self.scored_from is None else float(self.scored_from[place]),
            end_assumed=False if self.ends_assumed is None else bool(self.ends_assumed[place]),
            attributes=None if table is None else SequenceAttributes(table, int(start), place),
            source=source,
        )

    def each(self, source: SequenceSource) -> Iterator[EventSequence]:
        """Iterate over all sequences; `source` becomes their `source`."""
        return (self.sequence(place, source) for place in range(len(self)))

    def __iter__(self) -> Iterator[EventSequence]:
        return self.each(NO_SOURCE)

    def select(self, indices: Iterable[int]) -> Columns:
        """Return copies of some sequences, in the order of `indices`."""
        chosen = np.fromiter((range(len(self))[index] for index in indices), dtype=np.int64)
        lengths = self.lengths[chosen]
        offsets = offsets_of(lengths)
        events = np.repeat(self.offsets[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Columns(
            **self.at_events(events),
            offsets=offsets,
            t_ends=self.t_ends[chosen],
            ids=tuple(self.ids[int(place)] for place in chosen),
            metadata=tuple(self.metadata[int(place)] for place in chosen),
            starts=None if self.starts is None else self.starts[chosen],
            scored_from=None if self.scored_from is None else self.scored_from[chosen],
            ends_assumed=None if self.ends_assumed is None else self.ends_assumed[chosen],
            sequence_attributes={name: one.take(chosen) for name, one in self.sequence_attributes.items()},
        )

    def span(self, start: int, stop: int) -> Columns:
        """Return the sequences from `start` to `stop` as views of the same arrays."""
        first, last = self.offsets[start], self.offsets[stop]
        given: dict[str, Any] = {name: getattr(self, name) for name in ("starts", "scored_from", "ends_assumed")}
        given = {name: None if one is None else one[start:stop] for name, one in given.items()}
        return Columns(
            **self.at_events(slice(int(first), int(last))),
            offsets=self.offsets[start : stop + 1] - first,
            t_ends=self.t_ends[start:stop],
            ids=tuple(self.ids[place] for place in range(start, stop)),
            metadata=tuple(self.metadata[place] for place in range(start, stop)),
            **given,
            sequence_attributes={name: one.take(slice(start, stop)) for name, one in self.sequence_attributes.items()},
        )

    def keep(self, kept: np.ndarray, t_ends: np.ndarray | None = None) -> Columns:
        """Return the events selected by `kept` (bool [events]); `t_ends` replaces the ends of the sequences."""
        lengths = np.diff(np.concatenate([[0], np.cumsum(kept)])[self.offsets])
        same = {name: getattr(self, name) for name in ("ids", "metadata", "starts", "sequence_attributes")}
        if t_ends is None:
            bounds = {name: getattr(self, name) for name in ("t_ends", "scored_from", "ends_assumed")}
        else:
            early = None if self.scored_from is None else np.minimum(self.scored_from, t_ends)
            bounds = {"t_ends": t_ends, "scored_from": early, "ends_assumed": None}
        return Columns(**self.at_events(kept), offsets=offsets_of(lengths), **same, **bounds)

    def at_events(self, events: np.ndarray | slice) -> dict[str, Any]:
        """Return the fields with one value per event, for some events."""
        return {
            "times": self.times[events],
            "types": self.types[events],
            "unscored": None if self.unscored is None else self.unscored[events],
            "attributes": {name: one.take(events) for name, one in self.attributes.items()},
        }


def _given(dtype: type, values: list[Any], otherwise: object = None) -> np.ndarray | None:
    """Return an array in which missing values are `otherwise`; return None if all values are missing."""
    if all(value is None for value in values):
        return None
    if otherwise is None and None in values:
        raise DataError("some sequences have an absolute start and others do not: expected all or none")
    return np.array([otherwise if value is None else value for value in values], dtype=dtype)


def _unscored(sequence: EventSequence) -> np.ndarray:
    return np.zeros(len(sequence), dtype=bool) if sequence.unscored is None else sequence.unscored


COUNTED_AT_A_TIME = 1 << 22


def counts_of_types(types: np.ndarray, size: int) -> np.ndarray:
    """Return the number of events of each of `size` types, int64 [size]. It counts in chunks, since counting copies its input."""
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(types), COUNTED_AT_A_TIME):
        counts += np.bincount(types[start : start + COUNTED_AT_A_TIME], minlength=size)
    return counts


def gaps_of(times: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the gaps between neighbouring events of a sequence, all sequences in one array. First events have no gap."""
    gaps = np.diff(times)
    inside = np.ones(len(gaps), dtype=bool)
    borders = offsets[1:-1] - 1
    inside[borders[(borders >= 0) & (borders < len(gaps))]] = False
    return gaps[inside]
