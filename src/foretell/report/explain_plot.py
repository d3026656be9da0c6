"""An explanation as a picture: a row for each rule that looks back, a dot for each past event, as large as its weight."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from foretell.errors import ForetellError
from foretell.evaluate.explain import AttendedEvent, Explanation, RuleContribution
from foretell.report.explain_tables import factor, heads_by_effect
from foretell.report.plots import COLOURS, FAINT, INK, blank_figure
from foretell.terms import split

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_HEADS = 12
LARGEST_DOT = 260.0  # points², of a weight of 1
SMALLEST_SHOWN = 0.002  # lighter dots would be invisible
BAND = 0.5  # of a row's height, shared by the layers
NAMED_FROM = 0.1  # weights that deserve a name


def explain_plot(explained: Explanation, *, time_unit: str = "") -> Figure:
    """Rows are ordered by their effect on the event's intensity, the largest on top."""
    heads = heads_by_effect(explained)[:SHOWN_HEADS]
    if not heads:
        raise ForetellError(
            f"nothing to draw: no fact in the proofs of `{explained.event}` was added by an event, so no rule looks back"
        )
    figure, (axes,) = blank_figure(1, (9.0, 2.1 + 0.46 * len(heads)))
    past = {one.event_index: one for _, head in heads for layer in head.attention for one in layer.additions}
    shortest = min((one.ago for one in past.values() if one.ago > 0.0), default=1.0)
    ticks = [_distance(one, shortest) for one in past.values()]
    longest = max(ticks)
    for row, (_, head) in enumerate(heads):
        _draw_head(axes, row, head, shortest, longest)
    axes.vlines(ticks, len(heads) - 0.3, len(heads) + 0.3, color=FAINT, linewidth=0.8)
    _label(axes, explained, heads)
    axes.set_xscale("log")
    axes.set_xlim(longest * 1.3, shortest / 1.3)  # what was last is on the right
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    unit = f", in {time_unit}" if time_unit and time_unit != "none" else ""
    axes.set_xlabel(f"how long before {explained.time:g}{unit}")
    figure.legend(frameon=False, fontsize=8, ncols=explained.layers + 2, loc="outside lower center")
    share = 100 * explained.intensity / explained.total
    axes.set_title(
        f"Why {explained.event} just before {explained.time:g}\n"
        f"intensity {explained.intensity:.3g}, {share:.0f} % of all; sequence {explained.sequence}",
        loc="left",
        fontsize=10,
    )
    return figure


def _distance(addition: AttendedEvent, shortest: float) -> float:
    return max(addition.ago, shortest)


def _draw_head(axes: Any, row: int, head: RuleContribution, shortest: float, longest: float) -> None:
    layers = len(head.attention)
    heaviest = None
    for place, attention in enumerate(head.attention):
        shown = [one for one in attention.additions if one.weight >= SMALLEST_SHOWN]
        height = row + BAND * ((place + 0.5) / layers - 0.5)
        axes.scatter(
            [_distance(one, shortest) for one in shown],
            [height] * len(shown),
            s=[LARGEST_DOT * one.weight for one in shown],
            color=COLOURS[place % len(COLOURS)],
            alpha=0.7,
            linewidths=0,
            zorder=3,
        )
        heaviest = max(
            [one for one in (heaviest, *shown[:1]) if one is not None], key=lambda one: one.weight, default=None
        )
    if heaviest is None or heaviest.weight < NAMED_FROM:
        return
    x = _distance(heaviest, shortest)
    from_left = math.log(longest / x) / max(math.log(longest / shortest), 1e-9)
    axes.annotate(
        heaviest.event,
        (x, row),
        textcoords="offset points",
        xytext=(0, 12),
        ha="left" if from_left < 0.1 else "right" if from_left > 0.9 else "center",
        va="center",
        fontsize=7,
        color=INK,
        zorder=4,
    )


def _label(axes: Any, explained: Explanation, heads: list[tuple[str, RuleContribution]]) -> None:
    """On the left what looks back at what, on the right how much it matters and what the extra 1 keeps."""
    names = [f"{fact} ← {split(head.attention[0].additions[0].event)[0]}\n{head.name}" for fact, head in heads]
    axes.set_yticks(range(len(heads) + 1), [*names, "all of these"], fontsize=8)
    axes.set_ylim(len(heads) + 0.6, -0.75)
    axes.grid(axis="y", visible=False)
    axes.hlines(
        [row + 0.5 for row in range(len(heads))],
        0,
        1,
        transform=axes.get_yaxis_transform(),
        color="#eeeeee",
        linewidth=0.8,
    )
    right = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8, "color": INK, "clip_on": False}
    axes.text(1.02, -0.75, "effect", fontweight="bold", **right)
    axes.text(1.12, -0.75, "1 keeps", fontweight="bold", **right)
    for row, (_, head) in enumerate(heads):
        axes.text(1.02, row, factor(head.effect), **right)
        for place, attention in enumerate(head.attention):
            height = row + BAND * ((place + 0.5) / len(head.attention) - 0.5)
            colour = {**right, "color": COLOURS[place % len(COLOURS)]}
            axes.text(1.12, height, f"{100 * attention.kept:.0f} %", **colour)
    for place in range(explained.layers):
        axes.scatter([], [], s=40, color=COLOURS[place % len(COLOURS)], alpha=0.7, label=f"layer {place + 1}")
    for weight in (0.1, 0.5):
        axes.scatter([], [], s=LARGEST_DOT * weight, color=FAINT, linewidths=0, label=f"weight {weight:g}")
