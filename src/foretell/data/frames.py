"""Data frames → events: pandas, polars, pyarrow tables, DuckDB relations and all that have an Arrow stream, through narwhals.

In: a long frame, one row per event. Out: a `Dataset` with its clock, by the reader of Arrow tables, or a `DataError` with all mistakes.
narwhals is imported when a frame is read.
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

FRAME = "frame"  # what messages call it
MISSING = "data frames need narwhals, which is not installed: pip install 'foretell[frames]'"
EXPECTED = "expected a frame of pandas, polars, pyarrow or DuckDB, or an object with an Arrow stream"
KINDS: dict[str, FrameKind] = {"pandas": "pandas", "polars": "polars", "duckdb": "duckdb"}
T = TypeVar("T")
Roles = Callable[[list[str]], list[str]]  # a header → the columns that sequence, time, event and so on are


class FrameOptions(TypedDict, total=False):
    """How a frame is read, beside its columns `sequence`, `time` and `event`; see `from_frame`."""

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
    """A data set from a data frame with one row per event: pandas, polars, pyarrow, DuckDB, or anything with an Arrow stream.

    Times are datetimes, ISO 8601 text, Unix numbers or plain numbers. Further columns are kept as attributes.

    Args:
        frame: the data frame; its columns may also be levels of a pandas index.
        sequence: the column that says whose event it is; default: `sequence`, or one with a usual name such as `case_id`; one stream
            where there is no such column, and with `""`.
        time: the column of times; one with a usual name such as `timestamp` is recognised.
        event: the column of event types; one with a usual name such as `activity` is recognised.
        split: a column with `train`, `dev` or `test`; default: everything is `train`.
        vocabulary: the event types, those of a model, say; default: those that occur.
        **how: how columns are read, any of the following.
        args: columns whose values become arguments, `buy(books)`.
        t_start: the column with the time from which on a sequence was observed; default: `t_start`, where it exists.
        t_end: the column with the time until which it was observed; default: `t_end`, where it exists.
        score_from: the column with the time up to which a sequence is history that is not scored; default: `score_from`, where it exists.
        time_format: `iso`, `number`, `unix-s`, …, or a pattern such as `%d/%m/%Y`.
        timezone: the zone of times without one, and of what is shown; default: that of the column, or UTC.
        start: where windows start: `first-event`, `day`, `week`, `month`, or a time.
        observed_until: when the log was exported: the end of every sequence that has none.
        sorted: rows out of order are a mistake.
        unknown: what becomes of events outside `vocabulary`: `error`, `skip` or `other`.
        covariates: columns of events that models use, `amount`, `channel:category`.
        static: columns with one value per sequence that models use.

    Returns:
        A `Dataset`; `data.train` has the events.

    Raises:
        DataError: all mistakes of the frame, with their rows, counted from 1.

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
    """The checked options for reading a frame."""
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
    """The events of a frame as one split."""
    table, origin, options = _read(frame, options)

    def made() -> EventData:
        raw = gathered(arrow_table(table, FRAME, options), options.terms)
        return assemble_file(raw, vocabulary, "window", name, options)

    return replace(_in_words(made), frame=origin)


def _in_words(work: Callable[[], T]) -> T:
    """The result of `work`, with messages that name columns by keywords."""
    try:
        return work()
    except DataError as error:
        raise DataError(map(for_frames, error.problems)) from None
    except ForetellError as error:
        raise ForetellError(for_frames(str(error))) from None


def _read(frame: Any, options: ReadOptions, *more: str) -> tuple[pyarrow.Table, FrameOrigin, ReadOptions]:
    """A frame as an Arrow table, what it was, and the options with the zone of its times."""

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
    """A pandas frame whose index has a wanted column, with that index as columns."""
    names = getattr(getattr(frame, "index", None), "names", None) or ()
    if not any(names):
        return frame
    header = [str(name) for name in (*frame.columns, *names) if name is not None]
    wanted = {*roles(header), *arguments}.intersection(names)
    return frame.reset_index() if any(name not in frame.columns for name in wanted) else frame


def _with_names(frame: Any) -> Any:
    """A pandas frame whose columns are called by text, as all others are: 7 becomes "7", ("a", "b") "a b"."""
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
        except pa.ArrowInvalid:  # a stream of values, not of rows
            raise DataError(f"{FRAME}: this is a {type(frame).__name__}, one column; {EXPECTED}") from None
    kind = KINDS.get(str(found.implementation.value), "pyarrow")
    if isinstance(found, nw.LazyFrame):
        found = found.collect(backend="pyarrow" if kind == "duckdb" else None)
    made, wanted = {}, {*roles([str(name) for name in found.columns])}
    for name in found.columns:
        series = found[name]
        if series.dtype != nw.Object:
            made[str(name)] = series.to_arrow()
        elif name in wanted:  # Python objects, of several kinds perhaps: as text, in which each time keeps its own zone
            made[str(name)] = pa.array([_text(value) for value in series.to_list()], pa.string())
        else:
            made[str(name)] = pa.nulls(len(series), pa.list_(pa.null()))  # a column that no attribute is made of
    return pa.table(made), kind


def _text(value: Any) -> str | None:
    """A cell as text; None where it is missing."""
    if value is None or value != value:  # NaN, NaT
        return None
    return value.isoformat() if isinstance(value, date) else str(value)


def _zone_of(table: pyarrow.Table, name: str) -> str:
    """The zone that a column of timestamps has; "" where it has none that has a name."""
    if table.column_names.count(name) != 1:
        return ""
    zone = getattr(table.schema.field(name).type, "tz", None)
    try:
        find_zone(zone or "")
    except ForetellError:  # an offset, "+01:00"
        return ""
    return zone or ""


def _split_rows(table: pyarrow.Table, split: str, options: ReadOptions) -> dict[str, RawEvents]:
    """The rows of each split; a row of none is a mistake."""
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
