"""Goodness of fit: whether predicted times are right, whether their uncertainty is calibrated, and which types are confused.

If the model is right, the integral of its intensity from one event to the next is a draw from Exp(1). Then the predicted distribution
function of the next time, evaluated at the observed time, is uniform on [0, 1] (`foretell.evaluate.calibration`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from foretell.data import EventData, Vocabulary
from foretell.evaluate.bootstrap import Estimate, Units
from foretell.evaluate.calibration import Calibration, RescalingTest, calibrate, rescaling_test, residuals, uniform
from foretell.evaluate.likelihood import UNMET, EventScores
from foretell.report.entry import Entry
from foretell.report.markup import Markup, PageSection, chart, element, figure, joined, more, remark, table, text_of
from foretell.terms import split

SHOWN_POINTS = 240
KS_95 = 1.358  # √n times the KS distance stays below it with probability 95 %, for many gaps
TENTHS = 10


@dataclass(frozen=True)
class FitCurves:
    """The Kolmogorov-Smirnov test, and the curves to draw."""

    test: RescalingTest
    band: float  # if the model is right, the distance stays below it with probability 95 %
    expected: np.ndarray  # quantiles of Exp(1)
    observed: np.ndarray  # the same quantiles of the rescaled gaps
    lowest: np.ndarray  # lower edge of the band around `expected`
    highest: np.ndarray
    share: np.ndarray  # probabilities of the predicted distribution
    surplus: np.ndarray  # observed share of gaps that ended by then, minus `share`
    tenths: np.ndarray  # number of gaps per tenth of the predicted distribution

    @property
    def holds(self) -> bool:
        return self.test.ks <= self.band


def fit_of(events: EventScores) -> FitCurves | None:
    """Return the test and its curves; None if there is no gap."""
    found = residuals(events)
    gaps = np.sort(found)
    count = len(gaps)
    if not count:
        return None
    passed = uniform(gaps)
    band = KS_95 / math.sqrt(count)
    shown = min(count, SHOWN_POINTS)
    at = (np.arange(shown) + 0.5) / shown
    edge = 1.0 - 1e-12  # above it the band is open, but plots end earlier
    places = np.unique(np.linspace(0, count - 1, shown).astype(int))
    return FitCurves(
        rescaling_test(found),
        band,
        -np.log1p(-at),
        np.quantile(gaps, at, method="hazen"),
        -np.log1p(-np.clip(at - band, 0.0, edge)),
        -np.log1p(-np.clip(at + band, 0.0, edge)),
        passed[places],
        (places + 0.5) / count - passed[places],
        np.histogram(passed, np.linspace(0.0, 1.0, TENTHS + 1))[0],
    )


def calibration_of(events: EventScores, data: EventData, seed: int = 0) -> Calibration | None:
    """Return the calibration of predicted times and types; None if no event was scored."""
    if not events.is_event.any():
        return None
    units = Units(events.sequence, len(data))
    return calibrate(events, units, units.resampling(seed))


TITLE = "Does it know how sure it is?"


def calibration_section(entries: Sequence[Entry]) -> PageSection:
    found = [(entry, one) for entry in entries if (one := calibration_of(entry.events, entry.data)) is not None]
    if not found:
        return PageSection("calibration", TITLE, remark("No event was scored, so no interval can be checked."))
    of_times = figure(chart("calibration"), chart("tenths"), caption=text_of("calibration"))
    of_types = figure(chart("reliability"), caption=text_of("reliability"), beside=True)
    runs = [{"name": entry.name, **_numbers(entry, one)} for entry, one in found]
    levels = [f"{100 * one.level:.0f} %" for one in found[0][1].times]
    rows = [(entry.name, *(f"{100 * level.coverage.value:.1f} %" for level in one.times)) for entry, one in found]
    numbers = more(
        "Coverage in numbers", table(("run", *levels), rows, label="Share of events inside intervals of each level")
    )
    charts = {name: {"runs": runs} for name in ("calibration", "tenths", "reliability")}
    return PageSection("calibration", TITLE, joined(of_times, of_types, numbers), charts)


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


def fit_section(entries: Sequence[Entry]) -> PageSection:
    found = {entry.name: fit for entry in entries if (fit := fit_of(entry.events)) is not None}
    if not found:
        nothing = remark("No event was scored, so there is no gap to look at.")
        return PageSection("fit", "Are the times right?", nothing)
    rows = []
    for name, fit in found.items():
        test, verdict = fit.test, "inside the band" if fit.holds else "outside: times are off"
        p = "< 0.001" if test.p_value < 0.001 else f"{test.p_value:.3f}"
        distance = (f"{test.ks:.4f}", f"{fit.band:.4f}", p)
        rows.append((name, f"{test.residuals:,}", f"{test.mean:.3f}", *distance, verdict))
    columns = ("run", "gaps", "mean (1 is right)", "KS distance", "95 % band", "p", "verdict")
    runs = [{"name": name, **_curves(fit)} for name, fit in found.items()]
    body = joined(
        figure(chart("qq"), chart("surplus"), caption=text_of("fit")),
        table(columns, rows, label="Kolmogorov-Smirnov statistics", words=(0, 6)),
        remark(text_of("fit_test") + _rounded(entries[0])),
    )
    return PageSection("fit", "Are the times right?", body, {"qq": {"runs": runs}, "surplus": {"runs": runs}})


def _rounded(entry: Entry) -> str:
    """Return a note on the residuals if times lie on a coarse grid."""
    report = entry.data.report
    if report is None or report.grid is None or report.grid_share < 0.9:
        return ""
    return " " + text_of("fit_grid", grid=f"{report.grid:g}", share=f"{100 * report.grid_share:.0f}")


def _curves(fit: FitCurves) -> dict[str, Any]:
    same = {name: getattr(fit, name) for name in ("expected", "observed", "share", "surplus", "band")}
    return {**same, "low": fit.lowest, "high": fit.highest}


MOST_GROUPS = 14  # more cells would be unreadable
NEVER_MET = "never met"  # events that the rules make possible, but that are in no data


@dataclass(frozen=True)
class Confusion:
    """`counts[i, j]`: number of events of group i for which the most probable event was of group j."""

    grouping: Grouping
    names: tuple[str, ...]  # of the groups, followed by NEVER_MET if such an event was predicted
    counts: np.ndarray  # int64 [names, names]

    @property
    def shares(self) -> np.ndarray:
        """The share of each cell in its row; 0 in rows without events."""
        return self.counts / np.maximum(self.counts.sum(1, keepdims=True), 1)


def grouping_of(events: EventScores, vocabulary: Vocabulary, most: int = MOST_GROUPS) -> Grouping:
    """Return groups for all types that occurred or were predicted; the most frequent come first."""
    happened = np.bincount(events.type[events.is_event], minlength=len(vocabulary))
    guessed = events.predicted_type[events.is_event]
    expected = np.bincount(guessed[guessed != UNMET], minlength=len(vocabulary)) > 0
    return group_events(vocabulary, happened * len(events.type) + expected, most)


def confusion_of(events: EventScores, vocabulary: Vocabulary, grouping: Grouping | None = None) -> Confusion:
    grouping = grouping_of(events, vocabulary) if grouping is None else grouping
    real = events.is_event
    unmet = bool((events.predicted_type[real] == UNMET).any())
    names = (*grouping.names, NEVER_MET) if unmet else grouping.names
    places = np.append(grouping.places(vocabulary), len(grouping.names))  # UNMET indexes the last place
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(counts, (places[events.type[real]], places[events.predicted_type[real]]), 1)
    return Confusion(grouping, names, counts)


SHADES = 10


WIDE = 7  # groups; wider tables stand one above the other


def confusion_section(entries: Sequence[Entry]) -> PageSection | None:
    """Return the section with a confusion matrix for each run, as an accessible heat map; None if there is only one type."""
    made = [(entry, confusion_of(entry.events, entry.data.vocabulary)) for entry in entries]
    if max(len(one.names) for _, one in made) < 2:
        return None
    by_functor = any(one.grouping.kind == "functor" for _, one in made)
    what = "event's functor (the name before its parentheses)" if by_functor else "event's type"
    caption = text_of("confusion", what=what, about=" about the functor" if by_functor else "")
    tables = [
        element("div", element("h3", entry.title), heat_map(one, entry.title), class_="chartbox") for entry, one in made
    ]
    return PageSection(
        "confusion",
        "What is taken for what",
        figure(*tables, caption=caption, stacked=max(len(one.names) for _, one in made) > WIDE),
    )


def heat_map(confusion: Confusion, title: str) -> Markup:
    names, shares, totals = confusion.names, confusion.shares, confusion.counts.sum(1)
    heads = [element("th", element("span", name), scope="col", class_="turned") for name in names]
    first = element(
        "tr",
        element("th", "happened ↓ expected →", scope="col"),
        *heads,
        element("th", "events", scope="col", class_="n"),
    )
    rows = []
    for row, name in enumerate(names):
        cells = [
            element(
                "td",
                f"{100 * share:.0f}" if share > 0 or row == column else "",
                class_=f"h{round(SHADES * share)}" + (" right" if row == column else ""),
                title=f"{name} happened, {names[column]} expected: {count:,} of {int(totals[row]):,}",
            )
            for column, (share, count) in enumerate(
                zip(shares[row].tolist(), confusion.counts[row].tolist(), strict=True)
            )
        ]
        rows.append(
            element("tr", element("th", name, scope="row"), *cells, element("td", f"{int(totals[row]):,}", class_="n"))
        )
    inner = element("table", element("thead", first), element("tbody", *rows), class_="heat")
    return element(
        "div", inner, class_="scroll", role="region", aria_label=f"What is taken for what by {title}", tabindex=0
    )


OTHERS = "others"


@lru_cache(maxsize=1 << 16)
def functor_of(name: str) -> str:
    """Return the functor of a name: `pass` for `pass(a,b)`; a name without arguments is its own functor."""
    return split(name)[0] if name.endswith(")") else name


@dataclass(frozen=True)
class Grouping:
    kind: Literal["type", "functor"]
    names: tuple[str, ...]  # the most frequent first; `others`, if any, last
    has_others: bool

    def place(self, name: str) -> int:
        """Return the group of an event's name; -1 if it has none."""
        label = name if self.kind == "type" else functor_of(name)
        own = self.names[:-1] if self.has_others else self.names
        if label in own:
            return own.index(label)
        return len(own) if self.has_others else -1

    def places(self, vocabulary: Vocabulary) -> np.ndarray:
        """Return the group of every type: int64 [K]."""
        return np.asarray([self.place(name) for name in vocabulary.names], dtype=np.int64)


def group_events(vocabulary: Vocabulary, counts: np.ndarray, most: int) -> Grouping:
    """Return a grouping of the types that occur, with at most `most` groups."""
    used = {vocabulary.names[kind]: int(counts[kind]) for kind in np.flatnonzero(counts).tolist()}
    if len(used) <= most:
        return Grouping("type", tuple(_by_count(Counter(used))), False)
    functors: Counter[str] = Counter()
    for name, count in used.items():
        functors[functor_of(name)] += count
    # Functors are only useful if there are several, but fewer than types.
    kind: Literal["type", "functor"] = "functor" if 1 < len(functors) < len(used) else "type"
    ranked = _by_count(functors if kind == "functor" else Counter(used))
    if len(ranked) <= most:
        return Grouping(kind, tuple(ranked), False)
    return Grouping(kind, (*ranked[: most - 1], OTHERS), True)


def _by_count(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda name: (-counts[name], name))
