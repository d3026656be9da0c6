"""The report in a few numbers: a card for each run."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.report.entry import Entry
from foretell.report.markup import Markup, element
from foretell.report.residual_curves import calibration_of, fit_of
from foretell.report.sections.scores import number


def glance(entries: Sequence[Entry]) -> Markup:
    cards = [_card(place, entry) for place, entry in enumerate(one for one in entries if not one.floor)]
    return element("div", *cards, class_="cards")


def _card(place: int, entry: Entry) -> Markup:
    rows: list[tuple[str, str, str]] = []
    told = entry.evaluation.get("log_likelihood") or {}
    if told.get("value") is not None:
        rows.append(
            ("log-likelihood an event", number(told["value"]), f"{number(told['low'])} to {number(told['high'])}")
        )
    told = entry.evaluation.get("error_rate") or {}
    if told.get("value") is not None:
        spread = f"{number(told['low'], True)} to {number(told['high'], True)} %"
        rows.append(("wrong next type", f"{number(told['value'], True)} %", spread))
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
