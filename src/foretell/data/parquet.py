"""Parquet ↔ sequences: the same long table as CSV, with types that say themselves what they are.

pyarrow is imported only here and only when a Parquet file is read or written.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from foretell.data.files import replacing
from foretell.data.raw import Gatherer, RawEvents
from foretell.data.tables import ColumnMap, LongTable, find_columns, gather
from foretell.errors import ForetellError

if TYPE_CHECKING:
    import pyarrow

    from foretell.data.dataset import EventData


def read_parquet(path: Path, columns: ColumnMap) -> RawEvents:
    """All sequences of a file, and all its mistakes."""
    pa, pq = _pyarrow()
    gatherer = Gatherer(str(path), "row")
    try:
        with open(path, "rb") as file:
            table = pq.read_table(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        gatherer.fault(0, f"not a Parquet file that can be read: {text}")
        return gatherer.finish()
    header = list(table.column_names)
    arguments = find_columns(columns, header, gatherer, 0)
    if arguments is not None:
        _check_kinds(pa, table, columns, arguments, gatherer)
        if not gatherer.problems:
            _gather_rows(table, columns, arguments, gatherer)
    return gatherer.finish()


def write_parquet(data: EventData, path: Path) -> None:
    """One row an event; a sequence without events is a row without time and event."""
    pa, pq = _pyarrow()
    sequences: list[str] = []
    times: list[float | None] = []
    types: list[int | None] = []
    ends: list[float] = []
    metadata: list[str | None] = []
    for sequence in data:
        rows = max(len(sequence), 1)
        sequences += [sequence.id] * rows
        times += sequence.times.tolist() or [None]
        types += sequence.types.tolist() or [None]
        ends += [sequence.t_end] * rows
        about = json.dumps(dict(sequence.metadata), ensure_ascii=False) if sequence.metadata else None
        metadata += [about, *[None] * (rows - 1)]
    codes = pa.array(types, pa.int32())
    names = data.vocabulary
    events = codes if names.numbered else pa.DictionaryArray.from_arrays(codes, pa.array(names.names, pa.string()))
    columns = {
        "sequence": pa.array(sequences, pa.string()),
        "time": pa.array(times, pa.float64()),
        "event": events,
        "t_end": pa.array(ends, pa.float64()),
    }
    if any(metadata):
        columns["metadata"] = pa.array(metadata, pa.string())
    with replacing(path) as temporary:
        pq.write_table(pa.table(columns), temporary)


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        said = "Parquet needs pyarrow, which is not installed; install it, or use JSON lines or CSV"
        raise ForetellError(said) from None
    return pyarrow, pyarrow.parquet


def _check_kinds(
    pa: ModuleType, table: pyarrow.Table, columns: ColumnMap, arguments: tuple[str, ...], gatherer: Gatherer
) -> None:
    types = pa.types

    def plain(kind: pyarrow.DataType) -> pyarrow.DataType:
        return kind.value_type if types.is_dictionary(kind) else kind

    def number(kind: pyarrow.DataType) -> bool:
        return types.is_integer(kind) or types.is_floating(kind)

    def label(kind: pyarrow.DataType) -> bool:
        return types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind)

    def text(kind: pyarrow.DataType) -> bool:
        return types.is_string(kind) or types.is_large_string(kind)

    wanted = [
        (columns.time, number, "numbers"),
        (columns.t_end, number, "numbers"),
        (columns.sequence, label, "text or integers"),
        (columns.event, label, "text or integers"),
        (columns.metadata, text, "text"),
        *((name, label, "text or integers") for name in arguments),
    ]
    for name, right, expected in wanted:
        if name in table.column_names:
            kind = plain(table.schema.field(name).type)
            if not right(kind) and not types.is_null(kind):
                gatherer.fault(0, f"column {name!r} has type {kind}, expected {expected}")


def _gather_rows(table: pyarrow.Table, columns: ColumnMap, arguments: tuple[str, ...], gatherer: Gatherer) -> None:
    count = table.num_rows

    def cells(name: str) -> list[Any]:
        return table.column(name).to_pylist() if name in table.column_names else [None] * count

    sequences, times, events = cells(columns.sequence), cells(columns.time), cells(columns.event)
    t_ends, metadata = cells(columns.t_end), cells(columns.metadata)
    values = [cells(name) for name in arguments]
    found = LongTable(columns, gatherer)
    for row in range(count):
        name = "" if sequences[row] is None else str(sequences[row])
        given = ["" if value[row] is None else str(value[row]) for value in values]
        found.add(row + 1, name, times[row], events[row], given, t_ends[row], metadata[row])
    gather(found)
