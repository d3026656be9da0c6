"""The kind "by-action": the fits of another experiment, their scores broken down by action (functor), two models against each other.

Units are those of the experiment named by `of`, with the same names and settings: what is done there, under the same `--out`, is taken
over and not fitted again. For each pair of models there is a picture with intervals on both axes, as the paper's, one row for the mean
over seeds; a table says for every action who is ahead, and in how many seeds.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell.evaluate.bootstrap import Estimate, estimates
from foretell.evaluate.compare import Difference, RunComparison, difference_of
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
from foretell.reproduce.models import Models
from foretell.reproduce.rows import (
    WHO,
    ScoreRows,
    SeedRows,
    check_same_data,
    is_significant,
    p_value,
    participants_key,
    seed_rows,
)
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
        """After all else: by then the other experiment, if it is asked for as well, has done them."""
        return [replace(one, minutes=LAST) for one in self.other.units(done)]

    def work(self, unit: Unit, workspace: Workspace) -> dict[str, Any]:
        """What the other experiment has done is taken over, with its scores."""
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
    """Two models on the events of one functor: second against first, in one metric."""

    first: str
    second: str
    metric: str
    functor: str
    events: int
    scores: tuple[Estimate, Estimate]
    difference: Difference  # second less first, over the means of seeds
    ahead: int  # pairs of seeds in which the second is better
    behind: int
    higher_is_better: bool

    @property
    def p(self) -> float:
        return p_value(self.difference)

    @property
    def better(self) -> str | None:
        """Who is significantly better."""
        return self.difference.better if is_significant(self.difference) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "second": self.second,
            "metric": self.metric,
            "functor": self.functor,
            "events": self.events,
            "values": [one.value for one in self.scores],
            "difference": self.difference.difference.value,
            "p": self.p,
            "better": self.better,
            "seeds": {"ahead": self.ahead, "behind": self.behind},
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
            a, b = one.by_key[keys[0]].where(chosen), other.by_key[keys[1]].where(chosen)
            if not a.counts.any() or not b.counts.any():
                continue
            scores = estimates([a.ratio(one.units), b.ratio(one.units)], one.units.resampling(0))
            difference = difference_of((names[1], names[0]), b, a, one.units, ["events"])
            signs = _signs(first, second, keys, chosen, a.higher_is_better)
            events = int(a.counts.astype(bool).sum())
            about = *names, metric, functors[number], events
            found.append(Action(*about, (scores[0], scores[1]), difference, *signs, a.higher_is_better))
    return found


def _key(rows: ScoreRows, metric: str) -> str:
    return participants_key(rows) if metric == WHO else metric


def _signs(
    first: SeedRows, second: SeedRows, keys: tuple[str, str], chosen: np.ndarray, higher: bool
) -> tuple[int, int]:
    """Seed s of one against seed s of the other: how often the second is better, and how often worse."""
    ahead = behind = 0
    for seed in first.by_seed.keys() & second.by_seed.keys():
        one, other = first.by_seed[seed], second.by_seed[seed]
        values = [
            rows.by_key[key].where(chosen).ratio(rows.units).value for rows, key in ((one, keys[0]), (other, keys[1]))
        ]
        if np.isnan(values).any() or values[0] == values[1]:
            continue
        better = (values[1] > values[0]) == higher
        ahead, behind = ahead + better, behind + (not better)
    return ahead, behind


def _table(pair: tuple[str, str], found: Sequence[Action]) -> TableSection:
    rows = []
    for one in found:
        kind = one.difference.kind
        scale, digits = (100.0, 1) if kind == "share" else (1.0, 3)
        difference = f"{scale * one.difference.difference.value:+.{digits}f}".replace("-", "−")
        rows.append(
            [
                *(one.functor, title_of(one.metric), str(one.events)),
                *(estimate_cell(score, kind) for score in one.scores),
                *(difference, f"{one.p:.2g}".replace("-", "−")),
                *(f"{one.ahead} of {one.ahead + one.behind}", one.better or "–"),
            ]
        )
    ahead = "seeds in which the second is better"
    head = ["action", "score", "events", *pair, "second less first", "p", ahead, "better"]
    note = (
        "Means over seeds with [95 % bootstrap intervals]. p of a paired permutation test over the events of the action, not corrected "
        "for their number; the last column names the better one where p < 0.05."
    )
    return TableSection(f"{pair[1]} against {pair[0]}", head, rows, note)


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
        said.append(f"{name}: {who_leads} ({one.difference.difference.value:+.3f}, p = {one.p:.2g})")
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
