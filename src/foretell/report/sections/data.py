"""The data of a report: numbers of the splits, the most frequent events, and the gaps between events."""

from __future__ import annotations

from typing import Any

import numpy as np

from foretell.data import EventData
from foretell.data.summary import DataSummary, SplitSummary
from foretell.report.markup import PageSection, chart, figure, joined, remark, table, text_of
from foretell.wording import counted

BINS = 40


def data_section(summary: DataSummary, data: EventData) -> PageSection:
    """Return the section; `data` are the events on which the runs are scored."""
    unit = f" Times are in {summary.time_unit}." if summary.time_unit not in ("", "none") else ""
    if summary.first is not None:
        unit += f" From {summary.first[:10]} to {(summary.last or '')[:10]} ({summary.zone})."
    intro = remark(
        f"{summary.name}: {counted(summary.types, 'event type')}, {summary.types_used:,} of which occur.{unit} "
        f"Scores below are of {data.name}: {counted(_scored(data), 'event')} in {counted(len(data), 'sequence')}"
        f"{', each given what came before its scored part' if data.columns.scored_from is not None else ''}."
    )
    gaps = ("gap: median", "gap: mean", "gap: largest")
    columns = ("split", "sequences", "events", "events per sequence (median)", *gaps, "ties")
    rows = [(name, *_cells(split)) for name, split in summary.splits.items()]
    splits = table(columns, rows, label="Splits of the data")
    numbers: dict[str, Any] = {"frequent": {"rows": [list(pair) for pair in summary.most_frequent]}}
    histogram = _gap_histogram(data)
    charts = [chart("frequent")]
    if histogram is not None:
        numbers["gaps"] = histogram
        charts.append(chart("gaps", data=data.name))
    return PageSection("data", "The data", joined(intro, splits, figure(*charts, caption=text_of("data"))), numbers)


def _scored(data: EventData) -> int:
    """Return the number of events, without the unscored history with which some sequences begin."""
    starts = data.columns.scored_from
    if starts is None:
        return data.event_count
    begin = np.repeat(starts, data.lengths)
    return int(((data.columns.times > begin) | (begin == 0.0)).sum())


def _cells(split: SplitSummary) -> tuple[str, ...]:
    lengths, events, gaps = split.lengths, "–", ["–"] * 3
    if lengths is not None:
        spread = "" if lengths.min == lengths.max else f" ({lengths.min:,} to {lengths.max:,})"
        events = f"{lengths.median:,.0f}{spread}"
    if split.gaps is not None:
        gaps = [f"{value:.4g}" for value in (split.gaps.median, split.gaps.mean, split.gaps.max)]
    return f"{split.sequences:,}", f"{split.events:,}", events, *gaps, f"{100 * split.ties:.1f} %"


def _gap_histogram(data: EventData) -> dict[str, Any] | None:
    gaps = data.gaps()
    positive = gaps[gaps > 0.0]
    if len(positive) < 2:
        return None
    low, high = float(positive.min()), float(positive.max())
    if high <= low * 1.001:
        low, high = low / 2.0, high * 2.0
    edges = np.geomspace(low, high, BINS + 1)
    edges[0], edges[-1] = min(low, edges[0]), max(high, edges[-1])
    return {"edges": edges, "counts": np.histogram(positive, edges)[0], "zero": int((gaps <= 0.0).sum())}
