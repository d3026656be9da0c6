"""The kind "models": fits several models to one data set, chooses their sizes on dev, scores each on test once, and compares pairs.

A model with a grid has one unit per size (one seed, dev score only), and then, for the best size, one unit per seed with test scores. A
model without a grid only has the units per seed.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Units, estimates, replicates
from foretell.evaluate.likelihood import EventScores, score_events
from foretell.evaluate.metrics import SCORES, EventRecord, metrics_of, plain_scores
from foretell.evaluate.patterns import guess_participants, parse_pattern
from foretell.evaluate.scores import ScoringOptions, plain
from foretell.models.base import IntensityModel
from foretell.models.capabilities import DirectFit, exact_integral_of
from foretell.reproduce.experiment import Definition, ExperimentSummary, Results, check_keys, merged
from foretell.reproduce.rows import WHO
from foretell.reproduce.unit import Device, Record, Unit, Workspace, slug
from foretell.train.config import make_config

KEYS = (
    *("kind", "title", "paper", "data", "device", "seeds", "minutes", "columns", "compare"),
    *("predict", "also_predict", "times", "monte_carlo"),
)
TABLES = ("train", "cut", "grid", "model", "change", "finding")
OF_A_MODEL = ("name", "config", "model", "train", "grid", "seeds", "minutes", "device", "like")
SAMPLES_PER_EVENT = 10  # the paper's number for final results


@dataclass(frozen=True)
class Entrant:
    """One model of the comparison."""

    name: str
    table: dict[str, Any]  # {"model": …, "train": …} as in a configuration
    grid: tuple[dict[str, Any], ...]  # the sizes to choose from; empty: `table` has the size
    sized_by: str  # the model whose grid determines the size: this model, or the one that `like` names
    seeds: tuple[int, ...]
    minutes: float
    device: Device

    @property
    def without_chance(self) -> bool:
        """Return whether all seeds give the same fit."""
        from foretell.models.registry import find_model

        return issubclass(find_model(self.table["model"].get("kind", "anhp")), DirectFit)


class Models:
    def __init__(self, definition: Definition) -> None:
        from foretell.reproduce.findings import check_findings

        self.definition = definition
        table = definition.table
        check_keys(table, (*KEYS, *TABLES), definition.source)
        self.predict: tuple[str, ...] = tuple(table.get("predict", ()))
        self.columns = self._columns()
        self.cut: Mapping[str, int] = table.get("cut", {})
        self.grid_seed = int(table.get("grid", {}).get("seed", 0))
        self.everyone = self._entrants()
        check_findings(table.get("finding", ()), [one.name for one in self.everyone], definition.source)
        chosen = definition.chosen(one.name for one in self.everyone)
        self.entrants = [one for one in self.everyone if one.name in chosen]

    @property
    def data(self) -> str:
        return str(self.definition.table["data"])

    def _columns(self) -> list[str]:
        """Return the scores of the tables; raise if they, or scores that findings need, will not be computed."""
        table = self.definition.table
        given = {"events": True, "times": bool(table.get("times", True)), "participants": bool(self.predict)}
        there = {one.key: given[one.needs] for one in SCORES.values() if one.tested}
        asked = {"columns": table.get("columns", ())}
        asked |= {f"[[finding]] {one.get('name')}": one.get("metrics", ()) for one in table.get("finding", ())}
        scored = [one for one in there if there[one]]
        wrong = [
            f"{self.definition.source}, {where}: {one!r} is not scored here; there are {', '.join(scored)}"
            for where, metrics in asked.items()
            for one in metrics
            if not there.get(WHO if str(one).startswith(f"{WHO} ") else one, False)
        ]
        if wrong:
            raise ForetellError("\n".join(wrong))
        return list(table.get("columns", [one.key for one in plain_scores() if one.main and there[one.key]]))

    def units(self, done: Mapping[str, Record]) -> list[Unit]:
        found: list[Unit] = []
        by_name = {one.name: one for one in self.everyone}
        for one in self.entrants:
            chooser = by_name[one.sized_by]
            sizes = [self._unit(chooser, "grid", size, self.grid_seed) for size in chooser.grid]
            found += [size for size in sizes if size not in found]
            best = best_of(sizes, done)
            if not sizes or best is not None:
                found += [self._unit(one, "final", {} if best is None else best, seed) for seed in one.seeds]
        return found

    def work(self, unit: Unit, workspace: Workspace) -> dict[str, Any]:
        settings = unit.settings
        train, dev, test = workspace.splits(self.data, **self.cut)
        final = settings["part"] == "final"
        source = f"{self.definition.source}, {settings['model']}"
        about = {name: settings[name] for name in ("model", "part", "seed", "size")}
        try:
            config = {**settings["config"], "model": self.definition.placed(settings["config"]["model"])}
            fitted = workspace.fit(config, train, dev, source=source, keep=final)
        except ForetellError as error:
            if final:
                raise
            return about | {"dev": None, "fit_seconds": None, "error": str(error)}  # it will not be chosen
        return about | fitted.facts | (test_scores(fitted.model, test, workspace, self) if final else {})

    def summarise(self, results: Results) -> ExperimentSummary:
        from foretell.reproduce.comparison import summary_of

        return summary_of(self, results)

    def _unit(self, one: Entrant, part: str, size: dict[str, Any], seed: int) -> Unit:
        last = f"grid-{'-'.join(f'{key}{value}' for key, value in size.items())}" if part == "grid" else f"seed{seed}"
        grid_train = self.definition.table.get("grid", {}).get("train", {}) if part == "grid" else {}
        config = merged(one.table, {"model": size, "train": {**grid_train, "seed": seed}})
        make_config(config, f"{self.definition.source}, {one.name}")  # raises for wrong settings
        settings = {"model": one.name, "part": part, "seed": seed, "size": size, "config": config, "data": self.data}
        if part == "final":
            options = self.definition.table
            settings |= {
                key: options[key] for key in ("predict", "also_predict", "times", "monte_carlo") if key in options
            }
        if self.cut:
            settings["cut"] = dict(self.cut)
        minutes = one.minutes * _relative_cost(size, one.grid)
        return Unit(f"{slug(one.name)}-{last}", settings, minutes, one.device)

    def _entrants(self) -> list[Entrant]:
        """Read the models of an experiment. `config` names a file with settings, `like` an earlier model of the experiment."""
        table = self.definition.table
        made: dict[str, Entrant] = {}
        for entry in self.definition.entries("model", OF_A_MODEL):
            like = made.get(entry.get("like", ""))
            if like is None and "like" in entry:
                raise ForetellError(
                    f"{self.definition.source}: like = {entry['like']!r}: no model of this name above it"
                )
            tables = self.definition.model_tables(entry, self.definition.folder, like.table if like else None)
            tables["model"] = _only_known(tables["model"].get("kind", "anhp"), tables["model"], entry)
            name = str(entry["name"])
            made[name] = Entrant(
                name=name,
                table=tables,
                sized_by=name if like is None or "grid" in entry else like.sized_by,
                grid=_sizes(table.get("grid", {}), entry.get("grid", ())),
                seeds=tuple(entry.get("seeds", self.definition.own_seeds)),
                minutes=float(entry.get("minutes", table.get("minutes", 1.0))),
                device=entry.get("device", table.get("device", "cpu")),
            )
        return list(made.values())


def best_of(sizes: Sequence[Unit], done: Mapping[str, Record]) -> dict[str, Any] | None:
    """Return the size with the best dev score; None until all scores are known."""
    if not sizes or any(one.name not in done for one in sizes):
        return None
    judged = {one.name: done[one.name]["dev"] for one in sizes}
    best = max(sizes, key=lambda one: -math.inf if judged[one.name] is None else judged[one.name])
    return dict(best.settings["size"])


def _sizes(grid: Mapping[str, Any], keys: Sequence[str]) -> tuple[dict[str, Any], ...]:
    if not keys:
        return ()
    return tuple(dict(zip(keys, values, strict=True)) for values in itertools.product(*(grid[key] for key in keys)))


def _only_known(kind: str, model: dict[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Drop options that a kind of model lacks, such as a quick run's `change.model.dim`; the entry's own options are never dropped."""
    from foretell.models.registry import model_options
    from foretell.options import names_of

    options = model_options(kind)
    known = {"kind", *names_of(options), *(("preset",) if model.get("preset") in options.presets else ())}
    return {key: value for key, value in model.items() if key in known or key in entry.get("model", {})}


def _relative_cost(size: Mapping[str, Any], grid: Sequence[Mapping[str, Any]]) -> float:
    """Return the cost of a size relative to the middle of the grid: it grows with layers, and slowly with dimensions."""
    if not grid or not size:
        return 1.0

    def cost(one: Mapping[str, Any]) -> float:
        return one.get("layers", 1) * (one.get("dim", 32) + 32)

    return cost(size) / (sum(cost(one) for one in grid) / len(grid))


def test_scores(model: IntensityModel, test: EventData, workspace: Workspace, experiment: Models) -> dict[str, Any]:
    """Return the scores of `foretell evaluate`, and the share of an interval that the paper's Monte-Carlo integral would cause."""
    table = experiment.definition.table
    began = time.perf_counter()
    options = ScoringOptions(predict=experiment.predict, times=bool(table.get("times", True)))
    scored = workspace.score(model, test, options)
    found: dict[str, Any] = {"test": scored.evaluation.to_json()}
    if table.get("also_predict"):
        found["also"] = others(model, test, scored.events, table["also_predict"])
    truths = [sequence.metadata.get("nll_true") for sequence in test]
    true = [float(value) for value in truths if isinstance(value, int | float)]
    if len(true) == len(truths):  # simulated data from a known process
        found["true_log_likelihood"] = -sum(true) / test.event_count
    if table.get("monte_carlo") and exact_integral_of(model) is None:
        found["monte_carlo"] = monte_carlo(model, test)
    return found | {"score_seconds": round(time.perf_counter() - began, 2)}


def others(model: IntensityModel, test: EventData, events: EventScores, patterns: Sequence[str]) -> dict[str, Any]:
    """Return the errors of patterns of participants that are listed separately, since they are not part of the sum over patterns."""
    with model.evaluating():
        guesses = guess_participants(model, test, [parse_pattern(text) for text in patterns])
    units = Units(events.sequence, len(test))
    wanted = {f"participants {one.pattern}": one.pattern for one in guesses}
    metrics = [one for one in metrics_of(EventRecord(events, None, guesses)) if one.key in wanted]
    found = estimates([one.ratio(units) for one in metrics], units.resampling(0))
    return plain({wanted[one.key]: asdict(value) for one, value in zip(metrics, found, strict=True)})


def monte_carlo(model: IntensityModel, test: EventData, samples: int = SAMPLES_PER_EVENT) -> dict[str, Any]:
    """Compute how wide the log-likelihood's interval is because of the draws of a Monte-Carlo integral, and how much wider they make it.

    The width of an interval is measured by the standard deviation over replicates.
    """
    with model.evaluating():
        events = score_events(model, test, integral="uniform", points=samples)
    metric = metrics_of(EventRecord(events))[0]
    units = Units(events.sequence, len(test))
    exact = units.ratio(metric.values, metric.counts)
    spread = float(np.nanstd(replicates([exact], units.resampling(0))[:, 0]))
    drawn = float(np.sqrt(events.integral_variance.sum()) / max(int(events.is_event.sum()), 1))
    whole = float(np.hypot(spread, drawn))
    return {
        "samples_an_event": samples,
        "standard_error": drawn,
        "of_the_width": drawn / whole if whole else 0.0,
        "wider_by": 1.0 - spread / whole if whole else 0.0,
    }
