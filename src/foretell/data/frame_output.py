"""Events and results → data frames, and small tables of HTML for notebooks.

A result lists its columns (`frame_columns`); `FrameResult` makes of them a frame of the kind that the data came in, and HTML.
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

FrameColumns = dict[str, "list[str] | list[str | None] | np.ndarray"]  # a list is text; NaN and NaT are missing
NEAR = 2.0**63 / 1000.0 * 0.99  # microseconds from 1970 that int64 can tell in nanoseconds, too
SHOWN_ROWS = 10  # of a table in a notebook
T = TypeVar("T", bound="FrameResult")


@dataclass(frozen=True)
class FrameFormat:
    """How a result becomes a frame: that of its data, and the clock by which numbers are dates."""

    origin: FrameOrigin = NO_ORIGIN
    clock: Clock = NO_CLOCK
    start: int | None = None  # of the result's sequence, nanoseconds since 1970

    @classmethod
    def of(cls, data: object, start: int | None = None) -> FrameFormat:
        """That of results about these data, or of a sequence's source."""
        return cls(getattr(data, "frame", NO_ORIGIN), getattr(data, "clock", NO_CLOCK), start)

    def times(self, numbers: Iterable[float | None] | np.ndarray) -> np.ndarray:
        """Times of a sequence as dates, datetime64[us] in UTC, where its start is known; else as they are. None is missing."""
        values = np.array([np.nan if one is None else one for one in numbers], dtype=np.float64)
        if self.start is None or self.clock.seconds_per_unit is None:
            return values
        found = np.full(len(values), np.datetime64("NaT", "us"))
        # In nanoseconds int64 ends in the year 2262, in microseconds long after all that anybody asks for.
        micros = values * (self.clock.seconds_per_unit * 1e6) + self.start // 1000
        near, known = np.abs(micros) < NEAR, np.abs(micros) < 1000.0 * NEAR
        found[known] = np.rint(micros[known]).astype(np.int64).astype("datetime64[us]")
        found[near] = ((self.clock.instants(values[near], self.start) + 500) // 1000).astype("datetime64[us]")
        return found


NO_FORMAT = FrameFormat()


class FrameResult:
    """A result with columns: `to_frame` makes it a data frame, and a notebook shows it as a table."""

    @property
    def frame_format(self) -> FrameFormat:
        """The kind and the clock of its frame."""
        return getattr(self, "format", NO_FORMAT)

    def frame_columns(self) -> FrameColumns:
        """The columns of its frame, by name."""
        raise NotImplementedError

    def arrow(self) -> pyarrow.Table:
        """Its columns as an Arrow table, times in the clock's zone."""
        return arrow_table(self.frame_columns(), self.frame_format.clock.zone)

    def to_frame(self, kind: FrameKind | None = None) -> Any:
        """A data frame: of this kind, or of the kind that the data came in, or pandas, polars or pyarrow, whichever is installed."""
        return as_frame(self.arrow(), self.frame_format.origin, kind)

    def _repr_html_(self) -> str:
        return html_table(self.arrow(), type(self).__name__)


class ResultList(list[T], FrameResult):
    """Results of several sequences: a list, whose frame has the rows of all of them."""

    @property
    def frame_format(self) -> FrameFormat:
        return self[0].frame_format if self else NO_FORMAT

    def arrow(self) -> pyarrow.Table:
        pa, _ = pyarrow_modules()
        return pa.concat_tables([one.arrow() for one in self], promote_options="default") if self else pa.table({})

    def _repr_html_(self) -> str:
        return html_table(self.arrow(), type(self[0]).__name__ if self else "empty")


def events_frame(splits: Sequence[tuple[str, EventData]], kind: FrameKind | None) -> Any:
    """The events of splits, one row each; a column `split` where there are several."""
    pa, _ = pyarrow_modules()
    tables = []
    for name, data in splits:
        table = events_as_arrow(data, data.clock.zone)
        tables.append(table.append_column("split", pa.array([name] * len(table))) if len(splits) > 1 else table)
    whole = pa.concat_tables(tables, promote_options="default").unify_dictionaries()
    return as_frame(whole, splits[0][1].frame, kind)


def as_frame(table: pyarrow.Table, origin: FrameOrigin = NO_ORIGIN, kind: FrameKind | None = None) -> Any:
    """An Arrow table as a frame of a kind; default: that of the data, else the first of pandas, polars and pyarrow that is installed."""
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
    """The first rows of a table as HTML, everything escaped."""
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
    """Columns as an Arrow table; NaN and NaT are missing."""
    pa, _ = pyarrow_modules()
    made = {}
    for name, values in columns.items():
        if isinstance(values, list):
            made[name] = pa.array(values, pa.string())
        else:
            stamp = pa.timestamp(np.datetime_data(values.dtype)[0], tz=zone) if values.dtype.kind == "M" else None
            made[name] = pa.array(values, stamp, from_pandas=True)
    return pa.table(made)
