"""What is taken for what: a table for each run, as a heat map that can be read aloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.data import Vocabulary
from foretell.evaluate.likelihood import EventScores
from foretell.evaluate.open_vocabulary import UNMET
from foretell.report.entry import Entry
from foretell.report.grouping import Grouping, group_events
from foretell.report.markup import Markup, PageSection, element, figure, joined

MOST_GROUPS = 14  # more cells cannot be read
NEVER_MET = (
    "never met"  # events that rules make possible and no data ever had: expected at times, here never seen to happen
)


@dataclass(frozen=True)
class Confusion:
    """`counts[i, j]`: events of group i for which the most probable event was of group j."""

    grouping: Grouping
    names: tuple[str, ...]  # of the groups, and NEVER_MET where such an event was expected
    counts: np.ndarray  # int64 [names, names]

    @property
    def shares(self) -> np.ndarray:
        """Of each row; a row without events is zero."""
        return self.counts / np.maximum(self.counts.sum(1, keepdims=True), 1)


def grouping_of(events: EventScores, vocabulary: Vocabulary, most: int = MOST_GROUPS) -> Grouping:
    """Groups for all that happened or was expected; what happened often comes first."""
    happened = np.bincount(events.type[events.is_event], minlength=len(vocabulary))
    guessed = events.predicted_type[events.is_event]
    expected = np.bincount(guessed[guessed != UNMET], minlength=len(vocabulary)) > 0
    return group_events(vocabulary, happened * len(events.type) + expected, most)


def confusion_of(events: EventScores, vocabulary: Vocabulary, grouping: Grouping | None = None) -> Confusion:
    grouping = grouping_of(events, vocabulary) if grouping is None else grouping
    real = events.is_event
    unmet = bool((events.predicted_type[real] == UNMET).any())
    names = (*grouping.names, NEVER_MET) if unmet else grouping.names
    places = np.append(grouping.places(vocabulary), len(grouping.names))  # UNMET is the last
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(counts, (places[events.type[real]], places[events.predicted_type[real]]), 1)
    return Confusion(grouping, names, counts)


SHADES = 10


def confusion_section(entries: Sequence[Entry]) -> PageSection:
    made = [(entry, confusion_of(entry.events, entry.data.vocabulary)) for entry in entries]
    by_functor = any(one.grouping.kind == "functor" for _, one in made)
    what = "event's functor (the name before its parentheses)" if by_functor else "event's type"
    caption = (
        f"Each row is what happened, each column the most probable event's, told the time: the {what}. Numbers are "
        "percentages of the row, and the last column counts the events; on the diagonal the model was right"
        + (" about the functor" if by_functor else "")
        + ". A column that "
        "is strongly coloured all the way down is what the model guesses when it does not know."
    )
    tables = [
        element("div", element("h3", entry.title), heat_map(one, entry.title), class_="chartbox") for entry, one in made
    ]
    return PageSection("confusion", "What is taken for what", joined(figure(*tables, caption=caption)))


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
