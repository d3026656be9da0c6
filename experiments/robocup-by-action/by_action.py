"""The kind "by-action": compares the scores of two models by action (functor), from the fits of another experiment.

Units are those of the experiment named by `of`, with the same names and settings: its finished units under the same `--out` are reused and
not fitted again. Each pair of models has a picture with intervals on both axes, as in the paper, with one row for the mean over seeds. A
table shows for every action which model is better, and in how many seeds.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell.evaluate.bootstrap import Estimate, estimates
from foretell.evaluate.compare import RunComparison
from foretell.evaluate.metrics import by_functor, functors_of
from foretell.evaluate.scores import plain
from foretell.reproduce.comparison import title_of
from foretell.reproduce.experiment import (
    Choice,
    Definition,
    ExperimentSummary,
    Finding,
    Picture,
    Results,
    TableSection,
    check_keys,
    estimate_cell,
    read_definition,
    verdict_of,
)
from foretell.reproduce.model_difference import ModelDifference, correct, model_difference
from foretell.reproduce.models import Models
from foretell.reproduce.rows import WHO, ScoreRows, SeedRows, check_same_data, participants_key, seed_rows
from foretell.reproduce.unit import ROWS, Record, Unit, UnitFolder, Workspace, slug

KEYS = ("kind", "title", "paper", "data", "of", "pairs", "metrics", "finding")
LAST = 0.01
OF_A_FINDING = ("name", "claim", "first", "second", "metric", "better", "alike", "not_better")


class ByAction:
    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        table = definition.table
        check_keys(table, KEYS, definition.source)
        self.findings = definition.entries("finding", OF_A_FINDING)
        self.pairs = [(str(first), str(second)) for first, second in table["pairs"]]
        self.metrics = [str(one) for one in table.get("metrics", ("log_likelihood", "rmse", WHO))]
        chosen = tuple(definition.chosen(dict.fromkeys(name for pair in self.pairs for name in pair)))
        other = read_definition(
            str(definition.folder.parent / table["of"]), Choice(definition.quick, chosen, definition.seeds)
        )
        self.other = Models(other)

    def units(self, done: Mapping[str, Record]) -> list[Unit]:
        """Return the units. They run last, when the other experiment has done them if it is part of the same call."""
        return [replace(one, minutes=LAST) for one in self.other.units(done)]

    def work(self, unit: Unit, workspace: Workspace) -> dict[str, Any]:
        """Reuse a finished unit of the other experiment with its scores, or run it."""
        theirs = UnitFolder(workspace.folder.parents[2] / self.other.definition.name / "units" / unit.name)
        if theirs.state(unit) == "done":
            if (theirs.path / ROWS).exists():
                shutil.copy(theirs.path / ROWS, workspace.folder / ROWS)
            return {key: value for key, value in (theirs.record() or {}).items() if key not in ("unit", "settings")}
        return self.other.work(unit, workspace)

    def summarise(self, results: Results) -> ExperimentSummary:
        fits = seed_rows(results, lambda settings: settings["model"] if settings["part"] == "final" else None)
        pairs = [(first, second) for first, second in self.pairs if first in fits and second in fits]
        found = [
            one for first, second in pairs for one in compared(fits[first], fits[second], (first, second), self.metrics)
        ]
        corrected = correct([one.difference for one in found])
        found = [replace(one, difference=test) for one, test in zip(found, corrected, strict=True)]
        sections = [_table(pair, [one for one in found if (one.first, one.second) == pair]) for pair in pairs]
        pictures = [
            Picture(
                f"{slug(second)}-against-{slug(first)}.png",
                _drawing(fits[first], fits[second], (first, second), self.metrics),
            )
            for first, second in pairs
        ]
        findings = [_finding(one, found) for one in self.findings]
        return ExperimentSummary(sections, findings, plain({"actions": [one.to_json() for one in found]}), pictures)


@dataclass(frozen=True)
class Action:
    """The difference between two models on the events of one functor in one metric: second minus first."""

    first: str
    second: str
    metric: str
    functor: str
    events: int
    scores: tuple[Estimate, Estimate]
    values: tuple[tuple[float, ...], tuple[float, ...]]  # of each seed
    difference: ModelDifference  # second minus first; corrected for all actions, scores and pairs

    @property
    def better(self) -> str | None:
        """Return the model that is significantly better, if any."""
        return self.difference.leader()

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "second": self.second,
            "metric": self.metric,
            "functor": self.functor,
            "events": self.events,
            "values": [one.value for one in self.scores],
            "by_seed": [list(one) for one in self.values],
            "difference": self.difference.pooled.difference.value,
            "p": self.difference.p,
            "p_seeds": self.difference.p_seeds,
            "p_holm": self.difference.p_corrected,
            "better": self.better,
        }


def compared(first: SeedRows, second: SeedRows, names: tuple[str, str], metrics: Sequence[str]) -> list[Action]:
    one, other = first.pooled, second.pooled
    check_same_data([one, other])
    functors, place = functors_of(one.names)
    of_row = np.where(one.type >= 0, place[np.maximum(one.type, 0)], -1)
    found = []
    for metric in metrics:
        keys = _key(one, metric), _key(other, metric)
        if keys[0] not in one.by_key or keys[1] not in other.by_key:
            continue
        for number in np.argsort(-np.bincount(of_row[of_row >= 0], minlength=len(functors)), kind="stable").tolist():
            chosen = of_row == number
            some = [only(rows, key, metric, chosen) for rows, key in zip((first, second), keys, strict=True)]
            a, b = (rows.pooled.metrics[0] for rows in some)
            if not a.counts.any() or not b.counts.any():
                continue
            scores = estimates([a.ratio(one.units), b.ratio(one.units)], one.units.resampling(0))
            difference = model_difference((names[1], names[0]), some[1], some[0], metric)
            values = some[0].values(metric), some[1].values(metric)
            about = *names, metric, functors[number], int(a.counts.astype(bool).sum())
            found.append(Action(*about, (scores[0], scores[1]), values, difference))
    return found


def only(rows: SeedRows, key: str, name: str, chosen: np.ndarray) -> SeedRows:
    """Return rows with one metric, for the chosen rows only, under another name."""
    return SeedRows(
        {
            seed: replace(one, metrics=(replace(one.by_key[key].where(chosen), key=name),))
            for seed, one in rows.by_seed.items()
        }
    )


def _key(rows: ScoreRows, metric: str) -> str:
    return participants_key(rows) if metric == WHO else metric


def _table(pair: tuple[str, str], found: Sequence[Action]) -> TableSection:
    rows = [
        [
            *(one.functor, title_of(one.metric), str(one.events)),
            *(estimate_cell(score, one.difference.pooled.kind) for score in one.scores),
            *one.difference.cells(),
        ]
        for one in found
    ]
    head = ["action", "score", "events", *pair, "second less first", "p", "p over seeds", "corrected", "better"]
    note = (
        "Means over seeds with [95 % bootstrap intervals]. p of a paired permutation test over the events of the action, and of Welch's "
        "t-test over the seeds' scores; corrected: the larger of the two, by Holm's method for all actions, scores, pairs. The better one "
        "is named where that is below 0.05; the last column: in how many seeds the same one is ahead, and in how many significantly."
    )
    return TableSection(f"{pair[1]} against {pair[0]}", [*head, "seeds ahead, significantly"], rows, note)


def _finding(table: Mapping[str, Any], found: Sequence[Action]) -> Finding:
    """`better`: actions at which the second model is significantly better; `not_better`: the first one is; `alike`: neither is."""
    about = {
        one.functor: one
        for one in found
        if (one.first, one.second, one.metric) == (table["first"], table["second"], table["metric"])
    }
    wanted = {name: key for key in ("better", "not_better", "alike") for name in table.get(key, ())}
    missing = [name for name in wanted if name not in about]
    if missing:
        return Finding(table["name"], table["claim"], "pending", f"not scored yet: {', '.join(missing)}")
    right, wrong, said = 0, 0, []
    for name, key in wanted.items():
        one = about[name]
        expected = {"better": table["second"], "not_better": table["first"], "alike": None}[key]
        right += one.better == expected
        wrong += one.better is not None and one.better != expected
        who_leads = f"{one.better} is better" if one.better else "no significant difference"
        said.append(f"{name}: {who_leads} ({one.difference.size()}, {one.difference.p_words()})")
    detail = f"{right} of {len(wanted)} as in the paper; " + "; ".join(said)
    return Finding(table["name"], table["claim"], verdict_of(wrong, right < len(wanted)), detail, float(right))


def _drawing(first: SeedRows, second: SeedRows, names: tuple[str, str], metrics: Sequence[str]) -> Any:
    def draw(path: Path) -> None:
        from foretell.report.canvas import save_figure
        from foretell.report.run_plots import scatter_plot

        one, other = first.pooled, second.pooled
        keys = [(_key(one, metric), _key(other, metric)) for metric in metrics]
        keys = [(a, b) for a, b in keys if a in one.by_key and b in other.by_key]
        runs = [[one.by_key[a] for a, _ in keys], [replace(other.by_key[b], key=a) for a, b in keys]]
        functors = tuple(by_functor(runs, one.type, one.names, one.units))
        save_figure(scatter_plot(RunComparison(names, (), (), functors, None, 0, 0)), path)

    return draw
