"""A picture of a data set: gaps, lengths, type frequencies, and the first sequences as rows of marks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretell.data.dataset import Dataset, EventData
from foretell.report.canvas import blank_figure, check_suffix, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"train": "#3b6fb6", "dev": "#e0912f", "test": "#4f9d69"}
TYPE_COLOURS = ("#3b6fb6", "#e0912f", "#4f9d69", "#c44e52", "#8172b3", "#937860", "#da8bc3", "#64b5cd")
REST = "#b5b5b5"
ROWS = 12
TYPES_SHOWN = 15
EVENTS_IN_A_ROW = 80  # a long sequence shows only its first events, so that marks do not overlap


def draw_data(dataset: Dataset, path: str | Path) -> None:
    """Draw the picture to a PNG, PDF or SVG file, according to its suffix."""
    check_suffix(Path(path))
    splits = dataset.splits()
    figure, (gaps, lengths, frequencies, raster) = blank_figure(2, (11, 7.5), columns=2)
    events = sum(data.event_count for data in splits.values())
    sequences = sum(len(data) for data in splits.values())
    figure.suptitle(
        f"{dataset.card.name}: {sequences:,} sequences, {events:,} events, {len(dataset.vocabulary):,} types",
        fontweight="bold",
    )
    unit = f" ({dataset.card.time_unit})" if dataset.card.time_unit not in ("", "none") else ""
    _gaps(gaps, splits, unit)
    _lengths(lengths, splits)
    counts = sum((data.type_counts() for data in splits.values()), np.zeros(len(dataset.vocabulary), np.int64))
    order = np.argsort(-counts, kind="stable")
    _frequencies(frequencies, dataset, counts, order)
    _raster(raster, dataset, order, unit)
    save_figure(figure, path)


def _gaps(axes: Axes, splits: dict[str, EventData], unit: str) -> None:
    gaps = {name: data.gaps() for name, data in splits.items()}
    positive = np.concatenate([np.zeros(0), *(values[values > 0] for values in gaps.values())])
    zero = sum(int((values == 0).sum()) for values in gaps.values())
    axes.set(title="Gaps between events", xlabel=f"gap{unit}", ylabel="share")
    if not len(positive):
        axes.text(0.5, 0.5, "no positive gaps", ha="center", transform=axes.transAxes)
        return
    low, high = float(positive.min()), float(positive.max())
    edges = np.geomspace(low, high, 51) if high > low else np.array([low * 0.9, low * 1.1])
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    for name, values in gaps.items():
        some = values[values > 0]
        if len(some):
            shares = np.histogram(some, edges)[0] / len(values)
            axes.stairs(shares, edges, label=name, color=COLOURS[name], linewidth=1.4)
    axes.set_xscale("log")
    middle = float(np.median(positive))
    axes.axvline(middle, color="0.5", linewidth=0.8, linestyle="--", label=f"median {middle:.3g}")
    if zero:
        axes.set_xlabel(f"gap{unit}; {zero:,} of {zero + len(positive):,} gaps are 0")
    _legend_above(axes)


def _legend_above(axes: Axes) -> None:
    """Place the legend above the curves, so that they do not overlap."""
    axes.set_ylim(0.0, 1.22 * axes.get_ylim()[1])
    axes.legend(frameon=False, loc="upper left", ncols=4, fontsize=9, columnspacing=1.2, handlelength=1.6)


def _lengths(axes: Axes, splits: dict[str, EventData]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(title="Lengths of sequences", xlabel="events in a sequence", ylabel="sequences")
    every = np.concatenate([data.lengths for data in splits.values()])
    edges = np.histogram_bin_edges(every, bins=min(40, max(5, len(every))))
    names = list(splits)
    colours, labels = [COLOURS[name] for name in names], [f"{name} ({len(splits[name]):,})" for name in names]
    lengths = [splits[name].lengths for name in names]
    axes.hist(lengths, bins=edges.tolist(), stacked=True, color=colours, label=labels)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _legend_above(axes)


def _frequencies(axes: Axes, dataset: Dataset, counts: np.ndarray, order: np.ndarray) -> None:
    shown = order[: min(TYPES_SHOWN, len(order))]
    shown = shown[counts[shown] > 0]
    rest = len(np.flatnonzero(counts)) - len(shown)
    labels = [_shortened(dataset.vocabulary[kind]) for kind in shown.tolist()]
    axes.barh(np.arange(len(shown)), counts[shown], color=[_colour(place) for place in range(len(shown))])
    axes.set_yticks(np.arange(len(shown)), labels)
    axes.invert_yaxis()
    more = f" (the {len(shown)} most frequent; {rest:,} more)" if rest else ""
    axes.set(title=f"Event types{more}", xlabel="events")
    axes.margins(y=0.01)


def _raster(axes: Axes, dataset: Dataset, order: np.ndarray, unit: str) -> None:
    name, data = next(iter(dataset.splits().items()))
    rows = min(ROWS, len(data))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    horizon = max((_shown_until(data, row) for row in range(rows)), default=1.0)
    for row in range(rows):
        sequence = data[row]
        until = min(sequence.t_end, horizon)
        axes.plot([0, until], [row, row], color="0.85", linewidth=0.8, zorder=1)
        inside = sequence.times <= horizon
        places = np.minimum(ranks[sequence.types[inside]], len(TYPE_COLOURS)).tolist()
        axes.scatter(
            sequence.times[inside], np.full(int(inside.sum()), row), c=[_colour(place) for place in places],
            marker="|", s=min(700, 2600 / max(rows, 1)), linewidths=0.9, zorder=2,
        )  # fmt: skip
        if sequence.t_end <= horizon:
            axes.plot([until], [row], marker="o", markersize=2.5, color="0.4", zorder=3)
    axes.set_yticks(range(rows), [_shortened(data[row].id) for row in range(rows)])
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xlim(-0.01 * horizon, 1.01 * horizon)
    axes.set(title=f"First sequences of {name}", xlabel=f"time{unit}; dot: t_end; colours as at the left")


def _shown_until(data: EventData, row: int) -> float:
    sequence = data[row]
    if len(sequence) > EVENTS_IN_A_ROW:
        return float(sequence.times[EVENTS_IN_A_ROW - 1]) or sequence.t_end
    return sequence.t_end or 1.0


def _colour(place: int) -> str:
    return TYPE_COLOURS[place] if place < len(TYPE_COLOURS) else REST


def _shortened(text: str) -> str:
    # a dollar sign would start a formula in Matplotlib
    return (text if len(text) <= 26 else text[:25] + "…").replace("$", r"\$")
