"""Pictures: a run's learning curve, and the fitted intensities of one sequence with its events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.ask import intensities_at
from foretell.models.base import IntensityModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#3b6fb6", "#c8553d", "#4f9d69", "#8a5aa8", "#d39a2c", "#4aa3a2")
INK, FAINT = "#222222", "#9a9a9a"
SHOWN_TYPES = 6
GRID_POINTS = 1500


def learning_curve(records: list[dict[str, Any]], floors: dict[str, float] | None = None) -> Figure:
    """Train and dev log-likelihood an event against epochs; `floors` are horizontal lines on dev."""
    figure, (axes,) = blank_figure(1, (7.2, 4.2))
    epochs = [record["epoch"] for record in records]
    axes.plot(epochs, [record["train"] for record in records], color=FAINT, label="train")
    dev = [(record["epoch"], record["dev"]) for record in records if record.get("dev") is not None]
    if dev:
        axes.plot(*zip(*dev, strict=True), color=COLOURS[0], label="dev")
        best = max(dev, key=lambda pair: pair[1])
        axes.plot(*best, "o", color=COLOURS[0], markersize=5)
        axes.annotate(f"{best[1]:.3f}", best, textcoords="offset points", xytext=(0, -14), ha="center", fontsize=9)
    for (name, value), colour in zip((floors or {}).items(), (COLOURS[1], COLOURS[4]), strict=False):
        axes.axhline(value, color=colour, linestyle="--", linewidth=1.0, label=f"{name} on dev")
    axes.set_xlabel("epoch")
    axes.set_ylabel("log-likelihood, nats an event")
    axes.set_title("Learning curve", loc="left")
    axes.legend(frameon=False)
    return figure


def learning_curves(runs: dict[str, list[dict[str, Any]]], floors: dict[str, float] | None = None) -> Figure:
    """Several models' dev (and, thin, train) log-likelihood an event against epochs; `floors` are horizontal lines on dev."""
    figure, (axes,) = blank_figure(1, (7.2, 4.2))
    for (name, records), colour in zip(runs.items(), COLOURS, strict=False):
        epochs = [record["epoch"] for record in records]
        axes.plot(epochs, [record["train"] for record in records], color=colour, linewidth=0.8, alpha=0.5)
        dev = [(record["epoch"], record["dev"]) for record in records if record.get("dev") is not None]
        axes.plot(*zip(*dev, strict=True), color=colour, label=f"{name} on dev (thin: train)")
        best = max(dev, key=lambda pair: pair[1])
        axes.plot(*best, "o", color=colour, markersize=5)
        axes.annotate(f"{best[1]:.3f}", best, textcoords="offset points", xytext=(0, -14), ha="center", fontsize=9)
    for (name, value), style in zip((floors or {}).items(), (":", "--"), strict=False):
        axes.axhline(value, color=FAINT, linestyle=style, linewidth=1.2, label=f"{name} on dev")
    axes.set_xlabel("epoch")
    axes.set_ylabel("log-likelihood, nats an event")
    axes.set_title("Learning curves", loc="left")
    axes.legend(frameon=False, fontsize=8)
    return figure


def intensity_plot(
    model: IntensityModel,
    data: EventData,
    place: int = 0,
    *,
    start: float | None = None,
    end: float | None = None,
    time_unit: str = "",
) -> Figure:
    """Total intensity and that of the most active types over time, above the events that happened."""
    sequence = data[place]
    start = 0.0 if start is None else start
    end = sequence.t_end if end is None else end
    if not start < end:
        raise ForetellError(f"sequence {sequence.id}: nothing to draw between {start:g} and {end:g}")
    inside = (sequence.times >= start) & (sequence.times <= end)
    happened, kinds = sequence.times[inside], sequence.types[inside]
    # Both sides of every event, where an intensity jumps, and an even grid in between.
    edges = np.concatenate([np.linspace(start, end, GRID_POINTS), happened, np.nextafter(happened, np.inf)])
    times = np.unique(edges[(edges >= start) & (edges <= end)])
    (answer,) = intensities_at(model, data.select([place]), times)
    names = data.vocabulary.names
    figure, (upper, lower) = blank_figure(2, (9.0, 5.2), heights=(3, 1.6))
    upper.fill_between(times, answer.intensities.sum(1), color="#dfe6ef", linewidth=0, label="all types")
    active = np.argsort(-np.bincount(kinds, minlength=len(names)), kind="stable")[: min(SHOWN_TYPES, len(names))]
    active = [int(kind) for kind in active if (kinds == kind).any()] or [int(np.argmax(answer.intensities.mean(0)))]
    for colour, kind in zip(COLOURS, active, strict=False):
        upper.plot(times, answer.intensities[:, kind], color=colour, linewidth=1.2, label=names[kind])
        lower.vlines(happened[kinds == kind], 0.1, 0.9, color=colour, linewidth=1.2)
    others = ~np.isin(kinds, active)
    lower.vlines(happened[others], 0.3, 0.7, color=FAINT, linewidth=0.8)
    upper.set_ylim(bottom=0.0)
    upper.set_ylabel(f"events per {_unit(time_unit)}")
    upper.set_title(f"{model.title}: fitted intensities, sequence {sequence.id}", loc="left")
    upper.legend(frameon=False, ncols=min(4, 1 + len(active)), fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.02))
    lower.set_yticks([])
    lower.set_ylim(0.0, 1.0)
    lower.set_ylabel("events")
    lower.set_xlabel(f"time ({time_unit})" if time_unit and time_unit != "none" else "time")
    lower.set_xlim(start, end)
    upper.set_xlim(start, end)
    upper.tick_params(labelbottom=False)
    return figure


def check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise ForetellError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")


def save_figure(figure: Figure, path: Path) -> None:
    from foretell.data.writing import replacing

    check_suffix(path)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)


def blank_figure(
    rows: int, size: tuple[float, float], heights: tuple[float, ...] | None = None
) -> tuple[Figure, list[Any]]:
    """Empty axes, one above the other, in the style of all pictures."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ForetellError("drawing needs matplotlib: pip install 'foretell[report]'") from None
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False, height_ratios=heights)[:, 0]
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(colors=INK, labelsize=9)
        one.grid(axis="y", color="#eeeeee", linewidth=0.8)
        one.set_axisbelow(True)
    return figure, list(axes)


def _unit(time_unit: str) -> str:
    if not time_unit or time_unit == "none":
        return "unit of time"
    return time_unit.split(" (")[0].removesuffix("s") if len(time_unit) < 30 else "unit of time"
