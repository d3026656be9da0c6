"""Parquet and Arrow ↔ sequences: the same long table as in CSV, but with typed columns.

pyarrow is imported only when a Parquet file or an Arrow table is read or written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.data.column_names import recognised
from foretell.data.columns import Attribute
from foretell.data.event_table import EventTable, gathered
from foretell.data.files import replacing
from foretell.data.raw import MOST_COLUMNS, PlaceUnit, Problem, RawEvents, TimeNotes
from foretell.data.read_options import ROLES, ReadOptions
from foretell.data.tables import (
    CodedColumn,
    TimeColumn,
    empty_table,
    event_table,
    is_free_text,
    text_attribute,
    text_times,
)
from foretell.data.timestamps import FIRST_YEAR, LAST_YEAR, localised
from foretell.data.written_attributes import attribute_columns
from foretell.data.written_times import end_instants, ends_known, event_instants, score_instants, starts_known
from foretell.errors import ForetellError
from foretell.reading import open_regular, read_limits

if TYPE_CHECKING:
    import pyarrow

    from foretell.data.dataset import EventData


def read_parquet(path: Path, options: ReadOptions) -> RawEvents:
    """Read all sequences and mistakes of a file."""
    pa, pq = pyarrow_modules()
    try:
        with open_regular(path) as file:
            check_size(pq.ParquetFile(file).metadata, path)
            table = pq.read_table(file)
        return gathered(arrow_table(table, str(path), options), options.terms)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        problem = Problem(0, f"not a Parquet file that can be read: {text}")
        return gathered(empty_table(str(path), "row", [problem]))


def check_size(metadata: Any, path: Path) -> None:
    """Raise an error if a file has too many rows for its size, since a few bytes can encode billions of equal values."""
    most = read_limits().events_of(path.stat().st_size)
    if metadata.num_rows > most or metadata.num_columns > MOST_COLUMNS:
        said = f"{metadata.num_rows:,} rows of {metadata.num_columns:,} columns, too many for a file of its size"
        raise ValueError(f"{said}; if that is right, allow more rows with `foretell.reading.limits(max_events=…)`")


def arrow_table(table: pyarrow.Table, path: str, options: ReadOptions, places: np.ndarray | None = None) -> EventTable:
    """Return the events and mistakes of an Arrow table; `path` is its name in messages, `places` has the numbers of its rows."""
    places = np.arange(1, table.num_rows + 1) if places is None else places
    source = ArrowTable(path, list(table.column_names), as_usual(table, options), places)
    wrong = wrong_kinds(source, options)
    return empty_table(path, "row", wrong) if wrong else event_table(source, options)


def as_usual(table: pyarrow.Table, options: ReadOptions) -> pyarrow.Table:
    """Convert all text to one type, and float labels to integers if they are whole, as pandas stores integers with missing values."""
    (pa, _), names = pyarrow_modules(), list(table.column_names)
    columns, _ = recognised(options.columns, names)
    labels = {columns.sequence or "sequence", columns.event, *columns.arguments(names)}
    for place, (name, kind) in enumerate(zip(names, table.schema.types, strict=True)):
        column = table.column(place)
        if pa.types.is_string_view(kind):
            table = table.set_column(place, name, column.cast(pa.large_string()))
        elif name in labels and pa.types.is_floating(kind):
            numbers = column.cast(pa.float64()).to_numpy()
            missing = np.isnan(numbers)
            if not missing.all() and (numbers[~missing] % 1.0 == 0.0).all() and np.abs(numbers[~missing]).max() < 2**53:
                whole = np.where(missing, 0.0, numbers).astype(np.int64)
                table = table.set_column(place, name, pa.array(whole, mask=missing))
    return table


@dataclass(eq=False)
class ArrowTable:
    """A `TableSource` for an Arrow table."""

    path: str
    header: list[str]
    table: pyarrow.Table
    places: np.ndarray
    unit: PlaceUnit = "row"

    def coded(self, name: str) -> CodedColumn:
        pa, _ = pyarrow_modules()
        column = self.table.column(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        column = column.unify_dictionaries().combine_chunks()
        codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        values = ["" if value is None else str(value) for value in _listed(column.dictionary)]
        used, codes = np.unique(codes, return_inverse=True)
        texts = ["" if code < 0 else values[code] for code in used.tolist()]
        return _in_order(codes, texts)

    def times(self, name: str, options: ReadOptions) -> TimeColumn:
        pa, _ = pyarrow_modules()
        column, kind = self.table.column(name), self.kind(name)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return text_times(self.coded(name), options)
        given = np.asarray(column.is_valid().to_numpy(), dtype=bool)
        right = np.zeros(len(given), dtype=bool)
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            instants = _instants(column)
            far = given & np.isnat(instants)
            if pa.types.is_timestamp(kind) and kind.tz is not None:
                return TimeColumn(instants, given, far)
            near = given & ~far
            found = localised(instants[near].astype(np.int64), options.zone)
            instants[near] = found.instants.astype("datetime64[ns]")
            return TimeColumn(instants, given, far, TimeNotes(int(near.sum()), found.twice, found.never))
        whole = pa.types.is_integer(kind) and bool(given.all())
        numbers = column.cast(pa.int64() if whole else pa.float64()).to_numpy()
        return TimeColumn(np.where(given, numbers, 0), given, right)

    def attribute(self, name: str) -> Attribute | None:
        pa, _ = pyarrow_modules()
        column, kind = self.table.column(name), self.kind(name)
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return Attribute(_instants(column))
        if pa.types.is_integer(kind) and not column.null_count:
            return Attribute(column.cast(pa.int64()).to_numpy())
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return Attribute(column.cast(pa.float64()).to_numpy())
        if pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
            cells = self.coded(name)
            return None if is_free_text(len(cells.values), len(cells.codes)) else text_attribute(cells)
        return None

    def is_integer(self, name: str) -> bool:
        return pyarrow_modules()[0].types.is_integer(self.kind(name))

    def kind(self, name: str) -> pyarrow.DataType:
        """Return the type of a column's values, also if they are dictionary-encoded."""
        kind = self.table.schema.field(name).type
        return kind.value_type if pyarrow_modules()[0].types.is_dictionary(kind) else kind


def _listed(values: Any) -> list[Any]:
    """Return Python values; integers for times outside Python's range of dates."""
    try:
        return values.to_pylist()
    except (OverflowError, ValueError):
        return values.cast(pyarrow_modules()[0].int64()).to_pylist()


def _instants(column: Any) -> np.ndarray:
    """Return dates or times as datetime64[ns]; NaT if they are missing, or outside the range of int64 nanoseconds."""
    pa, _ = pyarrow_modules()
    whole = column.cast(pa.timestamp("s"), safe=False).to_numpy().astype("datetime64[s]")
    first, last = (np.datetime64(f"{year}-01-01", "s") for year in (FIRST_YEAR, LAST_YEAR + 1))
    found = column.cast(pa.timestamp("ns"), safe=False).to_numpy().astype("datetime64[ns]")
    with np.errstate(invalid="ignore"):
        far = ~((whole >= first) & (whole < last))
    return np.where(far, np.datetime64("NaT", "ns"), found)


def _in_order(codes: np.ndarray, texts: list[str]) -> CodedColumn:
    """Return the column with codes renumbered in the order of first occurrence."""
    _, first = np.unique(codes, return_index=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return CodedColumn(place[codes], [texts[number] for number in order.tolist()])


def wrong_kinds(source: ArrowTable, options: ReadOptions) -> list[Problem]:
    """Return a mistake for each column whose type does not fit its use."""
    types, (columns, _) = pyarrow_modules()[0].types, recognised(options.columns, source.header)

    def text(kind: pyarrow.DataType) -> bool:
        return types.is_string(kind) or types.is_large_string(kind)

    def label(kind: pyarrow.DataType) -> bool:
        return types.is_integer(kind) or text(kind)

    def when(kind: pyarrow.DataType) -> bool:
        number = types.is_floating(kind) or types.is_decimal(kind)
        return label(kind) or number or types.is_timestamp(kind) or types.is_date(kind)

    times = "numbers, timestamps or text"
    wanted = [
        *((name, when, times) for name in (columns.time, *columns.bounds)),
        (columns.sequence or "sequence", label, "text or integers"),
        (columns.event, label, "text or integers"),
        (columns.metadata, text, "text"),
        *((name, label, "text or integers") for name in columns.arguments(source.header)),
    ]
    return [
        Problem(0, f"column {name!r} has type {kind}, expected {expected}")
        for name, right, expected in wanted
        if source.header.count(name) == 1 and not right(kind := source.kind(name)) and not types.is_null(kind)
    ]


def write_parquet(data: EventData, path: Path) -> None:
    """Write the table of `events_as_arrow` as Parquet."""
    _, pq = pyarrow_modules()
    table = events_as_arrow(data)
    with replacing(path) as temporary:
        pq.write_table(table, temporary)


def events_as_arrow(data: EventData, zone: str = "UTC") -> pyarrow.Table:
    """Return a table with one row per event, its attributes as columns. A sequence without events is a row without time and event."""
    pa, _ = pyarrow_modules()
    columns = data.columns
    rows = np.maximum(columns.lengths, 1)
    sequences = np.repeat(np.arange(len(data)), rows)
    filled = columns.lengths[sequences] > 0
    stamp = pa.timestamp("ns", tz=zone)

    def per_event(values: np.ndarray, kind: pyarrow.DataType) -> Any:
        spread = np.zeros(len(sequences), dtype=values.dtype)
        spread[filled] = values
        return pa.array(spread, kind, mask=~filled)

    def per_sequence(values: np.ndarray, kind: pyarrow.DataType, known: np.ndarray) -> Any:
        return pa.array(values[sequences], kind, mask=~known[sequences])

    instants, ends = event_instants(data), end_instants(data)
    codes, names, known = per_event(columns.types, pa.int32()), data.vocabulary, ends_known(data)
    labels = pa.array(columns.ids, pa.string())
    made = {
        "sequence": pa.DictionaryArray.from_arrays(pa.array(sequences, pa.int32()), labels).cast(pa.string()),
        "time": per_event(columns.times, pa.float64()) if instants is None else per_event(instants, stamp),
        "event": codes if names.numbered else pa.DictionaryArray.from_arrays(codes, pa.array(names.names, pa.string())),
    }
    if starts_known(data):
        assert columns.starts is not None
        made["t_start"] = per_sequence(columns.starts, stamp, np.ones(len(data), dtype=bool))
    if known.any():
        made["t_end"] = (
            per_sequence(columns.t_ends, pa.float64(), known) if ends is None else per_sequence(ends, stamp, known)
        )
    later = columns.scored_from
    if later is not None and later.any():
        instants = score_instants(data)
        made["score_from"] = per_sequence(
            later if instants is None else instants, pa.float64() if instants is None else stamp, later > 0.0
        )
    for name, one in attribute_columns(columns, {*ROLES, *made}).items():
        made[name] = _arrow_attribute(one, filled)
    if any(columns.metadata):
        about = [json.dumps(dict(one), ensure_ascii=False) if one else None for one in columns.metadata]
        first = np.concatenate([[True], np.diff(sequences) > 0])[: len(sequences)]
        texts = [
            about[sequence] if here else None for sequence, here in zip(sequences.tolist(), first.tolist(), strict=True)
        ]
        made["metadata"] = pa.array(texts, pa.string())
    return pa.table(made)


def _arrow_attribute(attribute: Attribute, filled: np.ndarray) -> Any:
    """Return an attribute as an Arrow array; rows that are not `filled` have no event, and so a missing value."""
    pa, _ = pyarrow_modules()
    values = attribute.values
    spread, missing = np.zeros(len(filled), dtype=values.dtype), np.ones(len(filled), dtype=bool)
    spread[filled] = values
    missing[filled] = (
        values < 0
        if attribute.categories is not None
        else np.isnat(values)
        if values.dtype.kind == "M"
        else values != values
    )
    if attribute.categories is not None:
        codes = pa.array(spread.astype(np.int32), mask=missing)
        return pa.DictionaryArray.from_arrays(codes, pa.array(attribute.categories, pa.string()))
    return pa.array(spread, pa.timestamp("ns", tz="UTC") if values.dtype.kind == "M" else None, mask=missing)


def pyarrow_modules() -> tuple[ModuleType, ModuleType]:
    """Import pyarrow and pyarrow.parquet; raise an error with a hint if they are not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        said = "Parquet needs pyarrow, which is not installed; install it, or use JSON lines or CSV"
        raise ForetellError(said) from None
    return pyarrow, pyarrow.parquet
