"""One section of the page: a heading, what stands below it, and the numbers that its charts are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from foretell.report.markup import Markup, element, joined


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    body: Markup
    numbers: dict[str, Any] = field(default_factory=dict)  # by chart

    def html(self) -> Markup:
        heading = element("h2", self.title, id=f"{self.id}-title")
        return element("section", heading, self.body, id=self.id, aria_labelledby=f"{self.id}-title")


def figure(*parts: str, caption: str, stacked: bool = False, beside: bool = False) -> Markup:
    """Charts side by side where there is room (or one above the other), and in plain words, below or beside, how to read them."""
    inside = element("div", *parts, class_="stack" if stacked else "charts") if len(parts) > 1 else joined(*parts)
    return element("figure", inside, element("figcaption", caption), class_="beside" if beside else None)


def chart(name: str, label: str, title: str = "", **options: str) -> Markup:
    """A place that the page's script draws in; `label` says to those who do not see it what is there."""
    head = (element("h3", title),) if title else ()
    place = element("div", class_="chart", data_chart=name, data_label=label, **options)
    return element("div", *head, place, class_="chartbox")


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, label: str, words: Sequence[int] = (0,), class_: str = ""
) -> Markup:
    """Columns are numbers but for those in `words`; a row's first cell is its heading. It scrolls inside its own box."""
    heads = [
        element("th", name, scope="col", class_=None if place in words else "n") for place, name in enumerate(columns)
    ]
    made = []
    for first, *others in rows:
        cells = [element("td", cell, class_=None if place + 1 in words else "n") for place, cell in enumerate(others)]
        made.append(element("tr", element("th", first, scope="row"), *cells))
    inner = element("table", element("thead", element("tr", *heads)), element("tbody", *made), class_=class_ or None)
    return element("div", inner, class_="scroll", role="region", aria_label=label, tabindex=0)


def more(summary: str, *inside: str) -> Markup:
    """What is there for those who open it."""
    return element("details", element("summary", summary), *inside)


def remark(text: str) -> Markup:
    return element("p", text, class_="remark")


def remarks(lines: Sequence[str]) -> Markup:
    return element("ul", *(element("li", line) for line in lines), class_="remark") if lines else Markup()
