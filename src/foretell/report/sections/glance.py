"""The report in a few numbers: a card for each run."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.evaluate.metrics import plain_scores
from foretell.report.entry import Entry
from foretell.report.markup import Markup, element
from foretell.report.residual_curves import calibration_of, fit_of
from foretell.report.sections.scores import number


def glance(entries: Sequence[Entry]) -> Markup:
    cards = [_card(place, entry) for place, entry in enumerate(one for one in entries if not one.floor)]
    return element("div", *cards, class_="cards")


def _card(place: int, entry: Entry) -> Markup:
    rows: list[tuple[str, str, str]] = []
    for score in plain_scores():
        told = entry.evaluation.get(score.key) or {}
        if score.main and score.needs == "events" and told.get("value") is not None:
            share = score.kind == "share"
            value, low, high = (number(told[part], share) for part in ("value", "low", "high"))
            label = f"{score.page_column} an event" if score.kind == "nats" else score.page_column
            sign = " %" if share else ""
            rows.append((label, f"{value}{sign}", f"{low} to {high}{sign}"))
    calibration, fit = calibration_of(entry.events, entry.data), fit_of(entry.events)
    if calibration is not None and fit is not None:
        rows.append(("in 90 % intervals", f"{100 * calibration.coverage(0.9).value:.1f} %", "90 % would be right"))
        held = "inside" if fit.holds else "outside"
        rows.append(("KS distance of times", f"{fit.test.ks:.3f}", f"{held} the 95 % band of {fit.band:.3f}"))
    inside = [
        element("div", element("dt", label), element("dd", element("strong", value), element("small", small)))
        for label, value, small in rows
    ]
    return element("article", element("h2", entry.title), element("dl", *inside), class_=f"card run{place % 6}")
