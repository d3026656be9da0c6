"""What is taken for what: a table for each run, as a heat map that can be read aloud."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.report.confusion import Confusion, confusion_of
from foretell.report.entry import Entry
from foretell.report.markup import Markup, element, joined
from foretell.report.section import Section, figure

SHADES = 10


def confusion_section(entries: Sequence[Entry]) -> Section:
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
    return Section("confusion", "What is taken for what", joined(figure(*tables, caption=caption)))


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
