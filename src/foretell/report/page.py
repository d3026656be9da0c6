"""A self-contained HTML page from entries: styles, script and numbers are inside, and it loads nothing.

All text is escaped by `foretell.report.markup`. In addition, a content security policy allows only the page's own script and style, by
their hashes, and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from string import Template

from foretell.data.summary import DataSummary
from foretell.evaluate.metrics import plain_scores
from foretell.report.entry import Entry
from foretell.report.markup import Markup, PageSection, asset, element, embedded_json, joined, more, table
from foretell.report.sections.covariates import covariates_section
from foretell.report.sections.data import data_section
from foretell.report.sections.fit import calibration_of, calibration_section, confusion_section, fit_of, fit_section
from foretell.report.sections.futures import futures_section
from foretell.report.sections.influence import influence_section
from foretell.report.sections.scores import functors_section, learning_section, number, scores_section
from foretell.report.sections.sequence import moments_section, over_time_section
from foretell.report.sections.verdict import verdict


def page(
    title: str,
    subtitle: str,
    runs: Sequence[str],
    head: Markup,
    sections: Sequence[PageSection],
    foot: str = "",
) -> str:
    """Return the page. `runs` are the names of the runs, in the order of their colours; `head` and `foot` enclose the sections."""
    style, script = ("\n" + asset(name) for name in ("page.css", "page.js"))
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:"
    charts = {name: one for section in sections for name, one in section.numbers.items()}
    parts = {
        "policy": policy,
        "title": title,
        "style": Markup(style),
        "subtitle": subtitle,
        "links": joined(*(element("li", element("a", one.title, href=f"#{one.id}")) for one in sections)),
        "head": head,
        "sections": joined(*(section.html() for section in sections)),
        "foot": foot,
        "version": metadata.version("foretell"),
        "numbers": embedded_json({"runs": list(runs), "charts": charts}),
        "script": Markup(script),
    }
    return Template(asset("page.html")).substitute({name: joined(part) for name, part in parts.items()})


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}'"


@dataclass(frozen=True)
class Contents:
    """The inputs of a report."""

    summary: DataSummary
    entries: Sequence[Entry]  # includes floors, and at least one entry that is no floor
    places: Sequence[int]  # the chosen sequence's position in the data of each entry that is no floor
    time_unit: str = ""
    start: float = 0.0  # the sequence is shown from this time on
    day: str = ""  # the date of the report
    command: str = ""  # the command that made the report


def report_page(contents: Contents, progress: Callable[[str, int, int], None] | None = None) -> str:
    told = progress or (lambda words, done, of: None)
    runs = [entry for entry in contents.entries if not entry.floor]
    data = runs[0].data
    where = contents.places, contents.time_unit, contents.start, told
    made = [
        data_section(contents.summary, data),
        learning_section(runs),
        scores_section(contents.entries),
        over_time_section(runs, *where),
        futures_section(runs, *where),
        influence_section(runs, told),
        fit_section(runs),
        calibration_section(runs),
        confusion_section(runs),
        functors_section(runs),
        covariates_section(runs, told),
        moments_section(runs, contents.places, contents.start, told),
    ]
    sections = [one for one in made if one is not None]
    verb = "predicts" if len(runs) == 1 else "predict"
    subtitle = f"How well {_listed([entry.title for entry in runs])} {verb} what happens in {data.name}, and when."
    cards = element("div", *(_card(place, entry) for place, entry in enumerate(runs)), class_="cards")
    said = [element("p", sentence) for sentence in verdict(contents.entries)]
    head = joined(element("div", *said, class_="verdict"), cards) if said else cards
    foot = _foot(contents, runs)
    return page(contents.summary.name, subtitle, [entry.name for entry in runs], head, sections, foot)


def _foot(contents: Contents, runs: Sequence[Entry]) -> Markup:
    """Return the foot of the page: size and settings of every run, the date, and the command."""
    columns, rows = ("run", "model", "parameters"), []
    for entry in runs:
        size = sum(one.numel() for one in entry.model.parameters())
        rows.append((entry.name, entry.model.title, f"{size:,}"))
    sizes = table(columns, rows, label="Size of the models", words=(0, 1))
    settings = [more(f"Settings of {one.name}", element("pre", one.settings)) for one in runs if one.settings]
    day = f" on {contents.day}" if contents.day else ""
    command = joined(" by ", element("code", contents.command)) if contents.command else ""
    return joined(sizes, *settings, element("p", f"Made{day}", command, "."))


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _card(place: int, entry: Entry) -> Markup:
    rows: list[tuple[str, str, str]] = []
    for score in plain_scores():
        told = entry.evaluation.get(score.key) or {}
        if score.main and score.needs == "events" and told.get("value") is not None:
            share = score.kind == "share"
            value, low, high = (number(told[part], share) for part in ("value", "low", "high"))
            label = f"{score.page_column} per event" if score.kind == "nats" else score.page_column
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
