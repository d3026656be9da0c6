"""Plots (`foretell.plot`): learning curves, a sequence over time with its events and predicted waits, and goodness of fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.likelihood import EventScores, score_events
from foretell.evaluate.next_time import QUANTILES, waiting_times
from foretell.evaluate.queries import intensities_at
from foretell.models.base import IntensityModel
from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure, date_axis, per_unit, set_scale, time_label
from foretell.report.canvas import save_figure as save_figure  # foretell.plot.save_figure
from foretell.report.sections.fit import calibration_of, confusion_of, fit_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_TYPES = 6
GRID_POINTS = 1500
MOST_WAITS = 1000  # the most events with a predicted time


def learning_curve(records: list[dict[str, Any]], floors: dict[str, float] | None = None) -> Figure:
    """Plot train and dev log-likelihood per event against epochs.

    Args:
        records: one record per epoch: `fit(…).records`, or `RunFolder.metrics()`.
        floors: log-likelihoods on dev by name, drawn as horizontal lines.

    Returns:
        A Matplotlib figure.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"]], [[0.5, 2.0]], t_ends=[10.0])
        >>> fitted = ft.fit(ft.NHP(data.vocabulary, dim=4), data, dev=data, epochs=2)
        >>> figure = ft.plot.learning_curve(fitted.records)
    """
    figure, (axes,) = blank_figure(1, (7.2, 4.2))
    axes.plot([one["epoch"] for one in records], [one["train"] for one in records], color=FAINT, label="train")
    _draw_dev(axes, records, COLOURS[0], "dev")
    for (name, value), colour in zip((floors or {}).items(), (COLOURS[1], COLOURS[4]), strict=False):
        axes.axhline(value, color=colour, linestyle="--", linewidth=1.0, label=f"{name} on dev")
    _label_curves(axes, "Learning curve")
    axes.legend(frameon=False)
    return figure


def learning_curves(runs: dict[str, list[dict[str, Any]]], floors: dict[str, float] | None = None) -> Figure:
    """Plot train (thin) and dev log-likelihood per event of several models against epochs.

    Args:
        runs: the records of each model, by name.
        floors: log-likelihoods on dev by name, drawn as horizontal lines.

    Returns:
        A Matplotlib figure.

    Example:
        >>> records = [{"epoch": 1, "train": -2.0, "dev": -2.1}, {"epoch": 2, "train": -1.8, "dev": -2.0}]
        >>> figure = ft.plot.learning_curves({"NHP": records}, floors={"Poisson": -2.3})
    """
    figure, (axes,) = blank_figure(1, (7.2, 4.2))
    for (name, records), colour in zip(runs.items(), COLOURS, strict=False):
        train = [one["train"] for one in records]
        axes.plot([one["epoch"] for one in records], train, color=colour, linewidth=0.8, alpha=0.5)
        _draw_dev(axes, records, colour, f"{name} on dev (thin: train)")
    for (name, value), style in zip((floors or {}).items(), (":", "--"), strict=False):
        axes.axhline(value, color=FAINT, linestyle=style, linewidth=1.2, label=f"{name} on dev")
    _label_curves(axes, "Learning curves")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_dev(axes: Any, records: list[dict[str, Any]], colour: str, label: str) -> None:
    """Draw the dev curve, with a dot and a number at its best epoch."""
    dev = [(record["epoch"], record["dev"]) for record in records if record.get("dev") is not None]
    if not dev:
        return
    axes.plot(*zip(*dev, strict=True), color=colour, label=label)
    best = max(dev, key=lambda pair: pair[1])
    axes.plot(*best, "o", color=colour, markersize=5)
    axes.annotate(f"{best[1]:.3f}", best, textcoords="offset points", xytext=(0, -14), ha="center", fontsize=9)


def _label_curves(axes: Any, title: str) -> None:
    axes.set_xlabel("epoch")
    axes.set_ylabel("log-likelihood, nats per event")
    axes.set_title(title, loc="left")


class PlotRange(TypedDict, total=False):
    """The time range of a sequence to draw (default: all of it), and the unit of time in the labels."""

    start: float | None
    end: float | None
    time_unit: str


def intensity(model: IntensityModel, data: EventData, place: int = 0, **shown: Unpack[PlotRange]) -> Figure:
    """Plot intensities over time, the events, and the predicted wait for the next event.

    Below the events are the 50 and 90 % intervals of the wait that the model predicts after each event.

    Args:
        model: the model.
        data: the split.
        place: the position of the sequence in the split, from 0.
        **shown: `start` and `end` of the time range, and `time_unit`, a word for the axis.

    Returns:
        A Matplotlib figure.

    Raises:
        ForetellError: the time range has too many events.

    Example:
        >>> data = ft.load("robocup")
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data.train).model
        >>> figure = ft.plot.intensity(model, data.test, start=0.0, end=100.0)
    """
    figure, (upper, lower, waits) = blank_figure(3, (9.0, 7.4), heights=(3, 1.3, 2.2))
    first, last = _draw_intensities(upper, lower, model, data, place, **shown)
    lower.set_xlabel("")
    lower.tick_params(labelbottom=False)
    sequence = data[place]
    chosen = np.flatnonzero((sequence.times >= first) & (sequence.times <= last))
    if len(chosen) > MOST_WAITS:
        raise ForetellError(
            f"sequence {sequence.id}: {len(chosen)} events between {first:g} and {last:g}; at most {MOST_WAITS} are predicted one by one: "
            "choose a shorter part with start and end"
        )
    _draw_waits(waits, sequence.times, chosen, waiting_times(model, data, place, chosen))
    waits.set_xlim(first, last)
    waits.set_ylabel("wait for the next event")
    if not date_axis(waits, data.clock, sequence.start, first, last):
        waits.set_xlabel(time_label(shown.get("time_unit", "")))
    return figure


def _draw_waits(axes: Any, times: np.ndarray, chosen: np.ndarray, waits: np.ndarray) -> None:
    """Draw bands between events at the predicted quantiles of each wait, and a dot for each observed wait."""
    assert QUANTILES == (0.05, 0.25, 0.5, 0.75, 0.95)
    starts = np.concatenate([[0.0], times])[chosen]
    actual = times[chosen] - starts
    positive = np.concatenate([actual, waits[np.isfinite(waits)]])
    positive = positive[positive > 0.0]
    if not len(positive):
        return
    low, high = float(positive.min()) / 1.3, float(positive.max()) * 1.3
    shown = np.clip(np.where(np.isnan(waits), high, waits), low, high)
    edges = np.column_stack([starts, times[chosen]]).ravel()
    bands = [np.repeat(shown[:, column], 2) for column in range(len(QUANTILES))]
    axes.fill_between(edges, bands[0], bands[4], color=COLOURS[0], alpha=0.18, linewidth=0, label="90 % predicted")
    axes.fill_between(edges, bands[1], bands[3], color=COLOURS[0], alpha=0.3, linewidth=0, label="50 % predicted")
    outside = (actual < shown[:, 0]) | (actual > shown[:, 4])
    for which, colour, label in ((~outside, INK, "as it was"), (outside, COLOURS[1], "outside 90 %")):
        axes.plot(times[chosen][which], np.clip(actual[which], low, high), "o", color=colour, markersize=3, label=label)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper left", bbox_to_anchor=(0, 1.2))


def intensity_plot(model: IntensityModel, data: EventData, place: int = 0, **shown: Unpack[PlotRange]) -> Figure:
    """Plot the total intensity and those of the most active types over time, above the observed events.

    Args:
        model: the model.
        data: the split.
        place: the position of the sequence in the split, from 0.
        **shown: `start` and `end` of the time range, and `time_unit`, a word for the axis.

    Returns:
        A Matplotlib figure.

    Example:
        >>> data = ft.load("robocup")
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data.train).model
        >>> figure = ft.plot.intensity_plot(model, data.test, start=0.0, end=100.0)
    """
    figure, (upper, lower) = blank_figure(2, (9.0, 5.2), heights=(3, 1.6))
    _draw_intensities(upper, lower, model, data, place, **shown)
    return figure


def _draw_intensities(
    upper: Any,
    lower: Any,
    model: IntensityModel,
    data: EventData,
    place: int,
    *,
    start: float | None = None,
    end: float | None = None,
    time_unit: str = "",
) -> tuple[float, float]:
    """Draw the part that both plots of intensities share, and return its time range."""
    sequence = data[place]
    start = 0.0 if start is None else start
    end = sequence.t_end if end is None else end
    if not start < end:
        raise ForetellError(f"sequence {sequence.id}: nothing to draw between {start:g} and {end:g}")
    inside = (sequence.times >= start) & (sequence.times <= end)
    happened, kinds = sequence.times[inside], sequence.types[inside]
    # Times on both sides of every event, where an intensity jumps, and an even grid in between.
    edges = np.concatenate([np.linspace(start, end, GRID_POINTS), happened, np.nextafter(happened, np.inf)])
    times = np.unique(edges[(edges >= start) & (edges <= end)])
    (answer,) = intensities_at(model, data.select([place]), times)
    names = data.vocabulary.names
    upper.fill_between(times, answer.intensities.sum(1), color="#dfe6ef", linewidth=0, label="all types")
    active = np.argsort(-np.bincount(kinds, minlength=len(names)), kind="stable")[: min(SHOWN_TYPES, len(names))]
    active = [int(kind) for kind in active if (kinds == kind).any()] or [int(np.argmax(answer.intensities.mean(0)))]
    for colour, kind in zip(COLOURS, active, strict=False):
        upper.plot(times, answer.intensities[:, kind], color=colour, linewidth=1.2, label=names[kind])
        lower.vlines(happened[kinds == kind], 0.1, 0.9, color=colour, linewidth=1.2)
    others = ~np.isin(kinds, active)
    lower.vlines(happened[others], 0.3, 0.7, color=FAINT, linewidth=0.8)
    set_scale(upper, answer.intensities.sum(1))
    upper.set_ylabel(f"events per {per_unit(time_unit)}")
    upper.set_title(f"{model.title}: fitted intensities, sequence {sequence.id}", loc="left")
    upper.legend(frameon=False, ncols=min(4, 1 + len(active)), fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.02))
    lower.set_yticks([])
    lower.set_ylim(0.0, 1.0)
    lower.set_ylabel("events")
    lower.set_xlim(start, end)
    upper.set_xlim(start, end)
    if not date_axis(lower, data.clock, sequence.start, start, end):
        lower.set_xlabel(time_label(time_unit))
    date_axis(upper, data.clock, sequence.start, start, end, zone_shown=False)
    upper.tick_params(labelbottom=False)
    return start, end


Scorable = IntensityModel | EventScores
SCORES_ALONE = "scores"


def qq(models: Scorable | Mapping[str, Scorable], data: EventData) -> Figure:
    """Plot the quantiles of time-rescaled gaps against those of Exp(1), with the 95 % band of the Kolmogorov-Smirnov test.

    Gaps rescaled by a model's own integral follow Exp(1) if the model is right about times. The right half shows the distance.

    Args:
        models: a model, or several by name.
        data: the split on which they are scored.

    Returns:
        A Matplotlib figure.

    Raises:
        ForetellError: no event was scored.

    Example:
        >>> data = ft.load("robocup")
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data.train).model
        >>> figure = ft.plot.qq(model, data.test)
    """
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
    """Plot predicted probabilities against observed shares, for intervals of the next time and for guesses of the next type.

    Args:
        models: a model, or several by name.
        data: the split on which they are scored.

    Returns:
        A Matplotlib figure.

    Raises:
        ForetellError: no event was scored.

    Example:
        >>> data = ft.load("robocup")
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data.train).model
        >>> figure = ft.plot.calibration(model, data.test)
    """
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
    """Plot how often each type is predicted for events of each type, given the time, in percent of each row.

    If there are many types, they are grouped by functor, the name before the parenthesis.

    Args:
        model: the model.
        data: the split on which it is scored.

    Returns:
        A Matplotlib figure.

    Raises:
        ForetellError: no event was scored.

    Example:
        >>> data = ft.load("robocup")
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data.train).model
        >>> figure = ft.plot.confusion(model, data.test)
    """
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
