"""`EventTable`: what every reader of a table gives, one row per event, in columns; `gathered` makes sequences of it.

In: codes and arrays, made without a Python loop over events. Out: `RawEvents`, in which the rows of a sequence are adjacent and in
their original order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretell.data.columns import Attribute
from foretell.data.raw import LARGEST_TYPE, NO_NOTES, NameTable, PlaceUnit, Problem, RawEvents, TimeNotes
from foretell.data.sequence import NO_METADATA, encodable, offsets_of
from foretell.errors import short


@dataclass(frozen=True, eq=False)
class EventTable:
    """Rows of events. `times` are datetime64[ns] in UTC, or numbers (int64 or float64); all rows are whole and well-formed.

    A sequence without rows has no events: it needs an end. `names=None` says that `events` are integer types themselves.
    """

    path: str  # how messages call the source
    unit: PlaceUnit  # what `places` count
    ids: Sequence[str]  # of the sequences, in the order in which they are kept
    sequences: np.ndarray  # int [rows]: which of `ids`
    times: np.ndarray  # [rows]
    events: np.ndarray  # int [rows]: which of `names`, or the type
    names: Sequence[str] | None  # as written, arguments joined into terms (`terms.build`)
    places: np.ndarray  # int64 [rows]: the line or row of each, from 1
    t_starts: np.ndarray | None = None  # [sequences], as `times`; NaT or NaN where there is none
    t_ends: np.ndarray | None = None  # [sequences], likewise
    score_from: np.ndarray | None = None  # [sequences], likewise
    metadata: Sequence[Mapping[str, object]] | None = None  # [sequences]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)  # [rows]: further columns
    sequence_attributes: Mapping[str, Attribute] = field(default_factory=dict)  # [sequences]
    sequence_places: np.ndarray | None = None  # int64 [sequences]; default: the place of the first row
    time_notes: TimeNotes = NO_NOTES
    said: tuple[str, ...] = ()  # what the reader took for granted, a sentence each
    textual: bool = False  # types were text in the file, so they may also be names
    doubt: Problem | None = None  # a mistake, unless a vocabulary is given that has such names
    unused_columns: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __post_init__(self) -> None:
        rows = len(self.times)
        assert len(self.sequences) == len(self.events) == len(self.places) == rows
        assert self.times.dtype == "datetime64[ns]" or self.times.dtype in (np.int64, np.float64), self.times.dtype
        assert all(len(one) == rows for one in self.attributes.values())
        assert all(len(one) == len(self.ids) for one in self.sequence_attributes.values())


def gathered(table: EventTable, terms: bool = False) -> RawEvents:
    """Rows → sequences in the order of `ids`; inside a sequence the order of the rows is kept. Names get one spelling."""
    problems = list(table.problems)
    codes, names = _spelled(table, terms, problems)
    order = np.argsort(table.sequences, kind="stable")
    lengths = np.bincount(table.sequences, minlength=len(table.ids))
    sorted_already = bool((np.diff(table.sequences) >= 0).all())
    offsets = offsets_of(lengths)
    places = table.places if sorted_already else table.places[order]

    def arranged(values: np.ndarray) -> np.ndarray:
        return values if sorted_already else values[order]

    first = table.sequence_places
    if first is None:
        first = np.zeros(len(table.ids), dtype=np.int64)
        first[lengths > 0] = places[offsets[:-1][lengths > 0]]
    for number, name in enumerate(table.ids):
        if not name or not encodable(name):
            problems.append(
                Problem(int(first[number]), f"id is {short(name)}, expected Unicode text that is not empty")
            )
    if not len(table.ids) and not problems:
        problems.append(Problem(0, "the file has no sequences; expected at least one"))
    return RawEvents(
        path=table.path,
        unit=table.unit,
        times=arranged(table.times),
        codes=arranged(codes).astype(np.int32),
        names=names,
        offsets=offsets,
        t_starts=_bounds(table, table.t_starts),
        t_ends=_bounds(table, table.t_ends),
        score_from=_bounds(table, table.score_from),
        ids=tuple(table.ids),
        metadata=tuple(table.metadata) if table.metadata is not None else (NO_METADATA,) * len(table.ids),
        places=first,
        event_places=places,
        time_notes=table.time_notes,
        said=table.said,
        doubt=table.doubt,
        textual=table.textual,
        unused_columns=table.unused_columns,
        attributes={name: one.take(None if sorted_already else order) for name, one in table.attributes.items()},
        sequence_attributes=dict(table.sequence_attributes),
        problems=tuple(problems),
    )


def _bounds(table: EventTable, values: np.ndarray | None) -> np.ndarray:
    """Starts, ends or times to score from as given, or as many that are not."""
    if values is not None:
        return values
    stamped = table.times.dtype.kind == "M"
    return np.full(len(table.ids), "NaT", dtype="datetime64[ns]") if stamped else np.full(len(table.ids), np.nan)


def _spelled(table: EventTable, terms: bool, problems: list[Problem]) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Codes into names of one spelling; a name that has none is a mistake at its first row."""
    if table.names is None:
        wrong = (table.events < 0) | (table.events > LARGEST_TYPE)
        for row in np.flatnonzero(wrong)[:1].tolist():
            said = f"type {int(table.events[row])}, expected an integer from 0 to 2^31 - 2"
            problems.append(_at(table, row, said))
        return np.where(wrong, 0, table.events), None
    spelling = NameTable(terms)
    used = np.unique(table.events)
    place = np.zeros(len(table.names), dtype=np.int64)
    written: list[str] = list(table.names)
    place[used] = [spelling[written[code]] for code in used.tolist()]
    for name, text in spelling.faults.items():
        row = int(np.argmax(table.events == written.index(name)))
        problems.append(_at(table, row, text))
    return np.maximum(place[table.events], 0) if len(place) else table.events, tuple(spelling.names)


def _at(table: EventTable, row: int, text: str) -> Problem:
    sequence = int(table.sequences[row])
    number = int((table.sequences[:row] == sequence).sum())
    return Problem(int(table.places[row]), f"sequence {table.ids[sequence]!r}: events[{number}]: {text}")
