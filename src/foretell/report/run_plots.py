"""Plots of several runs: two against each other by functor (`compare`), and the trials of a search by setting (`tune`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.metrics import score_of
from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure
from foretell.train.space import Choices, Range

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from foretell.evaluate.compare import RunComparison
    from foretell.train.study import TrialRecord
    from foretell.train.tune import TuningResult


NAMED = 12  # functors with a label; more labels would overlap


def scatter_plot(comparison: RunComparison, time_unit: str = "") -> Figure:
    """Plot a dot for each functor, with 95 % intervals on both axes (paper, figure of RoboCup by action types).

    One panel each for the fit, the time, and the type or participants, if they were scored.
    """
    assert len(comparison.names) == 2
    found = comparison.functors[0].scores if comparison.functors else {}
    scores = {key: score for key in found if (score := score_of(key)) is not None}
    figure, drawn = blank_figure(1, (4.1 * max(1, len(scores)), 4.4))
    drawn[0].remove()
    panels = figure.subplots(1, max(1, len(scores)), squeeze=False)[0]
    for axes, (key, score) in zip(panels, scores.items(), strict=False):
        _panel(axes, comparison, key, 100.0 if score.kind == "share" else 1.0)
        unit = {"nats": ", nats per event", "time": "", "share": ", %"}[score.kind]
        axes.set_title(f"{score.column(time_unit)}{unit}", loc="left", fontsize=10, color=INK)
        side = "above" if score.higher_is_better else "below"
        axes.set_xlabel(f"{comparison.names[0]}\n{side} the line, {comparison.names[1]} is better", fontsize=9)
    return figure


def _panel(axes: Any, comparison: RunComparison, key: str, scale: float) -> None:
    dots = [(one.functor, *one.scores[key]) for one in comparison.functors]
    dots = [(name, first, second) for name, first, second in dots if not np.isnan([first.value, second.value]).any()]
    for place, (name, first, second) in enumerate(dots):
        colour = COLOURS[place % len(COLOURS)]
        x, y = scale * first.value, scale * second.value
        reach = {"xerr": _reach(first, scale), "yerr": _reach(second, scale)}
        axes.errorbar(x, y, **reach, fmt="o", color=colour, markersize=4, linewidth=1.0, capsize=2)
        if place < NAMED:
            axes.annotate(name, (x, y), textcoords="offset points", xytext=(5, 5), fontsize=8, color=colour)
    ends = [scale * value for _, *both in dots for one in both for value in (one.low, one.high)] or [0.0, 1.0]
    room = 0.05 * (max(ends) - min(ends) or 1.0)
    limits = (min(ends) - room, max(ends) + room)
    axes.plot(limits, limits, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    axes.set(xlim=limits, ylim=limits)
    axes.set_box_aspect(1.0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8)
    axes.set_ylabel(comparison.names[1], fontsize=9)


def _reach(one: Estimate, scale: float) -> list[list[float]]:
    """Return the lengths of the interval below and above the value; at least 0, since a skewed score may lie outside its interval."""
    return [[max(0.0, scale * (one.value - one.low))], [max(0.0, scale * (one.high - one.value))]]


COLUMNS = 3


def settings_plot(found: TuningResult) -> Figure:
    """Plot the dev score of every trial against each searched setting, one panel per setting.

    Full dots are complete trials, hollow dots pruned ones; the best is marked in every panel. Very low scores are drawn at the lower edge.
    """
    scored = [one for one in found.tried if one.score is not None]
    names = [name for name in found.space.open if any(name in one.setting for one in scored)]
    columns = min(COLUMNS, max(1, len(names)))
    rows = -(-max(1, len(names)) // columns)
    figure, panels = blank_figure(rows, (3.6 * columns + 0.6, 3.0 * rows), columns=columns)
    floor = _floor([one.score for one in scored if one.score is not None])
    for axes, name in zip(panels, names, strict=False):
        _setting_panel(axes, found, scored, name, floor)
    for axes in panels[len(names) :]:
        axes.remove()
    for axes in panels[: len(names) : columns]:
        axes.set_ylabel("dev, nats per event", fontsize=9)
    return figure


def _floor(scores: Sequence[float]) -> float:
    """Return the lower edge of the plot, so that a failed setting does not compress the others."""
    ordered = sorted(scores)
    middle, high = ordered[len(ordered) // 4], ordered[-1]
    return max(ordered[0], middle - 2.0 * (high - middle)) if high > middle else ordered[0]


def _setting_panel(axes: Any, found: TuningResult, scored: Sequence[TrialRecord], name: str, floor: float) -> None:
    shown = [one for one in scored if name in one.setting]
    places = _places(axes, found.space.open[name], [one.setting[name] for one in shown])
    best = found.best
    for one, place in zip(shown, places, strict=True):
        assert one.score is not None
        mark, whole = "v" if one.score < floor else "o", one.state == "complete"
        colours = {"color": COLOURS[0] if whole else FAINT, "markerfacecolor": COLOURS[0] if whole else "none"}
        axes.plot(place, max(one.score, floor), mark, markersize=4.5, alpha=0.8, **colours)
        if best is not None and one.number == best.number:
            axes.plot(place, one.score, "*", markersize=13, color=COLOURS[1], zorder=5)
    axes.set_title(name, loc="left", fontsize=10, color=INK)


def _places(axes: Any, of: Choices | Range, values: Sequence[Any]) -> list[float]:
    """Return the x position of each value: choices evenly spaced in their order, ranges on a scale."""
    if isinstance(of, Range):
        if of.log:
            axes.set_xscale("log")
        return [float(value) for value in values]
    words = [str(value) for value in of.values]
    axes.set_xticks(range(len(words)), [word if len(word) < 16 else f"…{word[-14:]}" for word in words], fontsize=8)
    axes.set_xlim(-0.5, len(words) - 0.5)
    return [float(words.index(str(value))) if str(value) in words else -0.5 for value in values]
