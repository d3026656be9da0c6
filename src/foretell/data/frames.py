"""Data frames → events: pandas, polars, pyarrow, DuckDB, and objects with an Arrow stream, through narwhals.

In: a long frame, one row per event. Out: a `Dataset` with its clock; a `DataError` lists all mistakes. The frame is converted to
an Arrow table and read like one. narwhals is imported when a frame is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast

import numpy as np

from foretell.data.assembling import assemble_file, assemble_splits
from foretell.data.column_names import recognised
from foretell.data.dataset import SPLITS, Card, Dataset, EventData
from foretell.data.event_table import gathered
from foretell.data.frame_origin import FrameKind, FrameOrigin
from foretell.data.parquet import arrow_table, as_usual, pyarrow_modules
from foretell.data.raw import RawEvents
from foretell.data.read_options import BOUNDS, ColumnMap, ReadOptions, Unknown, for_frames
from foretell.data.sequence import Vocabulary
from foretell.data.timestamps import find_zone
from foretell.errors import DataError, ForetellError

if TYPE_CHECKING:
    import pyarrow

FRAME = "frame"  # the name of the data in messages
MISSING = "data frames need narwhals, which is not installed: pip install 'foretell[frames]'"
EXPECTED = "expected a frame of pandas, polars, pyarrow or DuckDB, or an object with an Arrow stream"
KINDS: dict[str, FrameKind] = {"pandas": "pandas", "polars": "polars", "duckdb": "duckdb"}
T = TypeVar("T")
Roles = Callable[[list[str]], list[str]]  # names of all columns → names of the used ones


class FrameOptions(TypedDict, total=False):
    """Further options of `from_frame`, described there."""

    args: Sequence[str]
    t_start: str
    t_end: str
    score_from: str
    time_format: str
    timezone: str
    start: str
    observed_until: str
    sorted: bool
    unknown: Unknown
    covariates: Sequence[str]
    static: Sequence[str]


def from_frame(
    frame: Any,
    *,
    sequence: str | None = None,
    time: str = "time",
    event: str = "event",
    split: str | None = None,
    vocabulary: Vocabulary | None = None,
    **how: Unpack[FrameOptions],
) -> Dataset:
    """Make a data set from a data frame with one row per event: pandas, polars, pyarrow, DuckDB, or any object with an Arrow stream.

    Times are datetimes, ISO 8601 text, Unix numbers or plain numbers. Additional columns are kept as attributes.

    Args:
        frame: the data frame; its columns may also be levels of a pandas index.
        sequence: the column that identifies the sequence; default: `sequence`, or a column with a usual name such as `case_id`. Without
            such a column, or with `""`, the frame is one sequence.
        time: the column of times; a usual name such as `timestamp` is recognised.
        event: the column of event types; a usual name such as `activity` is recognised.
        split: a column with `train`, `dev` or `test`; default: everything is `train`.
        vocabulary: the event types, such as those of a model; default: the types that occur.
        **how: further options, listed below.
        args: columns whose values become arguments of event names, such as `buy(books)`.
        t_start: the column with the start of a sequence's observation; default: `t_start`, if it exists.
        t_end: the column with the end of a sequence's observation; default: `t_end`, if it exists.
        score_from: the column with the time up to which a sequence is history, and not scored; default: `score_from`, if it exists.
        time_format: `iso`, `number`, `unix-s`, …, or a pattern such as `%d/%m/%Y`.
        timezone: the zone of times without one, and of output; default: the column's zone, or UTC.
        start: when windows start: `first-event`, `day`, `week`, `month`, or a time.
        observed_until: the end of every sequence without one, such as the time of the log's export.
        sorted: whether rows out of order are an error.
        unknown: what to do with events outside `vocabulary`: `error`, `skip` or `other`.
        covariates: columns of events that models use, such as `amount` or `channel:category`.
        static: columns with one value per sequence that models use.

    Returns:
        A `Dataset`; `data.train` has the events.

    Raises:
        DataError: all mistakes in the frame, with their rows, counted from 1.

    Example:
        >>> import pandas as pd
        >>> orders = pd.DataFrame({"customer": ["a", "a"], "when": ["2024-03-01", "2024-03-05"], "product": ["tea", "milk"]})
        >>> ft.from_frame(orders, sequence="customer", time="when", event="product").train.event_count
        2
    """
    options = frame_options(sequence, time, event, how)
    if split is None:
        data = frame_events(frame, options, vocabulary, "train")
        card = Card(FRAME, data.origin, data.clock.unit, len(data.vocabulary))
        return Dataset(data, None, None, data.vocabulary, card)
    table, origin, options = _read(frame, options, split)

    def made() -> Dataset:
        raws = _split_rows(table, split, options)
        return assemble_splits(raws, Card(FRAME), Path(FRAME), vocabulary, options)

    found = _in_words(made)
    splits = {name: replace(data, frame=origin) for name, data in found.splits().items()}
    return replace(found, **splits, path="", card=replace(found.card, types=len(found.vocabulary) or None))


def frame_options(sequence: str | None, time: str, event: str, how: FrameOptions) -> ReadOptions:
    """Return the options for reading a frame; raise if some are invalid."""
    given = cast(dict[str, Any], dict(how))
    bounds = {name: given.pop(name) for name in BOUNDS if name in given}
    args = given.pop("args", None)
    for name, value in (("args", args), *((key, given.get(key)) for key in ("covariates", "static"))):
        if isinstance(value, str):
            raise ForetellError(f"{name} = {value!r}: expected a list of columns")
    given |= {key: tuple(given[key]) for key in ("covariates", "static") if key in given}
    columns = ColumnMap(sequence, time, event, args=None if args is None else tuple(args), **bounds)
    return _in_words(lambda: ReadOptions(columns, **given, keywords=True))


def frame_events(frame: Any, options: ReadOptions, vocabulary: Vocabulary | None, name: str) -> EventData:
    """Read a frame as one split called `name`."""
    table, origin, options = _read(frame, options)

    def made() -> EventData:
        raw = gathered(arrow_table(table, FRAME, options), options.terms)
        return assemble_file(raw, vocabulary, "window", name, options)

    return replace(_in_words(made), frame=origin)


def _in_words(work: Callable[[], T]) -> T:
    """Return the result of `work`. Its errors are reworded, so that they name columns by keyword arguments."""
    try:
        return work()
    except DataError as error:
        raise DataError(map(for_frames, error.problems)) from None
    except ForetellError as error:
        raise ForetellError(for_frames(str(error))) from None


def _read(frame: Any, options: ReadOptions, *more: str) -> tuple[pyarrow.Table, FrameOrigin, ReadOptions]:
    """Return the frame as an Arrow table, its kind, and the options with the time zone of its times."""

    def roles(header: list[str]) -> list[str]:
        columns, _ = recognised(options.columns, header)
        return [columns.sequence or "sequence", columns.time, columns.event, *columns.bounds, *more]

    table, kind = _as_arrow(_without_index(frame, roles, options.columns.args or ()), roles)
    table = as_usual(table, options)
    sequence, time, *_ = roles(table.column_names)
    zone = _zone_of(table, time)
    if zone and not options.timezone:
        options = replace(options, timezone=zone)
    whole = sequence in table.column_names and pyarrow_modules()[0].types.is_integer(table.schema.field(sequence).type)
    return table, FrameOrigin(kind, whole), options


def _without_index(frame: Any, roles: Roles, arguments: Iterable[str]) -> Any:
    """Return a pandas frame with its index as columns if a used column is in the index; return other frames unchanged."""
    names = getattr(getattr(frame, "index", None), "names", None) or ()
    if not any(names):
        return frame
    header = [str(name) for name in (*frame.columns, *names) if name is not None]
    wanted = {*roles(header), *arguments}.intersection(names)
    return frame.reset_index() if any(name not in frame.columns for name in wanted) else frame


def _with_names(frame: Any) -> Any:
    """Return a pandas frame with text as column names: 7 becomes "7", and ("a", "b") becomes "a b"."""
    if not (hasattr(frame, "set_axis") and hasattr(frame, "columns")) or all(
        isinstance(name, str) for name in frame.columns
    ):
        return frame
    made = [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in frame.columns]
    return frame.set_axis(made, axis=1)


def _as_arrow(frame: Any, roles: Roles) -> tuple[pyarrow.Table, FrameKind]:
    nw, (pa, _) = _narwhals(), pyarrow_modules()
    try:
        found = nw.from_native(_with_names(frame))
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"{FRAME}: column names must differ: {' '.join(str(error).split())}") from None
    except TypeError:
        if not hasattr(frame, "__arrow_c_stream__"):
            raise DataError(f"{FRAME}: this is a {type(frame).__name__}; {EXPECTED}") from None
        try:
            found = nw.from_arrow(frame, backend="pyarrow")
        except pa.ArrowInvalid:  # a stream of single values
            raise DataError(f"{FRAME}: this is a {type(frame).__name__}, one column; {EXPECTED}") from None
    kind = KINDS.get(str(found.implementation.value), "pyarrow")
    if isinstance(found, nw.LazyFrame):
        found = found.collect(backend="pyarrow" if kind == "duckdb" else None)
    made, wanted = {}, {*roles([str(name) for name in found.columns])}
    for name in found.columns:
        series = found[name]
        if series.dtype != nw.Object:
            made[str(name)] = series.to_arrow()
        elif name in wanted:  # Python objects become text, in which each time keeps its own zone
            made[str(name)] = pa.array([_text(value) for value in series.to_list()], pa.string())
        else:
            made[str(name)] = pa.nulls(len(series), pa.list_(pa.null()))  # a column that does not become an attribute
    return pa.table(made), kind


def _text(value: Any) -> str | None:
    """Return a cell as text, or None if it is missing."""
    if value is None or value != value:  # NaN, NaT
        return None
    return value.isoformat() if isinstance(value, date) else str(value)


def _zone_of(table: pyarrow.Table, name: str) -> str:
    """Return the time zone of a column of timestamps; "" if it has no zone with a name."""
    if table.column_names.count(name) != 1:
        return ""
    zone = getattr(table.schema.field(name).type, "tz", None)
    try:
        find_zone(zone or "")
    except ForetellError:  # the zone is an offset such as "+01:00"
        return ""
    return zone or ""


def _split_rows(table: pyarrow.Table, split: str, options: ReadOptions) -> dict[str, RawEvents]:
    """Return the rows of each split; a row with another split is a mistake."""
    if split not in table.column_names:
        raise DataError(f"{FRAME}: no column {split!r}; found {', '.join(map(repr, table.column_names))}")
    values = np.array(["" if one is None else str(one) for one in table.column(split).to_pylist()])
    wrong = np.flatnonzero(~np.isin(values, SPLITS))
    if len(wrong):
        told = [f"{FRAME}: row {row + 1}: {split} is {str(values[row])!r}" for row in wrong.tolist()]
        raise DataError(f"{one}, expected {', '.join(SPLITS)}" for one in told)
    table = table.drop_columns([split])
    made = {}
    for name in SPLITS:
        rows = np.flatnonzero(values == name)
        if len(rows):
            made[name] = gathered(arrow_table(table.take(rows), FRAME, options, rows + 1), options.terms)
    if not made:
        raise DataError(f"{FRAME}: it has no rows; expected at least one event")
    return made


def _narwhals() -> ModuleType:
    try:
        import narwhals
    except ImportError:
        raise ForetellError(MISSING) from None
    return narwhals
