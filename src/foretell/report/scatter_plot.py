"""Two runs against each other, a dot for each functor with 95 % intervals on both axes (paper, figure of RoboCup by action types)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.compare import RunComparison
from foretell.evaluate.metrics import score_of
from foretell.report.plots import COLOURS, FAINT, INK, blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMED = 12  # functors with their name beside the dot; of more the names would cover each other


def scatter_plot(comparison: RunComparison, time_unit: str = "") -> Figure:
    """One panel each for the fit, the time and the type or participants, as far as they were scored."""
    assert len(comparison.names) == 2
    found = comparison.functors[0].scores if comparison.functors else {}
    scores = {key: score for key in found if (score := score_of(key)) is not None}
    figure, drawn = blank_figure(1, (4.1 * max(1, len(scores)), 4.4))
    drawn[0].remove()
    panels = figure.subplots(1, max(1, len(scores)), squeeze=False)[0]
    for axes, (key, score) in zip(panels, scores.items(), strict=False):
        _panel(axes, comparison, key, 100.0 if score.kind == "share" else 1.0)
        unit = {"nats": ", nats an event", "time": "", "share": ", %"}[score.kind]
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
        axes.errorbar(
            x,
            y,
            xerr=_reach(first, scale),
            yerr=_reach(second, scale),
            fmt="o",
            color=colour,
            markersize=4,
            linewidth=1.0,
            capsize=2,
        )
        if place < NAMED:
            axes.annotate(name, (x, y), textcoords="offset points", xytext=(5, 5), fontsize=8, color=colour)
    low, high = (
        (
            edge(scale * value for _, *both in dots for one in both for value in (one.low, one.high))
            for edge in (min, max)
        )
        if dots
        else (0.0, 1.0)
    )
    room = 0.05 * (high - low or 1.0)
    axes.plot(
        [low - room, high + room], [low - room, high + room], color=FAINT, linewidth=0.8, linestyle="--", zorder=0
    )
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(low - room, high + room)
    axes.set_box_aspect(1.0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8)
    axes.set_ylabel(comparison.names[1], fontsize=9)


def _reach(one: Estimate, scale: float) -> list[list[float]]:
    """How far the interval goes down and up; a quantile may lie on the wrong side of a skewed score."""
    return [[max(0.0, scale * (one.value - one.low))], [max(0.0, scale * (one.high - one.value))]]
