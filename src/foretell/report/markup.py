"""HTML elements and sections of a page. All text is escaped, except markup made here."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import resources
from string import Template
from typing import Any

from foretell.wording import printable

VOID = ("br", "link", "meta", "input")
_LONG_WORD = re.compile(r"\S{200,}")
_UNSEEN = re.compile(
    r"[^\S\n\t ]|[^\s\x20-\x7e\xa1-\u1fff]"
)  # may be a character that is not shown, so each is checked


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | int | float | bool | None) -> Markup:
    """Return an element. `class_` is the attribute `class`, `aria_label` is `aria-label`; True: no value; None or False: no attribute."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{escape(shown_text(str(value)), quote=True)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else escape(shown_text(child)) for child in children))


def shown_text(text: str) -> str:
    """Return text for a page: control characters and marks for writing direction become visible signs; very long words are cut."""
    text = _UNSEEN.sub(lambda found: printable(found[0]), text)
    return _LONG_WORD.sub(lambda found: f"{found[0][:199]}…", text)


def embedded_json(value: Any) -> Markup:
    """Return JSON for the inside of a `script` element; no character in it can end the element."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def plain(value: Any) -> Any:
    """Return a value for JSON: numbers rounded to five digits, which suffice for a chart; NaN and infinities become null."""
    if isinstance(value, dict):
        return {shown_text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array or a scalar of numpy
        return plain(value.tolist())
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.12g}" if isinstance(value, PreciseValue) else f"{value:.5g}")
        return int(short) if short == int(short) and abs(short) < 1e15 else short
    return shown_text(value) if isinstance(value, str) else value


class PreciseValue(float):
    """A number that is kept to twelve digits, such as a late time on a long clock."""

    __slots__ = ()


def precise(values: Iterable[float]) -> list[PreciseValue]:
    return [PreciseValue(value) for value in values]


@dataclass(frozen=True)
class PageSection:
    id: str
    title: str
    body: Markup
    numbers: dict[str, Any] = field(default_factory=dict)  # by chart

    def html(self) -> Markup:
        heading = element("h2", self.title, id=f"{self.id}-title")
        return element("section", heading, self.body, id=self.id, aria_labelledby=f"{self.id}-title")


@cache
def texts() -> dict[str, dict[str, Any]]:
    """Return the content of `assets/texts.toml`: titles and labels of charts, captions of figures."""
    return tomllib.loads(asset("texts.toml"))


def asset(name: str) -> str:
    return resources.files("foretell.report").joinpath("assets", name).read_text(encoding="utf-8")


def text_of(name: str, **values: object) -> str:
    """Return a caption with the values filled in."""
    return Template(" ".join(texts()["captions"][name].split())).substitute(values)


def figure(*parts: str, caption: str, stacked: bool = False, beside: bool = False) -> Markup:
    """Return charts side by side if there is room (or one above the other), with a caption, below or beside, that explains them."""
    inside = element("div", *parts, class_="stack" if stacked else "charts") if len(parts) > 1 else joined(*parts)
    return element("figure", inside, element("figcaption", caption), class_="beside" if beside else None)


def chart(name: str, **values: object) -> Markup:
    """Return the element into which the page's script draws a chart, with title and label; values are filled into the title."""
    about = texts()["charts"][name]
    head = [element("h3", Template(about["title"]).substitute(values))] if "title" in about else []
    place = element("div", class_="chart", data_chart=name, data_label=about["label"])
    return element("div", *head, place, class_="chartbox")


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, label: str, words: Sequence[int] = (0,), class_: str = ""
) -> Markup:
    """Return a table that scrolls inside its own box. Columns not in `words` are numeric; the first cell of a row is its heading."""
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
    """Return a part of a page that is collapsed until the reader opens it."""
    return element("details", element("summary", summary), *inside)


def remark(text: str) -> Markup:
    return element("p", text, class_="remark")


def remarks(lines: Sequence[str]) -> Markup:
    return element("ul", *(element("li", line) for line in lines), class_="remark") if lines else Markup()
