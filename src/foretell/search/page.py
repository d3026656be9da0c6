"""The HTML page of a search: the chosen model and the reason, all tried models with intervals, and their learning curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretell.report.markup import Markup, PageSection, chart, element, figure, joined, remark, remarks, table, text_of
from foretell.report.page import page
from foretell.report.sections.scores import number
from foretell.reproduce.experiment import Results
from foretell.search.leaderboard import Leaderboard, LeaderboardEntry, curves

STATES = {"whole": "all epochs", "shorter": "shorter fit", "stopped": "stopped by the clock"}


def comparison_page(found: Mapping[str, Any], results: Results, board: Leaderboard) -> str:
    """Return the page; `found` is the summary of the search, as printed by `--json`."""
    runs = [entry.title for entry in board.entries if not entry.is_floor]
    sections = [_choice(found, board), _board(board), _learning(results, board), _tried(found, board)]
    name = results.folder.name
    subtitle = f"{len(board.entries)} models tried on {name} in {found['seconds'] / 60:.1f} minutes, judged on dev."
    return page(name, subtitle, runs, _card(found, board), sections)


def _card(found: Mapping[str, Any], board: Leaderboard) -> Markup:
    best = board.best
    rows = [("log-likelihood per event on dev", number(best.dev.value), _interval(best.dev.low, best.dev.high))]
    test = (found["test"] or {}).get("log_likelihood")
    if test is not None:
        rows.append(("log-likelihood per event on test", number(test["value"]), _interval(test["low"], test["high"])))
    rows.append(("parameters", f"{best.parameters:,}", f"{best.seconds:.0f} s of training"))
    inside = [
        element("div", element("dt", label), element("dd", element("strong", value), element("small", small)))
        for label, value, small in rows
    ]
    return element(
        "div", element("article", element("h2", best.title), element("dl", *inside), class_="card run0"), class_="cards"
    )


def _choice(found: Mapping[str, Any], board: Leaderboard) -> PageSection:
    lines = [f"Chosen: {board.best.title}. {_sentence(board.reason)}"]
    lines += [_sentence(board.verdict)] if board.verdict else []
    if found["test"] is None:
        lines.append("Test was not scored.")
    else:
        lines.append("Test was scored once, after the choice, and for the chosen model alone.")
    lines.append(f"The run is in {found['run']}; foretell evaluate, predict, sample and report take it as any other.")
    return PageSection("choice", "What was chosen, and why", joined(*(element("p", line) for line in lines)))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _board(board: Leaderboard) -> PageSection:
    heads = ("model", "dev, nats per event", "chosen is better by", "epochs", "state", "parameters", "seconds")
    rows = [_row(entry, entry.candidate == board.chosen) for entry in board.entries]
    numbers = table(heads, rows, label="Leaderboard", words=(0, 4), class_="scores")
    forest = [
        {"name": one.title, "place": None if one.is_floor else one.title, **_estimate(one)} for one in board.entries
    ]
    body = joined(figure(numbers, caption=text_of("leaderboard")), figure(chart("forest"), caption=text_of("forest")))
    return PageSection("leaderboard", "Leaderboard", body, {"forest": {"rows": forest}})


def _estimate(entry: LeaderboardEntry) -> dict[str, float]:
    return {"value": entry.dev.value, "low": entry.dev.low, "high": entry.dev.high}


def _interval(low: float, high: float) -> str:
    return f"{number(low)} to {number(high)}"


def _row(entry: LeaderboardEntry, chosen: bool) -> tuple[str, ...]:
    behind = entry.behind
    gap = element("span", "–")
    if behind is not None:
        gap = joined(element("span", number(behind.value)), element("small", _interval(behind.low, behind.high)))
    score = joined(
        element("strong" if chosen else "span", number(entry.dev.value)),
        element("small", _interval(entry.dev.low, entry.dev.high)),
    )
    title = element("strong", f"{entry.title} ★") if chosen else element("span", entry.title)
    epochs = "–" if entry.is_floor else f"{entry.epochs} (best {entry.best_epoch})"
    return title, score, gap, epochs, STATES[entry.state], f"{entry.parameters:,}", f"{entry.seconds:.0f}"


def _learning(results: Results, board: Leaderboard) -> PageSection:
    found = curves(results, board)
    if not found:
        return PageSection("learning", "Learning curves", remark("No model was trained for several epochs."))
    runs = [
        {"name": name, "train": [], "dev": points, "best": max(points, key=lambda point: point[1])}
        for name, points in found.items()
    ]
    body = figure(chart("learning"), caption=text_of("search_learning"))
    return PageSection("learning", "Learning curves", body, {"learning": {"runs": runs}})


def _tried(found: Mapping[str, Any], board: Leaderboard) -> PageSection:
    rows = [(one.title, one.why, str(one.fits)) for one in board.entries]
    numbers = table(("model", "why it was tried", "fits"), rows, label="What was tried", words=(0, 1))
    lines = [f"{title}: failed: {why}" for title, why in board.failed.items()]
    if board.untried:
        lines.append(f"There was no time for {', '.join(board.untried)}: more minutes go on where this search ended.")
    caption = text_of("tried", minutes=f"{found['minutes']:g}")
    return PageSection("tried", "What was tried", joined(figure(numbers, caption=caption), remarks(lines)))
