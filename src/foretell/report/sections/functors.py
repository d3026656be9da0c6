"""Which model is better at what: two runs against each other, a dot for each functor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretell.evaluate.bootstrap import Units
from foretell.evaluate.by_functor import by_functor
from foretell.evaluate.metrics import EventRecord, metrics_of
from foretell.report.entry import Entry
from foretell.report.markup import Markup, PageSection, chart, element, figure, joined, remark, table
from foretell.report.sections.scores import number

TITLE = "Which run is better at what"
METRIC = "log_likelihood"
MOST = 40  # functors, the most frequent first


def functors_section(entries: Sequence[Entry]) -> PageSection:
    if len(entries) < 2:
        return PageSection(
            "functors", TITLE, joined(remark("There is one run: name two or more to compare them here."))
        )
    runs, counts = [], {}
    for entry in entries:
        rows, events = _of_one(entry)
        counts |= {name: count for name, count in events.items() if name not in counts}
        runs.append({"name": entry.name, "rows": rows})
    shown = sorted(counts, key=lambda name: -counts[name])[:MOST]
    left_out = f" Of {len(counts)} functors the {MOST} most frequent are shown." if len(counts) > MOST else ""
    caption = (
        "Each dot is a functor (an event's name before its parentheses, or all of a plain name): the mean "
        "log-likelihood of its events under one run (across) and under another (upwards), in nats an event, with 95 "
        "% intervals both ways. Above the diagonal the run on the upright axis is better at it, below the other one. "
        f"Larger dots: more events.{left_out}"
    )
    cells = [(name, f"{counts[name]:,}", *(_told(run["rows"].get(name)) for run in runs)) for name in shown]
    heads = ("functor", "events", *(run["name"] for run in runs))
    numbers = table(heads, cells, label="Log-likelihood by functor", class_="scores")
    body = figure(
        chart("scatter", "Dots: log-likelihood by functor under two runs, with intervals both ways."),
        element("div", element("h3", "The same in numbers"), numbers, class_="chartbox"),
        caption=caption,
    )
    drawn = [
        {"name": run["name"], "rows": {name: run["rows"][name] for name in shown if name in run["rows"]}}
        for run in runs
    ]
    return PageSection("functors", TITLE, body, {"scatter": {"runs": drawn, "counts": counts}})


def _of_one(entry: Entry) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Of each functor its value, low and high; and its events."""
    metric = next(one for one in metrics_of(EventRecord(entry.events)) if one.key == METRIC)
    units = Units(entry.events.sequence, len(entry.data))
    found = by_functor([[metric]], entry.events.type, entry.data.vocabulary.names, units)
    rows: dict[str, Any] = {}
    for one in found:
        (estimate,) = one.scores[METRIC]
        rows[one.functor] = [estimate.value, estimate.low, estimate.high]
    return rows, {one.functor: one.events for one in found}


def _told(row: Sequence[float] | None) -> Markup:
    if row is None:
        return element("span", "–")
    return joined(element("span", number(row[0])), element("small", f"{number(row[1])} to {number(row[2])}"))
