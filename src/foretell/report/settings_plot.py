"""What a search has found: the dev score of every trial against each setting that was searched, a panel a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure
from foretell.train.space import Choices, Range
from foretell.train.study import TrialRecord
from foretell.train.tune import TuningResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3


def settings_plot(found: TuningResult) -> Figure:
    """Full dots: trained to the end; hollow: given up; the best is marked in every panel. Scores far below the others are at the edge."""
    scored = [one for one in found.tried if one.score is not None]
    names = [name for name in found.space.open if any(name in one.setting for one in scored)]
    columns = min(COLUMNS, max(1, len(names)))
    rows = -(-max(1, len(names)) // columns)
    figure, panels = blank_figure(rows, (3.6 * columns + 0.6, 3.0 * rows), columns=columns)
    floor = _floor([one.score for one in scored if one.score is not None])
    for axes, name in zip(panels, names, strict=False):
        _panel(axes, found, scored, name, floor)
    for axes in panels[len(names) :]:
        axes.remove()
    for axes in panels[: len(names) : columns]:
        axes.set_ylabel("dev, nats an event", fontsize=9)
    return figure


def _floor(scores: Sequence[float]) -> float:
    """Where the picture ends below: a setting that went wrong must not flatten the others."""
    ordered = sorted(scores)
    middle, high = ordered[len(ordered) // 4], ordered[-1]
    return max(ordered[0], middle - 2.0 * (high - middle)) if high > middle else ordered[0]


def _panel(axes: Any, found: TuningResult, scored: Sequence[TrialRecord], name: str, floor: float) -> None:
    shown = [one for one in scored if name in one.setting]
    places = _places(axes, found.space.open[name], [one.setting[name] for one in shown])
    best = found.best
    for one, place in zip(shown, places, strict=True):
        assert one.score is not None
        whole = one.state == "complete"
        axes.plot(
            place,
            max(one.score, floor),
            "v" if one.score < floor else "o",
            markersize=4.5,
            color=COLOURS[0] if whole else FAINT,
            markerfacecolor=COLOURS[0] if whole else "none",
            alpha=0.8,
        )
        if best is not None and one.number == best.number:
            axes.plot(place, one.score, "*", markersize=13, color=COLOURS[1], zorder=5)
    axes.set_title(name, loc="left", fontsize=10, color=INK)


def _places(axes: Any, of: Choices | Range, values: Sequence[Any]) -> list[float]:
    """Where each value stands: choices at even distances in their order, ranges on a scale."""
    if isinstance(of, Range):
        if of.log:
            axes.set_xscale("log")
        return [float(value) for value in values]
    words = [str(value) for value in of.values]
    axes.set_xticks(range(len(words)), [word if len(word) < 16 else f"…{word[-14:]}" for word in words], fontsize=8)
    axes.set_xlim(-0.5, len(words) - 0.5)
    return [float(words.index(str(value))) if str(value) in words else -0.5 for value in values]
