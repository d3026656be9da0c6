"""An explanation as tables for a terminal (possible events, contributions of rules or of past events) and as a plot."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.table import Table

from foretell.errors import ForetellError
from foretell.evaluate.explain import AttendedEvent, Explanation, FactExplanation, LayerAttention, RuleContribution
from foretell.evaluate.leave_out import PastEvent, PastExplanation
from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure
from foretell.terms import split
from foretell.wording import counted, escape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def heading(explained: Explanation | PastExplanation) -> str:
    """Return a sentence that says which sequence and time are explained, and how many events were seen before."""
    last = "before any event"
    if explained.after is not None:
        event, time = explained.after
        last = f"after {event} at {when(explained, time)}"
    seen = counted(explained.seen, "event")
    return f"sequence {explained.sequence}, just before {when(explained, explained.time)}: {seen} seen, {last}"


def when(explained: Explanation | PastExplanation, time: float) -> str:
    """Return a time as a date if the clock has dates, else as a number."""
    return explained.clock.short(time, explained.began) or f"{time:g}"


def tables(explained: Explanation | PastExplanation, top: int | None) -> list[Table]:
    """Return the tables of an explanation with the first `top` rows each; None: all rows."""
    if isinstance(explained, PastExplanation):
        return [_intensities(explained, top), _past(explained, top)]
    found = [_intensities(explained, top), _contributions(explained, top)]
    return [*found, _attention(explained, top)] if heads_by_effect(explained) else found


def heads_by_effect(explained: Explanation) -> list[tuple[str, RuleContribution]]:
    """Return every fact and rule that attends to events, sorted by the absolute effect on the intensity."""
    heads = [(fact.fact, one) for fact in explained.facts for one in fact.contributions if one.attention]
    return sorted(heads, key=lambda pair: -abs(pair[1].effect or 0.0))


def factor(effect: float | None) -> str:
    """Return an effect on a log-intensity as the factor by which it multiplies the intensity."""
    if effect is None:
        return "–"
    size = math.exp(min(effect, 700.0))
    return f"× {size:.2f}" if 0.01 <= size < 100.0 else f"× {size:.2g}"


def percent(share: float) -> str:
    return "< 1 %" if 0.0 < share < 0.005 else f"{100 * share:.0f} %"


def _table(title: str, caption: str, left: tuple[str, ...], right: tuple[str, ...] = ()) -> Table:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _intensities(explained: Explanation | PastExplanation, top: int | None) -> Table:
    shown = list(explained.intensities.items())[:top]
    if explained.event not in dict(shown):
        shown.append((explained.event, explained.intensity))
    more = len(explained.intensities) - len(shown)
    rest = f"and {counted(more, 'more possible event')}; " if more else ""
    caption = f"{rest}total intensity {explained.total:.4g}"
    if isinstance(explained, Explanation) and explained.calendar is not None:
        caption += f"; the calendar: {factor(explained.calendar)} for {escape(explained.event)}"
    table = _table("possible events", caption, ("event",), ("intensity", "of the total"))
    for name, value in shown:
        style = "bold" if name == explained.event else None
        table.add_row(escape(name), f"{value:.4g}", f"{100 * value / explained.total:.1f} %", style=style)
    return table


def _past(explained: PastExplanation, top: int | None) -> Table:
    shown = explained.past[:top]
    more = len(explained.past) - len(shown)
    rest = [f"and {counted(more, 'more past event')} with smaller effects"] if more else []
    if explained.older:
        rest.append(
            f"{counted(explained.older, 'older event')}, not left out one by one: {factor(explained.older_effect)} together"
        )
    table = _table(
        escape(f"why {explained.event}: which past events matter"),
        "\n".join(
            [
                f"effect: what it multiplies the intensity of {escape(explained.event)} by, compared with leaving it out",
                "on all: the same of the total intensity",
                *rest,
            ]
        ),
        (),
        ("effect", "on all"),
    )
    table.add_column("past event")
    table.add_column("at", justify="right")
    table.add_column("ago", justify="right")
    for one in shown:
        cells = factor(one.effect), factor(one.total_effect), escape(one.event), when(explained, one.time)
        table.add_row(*cells, f"{one.ago:g}")
    return table


def _contributions(explained: Explanation, top: int | None) -> Table:
    table = _table(
        escape(f"why {explained.event}: what each rule contributes"),
        "share: of the norms of all that is summed to the fact's embedding, before the tanh, over all layers\n"
        f"effect: what it multiplies the intensity of {escape(explained.event)} by, compared with leaving it out",
        ("fact", "rule"),
    )
    table.add_column("share", justify="right")
    table.add_column("effect", justify="right")
    table.add_column("from")
    for fact in explained.facts:
        _add_fact(table, fact, top)
    return table


def _add_fact(table: Table, fact: FactExplanation, top: int | None) -> None:
    shown = fact.contributions[:top]
    for place, one in enumerate(shown):
        name = escape(fact.fact) if place == 0 else ""
        table.add_row(name, escape(one.name), percent(one.share), factor(one.effect), escape(_source(one, top)))
    if len(shown) < len(fact.contributions):
        table.add_row("", f"… {len(fact.contributions) - len(shown)} more")
    table.add_section()


def _source(one: RuleContribution, top: int | None) -> str:
    if one.attention:
        return f"{counted(len(one.attention[0].additions), 'addition')}: {one.text}"
    if one.kind == "own":
        return "its own vector"
    lines = []
    for proof in one.proofs[:top]:
        body = ", ".join(
            f"{condition.fact} {percent(condition.share)}" if condition.share else condition.fact
            for condition in proof.conditions
        )
        lines.append(body if len(one.proofs) == 1 else f"{percent(proof.share)}: {body}")
    if len(lines) < len(one.proofs):
        lines.append(f"… {len(one.proofs) - len(lines)} more proofs")
    return "\n".join(lines)


def _attention(explained: Explanation, top: int | None) -> Table:
    heads = heads_by_effect(explained)
    shown = heads[:top]
    more = f"; {counted(len(heads) - len(shown), 'more head')} with smaller effects" if len(shown) < len(heads) else ""
    attends = explained.layers > 0
    table = _table(
        "which past events are attended to" if attends else "what past events have left in cells and states",
        f"weight: α / (1 + Σ α); the extra 1 keeps the rest{more}"
        if attends
        else f"weight: share of the norms of what is left of a rule's additions{more}",
        ("fact", "rule"),
        ("effect", "layer", "1 keeps", "weight") if attends else ("effect", "weight"),
    )
    table.add_column("past event")
    table.add_column("at", justify="right")
    table.add_column("ago", justify="right")
    for fact, one in shown:
        for place, attention in enumerate(one.attention):
            first = (escape(fact), escape(one.name), factor(one.effect)) if place == 0 else ("", "", "")
            _add_layer(table, first, attention, top, attends)
        table.add_section()
    return table


def _add_layer(
    table: Table, first: tuple[str, str, str], attention: LayerAttention, top: int | None, attends: bool
) -> None:
    shown = attention.additions[:top]
    begins = (*first, str(attention.layer), f"{attention.kept:.3f}") if attends else first
    for place, one in enumerate(shown):
        start = begins if place == 0 else ("",) * len(begins)
        with_them = f", {', '.join(one.conditions)}" if one.conditions else ""
        table.add_row(*start, f"{one.weight:.3f}", escape(one.event + with_them), f"{one.time:g}", f"{one.ago:g}")
    rest = attention.additions[len(shown) :]
    if rest:
        table.add_row(*("",) * len(begins), f"{sum(one.weight for one in rest):.3f}", f"… {len(rest)} more")


SHOWN_HEADS = 12
LARGEST_DOT = 260.0  # points², for a weight of 1
SMALLEST_SHOWN = 0.002  # lighter dots would be invisible
BAND = 0.5  # of a row's height, shared by the layers
NAMED_FROM = 0.1  # dots from this weight on have a label
NAMED_PAST = 5  # past events with a label


def explain_plot(explained: Explanation | PastExplanation, *, time_unit: str = "") -> Figure:
    """Plot which past events matter: by rule, with the largest effect on the intensity on top; without rules, by their own effects."""
    if isinstance(explained, PastExplanation):
        return _past_plot(explained, time_unit)
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
    axes.set_xlim(longest * 1.3, shortest / 1.3)  # the latest event is on the right
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _head_axes(axes, explained, time_unit)
    figure.legend(frameon=False, fontsize=8, ncols=explained.layers + 2, loc="outside lower center")
    return figure


def _head_axes(axes: Any, explained: Explanation | PastExplanation, time_unit: str) -> None:
    """Set the title to what is explained, and the label of the time axis."""
    unit = f", in {time_unit}" if time_unit and time_unit != "none" else ""
    axes.set_xlabel(f"how long before {when(explained, explained.time)}{unit}")
    share = 100 * explained.intensity / explained.total
    axes.set_title(
        f"Why {explained.event} just before {when(explained, explained.time)}\n"
        f"intensity {explained.intensity:.3g}, {share:.0f} % of all; sequence {explained.sequence}",
        loc="left",
        fontsize=10,
    )


def _past_plot(explained: PastExplanation, time_unit: str) -> Figure:
    """Plot one stem per past event, upwards if it raises the intensity; the strongest are labelled."""
    if not explained.past:
        raise ForetellError("nothing to draw: nothing has happened before this time")
    figure, (axes,) = blank_figure(1, (9.0, 3.6))
    shortest = min((one.ago for one in explained.past if one.ago > 0.0), default=1.0)
    x, y = [_distance(one, shortest) for one in explained.past], [one.effect for one in explained.past]
    axes.axhline(0.0, color=FAINT, linewidth=0.8)
    axes.vlines(x, 0.0, y, color=COLOURS[0], linewidth=1.2, alpha=0.7)
    axes.scatter(x, y, s=14, color=COLOURS[0], zorder=3)
    for one in explained.past[:NAMED_PAST]:
        side = {"textcoords": "offset points", "xytext": (0, 6 if one.effect >= 0.0 else -10), "ha": "center"}
        axes.annotate(one.event, (_distance(one, shortest), one.effect), **side, fontsize=7, color=INK)
    axes.set_xscale("log")
    axes.set_xlim(max(x) * 1.3, shortest / 1.3)  # the latest event is on the right
    axes.margins(y=0.15)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("effect on the log-intensity")
    _head_axes(axes, explained, time_unit)
    return figure


def _distance(addition: AttendedEvent | PastEvent, shortest: float) -> float:
    return max(addition.ago, shortest)


def _draw_head(axes: Any, row: int, head: RuleContribution, shortest: float, longest: float) -> None:
    layers = len(head.attention)
    heaviest = None
    for place, attention in enumerate(head.attention):
        shown = [one for one in attention.additions if one.weight >= SMALLEST_SHOWN]
        height = row + BAND * ((place + 0.5) / layers - 0.5)
        x, sizes = [_distance(one, shortest) for one in shown], [LARGEST_DOT * one.weight for one in shown]
        colour = COLOURS[place % len(COLOURS)]
        axes.scatter(x, [height] * len(shown), s=sizes, color=colour, alpha=0.7, linewidths=0, zorder=3)
        for one in shown[:1]:
            heaviest = one if heaviest is None or one.weight > heaviest.weight else heaviest
    if heaviest is None or heaviest.weight < NAMED_FROM:
        return
    x = _distance(heaviest, shortest)
    from_left = math.log(longest / x) / max(math.log(longest / shortest), 1e-9)
    side = "left" if from_left < 0.1 else "right" if from_left > 0.9 else "center"
    place = {"textcoords": "offset points", "xytext": (0, 12), "ha": side, "va": "center"}
    axes.annotate(heaviest.event, (x, row), **place, fontsize=7, color=INK, zorder=4)


def _label(axes: Any, explained: Explanation, heads: list[tuple[str, RuleContribution]]) -> None:
    """Label each row: on the left the fact, the attended events and the rule, on the right its effect and the weight of the null event."""
    names = [f"{fact} ← {split(head.attention[0].additions[0].event)[0]}\n{head.name}" for fact, head in heads]
    axes.set_yticks(range(len(heads) + 1), [*names, "all of these"], fontsize=8)
    axes.set_ylim(len(heads) + 0.6, -0.75)
    axes.grid(axis="y", visible=False)
    across = axes.get_yaxis_transform()
    axes.hlines([row + 0.5 for row in range(len(heads))], 0, 1, transform=across, color="#eeeeee", linewidth=0.8)
    right = {"transform": across, "va": "center", "fontsize": 8, "color": INK, "clip_on": False}
    axes.text(1.02, -0.75, "effect", fontweight="bold", **right)
    if explained.layers:
        axes.text(1.12, -0.75, "1 keeps", fontweight="bold", **right)
    for row, (_, head) in enumerate(heads):
        axes.text(1.02, row, factor(head.effect), **right)
        for place, attention in enumerate(head.attention if explained.layers else ()):
            height = row + BAND * ((place + 0.5) / len(head.attention) - 0.5)
            colour = {**right, "color": COLOURS[place % len(COLOURS)]}
            axes.text(1.12, height, f"{100 * attention.kept:.0f} %", **colour)
    for place in range(explained.layers):
        axes.scatter([], [], s=40, color=COLOURS[place % len(COLOURS)], alpha=0.7, label=f"layer {place + 1}")
    for weight in (0.1, 0.5):
        axes.scatter([], [], s=LARGEST_DOT * weight, color=FAINT, linewidths=0, label=f"weight {weight:g}")
