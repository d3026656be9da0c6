"""Output of commands: progress on stderr (a bar on a terminal, plain lines elsewhere), tables and JSON on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from foretell.wording import counted, escape

if TYPE_CHECKING:
    from foretell.evaluate.compare import RunComparison
    from foretell.evaluate.metrics import ScoreDefinition
    from foretell.evaluate.scores import Evaluation

SHOWN_FUNCTORS = 12


def out() -> Console:
    """Return the console for stdout: on a terminal as wide as the terminal, else as wide as the tables need."""
    if sys.stdout.isatty():
        return Console(highlight=False, emoji=False)
    return Console(highlight=False, emoji=False, width=140, soft_wrap=True)


def make_table(title: str, columns: Iterable[str], left: Collection[str], caption: str = "") -> Table:
    """Return an empty table with its title and caption; columns in `left` are left-aligned, the others right-aligned."""
    table = Table(title=escape(title), caption=escape(caption) or None, title_justify="left", caption_justify="left")
    for name in columns:
        lines = "\n".join(map(escape, name.split("\n")))  # keeps our own line breaks
        table.add_column(lines, justify="left" if name in left else "right")
    return table


def plain_table(columns: Iterable[str], left: Collection[str]) -> Table:
    """Return an empty table without lines and title; columns as in `make_table`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right")
    return table


def print_json(value: Any) -> None:
    """Print a value as JSON; terminal control characters are written as \\u…."""
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
    sys.stdout.write(text + "\n")


def epoch_line(record: dict[str, Any]) -> str:
    dev = f"   dev {record['dev']:9.4f}" if record.get("dev") is not None else ""
    dev += f" ({100 * record['dev_accuracy']:.1f} % right)" if "dev_accuracy" in record else ""
    best = " *" if record.get("best_epoch") == record["epoch"] else ""
    scores = f"   nce {record['nce']:9.4f}" if "nce" in record else ""
    scores += f"   train {record['train']:9.4f}" if record["train"] is not None else ""
    return f"epoch {record['epoch']:4d}{scores}{dev}   {record['train_seconds']:6.1f} s{best}"


def score_table(evaluations: list[Evaluation], time_unit: str = "", participants: bool = False) -> Table:
    """Return a table with one row per model, each score with its 95 % interval; `participants` adds the error over all patterns."""
    first, scores = evaluations[0], _scores_of(evaluations, closer=False)
    title = f"{first.data}: {first.events} events in {counted(first.sequences, 'sequence')}, window {first.window}"
    caption = f"nats per event, higher is better; [95 % intervals: {first.bootstrap}]"
    names = ["model", *(one.column(time_unit) for one in scores), *(["error of who"] if participants else [])]
    table = make_table(title, names, ["model"], caption)
    for one in evaluations:
        who = [cell(one.participants[-1].error_rate, True)] if participants else []
        table.add_row(escape(one.model), *_cells(one, scores), *who)
    return table


def _scores_of(evaluations: list[Evaluation], closer: bool) -> list[ScoreDefinition]:
    """Return the scores of the first or the second table (`closer`) that at least one evaluation has."""
    from foretell.evaluate.metrics import plain_scores

    return [
        score
        for score in plain_scores()
        if score.closer == closer and any(one.scores.get(score.key) is not None for one in evaluations)
    ]


def _cells(evaluation: Evaluation, scores: list[ScoreDefinition]) -> list[str]:
    return [cell(evaluation.scores.get(one.key), one.kind == "share") for one in scores]


def _two_lines(heading: str) -> str:
    """Return a heading broken at the space nearest to its middle."""
    spaces = [place for place, sign in enumerate(heading) if sign == " "]
    middle = min(spaces, key=lambda place: abs(2 * place - len(heading)), default=None)
    return heading if middle is None else f"{heading[:middle]}\n{heading[middle + 1 :]}"


def fit_table(evaluations: list[Evaluation]) -> Table:
    """Return the second table: the other errors, and the calibration of predicted times."""
    scores = _scores_of(evaluations, closer=True)
    caption = (
        "of rescaled times: distance from Exp(1) (Kolmogorov-Smirnov), p if the model were right, mean gap (1 is right)"
    )
    fit = [*(f"true time in\n{level} % interval" for level in (50, 90)), "rescaled\ntimes"]
    names = ["model", *(_two_lines(one.column()) for one in scores), *fit]
    table = make_table("more closely", names, ["model"], caption)
    for one in evaluations:
        held = [cell(one.calibration.coverage(level), True) for level in (0.5, 0.9)]
        found = one.rescaling
        rescaled = f"{found.ks:.3f}, p {_small(found.p_value)}\nmean {found.mean:.3f}"
        table.add_row(escape(one.model), *_cells(one, scores), *held, rescaled)
    return table


def _small(p: float) -> str:
    return "–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def future_table(evaluations: list[Evaluation], time_unit: str = "") -> Table:
    """Return a table with the distances between sampled and true futures; the caption has all parameters."""
    first = evaluations[0].futures
    assert first is not None
    unit = f" {time_unit}" if time_unit and len(time_unit) < 20 else ""
    title = f"futures: {first.futures} from each of {first.starts} times, over a horizon of {first.horizon:g}{unit}"
    caption = (
        f"optimal transport: first {first.steps} events, C to insert or delete one, lower is better; "
        f"T-mAP: within {first.delta:g}{unit}, higher is better (HoTPP's definitions)"
    )
    costs = [f"transport\nC = {one.cost:g}" for one in first.transport]
    names = ["model", *costs, "T-mAP", "T-mAP\nover events", "events\na future", "events that\nhappened"]
    table = make_table(title, names, ["model"], caption)
    for one in evaluations:
        found = one.futures
        assert found is not None
        cells = [cell(each.distance, False) for each in found.transport]
        shares = [cell(found.t_map, True), cell(found.t_map_weighted, True)]
        counts = [f"{number:.2f}" for number in (found.predicted_events, found.happened_events)]
        table.add_row(escape(one.model), *cells, *shares, *counts)
    return table


def difference_tables(comparison: RunComparison) -> list[Table]:
    """Return one table per pair of models, with one row per score: their difference, and the corrected p of each test."""
    from foretell.evaluate.compare import in_words

    ways = [one.over for one in comparison.differences[0].tests] if comparison.differences else []
    tables: dict[tuple[str, str], Table] = {}
    for one in comparison.differences:
        pair = one.first, one.second
        if pair not in tables:
            names = ["score", "difference", *(f"p over {way}" for way in ways), ""]
            tables[pair] = make_table(f"{one.first} less {one.second}", names, ["score", ""])
        cells = [in_words(test.corrected, test.test).removeprefix("= ") for test in one.tests] or ["–"] * len(ways)
        difference = cell(one.difference, one.kind == "share").replace("\n", " ")
        tables[pair].add_row(escape(one.title), difference, *cells, "*" if one.significant else "")
    made = list(tables.values())
    if made:
        by = f"by Holm's method for {comparison.comparisons} comparisons"
        shown = sum(bool(one.tests) for one in comparison.differences)
        of = " (all pairs of runs: the best is one by these same scores)" if shown < comparison.comparisons else ""
        made[-1].caption = f"p: paired permutation tests, {by}{of}; * significant at 0.05"
    return made


def functor_table(comparison: RunComparison) -> Table:
    """Return a table of the log-likelihood by functor, for the most frequent functors, with one column per run."""
    names = ["functor", "events", *comparison.names]
    table = make_table("log-likelihood by functor, nats per event", names, ["functor"])
    for one in comparison.functors[:SHOWN_FUNCTORS]:
        cells = [cell(found, False).replace("\n", " ") for found in one.scores["log_likelihood"]]
        table.add_row(escape(one.functor), str(one.events), *cells)
    left = comparison.functors[SHOWN_FUNCTORS:]
    if left:
        table.caption = f"and {len(left)} more, of {sum(one.events for one in left)} events: see --json"
    return table


def participant_table(evaluations: list[Evaluation]) -> Table:
    """Return a table, one row per model and pattern: how often predicted places are wrong, given the time and the other places."""
    names = ["model", "pattern", "events", "candidates", "error"]
    table = make_table("participants, given time, functor and the places marked +", names, ["model", "pattern"])
    for evaluation in evaluations:
        for one in evaluation.participants:
            error = cell(one.error_rate, percent=True).replace("\n", " ")
            names = [escape(evaluation.model), escape(one.pattern)]
            table.add_row(*names, str(one.events), f"{one.candidates:.1f}", error)
    return table


def cell(estimate: Any, percent: bool) -> str:
    if estimate is None or math.isnan(estimate.value):
        return "–"
    if percent:
        return f"{100 * estimate.value:.1f} %\n\\[{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"
    digits = 3 if abs(estimate.value) < 1000 else 1
    return f"{estimate.value:.{digits}f}\n\\[{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


NEVER_MET = "training never met"


def said_unseen(groups: int, events: int, lacking: str = NEVER_MET) -> str:
    """Return a sentence about parameter groups that training (or a file of parameters) lacks."""
    which = f"{counted(groups, 'parameter group')} that {lacking}"
    return f"the intensities of {counted(events, 'event')} depend on {which}: the mean of the trained ones is used"


def remarks(evaluations: list[Evaluation]) -> list[str]:
    """Return the notes below a table of scores."""
    found = [line for evaluation in evaluations for line in _remarks(evaluation)]
    last = evaluations[-1]
    if last.unseen_events:
        types = f"{last.unseen_types} types that never occur in training"
        found.append(f"{last.unseen_events} of these events are of {types}")
    found += [said_unseen(one.unseen_groups, one.unseen_group_events) for one in evaluations if one.unseen_groups]
    return found


def _remarks(evaluation: Evaluation) -> list[str]:
    found = []
    used = evaluation.integral
    if used.fallback:
        found.append(
            f"quadrature with {used.points} nodes per gap did not settle (it moved by {used.doubling:.1e} nats per "
            f"event when doubled): the integral is from stratified draws instead, standard error {used.standard_error:.1e}"
        )
    elif used.method == "quadrature":
        found.append(f"integral by quadrature, moved by {used.doubling:.1e} nats per event when doubled")
    elif used.standard_error is not None:
        found.append(f"integral by {used.method} draws, standard error {used.standard_error:.1e}")
    if evaluation.undefined_times:
        found.append(f"{evaluation.undefined_times} events have no expected time and are not in the RMSE")
    if evaluation.window != "all":
        found.append(f"scored in the window {evaluation.window}: not comparable with full log-likelihoods")
    return [f"{evaluation.model}: {line}" for line in found]
