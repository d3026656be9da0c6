"""A data set → the numbers that `foretell data describe` shows; `as_json` returns them in the documented JSON form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foretell.data.clock import iso_text
from foretell.data.dataset import Dataset, EventData, LoadReport
from foretell.data.leaks import Leak, find_leaks
from foretell.data.written_times import end_instants

MOST_FREQUENT = 10
_NONE = LoadReport("", 0, 0, 0.0, (), 0)


@dataclass(frozen=True)
class Lengths:
    """Statistics of the number of events per sequence."""

    min: int
    median: float
    mean: float
    max: int


@dataclass(frozen=True)
class Gaps:
    """Statistics of the gaps between neighbouring events; `quantile_01` is the 1 % quantile."""

    min: float
    quantile_01: float
    median: float
    mean: float
    max: float


@dataclass(frozen=True)
class SplitSummary:
    """Statistics of one split. `gaps` is None if no sequence has two events."""

    sequences: int
    events: int
    lengths: Lengths | None
    gaps: Gaps | None
    t_end_max: float | None
    t_end_missing: int
    history_before: int  # number of sequences that are scored only after some time
    types_used: int
    ties: float
    grid: float | None
    grid_share: float


@dataclass(frozen=True)
class DataSummary:
    """Statistics of a data set; `most_frequent` is counted over all splits."""

    name: str
    path: str
    origin: str
    time_unit: str
    types: int
    types_used: int
    most_frequent: tuple[tuple[str, int], ...]
    splits: dict[str, SplitSummary]
    seconds_per_unit: float | None = None
    zone: str | None = None  # the time zone of `first` and `last`
    first: str | None = None  # when the first sequence starts and the last one ends, if times are dates
    last: str | None = None
    attributes: tuple[str, ...] = ()
    leaks: tuple[Leak, ...] = ()  # leaks found in the first split

    def as_json(self) -> dict[str, object]:
        """Return plain lists, dicts, numbers and text."""
        record = asdict(self)
        record["most_frequent"] = [{"event": name, "count": count} for name, count in self.most_frequent]
        return record


def summarise(dataset: Dataset) -> DataSummary:
    """Compute the statistics of a data set."""
    splits = dataset.splits()
    counts = sum((data.type_counts() for data in splits.values()), np.zeros(len(dataset.vocabulary), np.int64))
    order = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
    return DataSummary(
        name=dataset.card.name,
        path=dataset.path,
        origin=dataset.card.origin,
        time_unit=dataset.card.time_unit,
        types=len(dataset.vocabulary),
        types_used=int((counts > 0).sum()),
        most_frequent=tuple((dataset.vocabulary[kind], int(counts[kind])) for kind in order.tolist() if counts[kind]),
        splits={name: _split(data) for name, data in splits.items()},
        **_calendar(dataset),
        attributes=tuple(dict.fromkeys(name for data in splits.values() for name in (data.report or _NONE).attributes)),
        leaks=find_leaks(next(iter(splits.values()))) if splits else (),
    )


def _calendar(dataset: Dataset) -> dict[str, Any]:
    clock = dataset.clock
    found: dict[str, Any] = {"seconds_per_unit": clock.seconds_per_unit}
    parts = [data for data in dataset.splits().values() if data.columns.starts is not None and len(data)]
    if parts:
        starts = [data.columns.starts for data in parts if data.columns.starts is not None]
        ends = [end for data in parts if (end := end_instants(data)) is not None]
        low, high = min(int(one.min()) for one in starts), max(int(one.max()) for one in ends)
        found |= {"zone": clock.zone, "first": iso_text(low, clock.zone), "last": iso_text(high, clock.zone)}
    return found


def _split(data: EventData) -> SplitSummary:
    lengths, gaps, report = data.lengths, data.gaps(), data.report
    assert report is not None
    return SplitSummary(
        sequences=len(data),
        events=data.event_count,
        lengths=Lengths(int(lengths.min()), float(np.median(lengths)), float(lengths.mean()), int(lengths.max()))
        if len(lengths)
        else None,
        gaps=Gaps(*_spread(gaps)) if len(gaps) else None,
        t_end_max=float(data.columns.t_ends.max()) if len(data) else None,
        t_end_missing=report.missing_ends,
        history_before=0 if data.columns.scored_from is None else int((data.columns.scored_from > 0.0).sum()),
        types_used=int((data.type_counts() > 0).sum()),
        ties=report.ties,
        grid=report.grid,
        grid_share=report.grid_share,
    )


def _spread(values: np.ndarray) -> Sequence[float]:
    low, middle = np.quantile(values, [0.01, 0.5])
    return [float(values.min()), float(low), float(middle), float(values.mean()), float(values.max())]
