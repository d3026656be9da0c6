"""Does the model know how sure it may be? Intervals of times, tenths of their distribution, and probabilities of types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.calibration import Calibration
from foretell.report.entry import Entry
from foretell.report.markup import joined
from foretell.report.residual_curves import calibration_of, fit_of
from foretell.report.section import Section, chart, figure, more, remark, table

TITLE = "Does it know how sure it is?"


def calibration_section(entries: Sequence[Entry]) -> Section:
    found = [(entry, one) for entry in entries if (one := calibration_of(entry.events, entry.data)) is not None]
    if not found:
        return Section("calibration", TITLE, joined(remark("No event was scored, so no interval can be checked.")))
    of_times = figure(
        chart(
            "calibration",
            "Lines: share of events inside predicted intervals against the intervals' level.",
            "Intervals of the next time",
        ),
        chart("tenths", "Bars: events by tenths of their predicted distribution.", "When events came, in tenths"),
        caption=(
            "Before each event, the model gives an interval for its time that should hold with a chosen probability "
            "(central: as likely to be too early as too late). Intervals: how often they did hold. On the diagonal "
            "the model knows how sure it may be; below, it is too sure; above, too cautious. Tenths: where in its "
            "predicted distribution each event came; all bars are equally high if the model is right (the grey band "
            "is 95 % chance). High on the left: events come earlier than predicted. What was left of a sequence when "
            "watching ended counts towards the first event of the next, as in the chart of rescaled gaps."
        ),
    )
    of_types = figure(
        chart(
            "reliability",
            "Dots: how often the most probable type happened, against its probability.",
            "Probabilities of the next type",
        ),
        caption=(
            "Each dot gathers guesses of the next type (given its time) that were about equally probable: across, "
            "the probability that the model gave; upwards, how often the guess was right; larger dots are more "
            "events. On the diagonal the probabilities can be taken at their word. Whiskers, here and above, are 95 "
            "% intervals."
        ),
        beside=True,
    )
    runs = [{"name": entry.name, **_numbers(entry, one)} for entry, one in found]
    levels = [f"{100 * one.level:.0f} %" for one in found[0][1].times]
    rows = [(entry.name, *(f"{100 * level.coverage.value:.1f} %" for level in one.times)) for entry, one in found]
    numbers = more(
        "Coverage in numbers", table(("run", *levels), rows, label="Share of events inside intervals of each level")
    )
    charts = {name: {"runs": runs} for name in ("calibration", "tenths", "reliability")}
    return Section("calibration", TITLE, joined(of_times, of_types, numbers), charts)


def _numbers(entry: Entry, found: Calibration) -> dict[str, Any]:
    fit = fit_of(entry.events)
    return {
        "levels": [one.level for one in found.times],
        "covered": [_told(one.coverage) for one in found.times],
        "bins": [] if fit is None else fit.tenths,
        "events": 0 if fit is None else fit.test.residuals,
        "types": [[one.probability, *_told(one.right), one.events] for one in found.types],
    }


def _told(one: Estimate) -> list[float]:
    return [one.value, one.low, one.high]
