"""Pictures of how well a model fits: rescaled gaps, predicted intervals, and what is taken for what.

A model and held-out data in, or several models by name; where they were scored already, their `EventScores` do instead of the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.likelihood import EventScores, score_events
from foretell.models.base import IntensityModel
from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure
from foretell.report.sections.confusion import confusion_of
from foretell.report.sections.fit import calibration_of, fit_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scorable = IntensityModel | EventScores
SCORES_ALONE = "scores"


def qq(models: Scorable | Mapping[str, Scorable], data: EventData) -> Figure:
    """Quantiles of the time-rescaled gaps against those of Exp(1), and their distance from it, each with the 95 % band of the KS test."""
    found = {name: fit for name, one in _scored(models, data).items() if (fit := fit_of(one)) is not None}
    if not found:
        raise ForetellError(f"{data.name}: no event was scored, so there is no gap to draw")
    figure, (left, right) = blank_figure(1, (9.0, 4.2), columns=2)
    widest = max(found.values(), key=lambda fit: fit.band)
    top = float(widest.expected[-1])
    left.fill_between(
        widest.expected, widest.lowest, widest.highest, color="#e8e8e8", linewidth=0, label="95 % KS band"
    )
    left.plot([0.0, top], [0.0, top], color=FAINT, linestyle="--", linewidth=1.0)
    right.axhspan(-widest.band, widest.band, color="#e8e8e8", linewidth=0)
    right.axhline(0.0, color=FAINT, linestyle="--", linewidth=1.0)
    for (name, fit), colour in zip(found.items(), COLOURS, strict=False):
        label = f"{name}: KS {fit.test.ks:.3f} (band {fit.band:.3f})"
        left.plot(fit.expected, fit.observed, "o", color=colour, markersize=2.5, label=label)
        right.plot(fit.share, fit.surplus, color=colour, linewidth=1.4)
    highest = max(float(fit.observed[-1]) for fit in found.values())
    left.set(xlim=(0.0, top * 1.03), ylim=(0.0, min(max(highest, top), 2.0 * top) * 1.03))
    left.set(xlabel="quantiles of the unit exponential", ylabel="quantiles of the rescaled gaps")
    right.set(xlim=(0.0, 1.0), xlabel="share of the predicted distribution", ylabel="observed less expected share")
    left.set_title(f"Rescaled gaps, {data.name}", loc="left")
    left.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def calibration(models: Scorable | Mapping[str, Scorable], data: EventData) -> Figure:
    """How often central intervals of the next time hold, and how often guesses of the next type are right, against what was predicted."""
    found = {
        name: one for name, scores in _scored(models, data).items() if (one := calibration_of(scores, data)) is not None
    }
    if not found:
        raise ForetellError(f"{data.name}: no event was scored, so nothing can be checked")
    figure, (left, right) = blank_figure(1, (9.0, 4.4), columns=2)
    for axes in (left, right):
        axes.plot([0.0, 1.0], [0.0, 1.0], color=FAINT, linestyle="--", linewidth=1.0)
        axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    for (name, one), colour in zip(found.items(), COLOURS, strict=False):
        held = [level.coverage for level in one.times]
        _with_bars(left, [level.level for level in one.times], held, colour, name)
        _with_bars(right, [each.probability for each in one.types], [each.right for each in one.types], colour, name)
    left.set(xlabel="level of the predicted interval", ylabel="share of events inside it")
    right.set(xlabel="probability of the guess", ylabel="share of guesses that were right")
    left.set_title("Next time", loc="left")
    right.set_title("Next type, given its time", loc="left")
    left.legend(frameon=False, fontsize=8)
    return figure


def _with_bars(axes: Any, x: list[float], estimates: list[Any], colour: str, name: str) -> None:
    values = [one.value for one in estimates]
    spread = [
        [max(0.0, one.value - one.low) for one in estimates],
        [max(0.0, one.high - one.value) for one in estimates],
    ]
    axes.errorbar(
        x, values, spread, color=colour, marker="o", markersize=3.5, linewidth=1.2, elinewidth=0.9, label=name
    )


def confusion(model: Scorable, data: EventData) -> Figure:
    """What was taken for what, told the time: types where there are few of them, else functors; percentages of each row."""
    (scores,) = _scored(model, data).values()
    if not scores.is_event.any():
        raise ForetellError(f"{data.name}: no event was scored, so nothing was mistaken")
    found = confusion_of(scores, data.vocabulary)
    names, shares = found.names, found.shares
    size = max(3.4, 1.4 + 0.55 * len(names))
    figure, (axes,) = blank_figure(1, (size + 1.2, size))
    axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    axes.grid(visible=False)
    for row in range(len(names)):
        for column in range(len(names)):
            if found.counts[row, column]:
                ink = "white" if shares[row, column] > 0.6 else INK
                axes.text(
                    column, row, f"{100 * shares[row, column]:.0f}", ha="center", va="center", fontsize=8, color=ink
                )
    labels = [name if len(name) <= 24 else f"{name[:23]}…" for name in names]
    axes.set_xticks(range(len(names)), labels, rotation=45, ha="right", parse_math=False)
    counted = [f"{label} ({count:,})" for label, count in zip(labels, found.counts.sum(1).tolist(), strict=True)]
    axes.set_yticks(range(len(names)), counted, parse_math=False)
    axes.set(xlabel="expected", ylabel="happened (events)")
    axes.set_title("What is taken for what, % of each row", loc="left", fontsize=10)
    return figure


def _scored(models: Scorable | Mapping[str, Scorable], data: EventData) -> dict[str, EventScores]:
    if isinstance(models, IntensityModel):
        models = {models.title: models}
    elif isinstance(models, EventScores):
        models = {SCORES_ALONE: models}
    if not models:
        raise ForetellError("no model to draw: expected a model, its scores, or several of them by name")
    return {name: one if isinstance(one, EventScores) else _score(one, data) for name, one in models.items()}


def _score(model: IntensityModel, data: EventData) -> EventScores:
    if data.vocabulary != model.vocabulary:
        raise ForetellError(f"{data.name}: its event types are not those of the model")
    with model.evaluating():
        return score_events(model, data)
