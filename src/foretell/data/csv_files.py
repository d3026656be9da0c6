"""CSV and TSV ↔ sequences: a long table as text. The header determines the separator.

pyarrow, if installed, reads files in blocks. A file with mistakes, and every file without pyarrow, is read line by line with the
standard library. Both ways return the same table; only the second one reports mistakes and their lines.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretell.data.columns import Attribute
from foretell.data.event_table import EventTable, gathered
from foretell.data.files import Mistakes, text_file, text_lines, whole_file
from foretell.data.raw import MOST_COLUMNS, PlaceUnit, RawEvents, too_many_columns
from foretell.data.read_options import BOUNDS, ROLES, ReadOptions
from foretell.data.tables import (
    CodedColumn,
    TimeColumn,
    empty_table,
    event_table,
    text_attribute,
    text_times,
)
from foretell.data.written_attributes import attribute_columns, cell_texts
from foretell.data.written_times import written_bounds, written_score_from, written_times

if TYPE_CHECKING:
    from foretell.data.dataset import EventData

SEPARATORS = (",", ";", "\t", "|")
# Text that a spreadsheet would take for a formula is written with an apostrophe in front, which is removed when it is read.
_FORMULA, _TEXT = re.compile(r"'*[=+\-@\t\r]"), re.compile(r"'+[=+\-@\t\r]")
_NEEDS_QUOTES = re.compile(r'[,"\r\n\t;|]|^\s|\s$|^$')


@dataclass(eq=False)
class TextTable:
    """A table of text cells."""

    path: str
    header: list[str]
    columns: list[CodedColumn]
    places: np.ndarray
    unit: PlaceUnit = "line"

    def __post_init__(self) -> None:
        for column in self.columns:
            if any(cell[:1] == "'" for cell in column.values):
                column.values[:] = [cell[1:] if _TEXT.match(cell) else cell for cell in column.values]

    def coded(self, name: str) -> CodedColumn:
        return self.columns[self.header.index(name)]

    def times(self, name: str, options: ReadOptions) -> TimeColumn:
        return text_times(self.coded(name), options)

    def attribute(self, name: str) -> Attribute | None:
        return text_attribute(self.coded(name))

    def is_integer(self, name: str) -> bool:
        return False


def read_csv(path: Path, options: ReadOptions) -> RawEvents:
    """Read all sequences and mistakes of a file."""
    return gathered(csv_table(path, options), options.terms)


def csv_table(path: Path, options: ReadOptions, fast: bool = True) -> EventTable:
    """Read the table of a file; `fast=False` always reads it line by line."""
    if fast:
        content = whole_file(path)
        source = None if content is None else _in_blocks(path, content)
        table = None if source is None else event_table(source, options, 1)
        if table is not None and not table.problems and table.doubt is None:
            return table
    mistakes = Mistakes()
    source, place = _line_by_line(path, mistakes)
    if source is None:
        return empty_table(str(path), "line", mistakes.problems)
    table = event_table(source, options, place)
    return replace(table, problems=(*mistakes.problems, *table.problems))


def separator_of(header: str) -> str:
    """Return the separator that splits a header, outside quotes, into most columns; a comma if no separator occurs."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(SEPARATORS, key=bare.count)


def _in_blocks(path: Path, content: bytes) -> TextTable | None:
    """Read a table with pyarrow; return None if pyarrow is missing or finds a mistake."""
    try:
        import pyarrow as pa
        import pyarrow.csv as arrow_csv
    except ImportError:
        return None
    content = content.removeprefix(b"\xef\xbb\xbf")
    end = content.find(b"\n")
    first = content[: end if end >= 0 else len(content)]
    if b'"' in first or b"\r" in content.replace(b"\r\n", b"") or b"\0" in content or not first.strip():
        return None
    try:
        line = first.decode("utf-8").rstrip("\r")
        separator = separator_of(line)
        if not _plainly_quoted(content, separator):
            return None
        if line.count(separator) >= MOST_COLUMNS:
            return None
        header = [name.strip() for name in next(csv.reader([line], delimiter=separator, strict=True))]
        names = [f"c{number}" for number in range(len(header))]
        text = pa.dictionary(pa.int32(), pa.string())
        table = arrow_csv.read_csv(
            pa.py_buffer(content),
            read_options=arrow_csv.ReadOptions(use_threads=False, skip_rows=1, column_names=names, block_size=1 << 24),
            parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=b'"' in content),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, text), strings_can_be_null=False, quoted_strings_can_be_null=False
            ),
        )
    except (pa.ArrowException, ValueError, csv.Error, StopIteration):
        return None
    places = _places(content)
    if len(places) != table.num_rows + 1:
        return None
    columns = []
    for column in table.unify_dictionaries().columns:
        codes = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in column.chunks]
        values = column.chunk(0).dictionary.to_pylist() if column.num_chunks else []
        columns.append(CodedColumn(np.concatenate([np.zeros(0, np.int32), *codes]), values))
    return TextTable(str(path), header, columns, places[1:])


def _plainly_quoted(content: bytes, separator: str) -> bool:
    """Whether quotes only enclose whole cells, and are doubled inside; all CSV readers agree on such files."""
    letters = np.frombuffer(b"\n" + content + b"\n", dtype=np.uint8)
    quotes = np.flatnonzero(letters == 34)
    if len(quotes) % 2:
        return False
    edges = [ord(separator), 10, 34]
    return bool(
        np.isin(letters[quotes[::2] - 1], edges).all() and np.isin(letters[quotes[1::2] + 1], [*edges, 13]).all()
    )


def _places(content: bytes) -> np.ndarray:
    """Return the line number at which each record starts, header included; blank lines are not records."""
    letters = np.frombuffer(content, dtype=np.uint8)
    ends = np.flatnonzero(letters == 10)
    if not len(ends) or ends[-1] != len(letters) - 1:
        ends = np.append(ends, len(letters))
    starts = np.concatenate([[0], ends[:-1] + 1])
    if b'"' in content:  # a line break between quotes does not end a record
        quotes = np.flatnonzero(letters == 34)
        inside = np.searchsorted(quotes, starts) % 2 == 1
    else:
        inside = np.zeros(len(starts), dtype=bool)
    filled = ends > starts
    filled[filled] = (ends[filled] - starts[filled] > 1) | (letters[starts[filled]] != 13)
    return np.flatnonzero(filled & ~inside) + 1


def _line_by_line(path: Path, mistakes: Mistakes) -> tuple[TextTable | None, int]:
    """Return the table of a file, or None without a header, and the line number of the header."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        rows = records(path, mistakes)
        place, header = next(rows, (0, None))
        if header is None:
            if not mistakes.problems:
                mistakes.fault(0, "the file is empty; expected a header: sequence,time,event")
            return None, 0
        mistakes.problems.extend(too_many_columns(len(header), place))
        if len(header) > MOST_COLUMNS:
            return None, place
        header = [name.strip() for name in header]
        tables: list[dict[str, int]] = [{} for _ in header]
        codes: list[list[int]] = [[] for _ in header]
        places: list[int] = []
        for line, cells in rows:
            if len(cells) != len(header):
                mistakes.fault(line, f"{len(cells)} cells, but the header has {len(header)} columns")
                continue
            places.append(line)
            for table, column, cell in zip(tables, codes, cells, strict=True):
                column.append(table.setdefault(cell, len(table)))
    finally:
        csv.field_size_limit(limit)
    columns = [
        CodedColumn(np.array(column, dtype=np.int32), list(table)) for column, table in zip(codes, tables, strict=True)
    ]
    return TextTable(str(path), header, columns, np.array(places, dtype=np.int64)), place


def records(path: Path, mistakes: Mistakes) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each row; blank lines are skipped."""
    line = 0
    lines = text_lines(path, mistakes)
    head = next(lines, None)
    if head is None:
        return

    def texts() -> Iterator[str]:
        nonlocal line
        line = head[0]
        yield head[1]
        for line, text in lines:  # noqa: B007 (read by the loop below)
            yield text

    reader = csv.reader(texts(), delimiter=separator_of(head[1]), strict=True)
    while True:
        before = line
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            mistakes.fault(max(line, 1), f"not CSV: {error}")
            return
        if cells:
            yield max(before + 1, line - sum(cell.count("\n") for cell in cells)), cells


def write_csv(data: EventData, path: Path) -> None:
    """Write one row per event, with all digits, and timestamps as ISO 8601. A sequence without events is a row without time and event.

    Attributes are additional columns; the attributes of a sequence are repeated in each of its rows.
    """
    separator = "\t" if path.name.removesuffix(".gz").endswith(".tsv") else ","
    columns, extra = data.columns, any(sequence.metadata for sequence in data)
    bounds = dict(zip(BOUNDS, (*written_bounds(data), written_score_from(data)), strict=True))
    header = ["sequence", "time", "event", *(name for name, one in bounds.items() if one)]
    names, times = [csv_cell(name) for name in data.vocabulary.names], written_times(data)
    further = attribute_columns(columns, {*ROLES, *header})
    cells = [[csv_cell(text) if text else "" for text in cell_texts(one)] for one in further.values()]
    header += [*map(csv_cell, further), *(["metadata"] if extra else [])]
    more = (
        ["".join(f"{separator}{cell}" for cell in row) for row in zip(*cells, strict=True)]
        if cells
        else [""] * len(times)
    )
    with text_file(path) as file:
        file.write(separator.join(header) + "\n")
        for place, (first, last) in enumerate(
            zip(columns.offsets[:-1].tolist(), columns.offsets[1:].tolist(), strict=True)
        ):
            name = csv_cell(columns.ids[place])
            tail = "".join(f"{separator}{one[place]}" for one in bounds.values() if one)
            kinds = columns.types[first:last].tolist()
            rows = [
                f"{name}{separator}{time}{separator}{names[kind]}{tail}{rest}"
                for time, kind, rest in zip(times[first:last], kinds, more[first:last], strict=True)
            ] or [f"{name}{separator}{separator}{tail}{separator * len(further)}"]
            if extra:
                about = columns.metadata[place]
                text = csv_cell(json.dumps(dict(about), ensure_ascii=False)) if about else ""
                rows = [f"{row}{separator}{text if number == 0 else ''}" for number, row in enumerate(rows)]
            file.write("\n".join(rows) + "\n")


def csv_cell(text: str) -> str:
    """Return a text as a cell, quoted if necessary, and with an apostrophe if a spreadsheet would take it for a formula."""
    text = f"'{text}" if _FORMULA.match(text) else text
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text
