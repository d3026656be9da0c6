"""The kind "shares": scores of models that are trained on a share of the training data; dev and test are always whole.

A unit is one fit of a model to a share of train, with its test scores. Shares are taken as by `data.train_fraction`: some of the sequences
or, if there are few, the beginning of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.scores import ScoringOptions, plain
from foretell.reproduce.experiment import (
    Definition,
    ExperimentSummary,
    Finding,
    Picture,
    Results,
    TableSection,
    Verdict,
    check_keys,
    estimate_cell,
    merged,
    verdict_of,
)
from foretell.reproduce.model_difference import ModelDifference, correct, model_difference
from foretell.reproduce.rows import SeedRows, seed_rows
from foretell.reproduce.unit import Record, Unit, Workspace, slug
from foretell.train.config import make_config
from foretell.train.splits import share_of

KEYS = (
    *("kind", "title", "paper", "data", "device", "seeds", "minutes", "shares"),
    *("cut", "train", "model", "finding", "change"),
)
OF_A_MODEL = ("name", "config", "model", "train", "minutes", "device")
OF_A_FINDING = ("name", "claim", "better", "than", "check")
CHECKS = ("beats", "with-less")


@dataclass(frozen=True)
class Learner:
    name: str
    table: dict[str, Any]  # {"model": …, "train": …}
    minutes: float
    device: Any


class Shares:
    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        table = definition.table
        check_keys(table, KEYS, definition.source)
        self.data = str(table["data"])
        self.cut: Mapping[str, int] = table.get("cut", {})
        self.shares = [float(Fraction(str(one))) for one in table["shares"]]
        if sorted(set(self.shares)) != self.shares or not 0.0 < self.shares[0] <= self.shares[-1] <= 1.0:
            raise ForetellError(
                f"{definition.source}: shares = {table['shares']}: expected numbers above 0, up to 1, ascending"
            )
        learners = [self._learner(one) for one in definition.entries("model", OF_A_MODEL)]
        self.findings = definition.entries("finding", OF_A_FINDING)
        for one in self.findings:
            if one.get("check") not in CHECKS:
                raise ForetellError(
                    f"{definition.source}, [[finding]] {one.get('name')}: check = {one.get('check')!r}: "
                    f"expected one of {', '.join(CHECKS)}"
                )
        chosen = definition.chosen(one.name for one in learners)
        self.learners = [one for one in learners if one.name in chosen]

    def units(self, done: Mapping[str, Record]) -> list[Unit]:
        return [
            self._unit(one, share, seed)
            for one in self.learners
            for share in self.shares
            for seed in self.definition.own_seeds
        ]

    def work(self, unit: Unit, workspace: Workspace) -> dict[str, Any]:
        settings = unit.settings
        whole, dev, test = workspace.splits(self.data, **self.cut)
        train = share_of(whole, settings["share"], settings["seed"])  # each seed uses other sequences
        source = f"{self.definition.source}, {settings['model']}"
        config = {**settings["config"], "model": self.definition.placed(settings["config"]["model"])}
        fitted = workspace.fit(config, train, dev, source=source, keep=False)
        scored = workspace.score(fitted.model, test, ScoringOptions(times=False))
        about = {name: settings[name] for name in ("model", "share", "seed")} | fitted.facts
        return about | {"sequences": len(train), "events": train.event_count, "test": scored.evaluation.to_json()}

    def summarise(self, results: Results) -> ExperimentSummary:
        curves = curves_of(results)
        points = [point for curve in curves.values() for point in curve.values()]
        numbers = {"points": [one.to_json() for one in points]}
        picture = Picture("shares.png", lambda path: draw_shares(curves, self.definition.title, path))
        tests = tests_of([one for one in self.findings if one["check"] == "beats"], curves)
        findings = [self._finding(one, curves, tests) for one in self.findings]
        numbers["tests"] = [{"share": share, **one.to_json()} for (_, _, share), one in tests.items()]
        return ExperimentSummary([self._table(curves)], findings, plain(numbers), (picture,) if points else ())

    def _learner(self, entry: Mapping[str, Any]) -> Learner:
        """`config` is a file of a sibling experiment: "robocup/andtt.toml"."""
        table = self.definition.table
        tables = self.definition.model_tables(entry, self.definition.folder.parent)
        minutes = float(entry.get("minutes", table.get("minutes", 1.0)))
        return Learner(str(entry["name"]), tables, minutes, entry.get("device", table.get("device", "cpu")))

    def _unit(self, one: Learner, share: float, seed: int) -> Unit:
        config = merged(one.table, {"train": {"seed": seed}})
        make_config(config, f"{self.definition.source}, {one.name}")
        settings = {"model": one.name, "share": share, "seed": seed, "data": self.data, "config": config}
        if self.cut:
            settings["cut"] = dict(self.cut)
        name = f"{slug(one.name)}-share{share:.4g}-seed{seed}"
        return Unit(name, settings, one.minutes * (0.2 + 0.8 * share), one.device)

    def _table(self, curves: Curves) -> TableSection:
        rows = [[name, *(_cell(curve.get(share)) for share in self.shares)] for name, curve in curves.items()]
        head = ["model", *(told(share) for share in self.shares)]
        note = "Test log-likelihood an event, means over seeds, [95 % bootstrap interval], ± standard deviation over seeds."
        return TableSection("Test log-likelihood by the share of train", head, rows, note)

    def _finding(self, table: Mapping[str, Any], curves: Curves, tests: Mapping[Key, ModelDifference]) -> Finding:
        name, claim = table["name"], table["claim"]
        one, other = curves.get(table["better"], {}), curves.get(table["than"], {})
        missing = [told(share) for share in self.shares if share not in one or share not in other]
        if missing:
            return Finding(name, claim, "pending", f"not fitted yet: {', '.join(missing)}")
        if table["check"] == "beats":
            return Finding(
                name, claim, *_beats({key[2]: test for key, test in tests.items() if key[:2] == pair_of(table)})
            )
        smallest = next(
            (share for share in self.shares if one[share].estimate.value > other[self.shares[-1]].estimate.value), None
        )
        whole = other[self.shares[-1]].estimate.value
        verdict: Verdict = "holds" if smallest is not None and smallest < 1.0 else "does not hold"
        if smallest is None:
            return Finding(name, claim, verdict, f"{table['better']} does not reach {whole:.3f} with any share")
        detail = (
            f"{table['better']} with {told(smallest)} of train is above {table['than']} with all of it ({whole:.3f})"
        )
        return Finding(name, claim, verdict, detail, smallest)


@dataclass(frozen=True)
class Point:
    """The scores of a model that was trained on a share, over its seeds."""

    model: str
    share: float
    events: int
    rows: SeedRows
    estimate: Estimate
    values: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        about = {"model": self.model, "share": self.share, "events": self.events, "values": list(self.values)}
        return about | {"log_likelihood": asdict(self.estimate)}


Curves = dict[str, dict[float, Point]]
Key = tuple[str, str, float]  # two models and a share
METRIC = "log_likelihood"


def curves_of(results: Results) -> Curves:
    events = {(one["model"], one["share"]): int(one["events"]) for one in results.records.values()}
    curves: Curves = {}
    for (name, share), rows in seed_rows(results, lambda one: (one["model"], one["share"])).items():
        point = Point(name, share, events[name, share], rows, rows.estimate(METRIC), rows.values(METRIC))
        curves.setdefault(name, {})[share] = point
    return curves


def pair_of(finding: Mapping[str, Any]) -> tuple[str, str]:
    return finding["better"], finding["than"]


def tests_of(findings: Sequence[Mapping[str, Any]], curves: Curves) -> dict[Key, ModelDifference]:
    """Test two models at every share at which both are fitted; all tests are one family for the correction."""
    found: dict[Key, ModelDifference] = {}
    for first, second in map(pair_of, findings):
        one, other = curves.get(first, {}), curves.get(second, {})
        for share in one.keys() & other.keys():
            made = model_difference((first, second), one[share].rows, other[share].rows, METRIC)
            found[first, second, share] = made
    found = dict(sorted(found.items()))
    return dict(zip(found, correct(list(found.values())), strict=True))


def _beats(tests: Mapping[float, ModelDifference]) -> tuple[Verdict, str, float]:
    """At every share."""
    lost = sum(one.leader() == one.pooled.second for one in tests.values())
    weak = sum(not one.significant for one in tests.values())
    said = [f"{told(share)}: {one.size()} ({one.p_words()})" for share, one in tests.items()]
    return verdict_of(lost, weak), "; ".join(said), min(one.pooled.difference.value for one in tests.values())


def _cell(one: Point | None) -> str:
    return "–" if one is None else estimate_cell(one.estimate, spread=one.rows.spread(METRIC))


def told(share: float) -> str:
    found = Fraction(share).limit_denominator(64)
    return str(found) if abs(float(found) - share) < 1e-9 else f"{share:g}"


def draw_shares(curves: Curves, title: str, path: Path) -> None:
    """Draw one line per model, with its interval and its seeds, over the share on a logarithmic scale."""
    from foretell.report.canvas import COLOURS, INK, blank_figure, save_figure

    figure, (axes,) = blank_figure(1, (6.4, 4.2))
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        points: Sequence[Point] = [curve[share] for share in sorted(curve)]
        x = [one.share for one in points]
        low, high = [one.estimate.low for one in points], [one.estimate.high for one in points]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
        axes.plot(x, [one.estimate.value for one in points], "o-", color=colour, label=name, markersize=5)
        for one in points:
            axes.plot([one.share] * len(one.values), one.values, ".", color=colour, markersize=3, alpha=0.5)
    axes.set_xscale("log", base=2)
    ticks = sorted({share for curve in curves.values() for share in curve})
    axes.set_xticks(ticks, [told(share) for share in ticks])
    axes.set_xlabel("share of the training data", color=INK)
    axes.set_ylabel("test log-likelihood, nats an event", color=INK)
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, path)
