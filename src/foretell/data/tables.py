"""Long tables, one row an event: the columns that matter, and their rows ↔ sequences.

In: columns `sequence, time, event` (the names can be mapped), `arg1 …` to build `functor(arg1,…)`, `t_end`, and
`metadata` (a JSON object). A row whose time and event are empty stands for a sequence without events.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.data.files import text_file, text_lines
from foretell.data.raw import LARGEST_TYPE, Gatherer, Problem, RawEvents
from foretell.data.sequence import NO_METADATA
from foretell.errors import DataError
from foretell.terms import NameProblem, build
from foretell.wording import did_you_mean

if TYPE_CHECKING:
    from foretell.data.dataset import EventData


ROLES = ("sequence", "time", "event", "t_end", "metadata")


@dataclass(frozen=True)
class ColumnMap:
    """Which column of a long table plays which part; `args=None` takes `arg1`, `arg2`, … as far as they go."""

    sequence: str = "sequence"
    time: str = "time"
    event: str = "event"
    t_end: str = "t_end"
    metadata: str = "metadata"
    args: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, text: str) -> ColumnMap:
        """From `sequence=patient,time=when,event=code,arg1=room`."""
        problems: list[str] = []
        given: dict[str, str] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            role, equals, column = (piece.strip() for piece in part.partition("="))
            is_argument = role.startswith("arg") and role[3:].isdecimal()
            if not equals or not column:
                problems.append(f"columns: {part!r} is not of the form part=column, as in time=when")
            elif role not in ROLES and not is_argument:
                expected = f"{', '.join(ROLES)} or arg1, arg2, …{did_you_mean(role, ROLES, before='; ')}"
                problems.append(f"columns: no part {role!r}; expected {expected}")
            elif given.setdefault(role, column) != column:
                problems.append(f"columns: {role} is given twice")
        numbers = sorted(int(role[3:]) for role in given if role.startswith("arg"))
        if numbers != list(range(1, len(numbers) + 1)):
            problems.append("columns: arguments are numbered arg1, arg2, … without gaps")
        if problems:
            raise DataError(problems)
        args = tuple(given.pop(f"arg{number}") for number in numbers)
        return cls(**given, args=args or None)

    def arguments(self, header: list[str]) -> tuple[str, ...]:
        """The argument columns that a table with this header has."""
        if self.args is not None:
            return self.args
        found: list[str] = []
        while f"arg{len(found) + 1}" in header:
            found.append(f"arg{len(found) + 1}")
        return tuple(found)


class LongTable:
    """The cells of a file that matter, one entry per row; None is an empty cell. Rows of a sequence may lie apart."""

    def __init__(self, columns: ColumnMap, gatherer: Gatherer) -> None:
        self.columns, self.gatherer = columns, gatherer
        self.places: list[int] = []  # line or row of each
        self.sequences: list[str] = []
        self.times: list[float | None] = []
        self.events: list[Any] = []  # text, or integers, or None
        self.t_ends: list[float | None] = []
        self.metadata: list[str | None] = []

    def add(
        self,
        place: int,
        sequence: str,
        time: float | None,
        event: object,
        arguments: list[str],
        end: float | None,
        about: str | None,
    ) -> None:
        """One row; None and empty text are empty cells. A row that cannot be kept is noted as a mistake."""
        if not sequence:
            self.gatherer.fault(place, f"column {self.columns.sequence!r} is empty; every row belongs to a sequence")
            return
        if (time is None) != (event is None):
            empty = self.columns.event if event is None else self.columns.time
            self.gatherer.fault(place, f"sequence {sequence!r}: column {empty!r} is empty")
            return
        try:
            named = _with_arguments(event, arguments)
        except NameProblem as problem:
            self.gatherer.fault(place, f"sequence {sequence!r}: {problem}")
            return
        self.places.append(place)
        self.sequences.append(sequence)
        self.times.append(time)
        self.events.append(named)
        self.t_ends.append(end)
        self.metadata.append(about)


def _with_arguments(event: object, arguments: list[str]) -> object:
    """`functor(arg1,…)` where a row has arguments, else the event as it is."""
    while arguments and not arguments[-1]:
        arguments = arguments[:-1]
    if not arguments:
        return event
    if "" in arguments:
        raise NameProblem(f"argument {arguments.index('') + 1} is empty but a later one is not")
    if event is None:
        raise NameProblem("there are arguments but no event")
    if "(" in str(event) or ")" in str(event):
        raise NameProblem(f"event {event!r} has parentheses and argument columns too; use one of both")
    return build(str(event), arguments)


def find_columns(columns: ColumnMap, header: list[str], gatherer: Gatherer, place: int) -> tuple[str, ...] | None:
    """The argument columns of a table that has all columns it needs; otherwise None, and the mistakes are noted."""
    needed = (columns.sequence, columns.time, columns.event)
    arguments = columns.arguments(header)
    before = len(gatherer.problems)
    for column in (*needed, *arguments):
        if column not in header:
            found = f"{', '.join(map(repr, header))}{did_you_mean(column, header, before='; ')}"
            how = "(other names are mapped with --columns sequence=…,time=…,event=…)"
            gatherer.fault(place, f"no column {column!r}; found {found} {how}")
    used = [*needed, *arguments, columns.t_end, columns.metadata]
    for column in dict.fromkeys(used):
        if header.count(column) > 1:
            gatherer.fault(place, f"column {column!r} exists {header.count(column)} times")
        if used.count(column) > 1:
            gatherer.fault(place, f"column {column!r} is mapped to {used.count(column)} parts, expected one")
    gatherer.ignored_columns = tuple(column for column in header if column not in used)
    return arguments if len(gatherer.problems) == before else None


def gather(table: LongTable) -> None:
    """Rows → sequences, in the order of their first rows; inside a sequence the order of the rows is kept."""
    gatherer = table.gatherer
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(table.sequences):
        groups.setdefault(name, []).append(row)
    for name, rows in groups.items():
        where = f"sequence {name!r}"
        before = len(gatherer.problems)
        # a row without time and event is the mark of a sequence that has no events
        full = [row for row in rows if table.times[row] is not None or table.events[row] is not None]
        if len(full) < len(rows) and len(rows) > 1:
            marked = next(row for row in rows if row not in set(full))
            said = "a row without time and event says that there are none, but the sequence has other rows"
            gatherer.fault(table.places[marked], f"{where}: {said}")
        ends = dict.fromkeys(end for row in rows if (end := table.t_ends[row]) is not None)
        if len(ends) > 1:
            first = next(iter(ends))
            row = next(row for row in rows if table.t_ends[row] not in (None, first))
            gatherer.fault(table.places[row], f"{where}: t_end is {table.t_ends[row]!r} here and {first!r} before")
        metadata = _metadata(table, rows, where)
        if len(gatherer.problems) > before:
            continue
        gatherer.add(
            table.places[rows[0]],
            times=[table.times[row] for row in full],
            events=[table.events[row] for row in full],
            t_end=next(iter(ends), None),
            id=name,
            metadata=metadata,
            rows=[table.places[row] for row in full],
        )


def _metadata(table: LongTable, rows: list[int], where: str) -> Mapping[str, object]:
    for row in rows:
        text = table.metadata[row]
        if not text:
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        table.gatherer.fault(table.places[row], f"{where}: metadata is not a JSON object")
        break
    return NO_METADATA


_INTEGER = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)\Z", re.IGNORECASE)
_NEEDS_QUOTES = re.compile(r'[,"\r\n]|^\s|\s$|^$')


def read_csv(path: Path, columns: ColumnMap) -> RawEvents:
    """All sequences of a file, and all its mistakes."""
    gatherer = Gatherer(str(path), "line")
    gatherer.textual = True
    limit = csv.field_size_limit(sys.maxsize)
    try:
        table = _read_table(path, columns, gatherer)
    finally:
        csv.field_size_limit(limit)
    if table is not None:
        gather(table)
    return gatherer.finish()


def write_csv(data: EventData, path: Path) -> None:
    """One row an event, floats in full; a sequence without events is a row without time and event."""
    extra = any(sequence.metadata for sequence in data)
    with text_file(path) as file:
        file.write("sequence,time,event,t_end" + (",metadata" if extra else "") + "\n")
        names = [_cell(name) for name in data.vocabulary.names]
        for sequence in data:
            start, end = _cell(sequence.id), repr(sequence.t_end)
            rows = [
                f"{start},{time!r},{names[kind]},{end}"
                for time, kind in zip(sequence.times.tolist(), sequence.types.tolist(), strict=True)
            ] or [f"{start},,,{end}"]
            if extra:
                about = json.dumps(dict(sequence.metadata), ensure_ascii=False) if sequence.metadata else ""
                rows = [f"{row},{_cell(about) if place == 0 and about else ''}" for place, row in enumerate(rows)]
            file.write("\n".join(rows) + "\n")


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def _records(path: Path, gatherer: Gatherer) -> Iterator[tuple[int, list[str]]]:
    """The rows of a file with the line where each starts; blank lines are left out."""
    line = 0

    def lines() -> Iterator[str]:
        nonlocal line
        for line, text in text_lines(path, gatherer):  # noqa: B007 (read by the loop below)
            yield text

    reader = csv.reader(lines(), strict=True)
    while True:
        before = line
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            gatherer.fault(max(line, 1), f"not CSV: {error}")
            return
        if cells:
            yield max(before + 1, line - sum(cell.count("\n") for cell in cells)), cells


def _read_table(path: Path, columns: ColumnMap, gatherer: Gatherer) -> LongTable | None:
    records = _records(path, gatherer)
    place, header = next(records, (0, None))
    if header is None:
        if not gatherer.problems:
            gatherer.fault(0, "the file is empty; expected a header: sequence,time,event")
        return None
    header = [name.strip() for name in header]
    arguments = find_columns(columns, header, gatherer, place)
    if arguments is None:
        return None
    at = {name: header.index(name) for name in header}
    sequence_at, time_at, event_at = at[columns.sequence], at[columns.time], at[columns.event]
    end_at, metadata_at = at.get(columns.t_end), at.get(columns.metadata)
    arguments_at = [at[name] for name in arguments]
    table = LongTable(columns, gatherer)
    for place, cells in records:
        if len(cells) != len(header):
            gatherer.fault(place, f"{len(cells)} cells, but the header has {len(header)} columns")
            continue
        name = cells[sequence_at]
        where = f"sequence {name!r}"
        end = _float(cells[end_at].strip(), columns.t_end, where, place, gatherer) if end_at is not None else None
        time_text = cells[time_at].strip()
        time = _float(time_text, columns.time, where, place, gatherer)
        if time is not None or not time_text:
            about = cells[metadata_at] if metadata_at is not None else None
            arguments = [cells[argument].strip() for argument in arguments_at]
            table.add(place, name, time, cells[event_at].strip() or None, arguments, end, about)
    table.events = _events(table)
    return table


def _float(text: str, column: str, where: str, place: int, gatherer: Gatherer) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = None
    # float() also takes 1_000 and digits of other scripts, which no table means
    if value is None or not (_NUMBER.match(text) or _NO_NUMBER.match(text)):
        gatherer.fault(place, f"{where}: {column} is {text!r}, expected a number")
        return None
    return value


def _events(table: LongTable) -> list[str | None] | list[int | None]:
    """A column of integers is a column of types; any other text makes it a column of names."""
    written = table.events
    distinct = {text for text in written if text is not None}
    if not distinct or not all(map(_NUMBER.match, distinct)):
        return written
    strange = {text for text in distinct if not _INTEGER.match(text) or int(text) > LARGEST_TYPE}
    if not strange:
        return [None if text is None else int(text) for text in written]
    # 007 may well be a name; -1 and 1.5 look like types that went wrong
    wrong = {text for text in strange if not text.isdecimal() or text[0] != "0"}
    if wrong:
        row = next(row for row, text in enumerate(written) if text in wrong)
        said = f"event is {written[row]!r}; types are integers from 0 to 2^31 - 2, and names are not numbers"
        table.gatherer.doubt = Problem(table.places[row], f"sequence {table.sequences[row]!r}: {said}")
    return written
