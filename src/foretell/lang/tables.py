"""A table file → facts: distinct rows of normalised constants, with the numbers in feature columns.

Files are CSV with a header, or Parquet.

Mistakes in a CSV file are reported at their place in the file; those in a Parquet file at the declaration, with the row number.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from foretell import terms
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.fact_table import FactTable, Numbers
from foretell.lang.source import Source, Span, neighbours, read_text
from foretell.lang.syntax import Table
from foretell.reading import UnreadableFile, check_file, read_limits
from foretell.wording import counted, did_you_mean, listed, shown

SHOWN_ROWS = 20
MOST_WRONG = 1_000  # the number of wrong rows after which the rest of the file is not read
LOOKED_FOR = "a path is relative to the file that names it"
_FRACTION = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")


_Row = tuple[tuple[str, ...], Numbers]


class _Empty(Exception):
    """Raised for a file without a header."""


@dataclass
class _Rows:
    """Collects rows and their mistakes."""

    columns: list[str]
    table: Table
    path: str
    features: list[int] = field(
        default_factory=list
    )  # positions of the feature columns, in the order of the declaration
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

    def find_features(self) -> bool:
        """Find the positions of the feature columns. Returns False if a column is missing."""
        names = [one.strip() for one in self.columns]
        for name in self.table.features:
            if names.count(name) != 1:
                what = "two columns" if name in names else "no column"
                hint = did_you_mean(name, names, otherwise=f"there is {listed(names, most=10)}")
                message = f"{shown(self.table.path)}: {what} {shown(name)} in the header"
                self.refuse(self.table.span, message, hint)
        self.features = [names.index(name) for name in self.table.features if name in names]
        return not self.wrong

    @property
    def arguments(self) -> list[int]:
        """The positions of the columns that are arguments."""
        return [place for place in range(len(self.columns)) if place not in self.features]

    def settled(self, read: Sequence[_Row], known: Mapping[tuple[str, ...], Numbers]) -> dict[tuple[str, ...], Numbers]:
        """Return the new rows, without repetitions. A repeated row with other numbers is a mistake."""
        found: dict[tuple[str, ...], Numbers] = {}
        for row, numbers in read:
            first = known[row] if row in known else found.setdefault(row, numbers)
            if first != numbers:
                message = (
                    f"{shown(self.table.path)}: the fact of ({', '.join(row)}) is there twice, with different numbers"
                )
                self.refuse(self.table.span, message, "give every fact one row")
        for place, name in enumerate(self.table.features):
            if found and all(numbers[place] is None for numbers in found.values()):
                message = f"{shown(self.table.path)}: the column {shown(name)} has no value in any row"
                self.refuse(self.table.span, message, "fill it, or leave it out of `features`")
        return found

    def column(self, number: int) -> str:
        name = self.columns[number].strip()
        return f"column {number + 1} ({shown(name)})" if name else f"column {number + 1}"


def read_table(
    table: Table, path: Path, known: Mapping[tuple[str, ...], Numbers]
) -> tuple[FactTable | None, list[Diagnostic]]:
    """Return a table of the facts that are not yet known, or None if the file cannot be read; and all diagnostics."""

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
    fresh = rows.settled(read, known) if not rows.wrong else {}
    if rows.wrong > SHOWN_ROWS:
        more = f"… and {rows.wrong - SHOWN_ROWS:,} more rows of {shown(table.path)} are wrong"
        more += "; the rest was not read" if rows.wrong >= MOST_WRONG else ""
        rows.found.append(Diagnostic("bad-table", table.span, more))
    if rows.wrong:
        return None, rows.found
    if len(fresh) < len(read):
        count = len(read) - len(fresh)
        words = "1 row is there already and is" if count == 1 else f"{count:,} rows are there already and are"
        message = f"{shown(table.path)}: {words} dropped"
        rows.found.append(Diagnostic("duplicate-row", table.span, message, "a fact is true once", "warning"))
    if not read:
        message = f"{shown(table.path)} has a header and no rows: it makes nothing true"
        rows.found.append(Diagnostic("empty-table", table.span, message, "add rows, or remove the table", "warning"))
    rows.found += rows.doubts
    header = tuple(one.strip() for one in rows.columns)
    numbers = list(fresh.values()) if table.features else []
    arity = len(rows.arguments)
    made = FactTable(table.functor, arity, list(fresh), table.span, table.path, header, table.features, numbers)
    return made, rows.found


# --- CSV -----------------------------------------------------------------------------------------------------------


def _csv(table: Table, path: Path) -> tuple[_Rows, list[_Row]]:
    text = read_text(path, None)
    source = Source(str(path), text)
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    lines = _records(reader, source)
    header = next(lines, None)
    if header is None:
        raise _Empty
    rows = _Rows(header[1], table, str(path))
    read: list[_Row] = []
    if not rows.find_features():
        return rows, read
    spell = cache(_cell)
    width, arguments = len(rows.columns), rows.arguments
    for number, cells in lines:
        if rows.wrong >= MOST_WRONG:
            break
        if len(cells) != width:
            message = f"{counted(len(cells), 'cell')}, but the header has {counted(width, 'column')}"
            hint = "give every row one cell a column; put cells with commas in double quotes"
            rows.refuse(_line(source, number), message, hint)
            continue
        row = tuple(known for place in arguments if (known := spell(cells[place])) is not None)
        numbers = tuple(_number(cells[place]) for place in rows.features)
        if len(row) < len(arguments):
            bad = next(place for place in arguments if spell(cells[place]) is None)
            _refuse_cell(rows, _line(source, number), bad, cells[bad])
        elif ODD in numbers:
            bad = rows.features[numbers.index(ODD)]
            message = f"{rows.column(bad)} is {shown(cells[bad].strip())}, expected a number"
            rows.refuse(_line(source, number), message, "leave the cell empty where the value is missing")
        else:
            read.append((row, numbers))
    _look_twice(rows, [row for row, _ in read])
    return rows, read


def _look_twice(rows: _Rows, read: list[tuple[str, ...]]) -> None:
    """Warn about a file that seems to have no header, or semicolons between cells. Neither would be visible in the facts."""
    if len(rows.columns) == 1 and ";" in rows.columns[0] and read and all(";" in row[0] for row in read):
        hint = "separated by semicolons? put commas between the cells"
        rows.doubt("every line has a semicolon, and there is one column", hint)
        return
    for place, number in enumerate(rows.arguments):
        name = rows.columns[number]
        spelled = terms.constant(name.strip())
        if any(row[place] == spelled for row in read):
            message = f"{shown(name.strip())} is the header of column {number + 1} and a cell of it"
            rows.doubt(message, "the first row is a header and makes no fact: add a line that names the columns")
            return


def _records(reader: Iterator[list[str]], source: Source) -> Iterator[tuple[int, list[str]]]:
    """Yield each row with the number of its first line. Blank lines are skipped."""
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


ODD = math.nan  # marks cells that are no numbers; compared by identity


def _number(cell: str) -> float | None:
    text = cell.strip()
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        return ODD
    return found if math.isfinite(found) else ODD


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


def _parquet(table: Table, path: Path) -> tuple[_Rows, list[_Row]]:
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
            hint = "allow more with `foretell.reading.limits(max_events=…)`"
            raise UnreadableFile(f"it says that it has {file.metadata.num_rows:,} rows, too many for its size", hint)
        found = file.read()
    except (OSError, ValueError, pyarrow.ArrowException):
        raise UnreadableFile("it is no Parquet file that can be read") from None
    rows = _Rows(list(found.column_names), table, str(path))
    if not rows.columns:
        raise _Empty
    if not rows.find_features():
        return rows, []
    columns = [_column(rows, number, found.column(number)) for number in rows.arguments]
    numbers = [_number_column(rows, number, found.column(number)) for number in rows.features]
    if rows.wrong:
        return rows, []
    count = found.num_rows
    return rows, list(zip(_transposed(columns, count), _transposed(numbers, count), strict=True))


def _transposed(columns: Sequence[Sequence[Any]], count: int) -> list[tuple[Any, ...]]:
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _number_column(rows: _Rows, number: int, column: Any) -> list[float | None]:
    import pyarrow

    kind = column.type
    if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind)):
        message = f"{shown(rows.table.path)}: {rows.column(number)} holds values of type {kind}, expected numbers"
        rows.refuse(rows.table.span, message, "write the column as numbers")
        return []
    found = [None if value is None or value != value else float(value) for value in column.to_pylist()]
    if any(value is not None and math.isinf(value) for value in found):
        message = f"{shown(rows.table.path)}: {rows.column(number)} holds an infinite number"
        rows.refuse(rows.table.span, message, "leave it empty where the value is missing")
    return found


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
