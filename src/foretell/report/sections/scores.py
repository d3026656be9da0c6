"""Learning curves, scores of each model, and scores by functor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from foretell.evaluate.bootstrap import Units
from foretell.evaluate.metrics import EventRecord, ScoreDefinition, by_functor, has_times, metrics_of, plain_scores
from foretell.report.entry import Entry
from foretell.report.markup import Markup, PageSection, chart, element, figure, joined, more, remarks, table, text_of


def scores_section(entries: Sequence[Entry]) -> PageSection:
    """Return the section with a table of scores with intervals, and a plot of the log-likelihoods."""
    shown = [score for score in plain_scores() if any(_estimate(entry, score.key) for entry in entries)]
    best = {score.key: _best(entries, score) for score in shown}
    rows = []
    for entry in entries:
        cells = [_cell(_estimate(entry, one.key), one.kind == "share", best[one.key] == entry.name) for one in shown]
        rows.append((entry.title, *cells))
    caption = text_of("scores", bootstrap=entries[0].evaluation.get("bootstrap", "bootstrap"))
    numbers = table(
        ("model", *(score.page_column for score in shown)), rows, label="Scores of all models", class_="scores"
    )
    forest = [
        {"name": entry.title, "place": None if entry.floor else entry.name, **estimate}
        for entry in entries
        if (estimate := _estimate(entry, "log_likelihood")) is not None
    ]
    picture = figure(chart("forest"), caption=text_of("forest"))
    body = joined(figure(numbers, caption=caption), picture, remarks(_remarks(entries)))
    return PageSection("scores", "Scores", body, {"forest": {"rows": forest}})


def _estimate(entry: Entry, key: str) -> dict[str, float] | None:
    found = entry.evaluation.get(key)
    if not isinstance(found, dict) or found.get("value") is None:
        return None
    value = float(found["value"])
    bounds = {side: value if found.get(side) is None else float(found[side]) for side in ("low", "high")}
    return {"value": value, **bounds}


def _best(entries: Sequence[Entry], score: ScoreDefinition) -> str | None:
    values = {entry.name: found["value"] for entry in entries if (found := _estimate(entry, score.key))}
    if len(values) < 2:
        return None
    return (max if score.higher_is_better else min)(values, key=lambda name: values[name])


def _cell(estimate: dict[str, float] | None, percent: bool, best: bool) -> Markup:
    if estimate is None:
        return element("span", "–")
    value, low, high = (number(estimate[key], percent) for key in ("value", "low", "high"))
    main = element("strong" if best else "span", f"{value} %" if percent else value)
    return joined(main, element("small", f"{low} to {high}"))


def number(value: float, percent: bool = False) -> str:
    """Return a number with a true minus sign, and with as many digits as are useful for scores."""
    text = f"{100 * value:.1f}" if percent else f"{value:.3f}" if abs(value) < 1000 else f"{value:.1f}"
    return text.replace("-", "−")


def _remarks(entries: Sequence[Entry]) -> list[str]:
    found = []
    scored = {entry.name: entry.evaluation.get("events") for entry in entries}
    if len(set(scored.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in scored.items())
        found.append(
            f"The models were not scored on the same events ({told}): their log-likelihoods are not comparable."
        )
    windows = {entry.evaluation.get("window") for entry in entries} - {"all", None}
    if windows:
        found.append(
            f"Scored in the window {', '.join(sorted(map(str, windows)))}: not comparable with full log-likelihoods."
        )
    same: dict[str, list[str]] = {}
    for entry in entries:
        for line in _of_one(entry.evaluation):
            same.setdefault(line, []).append(entry.name)
    found.extend(
        f"{'All models' if len(names) == len(entries) > 1 else ', '.join(names)}: {line}"
        for line, names in same.items()
    )
    if not any(has_times(entry.evaluation) for entry in entries):
        found.append(
            "Errors of the next event's time are not here: foretell evaluate computes them, and a report made after it shows them."
        )
    reused = [entry.name for entry in entries if entry.reused]
    if reused:
        found.append(f"{', '.join(reused)}: these are the scores that foretell evaluate left in the run folder.")
    return found


def _of_one(evaluation: dict[str, Any]) -> list[str]:
    found, used = [], evaluation.get("integral") or {}
    if used.get("standard_error") is not None:
        why = "; quadrature did not settle" if used.get("fallback") else ""
        found.append(
            f"the integral is drawn, with a standard error of {used['standard_error']:.1e} nats per event{why}."
        )
    if evaluation.get("undefined_times"):
        found.append(
            f"{evaluation['undefined_times']} events have no expected time and are not in the errors of times."
        )
    if evaluation.get("unseen_events"):
        found.append(
            f"{evaluation['unseen_events']} events are of {evaluation['unseen_types']} types that never occur in the training data."
        )
    return found


def learning_section(entries: Sequence[Entry]) -> PageSection | None:
    """Return the log-likelihood per event by epoch; None if no run has several epochs, for example if all are direct fits."""
    curves = [_curve(entry) for entry in entries if len(entry.records) > 1]
    if not curves:
        return None
    body = figure(chart("learning"), caption=text_of("learning"))
    return PageSection("learning", "Learning curves", body, {"learning": {"runs": curves}})


def _curve(entry: Entry) -> dict[str, Any]:
    records = [
        one for one in entry.records if isinstance(one.get("train"), int | float) and math.isfinite(one["train"])
    ]
    dev = [[one["epoch"], one["dev"]] for one in records if isinstance(one.get("dev"), int | float)]
    best = max((pair for pair in dev if math.isfinite(pair[1])), key=lambda pair: pair[1], default=None)
    return {"name": entry.name, "train": [[one["epoch"], one["train"]] for one in records], "dev": dev, "best": best}


FUNCTORS_TITLE = "Which run is better at what"
METRIC = "log_likelihood"
MOST_FUNCTORS = 40  # functors, the most frequent first
TOP_FUNCTORS = 10  # rows that are shown before the table is expanded


def functors_section(entries: Sequence[Entry]) -> PageSection | None:
    """Return a comparison of two runs with a dot for each functor; None if there is only one run or functor."""
    if len(entries) < 2:
        return None
    runs, counts = [], {}
    for entry in entries:
        rows, events = _functor_rows(entry)
        counts |= {name: count for name, count in events.items() if name not in counts}
        runs.append({"name": entry.name, "rows": rows})
    if len(counts) < 2:
        return None
    shown = sorted(counts, key=lambda name: -counts[name])[:MOST_FUNCTORS]
    left_out = ""
    if len(counts) > MOST_FUNCTORS:
        left_out = f" Of {len(counts)} functors the {MOST_FUNCTORS} most frequent are shown."
    cells = [(name, f"{counts[name]:,}", *(_told(run["rows"].get(name)) for run in runs)) for name in shown]
    plain = all("(" not in name for name in entries[0].data.vocabulary.names)
    heads = ("event type" if plain else "functor", "events", *(run["name"] for run in runs))
    label = "Log-likelihood by functor"
    numbers = table(heads, cells[:TOP_FUNCTORS], label=label, class_="scores")
    inside = [element("h3", "The same in numbers"), numbers]
    if len(cells) > TOP_FUNCTORS:
        others = table(heads, cells[TOP_FUNCTORS:], label=f"{label}, the less frequent", class_="scores")
        inside.append(more(f"{len(cells) - TOP_FUNCTORS} less frequent ones", others))
    about = "event type" if plain else "functor (an event's name before its parentheses, or all of a plain name)"
    body = figure(
        chart("scatter"),
        element("div", *inside, class_="chartbox"),
        caption=text_of("functors", what=about, left_out=left_out),
    )
    drawn = [
        {"name": run["name"], "rows": {name: run["rows"][name] for name in shown if name in run["rows"]}}
        for run in runs
    ]
    return PageSection("functors", FUNCTORS_TITLE, body, {"scatter": {"runs": drawn, "counts": counts}})


def _functor_rows(entry: Entry) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Return two dicts by functor: the log-likelihood with the limits of its interval, and the number of events."""
    metric = next(one for one in metrics_of(EventRecord(entry.events)) if one.key == METRIC)
    units = Units(entry.events.sequence, len(entry.data))
    found = by_functor([[metric]], entry.events.type, entry.data.vocabulary.names, units)
    rows: dict[str, Any] = {}
    for one in found:
        (estimate,) = one.scores[METRIC]
        rows[_unquoted(one.functor)] = [estimate.value, estimate.low, estimate.high]
    return rows, {_unquoted(one.functor): one.events for one in found}


def _unquoted(name: str) -> str:
    """Return a name as in the data: `'ER Triage'` is quoted only because programs need the quotes."""
    return name[1:-1] if len(name) > 2 and name[0] == name[-1] == "'" else name


def _told(row: Sequence[float] | None) -> Markup:
    if row is None:
        return element("span", "–")
    return joined(element("span", number(row[0])), element("small", f"{number(row[1])} to {number(row[2])}"))
