"""CSV ↔ sequences: a long table with a header, commas between cells, `.csv` or `.csv.gz`."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.data.formats.lines import text_lines
from foretell.data.formats.longtable import ColumnMap, LongTable, RowCollector, find_columns, gather
from foretell.data.raw import LARGEST_TYPE, Gatherer, Problem, RawEvents
from foretell.data.writing import text_file

if TYPE_CHECKING:
    from foretell.data.dataset import EventData

_INTEGER = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)\Z", re.IGNORECASE)
_NEEDS_QUOTES = re.compile(r'[,"\r\n]|^\s|\s$|^$')


def read(path: Path, columns: ColumnMap) -> RawEvents:
    """All sequences of a file, and all its mistakes."""
    gatherer = Gatherer(str(path), "line")
    gatherer.textual = True
    limit = csv.field_size_limit(sys.maxsize)
    try:
        table = _read_table(path, columns, gatherer)
    finally:
        csv.field_size_limit(limit)
    if table is not None:
        gather(table, gatherer)
    return gatherer.finish()


def write(data: EventData, path: Path) -> None:
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
    rows = RowCollector(columns, gatherer)
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
            rows.add(place, name, time, cells[event_at].strip() or None, arguments, end, about)
    return replace(rows.table, events=_events(rows.table, gatherer))


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


def _events(table: LongTable, gatherer: Gatherer) -> list[str | None] | list[int | None]:
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
        gatherer.doubt = Problem(table.places[row], f"sequence {table.sequences[row]!r}: {said}")
    return written
