"""An explanation as tables for a terminal: what is possible, what each rule contributes, and which past events are attended to."""

from __future__ import annotations

import math

from rich.markup import escape
from rich.table import Table

from foretell.evaluate.explain import Explanation, FactExplanation, LayerAttention, RuleContribution
from foretell.wording import counted


def heading(explained: Explanation) -> str:
    """Where the history stands."""
    last = "before any event" if explained.after is None else "after {} at {:g}".format(*explained.after)
    return f"sequence {explained.sequence}, just before {explained.time:g}: {counted(explained.seen, 'event')} seen, {last}"


def tables(explained: Explanation, top: int | None) -> list[Table]:
    """With the first `top` of every list; None: with all."""
    found = [_intensities(explained, top), _contributions(explained, top)]
    return [*found, _attention(explained, top)] if heads_by_effect(explained) else found


def heads_by_effect(explained: Explanation) -> list[tuple[str, RuleContribution]]:
    """Every fact and rule that attends, those that move the intensity most, either way, first."""
    heads = [(fact.fact, one) for fact in explained.facts for one in fact.contributions if one.attention]
    return sorted(heads, key=lambda pair: -abs(pair[1].effect or 0.0))


def factor(effect: float | None) -> str:
    """An effect on a log-intensity, as what it multiplies the intensity by."""
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


def _intensities(explained: Explanation, top: int | None) -> Table:
    shown = list(explained.intensities.items())[:top]
    if explained.event not in dict(shown):
        shown.append((explained.event, explained.intensity))
    more = len(explained.intensities) - len(shown)
    rest = f"and {counted(more, 'more possible event')}; " if more else ""
    caption = f"{rest}total intensity {explained.total:.4g}"
    table = _table("possible events", caption, ("event",), ("intensity", "of the total"))
    for name, value in shown:
        style = "bold" if name == explained.event else None
        table.add_row(escape(name), f"{value:.4g}", f"{100 * value / explained.total:.1f} %", style=style)
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
    table = _table(
        "which past events are attended to",
        f"weight: α / (1 + Σ α); the extra 1 keeps the rest{more}",
        ("fact", "rule"),
        ("effect", "layer", "1 keeps", "weight"),
    )
    table.add_column("past event")
    table.add_column("at", justify="right")
    table.add_column("ago", justify="right")
    for fact, one in shown:
        for place, attention in enumerate(one.attention):
            first = (escape(fact), escape(one.name), factor(one.effect)) if place == 0 else ("", "", "")
            _add_layer(table, first, attention, top)
        table.add_section()
    return table


def _add_layer(table: Table, first: tuple[str, str, str], attention: LayerAttention, top: int | None) -> None:
    shown = attention.additions[:top]
    for place, one in enumerate(shown):
        start = (*first, str(attention.layer), f"{attention.kept:.3f}") if place == 0 else ("",) * 5
        with_them = f", {', '.join(one.conditions)}" if one.conditions else ""
        table.add_row(*start, f"{one.weight:.3f}", escape(one.event + with_them), f"{one.time:g}", f"{one.ago:g}")
    rest = attention.additions[len(shown) :]
    if rest:
        table.add_row(*("",) * 5, f"{sum(one.weight for one in rest):.3f}", f"… {len(rest)} more")
