"""A table file → facts: one row each, constants in their one spelling, no row twice. CSV with a header, and Parquet.

Mistakes are placed in the CSV file itself; those of a Parquet file at the declaration, with the number of the row.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from foretell import terms
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.program import FactTable
from foretell.lang.source import Source, Span, neighbours, read_text
from foretell.lang.syntax import Table
from foretell.reading import UnreadableFile, check_file, read_limits
from foretell.wording import counted, did_you_mean, shown

SHOWN_ROWS = 20
MOST_WRONG = 1_000  # rows; after so many, the rest of the file is not read
LOOKED_FOR = "a path is relative to the file that names it"
_FRACTION = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")


class _Empty(Exception):
    """There is not even a header."""


@dataclass
class _Rows:
    """Rows as they come, and what is wrong with them."""

    columns: list[str]
    table: Table
    path: str
    found: list[Diagnostic] = field(default_factory=list)
    doubts: list[Diagnostic] = field(default_factory=list)
    wrong: int = 0

    def refuse(self, span: Span, message: str, hint: str) -> None:
        self.wrong += 1
        if self.wrong <= SHOWN_ROWS:
            self.found.append(Diagnostic("bad-table", span, message, hint))

    def doubt(self, message: str, hint: str) -> None:
        said = f"{shown(self.table.path)}: {message}"
        self.doubts.append(Diagnostic("doubtful-table", self.table.span, said, hint, "warning"))

    def column(self, number: int) -> str:
        name = self.columns[number].strip()
        return f"column {number + 1} ({shown(name)})" if name else f"column {number + 1}"


def read_table(
    table: Table, path: Path, known: AbstractSet[tuple[str, ...]]
) -> tuple[FactTable | None, list[Diagnostic]]:
    """The facts that are not known yet, or None where they cannot be read; and what is wrong or odd with them."""

    def refuse(code: str, message: str, hint: str | None = None) -> tuple[None, list[Diagnostic]]:
        return None, [Diagnostic(code, table.span, f"{shown(table.path)}: {message}", hint)]

    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            rows, read = _parquet(table, path)
        elif suffix == ".csv":
            rows, read = _csv(table, path)
        else:
            return refuse("unreadable-file", "tables are read from .csv and .parquet files", "convert the file")
    except _Empty:
        return refuse("bad-table", "the file is empty", "the first row is a header, which names the columns")
    except UnreadableFile as error:
        if error.missing:
            return refuse("missing-file", error.reason, did_you_mean(path.name, neighbours(path)) or LOOKED_FOR)
        return refuse("unreadable-file", error.reason, error.hint)
    if rows.wrong > SHOWN_ROWS:
        more = f"… and {rows.wrong - SHOWN_ROWS:,} more rows of {shown(table.path)} are wrong"
        more += "; the rest was not read" if rows.wrong >= MOST_WRONG else ""
        rows.found.append(Diagnostic("bad-table", table.span, more))
    if rows.wrong:
        return None, rows.found
    distinct = list(dict.fromkeys(read))
    if known:
        distinct = [row for row in distinct if row not in known]
    if len(distinct) < len(read):
        count = len(read) - len(distinct)
        words = "1 row is there already and is" if count == 1 else f"{count:,} rows are there already and are"
        message = f"{shown(table.path)}: {words} dropped"
        rows.found.append(Diagnostic("duplicate-row", table.span, message, "a fact is true once", "warning"))
    if not read:
        message = f"{shown(table.path)} has a header and no rows: it makes nothing true"
        rows.found.append(Diagnostic("empty-table", table.span, message, "add rows, or remove the table", "warning"))
    rows.found += rows.doubts
    header = tuple(one.strip() for one in rows.columns)
    return FactTable(table.functor, len(header), distinct, table.span, table.path, header), rows.found


# --- CSV -----------------------------------------------------------------------------------------------------------


def _csv(table: Table, path: Path) -> tuple[_Rows, list[tuple[str, ...]]]:
    text = read_text(path, None)
    source = Source(str(path), text)
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    lines = _records(reader, source)
    header = next(lines, None)
    if header is None:
        raise _Empty
    rows = _Rows(header[1], table, str(path))
    read: list[tuple[str, ...]] = []
    spell = cache(_cell)
    width = len(rows.columns)
    for number, cells in lines:
        if rows.wrong >= MOST_WRONG:
            break
        if len(cells) != width:
            message = f"{counted(len(cells), 'cell')}, but the header has {counted(width, 'column')}"
            hint = "give every row one cell a column; put cells with commas in double quotes"
            rows.refuse(_line(source, number), message, hint)
            continue
        row = tuple(known for known in map(spell, cells) if known is not None)
        if len(row) == width:
            read.append(row)
        else:
            bad = next(place for place, cell in enumerate(cells) if spell(cell) is None)
            _refuse_cell(rows, _line(source, number), bad, cells[bad])
    _look_twice(rows, read)
    return rows, read


def _look_twice(rows: _Rows, read: list[tuple[str, ...]]) -> None:
    """A file without a header loses its first row, and one with semicolons has a single column: neither shows in the facts."""
    if len(rows.columns) == 1 and ";" in rows.columns[0] and all(";" in row[0] for row in read):
        hint = "separated by semicolons? put commas between the cells"
        rows.doubt("every line has a semicolon, and there is one column", hint)
        return
    for number, name in enumerate(rows.columns):
        spelled = terms.constant(name.strip())
        if any(row[number] == spelled for row in read):
            message = f"{shown(name.strip())} is the header of column {number + 1} and a cell of it"
            rows.doubt(message, "the first row is a header and makes no fact: add a line that names the columns")
            return


def _records(reader: Iterator[list[str]], source: Source) -> Iterator[tuple[int, list[str]]]:
    """Each row with the number of the line on which it begins; blank lines are skipped."""
    start = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UnreadableFile(f"line {start} is no CSV: {error}") from None
        if cells is None:
            return
        if cells:
            yield start, cells
        start = reader.line_num + 1  # type: ignore[attr-defined]


def _cell(cell: str) -> str | None:
    text = cell.strip()
    return None if not text or _FRACTION.match(text) else terms.constant(text)


def _refuse_cell(rows: _Rows, span: Span, column: int, cell: str) -> None:
    if cell.strip():
        message = f"{rows.column(column)} is {shown(cell.strip())}, a fractional number"
        rows.refuse(span, message, "constants are names and whole numbers")
    else:
        rows.refuse(span, f"{rows.column(column)} is empty", "give every cell a value, or remove the row")


def _line(source: Source, number: int) -> Span:
    start = source.line_starts[number - 1]
    return Span(source, start, start + max(1, len(source.line(number).rstrip("\r"))))


# --- Parquet -------------------------------------------------------------------------------------------------------


def _parquet(table: Table, path: Path) -> tuple[_Rows, list[tuple[str, ...]]]:
    size = check_file(path).st_size
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        message = "Parquet files are read with pyarrow, which is not installed here; use a .csv file"
        raise UnreadableFile(message) from None
    try:
        file = parquet.ParquetFile(path)
        most = read_limits().events_of(size)
        if file.metadata.num_rows * max(1, file.metadata.num_columns) > most:
            hint = "allow more with --max-events (reading.limits in Python)"
            raise UnreadableFile(f"it says that it has {file.metadata.num_rows:,} rows, too many for its size", hint)
        found = file.read()
    except (OSError, ValueError, pyarrow.ArrowException):
        raise UnreadableFile("it is no Parquet file that can be read") from None
    rows = _Rows(list(found.column_names), table, str(path))
    if not rows.columns:
        raise _Empty
    columns = [_column(rows, number, found.column(number)) for number in range(len(rows.columns))]
    return rows, list(zip(*columns, strict=True)) if not rows.wrong else []


def _column(rows: _Rows, number: int, column: Any) -> Sequence[str]:
    import pyarrow

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    whole = pyarrow.types.is_integer(kind)
    text = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
    if not whole and not text:
        what = "fractional numbers" if pyarrow.types.is_floating(kind) else f"values of type {kind}"
        message = f"{shown(rows.table.path)}: {rows.column(number)} holds {what}"
        hint = "constants are names and whole numbers: write the column as text or as integers"
        rows.refuse(rows.table.span, message, hint)
        return []
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:
        message = f"{shown(rows.table.path)}: {rows.column(number)} holds text that is not UTF-8"
        rows.refuse(rows.table.span, message, "write the column as UTF-8 text")
        return []
    return list(_cells(rows, number, values))


def _cells(rows: _Rows, number: int, values: Iterable[object]) -> Iterator[str]:
    spell = cache(lambda value: None if value is None else _cell(str(value)))
    for place, value in enumerate(values):
        if rows.wrong >= MOST_WRONG:
            return
        known = spell(value)
        if known is None:
            where = f"{shown(rows.table.path)}, row {place + 1}: {rows.column(number)}"
            what = f"is {shown(str(value))}, a fractional number" if value and str(value).strip() else "has no value"
            rows.refuse(rows.table.span, f"{where} {what}", "give every cell a name or a whole number")
        else:
            yield known
