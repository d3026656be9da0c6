"""`EventTable`, the output of all readers of tables, with one row per event; `gathered` groups its rows into sequences.

In: codes and arrays, made without a Python loop over events. Out: `RawEvents`, in which the rows of a sequence are adjacent and in
the order of the table.
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
    """A table of events. `times` are datetime64[ns] in UTC, or numbers (int64 or float64). Rows with mistakes are already removed.

    A sequence without rows has no events, and needs a `t_end`. With `names=None`, `events` are the integer types.
    """

    path: str  # the name of the source in messages
    unit: PlaceUnit  # what `places` count: lines or rows
    ids: Sequence[str]  # ids of the sequences, in the order of the output
    sequences: np.ndarray  # int [rows]: index into `ids`
    times: np.ndarray  # [rows]
    events: np.ndarray  # int [rows]: index into `names`, or the type
    names: Sequence[str] | None  # names as in the file; arguments are joined into terms (`terms.build`)
    places: np.ndarray  # int64 [rows]: line or row number in the file, from 1
    t_starts: np.ndarray | None = None  # [sequences], dtype of `times`; NaT or NaN is missing
    t_ends: np.ndarray | None = None  # as `t_starts`
    score_from: np.ndarray | None = None  # as `t_starts`
    metadata: Sequence[Mapping[str, object]] | None = None  # [sequences]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)  # [rows]: additional columns
    sequence_attributes: Mapping[str, Attribute] = field(default_factory=dict)  # [sequences]
    sequence_places: np.ndarray | None = None  # int64 [sequences]: line or row; default: that of its first row
    time_notes: TimeNotes = NO_NOTES
    said: tuple[str, ...] = ()  # assumptions of the reader, one sentence each
    textual: bool = False  # True: types were text in the file, so they may be names
    doubt: Problem | None = None  # a mistake, unless the given vocabulary has these names
    unused_columns: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __post_init__(self) -> None:
        rows = len(self.times)
        assert len(self.sequences) == len(self.events) == len(self.places) == rows
        assert self.times.dtype == "datetime64[ns]" or self.times.dtype in (np.int64, np.float64), self.times.dtype
        assert all(len(one) == rows for one in self.attributes.values())
        assert all(len(one) == len(self.ids) for one in self.sequence_attributes.values())


def gathered(table: EventTable, terms: bool = False) -> RawEvents:
    """Group rows into sequences, in the order of `ids`. The order of rows in a sequence is kept, and names become canonical."""
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
    """Return one time per sequence: the values, or NaT or NaN for all sequences if there are none."""
    if values is not None:
        return values
    stamped = table.times.dtype.kind == "M"
    return np.full(len(table.ids), "NaT", dtype="datetime64[ns]") if stamped else np.full(len(table.ids), np.nan)


def _spelled(table: EventTable, terms: bool, problems: list[Problem]) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return codes into canonical names, and the names; an invalid name is a mistake at its first row."""
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
