"""Long tables, one row per event → an `EventTable`.

Columns: `sequence, time, event` (a `ColumnMap` can rename them), `arg1 …` to build `functor(arg1,…)`, the bounds `t_start`, `t_end`,
`score_from`, and `metadata` (a JSON object). Others become attributes. A row with empty time and event is a sequence without events.
Operations are vectorised over distinct values and whole columns; only rows with mistakes are examined one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from foretell.data.column_names import EVENT_NAMES, TIME_NAMES, candidates, recognised
from foretell.data.columns import Attribute
from foretell.data.event_table import EventTable
from foretell.data.raw import LARGEST_TYPE, NO_NOTES, PlaceUnit, Problem, TimeNotes, too_many_columns
from foretell.data.read_options import ReadOptions
from foretell.data.sequence import NO_METADATA
from foretell.data.timestamps import EXPECTED_TIME, UNIX_FACTORS, expected_time, parse_times
from foretell.reading import parse_json
from foretell.terms import NameProblem, NotATerm, build, normalise
from foretell.wording import did_you_mean

ONE_STREAM = "stream"  # the id of the only sequence of a table without a column `sequence`
MOST_CATEGORIES = 1000  # a text column with more distinct values, and in over half of its rows a new one, is free text
NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)\Z", re.IGNORECASE)
_INTEGER = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """A column of text as codes into its distinct values; "" is an empty cell."""

    codes: np.ndarray  # int [rows]
    values: list[str]

    def cell(self, row: int) -> str:
        """Return the text of one cell."""
        return self.values[int(self.codes[row])]

    def where(self, wanted: Callable[[str], bool]) -> np.ndarray:
        """Return bool [rows]: the result of `wanted` for each cell."""
        return np.fromiter(map(wanted, self.values), dtype=bool, count=len(self.values))[self.codes]

    def stripped(self) -> CodedColumn:
        """Return the column without spaces around the values."""
        return CodedColumn(self.codes, [value.strip() for value in self.values])


@dataclass(frozen=True, eq=False)
class TimeColumn:
    """A column of times, datetime64[ns] or numbers. `given`: the cell is not empty; `wrong`: it could not be read."""

    values: np.ndarray
    given: np.ndarray  # bool [rows]
    wrong: np.ndarray  # bool [rows]
    notes: TimeNotes = NO_NOTES
    expected: str = EXPECTED_TIME


class TableSource(Protocol):
    """The interface of a table in some file format; its methods return single columns."""

    path: str
    unit: PlaceUnit
    header: list[str]
    places: np.ndarray  # int64 [rows]: line or row number

    def coded(self, name: str) -> CodedColumn: ...
    def times(self, name: str, options: ReadOptions) -> TimeColumn: ...
    def attribute(self, name: str) -> Attribute | None: ...
    def is_integer(self, name: str) -> bool: ...


@dataclass
class _Rows:
    """The rows of a table during the checks: which are kept, and the mistakes."""

    source: TableSource
    ids: Sequence[str]
    sequences: np.ndarray
    problems: list[Problem]
    kept: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.kept = np.ones(len(self.sequences), dtype=bool)

    def refuse(self, wrong: np.ndarray, said: Callable[[int], str]) -> None:
        """Remove the rows marked in `wrong`, and note a mistake for each."""
        for row in np.flatnonzero(wrong & self.kept).tolist():
            self.fault(row, said(row))
        self.kept &= ~wrong

    def fault(self, row: int, text: str) -> None:
        name = self.ids[self.sequences[row]] if len(self.ids) else ""
        where = f"sequence {name!r}: " if name else ""
        self.problems.append(Problem(int(self.source.places[row]), f"{where}{text}"))


def event_table(source: TableSource, options: ReadOptions, place: int = 0) -> EventTable:
    """Read a table and collect its mistakes; `place` is the header's line."""
    problems = too_many_columns(len(source.header), place)
    if problems:
        return empty_table(source.path, source.unit, problems)
    header = source.header
    columns, said = recognised(options.columns, header)
    options = replace(options, columns=columns)
    arguments = columns.arguments(header)
    sequence = columns.sequence or "sequence"
    alone = columns.sequence == "" or (columns.sequence is None and sequence not in header)
    parts = [*([] if alone else [sequence]), columns.time, columns.event, *arguments]
    _check_header(parts, [*columns.bounds, columns.metadata], header, place, problems)
    if problems:
        return empty_table(source.path, source.unit, problems)
    count = len(source.places)
    found = CodedColumn(np.zeros(count, dtype=np.int32), [ONE_STREAM]) if alone else source.coded(sequence)
    rows = _Rows(source, found.values, found.codes, problems)
    rows.refuse(
        found.where(lambda name: not name), lambda row: f"column {sequence!r} is empty; every row belongs to a sequence"
    )
    times = _times(rows, columns.time, options)
    event = source.coded(columns.event).stripped()
    has_event = event.where(bool)
    rows.refuse(times.given & ~has_event, lambda row: f"column {columns.event!r} is empty")
    rows.refuse(~times.given & has_event, lambda row: f"column {columns.time!r} is empty")
    event = _with_arguments(rows, event, [source.coded(name).stripped() for name in arguments])
    bounds = [_bounds(rows, name, times, options) for name in columns.bounds]
    metadata = _metadata(rows, columns.metadata)
    table = _finished(rows, times, event, bounds, metadata, parts, options)
    return replace(table, said=(*said, *table.said))


def empty_table(path: str, unit: PlaceUnit, problems: Sequence[Problem]) -> EventTable:
    """Return a table without rows, which only has problems."""
    nothing = np.zeros(0, dtype=np.int64)
    return EventTable(path, unit, (), nothing, np.zeros(0), nothing, (), nothing, problems=tuple(problems))


def _finished(
    rows: _Rows,
    times: TimeColumn,
    event: CodedColumn,
    bounds: list[np.ndarray | None],
    metadata: list[Mapping[str, object]] | None,
    parts: list[str],
    options: ReadOptions,
) -> EventTable:
    """Make the `EventTable` of the kept rows; sequences without any kept row are dropped. Rows without an event add only a sequence."""
    source, columns = rows.source, options.columns
    unnamed = columns.sequence is None and rows.ids == [ONE_STREAM]
    marks = ~times.given & rows.kept
    per_sequence = np.bincount(rows.sequences[rows.kept], minlength=len(rows.ids))
    said = "a row without time and event says that there are none, but the sequence has other rows"
    rows.refuse(marks & (per_sequence[rows.sequences] > 1), lambda row: said)
    used = per_sequence > 0
    events = rows.kept & times.given
    first = np.zeros(len(rows.ids), dtype=np.int64)
    kept = np.flatnonzero(rows.kept)
    first[rows.sequences[kept][::-1]] = source.places[kept[::-1]]
    number = np.cumsum(used) - 1
    bounds = [None if one is None else one[used] for one in bounds]
    types, names, doubt = _types(rows, event, events)
    others = [name for name in source.header if name not in (*parts, *columns.bounds, columns.metadata)]
    attributes = {name: source.attribute(name) for name in others}
    return EventTable(
        path=source.path,
        unit=source.unit,
        ids=[name for name, here in zip(rows.ids, used.tolist(), strict=True) if here],
        sequences=number[rows.sequences[events]],
        times=times.values[events],
        events=types,
        names=names,
        places=source.places[events],
        t_starts=bounds[0],
        t_ends=bounds[1],
        score_from=bounds[2],
        metadata=None if metadata is None else [one for one, here in zip(metadata, used.tolist(), strict=True) if here],
        attributes={name: one.take(events) for name, one in attributes.items() if one is not None},
        sequence_places=first[used],
        time_notes=times.notes,
        said=("there is no column 'sequence': all rows are one sequence",) if unnamed else (),
        textual=not source.is_integer(columns.event),
        doubt=doubt,
        unused_columns=tuple(name for name, one in attributes.items() if one is None),
        problems=tuple(rows.problems),
    )


def _check_header(
    needed: list[str], optional: list[str], header: list[str], place: int, problems: list[Problem]
) -> None:
    for column in needed:
        if column not in header:
            found = f"{', '.join(map(repr, header))}{did_you_mean(column, header, before='; ')}"
            likely = candidates(header, {"time": TIME_NAMES, "event": EVENT_NAMES}.get(column, ()))
            which = f" which of {', '.join(map(repr, likely))} is it?" if len(likely) > 1 else ""
            how = '(other names are mapped with `columns={"sequence": …, "time": …, "event": …}`)'
            problems.append(Problem(place, f"no column {column!r};{which} found {found} {how}"))
    used = [*needed, *optional]
    for column in dict.fromkeys(used):
        if header.count(column) > 1:
            problems.append(Problem(place, f"column {column!r} exists {header.count(column)} times"))
        if used.count(column) > 1:
            problems.append(Problem(place, f"column {column!r} is mapped to {used.count(column)} parts, expected one"))


def _times(rows: _Rows, name: str, options: ReadOptions) -> TimeColumn:
    found = rows.source.times(name, options)
    if found.wrong.any():
        cells = rows.source.coded(name)
        rows.refuse(found.wrong, lambda row: f"{name} is {cells.cell(row).strip()!r}, expected {found.expected}")
    return found


def _bounds(rows: _Rows, name: str, times: TimeColumn, options: ReadOptions) -> np.ndarray | None:
    """Return one bound (`t_start`, `t_end` or `score_from`) per sequence; rows of a sequence with different values are mistakes."""
    if name not in rows.source.header:
        return None
    found = _times(rows, name, options)
    if found.given.any() and times.given.any() and (found.values.dtype.kind == "M") != (times.values.dtype.kind == "M"):
        is_a, other = ("times", "numbers") if found.values.dtype.kind == "M" else ("numbers", "times")
        rows.fault(
            int(np.argmax(found.given)),
            f"{name} has {is_a}, but {options.columns.time} has {other}; expected one of both",
        )
        return None
    stamped = (found if found.given.any() else times).values.dtype.kind == "M"
    bounds = np.full(len(rows.ids), "NaT", dtype="datetime64[ns]") if stamped else np.full(len(rows.ids), np.nan)
    given = np.flatnonzero(found.given & rows.kept)
    bounds[rows.sequences[given][::-1]] = found.values[given[::-1]]  # keeps the first row of each sequence
    differs = given[found.values[given] != bounds[rows.sequences[given]]]
    told: set[int] = set()
    for row in differs.tolist():
        sequence = int(rows.sequences[row])
        if sequence not in told and not (stamped is False and np.isnan(found.values[row])):
            here, before = (_shown(one) for one in (found.values[row], bounds[sequence]))
            rows.fault(row, f"{name} is {here} here and {before} before")
            told.add(sequence)
    return bounds


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, np.datetime64) else repr(float(value))


def _with_arguments(rows: _Rows, event: CodedColumn, arguments: list[CodedColumn]) -> CodedColumn:
    """Return the column of event names with arguments, `functor(arg1,…)`; rows without arguments are unchanged."""
    if not arguments:
        return event
    combined = event.codes.astype(np.int64)
    for column in arguments:
        _, combined = np.unique(combined * len(column.values) + column.codes, return_inverse=True)
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    values: list[str] = []
    faults: dict[int, str] = {}
    for number, row in enumerate(first.tolist()):
        functor = event.cell(row)
        try:
            values.append(_joined(functor, [column.cell(row) for column in arguments]))
        except NameProblem as problem:
            faults[number] = str(problem)
            values.append(functor)
    if faults:
        rows.refuse(np.isin(codes, list(faults)), lambda row: faults[int(codes[row])])
    return CodedColumn(codes, values)


def _joined(event: str, arguments: list[str]) -> str:
    while arguments and not arguments[-1]:
        arguments = arguments[:-1]
    if not arguments:
        return event
    if "" in arguments:
        raise NameProblem(f"argument {arguments.index('') + 1} is empty but a later one is not")
    if not event:
        raise NameProblem("there are arguments but no event")
    if "(" in event or ")" in event:
        try:
            normalise(event)
        except NotATerm:
            return build(event, arguments)  # free text becomes a functor in quotes
        raise NameProblem(f"event {event!r} has parentheses and argument columns too; use one of both")
    return build(event, arguments)


def _metadata(rows: _Rows, name: str) -> list[Mapping[str, object]] | None:
    """Return the metadata of each sequence: the JSON object in the first row that has one."""
    if name not in rows.source.header:
        return None
    cells = rows.source.coded(name)
    given = np.flatnonzero(cells.where(bool) & rows.kept)
    sequences, first = np.unique(rows.sequences[given], return_index=True)
    found: list[Mapping[str, object]] = [NO_METADATA] * len(rows.ids)
    for sequence, row in zip(sequences.tolist(), given[first].tolist(), strict=True):
        try:
            value = parse_json(cells.cell(row))
        except ValueError:
            value = None
        if isinstance(value, dict):
            found[sequence] = value
        else:
            rows.fault(row, "metadata is not a JSON object")
    return found


def _types(
    rows: _Rows, event: CodedColumn, events: np.ndarray
) -> tuple[np.ndarray, Sequence[str] | None, Problem | None]:
    """Return types if all cells are integers, else codes and names; the third result is a possible mistake."""
    codes = event.codes[events]
    used = np.unique(codes)
    distinct: list[str] = [event.values[code] for code in used.tolist()]
    if not distinct or not all(map(NUMBER.match, distinct)):
        return codes, event.values, None
    strange = {text for text in distinct if not _INTEGER.match(text) or int(text) > LARGEST_TYPE}
    if not strange:
        types = np.zeros(len(event.values), dtype=np.int64)
        types[used] = list(map(int, distinct))
        return types[codes], None, None
    # -1 and 1.5 are probably wrong types, not names
    wrong = [
        code for code, text in zip(used.tolist(), distinct, strict=True) if text in strange and not _is_padded(text)
    ]
    if not wrong:
        return codes, event.values, None
    row = int(np.flatnonzero(events)[np.argmax(np.isin(codes, wrong))])
    said = f"event is {event.cell(row)!r}; types are integers from 0 to 2^31 - 2, and names are not numbers"
    name = rows.ids[rows.sequences[row]]
    return codes, event.values, Problem(int(rows.source.places[row]), f"sequence {name!r}: {said}")


def _is_padded(text: str) -> bool:
    """Whether a text is a number with leading zeros, such as `007`, which may be a name."""
    return text.isdecimal() and text[0] == "0"


def text_times(cells: CodedColumn, options: ReadOptions) -> TimeColumn:
    """Parse times in text: numbers, ISO 8601, or the pattern of the options."""
    form = options.time_format or "auto"
    values = [value.strip() for value in cells.values]
    filled = np.fromiter(map(bool, values), dtype=bool, count=len(values))

    def column(found: np.ndarray, right: np.ndarray, expected: str, notes: TimeNotes = NO_NOTES) -> TimeColumn:
        return TimeColumn(found[cells.codes], filled[cells.codes], (filled & ~right)[cells.codes], notes, expected)

    numbers, right = read_numbers(values) if form in ("auto", "number", *UNIX_FACTORS) else (np.zeros(0), filled)
    if form in ("number", *UNIX_FACTORS) or (len(numbers) and right[filled].all()):
        return column(numbers, right, "a number")
    often = np.bincount(cells.codes, minlength=len(values))
    found = parse_times(values, options.zone, form if "%" in form else "", often)
    if form == "auto" and not found.valid.any():
        return column(numbers, right, expected_time(values))
    instants = found.instants.astype("datetime64[ns]")
    instants[~found.valid] = np.datetime64("NaT")
    expected = f"a time as in `time_format={form!r}`" if "%" in form else "a time such as 2012-03-01T12:00:00"
    return column(instants, found.valid, expected, TimeNotes(found.zoneless, found.twice, found.never))


def read_numbers(values: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the texts as int64 if all are integers, else as float64, and a mask of valid ones. Invalid or empty text becomes 0."""
    joined = "".join(values)
    if (
        joined.isascii() and "_" not in joined and "" not in values
    ):  # float() also accepts 1_000 and digits of other scripts
        try:
            if not re.search(r"[^0-9+-]", joined):
                return np.array(list(map(int, values)), dtype=np.int64), np.ones(len(values), dtype=bool)
            return np.array(list(map(float, values)), dtype=np.float64), np.ones(len(values), dtype=bool)
        except (ValueError, OverflowError):
            pass
    right = np.fromiter((bool(NUMBER.match(text) or _NO_NUMBER.match(text)) for text in values), bool, len(values))
    numbers = [float(text) if good else 0.0 for text, good in zip(values, right.tolist(), strict=True)]
    return np.array(numbers, dtype=np.float64), right


def text_attribute(cells: CodedColumn) -> Attribute | None:
    """Return numbers if all values are numbers, else categories; return None for free text."""
    values = [value.strip() for value in cells.values]
    filled = np.fromiter(map(bool, values), dtype=bool, count=len(values))
    numbers, right = read_numbers(values)
    if filled.any() and right[filled].all():
        return Attribute(
            numbers[cells.codes] if filled.all() else np.where(filled, numbers.astype(np.float64), np.nan)[cells.codes]
        )
    if is_free_text(len(values), len(cells.codes)):
        return None
    names = list(dict.fromkeys(value for value in values if value))
    place = {name: number for number, name in enumerate(names)} | {"": -1}
    return Attribute(np.array([place[value] for value in values], dtype=np.int32)[cells.codes], tuple(names))


def is_free_text(distinct: int, rows: int) -> bool:
    """Whether a text column has more than `MOST_CATEGORIES` distinct values, and more than half as many as it has rows."""
    return distinct > MOST_CATEGORIES and 2 * distinct > rows
