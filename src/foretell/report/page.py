"""Sections in, one HTML page out that needs nothing but itself: styles, script and numbers are inside, and it may load nothing.

Every text passes through `foretell.report.markup`, which escapes it. Besides, a content security policy names the page's own script and
style by their hashes, so that no other would run, and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import metadata, resources

from foretell.report.markup import Markup, element, embedded_json, joined
from foretell.report.section import Section


def page(title: str, subtitle: str, runs: Sequence[str], head: Markup, sections: Sequence[Section]) -> str:
    """`runs` are the names of the runs, in the order of their colours; `head` is what comes before the sections."""
    style, script = (_file(name) for name in ("page.css", "page.js"))
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:"
    numbers = {
        "runs": list(runs),
        "charts": {name: one for section in sections for name, one in section.numbers.items()},
    }
    links = [element("li", element("a", section.title, href=f"#{section.id}")) for section in sections]
    body = joined(
        element("a", "Skip to the report", href="#main", class_="skip"),
        element(
            "header",
            element("p", "foretell report", class_="eyebrow"),
            element("h1", title),
            element("p", subtitle, class_="subtitle"),
            element("nav", element("ul", *links), aria_label="Sections"),
        ),
        element(
            "main",
            element(
                "noscript",
                element(
                    "p", "Tables can be read as they are; charts are drawn by this page's own script, which is off."
                ),
            ),
            head,
            *(section.html() for section in sections),
            id="main",
        ),
        element(
            "footer",
            element("p", f"Made by foretell {metadata.version('foretell')}. This page is one file and loads nothing."),
        ),
        element("div", id="tip", role="status", hidden=True),
        element("script", embedded_json(numbers), type="application/json", id="numbers"),
        element("script", Markup(script)),
    )
    top = joined(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{title} · foretell report"),
        element("style", Markup(style)),
    )
    return "<!doctype html>\n" + element("html", element("head", top), element("body", body), lang="en") + "\n"


def _file(name: str) -> str:
    return "\n" + resources.files("foretell.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}'"
