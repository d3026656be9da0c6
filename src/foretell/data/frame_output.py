"""Events and results → data frames, and HTML tables for notebooks.

A result returns its columns (`frame_columns`); `FrameResult` converts them to HTML, or to a frame of the same kind as the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from foretell.data.clock import NO_CLOCK, Clock
from foretell.data.frame_origin import FRAME_KINDS, NO_ORIGIN, FrameKind, FrameOrigin
from foretell.data.parquet import events_as_arrow, pyarrow_modules
from foretell.errors import ForetellError
from foretell.wording import did_you_mean

if TYPE_CHECKING:
    import pyarrow

    from foretell.data.dataset import EventData

FrameColumns = dict[str, "list[str] | list[str | None] | np.ndarray"]  # lists are text; NaN and NaT are missing
NEAR = 2.0**63 / 1000.0 * 0.99  # microseconds around 1970 whose nanoseconds fit into int64
SHOWN_ROWS = 10  # rows of a table in a notebook
T = TypeVar("T", bound="FrameResult")


@dataclass(frozen=True)
class FrameFormat:
    """The kind of a result's data frame, and the clock that converts its times to dates."""

    origin: FrameOrigin = NO_ORIGIN
    clock: Clock = NO_CLOCK
    start: int | None = None  # start of the result's sequence, nanoseconds since 1970

    @classmethod
    def of(cls, data: object, start: int | None = None) -> FrameFormat:
        """Return the format for results about these data, or about one sequence."""
        return cls(getattr(data, "frame", NO_ORIGIN), getattr(data, "clock", NO_CLOCK), start)

    def times(self, numbers: Iterable[float | None] | np.ndarray) -> np.ndarray:
        """Return times as datetime64[us] in UTC if the start is known, else unchanged as float64. None becomes NaT or NaN."""
        values = np.array([np.nan if one is None else one for one in numbers], dtype=np.float64)
        if self.start is None or self.clock.seconds_per_unit is None:
            return values
        found = np.full(len(values), np.datetime64("NaT", "us"))
        # int64 nanoseconds end in the year 2262; predictions may lie later, so later times use microseconds.
        micros = values * (self.clock.seconds_per_unit * 1e6) + self.start // 1000
        near, known = np.abs(micros) < NEAR, np.abs(micros) < 1000.0 * NEAR
        found[known] = np.rint(micros[known]).astype(np.int64).astype("datetime64[us]")
        found[near] = ((self.clock.instants(values[near], self.start) + 500) // 1000).astype("datetime64[us]")
        return found


NO_FORMAT = FrameFormat()


class FrameResult:
    """Base class of results with columns: `to_frame` returns a data frame, and notebooks show a table."""

    @property
    def frame_format(self) -> FrameFormat:
        """The format of the result's data frame."""
        return getattr(self, "format", NO_FORMAT)

    def frame_columns(self) -> FrameColumns:
        """Return the columns of the data frame by name."""
        raise NotImplementedError

    def arrow(self) -> pyarrow.Table:
        """Return the columns as an Arrow table, with times in the clock's zone."""
        return arrow_table(self.frame_columns(), self.frame_format.clock.zone)

    def to_frame(self, kind: FrameKind | None = None) -> Any:
        """Return a data frame of this kind; default: the kind of the input, else pandas, polars or pyarrow, the first that is installed."""
        return as_frame(self.arrow(), self.frame_format.origin, kind)

    def _repr_html_(self) -> str:
        return html_table(self.arrow(), type(self).__name__)


class ResultList(list[T], FrameResult):
    """A list of results of several sequences; its data frame has the rows of all results."""

    @property
    def frame_format(self) -> FrameFormat:
        return self[0].frame_format if self else NO_FORMAT

    def arrow(self) -> pyarrow.Table:
        pa, _ = pyarrow_modules()
        return pa.concat_tables([one.arrow() for one in self], promote_options="default") if self else pa.table({})

    def _repr_html_(self) -> str:
        return html_table(self.arrow(), type(self[0]).__name__ if self else "empty")


def events_frame(splits: Sequence[tuple[str, EventData]], kind: FrameKind | None) -> Any:
    """Return the events of splits as a data frame, one row per event, with a column `split` if there are several splits."""
    pa, _ = pyarrow_modules()
    tables = []
    for name, data in splits:
        table = events_as_arrow(data, data.clock.zone)
        tables.append(table.append_column("split", pa.array([name] * len(table))) if len(splits) > 1 else table)
    whole = pa.concat_tables(tables, promote_options="default").unify_dictionaries()
    return as_frame(whole, splits[0][1].frame, kind)


def as_frame(table: pyarrow.Table, origin: FrameOrigin = NO_ORIGIN, kind: FrameKind | None = None) -> Any:
    """Convert an Arrow table to a data frame of a kind; default: the kind of `origin`, else pandas, polars or pyarrow, if installed."""
    if kind is not None and kind not in FRAME_KINDS:
        hint = did_you_mean(str(kind), FRAME_KINDS, before="; ")
        raise ForetellError(f"kind = {kind!r}: expected one of {', '.join(FRAME_KINDS)}{hint}")
    if origin.integer_ids and "sequence" in table.column_names:
        place = table.column_names.index("sequence")
        whole = table.column(place).cast(pyarrow_modules()[0].int64())
        table = table.set_column(place, "sequence", whole)
    if kind is None:
        kind = origin.kind or ("pandas" if find_spec("pandas") else "polars" if find_spec("polars") else "pyarrow")
    try:
        if kind == "pandas":
            return table.to_pandas()
        if kind == "polars":
            import polars

            return polars.from_arrow(table)
        if kind == "duckdb":
            import duckdb

            return duckdb.from_arrow(table)
    except ImportError:
        raise ForetellError(f"kind = {kind!r}: {kind} is not installed; install it, or take another kind") from None
    return table


def html_table(table: pyarrow.Table, title: str) -> str:
    """Return the first rows of a table as escaped HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
    rows = table.slice(0, SHOWN_ROWS).to_pylist() if table.num_columns else []
    body = "".join(f"<tr>{''.join(f'<td>{escape(_cell(value))}</td>' for value in row.values())}</tr>" for row in rows)
    more = f", {table.num_rows:,} rows" + (f", the first {len(rows)}" if table.num_rows > len(rows) else "")
    caption = f"<caption>{escape(title)}{more}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def arrow_table(columns: Mapping[str, list[str] | list[str | None] | np.ndarray], zone: str = "UTC") -> pyarrow.Table:
    """Return columns as an Arrow table; NaN and NaT become missing values."""
    pa, _ = pyarrow_modules()
    made = {}
    for name, values in columns.items():
        if isinstance(values, list):
            made[name] = pa.array(values, pa.string())
        else:
            stamp = pa.timestamp(np.datetime_data(values.dtype)[0], tz=zone) if values.dtype.kind == "M" else None
            made[name] = pa.array(values, stamp, from_pandas=True)
    return pa.table(made)
