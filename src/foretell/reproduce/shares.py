"""The kind "shares": how well models do that have seen a part of the training data only; dev and test are always whole.

A unit is one fit of a model to a share of train, with its test scores. A share is that of `data.train_fraction`: some of the sequences or,
where these are few, the beginning of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data.share import share_of
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate, estimates
from foretell.evaluate.compare import SIGNIFICANT, difference_of
from foretell.evaluate.scores import ScoringOptions, plain
from foretell.reproduce.bench import Bench
from foretell.reproduce.definition import Definition, check_keys, merged
from foretell.reproduce.experiment import Finding, Picture, Results, Section, Summary, Verdict
from foretell.reproduce.rows import Rows, check_same_data, pooled
from foretell.reproduce.unit import Record, Unit, slug
from foretell.train.config import make_config, read_config

KEYS = (
    "kind",
    "title",
    "paper",
    "data",
    "device",
    "seeds",
    "minutes",
    "shares",
    "cut",
    "train",
    "model",
    "finding",
    "change",
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
        self.seeds = definition.seeds or tuple(table.get("seeds", (0,)))
        everyone = [self._learner(one) for one in table.get("model", ())]
        wanted = {slug(one) for one in definition.models}
        self.learners = [one for one in everyone if not wanted or slug(one.name) in wanted]
        for one in table.get("finding", ()):
            check_keys(one, OF_A_FINDING, f"{definition.source}, [[finding]] {one.get('name')}")
            if one.get("check") not in CHECKS:
                raise ForetellError(
                    f"{definition.source}, [[finding]] {one.get('name')}: check = {one.get('check')!r}: "
                    f"expected one of {', '.join(CHECKS)}"
                )
        if not self.learners:
            known = ", ".join(one.name for one in everyone)
            raise ForetellError(
                f"{definition.name}: none of the models {', '.join(definition.models)}; there are {known}"
            )

    def units(self, done: Mapping[str, Record]) -> list[Unit]:
        return [self._unit(one, share, seed) for one in self.learners for share in self.shares for seed in self.seeds]

    def work(self, unit: Unit, bench: Bench) -> dict[str, Any]:
        settings = unit.settings
        dataset = bench.dataset(self.data, **self.cut)
        if dataset.train is None or dataset.dev is None or dataset.test is None:
            raise ForetellError(f"{self.data}: expected the splits train, dev and test")
        train = share_of(dataset.train, settings["share"], settings["seed"])  # other seeds learn from other sequences
        source = f"{self.definition.source}, {settings['model']}"
        config = {**settings["config"], "model": self.definition.placed(settings["config"]["model"])}
        fitted = bench.fit(config, train, dataset.dev, source=source, keep=False)
        scored = bench.score(fitted.model, dataset.test, ScoringOptions(times=False))
        about = {name: settings[name] for name in ("model", "share", "seed")} | fitted.facts
        return about | {"sequences": len(train), "events": train.event_count, "test": scored.evaluation.to_json()}

    def summarise(self, results: Results) -> Summary:
        curves = curves_of(self, results)
        points = [point for curve in curves.values() for point in curve.values()]
        numbers = {"points": [one.to_json() for one in points]}
        picture = Picture("shares.png", lambda path: draw_shares(curves, self.definition.title, path))
        findings = [self._finding(one, curves) for one in self.definition.table.get("finding", ())]
        return Summary([self._table(curves)], findings, plain(numbers), (picture,) if points else ())

    def _learner(self, entry: Mapping[str, Any]) -> Learner:
        definition = self.definition
        check_keys(entry, OF_A_MODEL, f"{definition.source}, [[model]] {entry.get('name')}")
        base: dict[str, Any] = {"train": dict(definition.table.get("train", {})), "model": {}}
        if "config" in entry:  # of a sibling experiment: "robocup/andtt.toml"
            found = read_config(definition.folder.parent / entry["config"])
            base = merged(base, {key: found.get(key, {}) for key in ("model", "train")})
        base = merged(base, {"model": entry.get("model", {}), "train": entry.get("train", {})})
        base = merged(base, definition.table.get("change", {}))
        minutes = float(entry.get("minutes", definition.table.get("minutes", 1.0)))
        return Learner(str(entry["name"]), base, minutes, entry.get("device", definition.table.get("device", "cpu")))

    def _unit(self, one: Learner, share: float, seed: int) -> Unit:
        config = merged(one.table, {"train": {"seed": seed}})
        make_config(config, f"{self.definition.source}, {one.name}")
        settings = {"model": one.name, "share": share, "seed": seed, "data": self.data, "config": config}
        if self.cut:
            settings["cut"] = dict(self.cut)
        name = f"{slug(one.name)}-share{share:.4g}-seed{seed}"
        return Unit(name, settings, one.minutes * (0.2 + 0.8 * share), one.device)

    def _table(self, curves: Curves) -> Section:
        rows = [
            [name, *(shown(curve[share]) if share in curve else "–" for share in self.shares)]
            for name, curve in curves.items()
        ]
        head = ["model", *(told(share) for share in self.shares)]
        note = "Test log-likelihood an event, means over seeds, [95 % bootstrap interval], ± standard deviation over seeds."
        return Section("Test log-likelihood by the share of train", head, rows, note)

    def _finding(self, table: Mapping[str, Any], curves: Curves) -> Finding:
        name, claim = table["name"], table["claim"]
        one, other = curves.get(table["better"], {}), curves.get(table["than"], {})
        missing = [told(share) for share in self.shares if share not in one or share not in other]
        if missing:
            return Finding(name, claim, "pending", f"not fitted yet: {', '.join(missing)}")
        if table["check"] == "beats":
            return Finding(name, claim, *_beats(table, one, other))
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
    """A model that has learned from a share, over its seeds."""

    model: str
    share: float
    events: int
    rows: Rows
    estimate: Estimate
    values: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        about = {"model": self.model, "share": self.share, "events": self.events, "values": list(self.values)}
        return about | {"log_likelihood": asdict(self.estimate)}


Curves = dict[str, dict[float, Point]]
METRIC = "log_likelihood"


def curves_of(experiment: Shares, results: Results) -> Curves:
    found: dict[tuple[str, float], list[tuple[Record, Rows]]] = {}
    for unit in results.units:
        rows = results.rows(unit.name) if unit.name in results.records else None
        if rows is not None:
            key = unit.settings["model"], unit.settings["share"]
            found.setdefault(key, []).append((results.records[unit.name], rows))
    curves: Curves = {}
    for (name, share), some in found.items():
        together = pooled([rows for _, rows in some])
        estimate = estimates([together.by_key[METRIC].ratio(together.units)], together.units.resampling(0))[0]
        values = tuple(rows.by_key[METRIC].ratio(rows.units).value for _, rows in some)
        curves.setdefault(name, {})[share] = Point(name, share, int(some[0][0]["events"]), together, estimate, values)
    return curves


def _beats(table: Mapping[str, Any], one: dict[float, Point], other: dict[float, Point]) -> tuple[Verdict, str, float]:
    """At every share, by a paired permutation test."""
    lost, weak, said = 0, 0, []
    leads = []
    for share, point in one.items():
        rows, rival = point.rows, other[share].rows
        check_same_data([rows, rival])
        over = "sequences" if rows.units.whole_sequences else "events"
        names = (table["better"], table["than"])
        found = difference_of(names, rows.by_key[METRIC], rival.by_key[METRIC], rows.units, [over])
        p = found.tests[0].test.p_value if found.tests else 1.0
        lost += found.better == table["than"] and p < SIGNIFICANT
        weak += p >= SIGNIFICANT
        leads.append(found.difference.value)
        said.append(f"{told(share)}: {found.difference.value:+.3f} (p = {p:.2g})")
    verdict: Verdict = "does not hold" if lost else "not significant" if weak else "holds"
    return verdict, "; ".join(said), min(leads)


def told(share: float) -> str:
    found = Fraction(share).limit_denominator(64)
    return str(found) if abs(float(found) - share) < 1e-9 else f"{share:g}"


def shown(one: Point) -> str:
    spread = f" ± {np.std(one.values, ddof=1):.3f}" if len(one.values) > 1 else ""
    text = f"{one.estimate.value:.3f} [{one.estimate.low:.3f}, {one.estimate.high:.3f}]{spread}"
    return text.replace("-", "−")


def draw_shares(curves: Curves, title: str, path: Path) -> None:
    """A line a model, with its interval and its seeds, over the share on a logarithmic scale."""
    from foretell.report.canvas import COLOURS, INK, blank_figure, save_figure

    figure, (axes,) = blank_figure(1, (6.4, 4.2))
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        points: Sequence[Point] = [curve[share] for share in sorted(curve)]
        x = [one.share for one in points]
        axes.fill_between(
            x,
            [one.estimate.low for one in points],
            [one.estimate.high for one in points],
            color=colour,
            alpha=0.15,
            lw=0,
        )
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
