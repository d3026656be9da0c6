"""The kind "covariates": the gain from the columns of a log and from its calendar, each with and without the other.

A unit is one fit of one model to one log, with or without the calendar and the columns, and its test scores. All fits of a log use the same
events; floors, with and without the week, are fitted for comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from foretell.data import Dataset, load
from foretell.data.covariates import NO_NAMES
from foretell.data.read_options import ReadOptions
from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.scores import ScoringOptions, plain
from foretell.reproduce.experiment import (
    Definition,
    ExperimentSummary,
    Finding,
    Results,
    TableSection,
    check_keys,
    estimate_cell,
    merged,
)
from foretell.reproduce.model_difference import ModelDifference, correct, model_difference
from foretell.reproduce.rows import SeedRows, seed_rows
from foretell.reproduce.unit import Record, Unit, Workspace, cut, find_data, slug, whole
from foretell.train.config import make_config

KEYS = ("kind", "title", "paper", "device", "seeds", "minutes", "most", "learner", "train", "set", "change", "scores")
OF_A_SET = ("name", "data", "zone", "covariates", "static", "minutes")
VARIANTS = ("neither", "calendar", "columns", "both")  # the model itself, in four forms
FLOORS = ("poisson", "weekly")
# First minus second, in the order of the table; findings use the first two of a log.
PAIRS = (("calendar", "neither"), ("columns", "neither"), ("both", "columns"), ("both", "calendar"))
ENOUGH = 3  # number of logs on which each must bring a significant gain
METRIC = "log_likelihood"
SPLITS = ("train", "dev", "test")
FitOf = tuple[str, str]  # a log and a variant


class Covariates:
    def __init__(self, definition: Definition) -> None:
        self.definition, table = definition, definition.table
        check_keys(table, KEYS, definition.source)
        check_keys(table.get("most", {}), SPLITS, f"{definition.source}, [most]")
        sets = definition.entries("set", OF_A_SET)
        chosen = definition.chosen(str(one["name"]) for one in sets)
        self.sets = [one for one in sets if one["name"] in chosen]
        self.most: Mapping[str, int] = table.get("most", {})

    def units(self, done: Mapping[str, Record]) -> list[Unit]:
        found = []
        for one in self.sets:
            found += [self._unit(one, floor, 0) for floor in FLOORS if floor != "weekly" or "zone" in one]
            for seed in self.definition.own_seeds:
                found += [self._unit(one, variant, seed) for variant in self._variants(one)]
        return found

    def work(self, unit: Unit, workspace: Workspace) -> dict[str, Any]:
        settings = unit.settings
        dataset = _dataset(settings, workspace)
        train, dev, test = (
            cut(part, int(settings["most"].get(name, 0)))
            for name, part in zip(SPLITS, whole(dataset, settings["data"]), strict=True)
        )
        if settings["variant"] not in ("columns", "both"):
            train, dev, test = (replace(part, covariates=NO_NAMES) for part in (train, dev, test))
        source = f"{self.definition.source}, {settings['log']}"
        fitted = workspace.fit(settings["config"], train, dev, source=source, keep=False)
        scored = workspace.score(fitted.model, test, ScoringOptions(times=False, **settings["scores"]))
        about = {name: settings[name] for name in ("log", "variant", "seed")} | fitted.facts
        about["follows"] = None if fitted.model.calendar is None else fitted.model.calendar.calendar.to_json()
        known = fitted.model.covariates
        about["columns"] = [] if known is None else list(known.encoding.names)
        return about | {"events": train.event_count, "test": scored.evaluation.to_json()}

    def summarise(self, results: Results) -> ExperimentSummary:
        rows = seed_rows(results, lambda one: (one["log"], one["variant"]))
        tests = _tests(rows, [str(one["name"]) for one in self.sets])
        numbers = {
            "scores": [_score(key, some) for key, some in rows.items()],
            "tests": [{"log": log, **one.to_json()} for (log, _, _), one in tests.items()],
        }
        sections = [self._scores_table(rows), self._tests_table(tests)]
        findings = [self._finding("The calendar", PAIRS[0], tests), self._finding("Columns", PAIRS[1], tests)]
        return ExperimentSummary(sections, findings, plain(numbers))

    def _variants(self, one: Mapping[str, Any]) -> tuple[str, ...]:
        """What the log has: columns, and a zone where it has dates."""
        columns, dates = bool(one.get("covariates") or one.get("static")), "zone" in one
        return tuple(
            each for each in VARIANTS if (columns or each in VARIANTS[:2]) and (dates or each in ("neither", "columns"))
        )

    def _unit(self, one: Mapping[str, Any], variant: str, seed: int) -> Unit:
        table = self.definition.table
        if variant in FLOORS:
            config: dict[str, Any] = {"model": {"kind": variant}, "train": {}}
        else:
            model = {**table["learner"], "calendar": variant in ("calendar", "both")}
            config = {"model": model, "train": {**table.get("train", {}), "seed": seed}}
        config = merged(config, {} if variant in FLOORS else table.get("change", {}))
        make_config(config, f"{self.definition.source}, {one['name']}")
        settings = {
            "log": one["name"],
            "data": one["data"],
            "zone": str(one.get("zone", "")),
            "columns": [list(one.get(name, [])) for name in ("covariates", "static")],
            "most": dict(self.most),
            "scores": dict(table.get("scores", {})),
            "variant": variant,
            "seed": seed,
            "config": config,
        }
        minutes = float(one.get("minutes", table.get("minutes", 1.0)))
        name = f"{slug(str(one['name']))}-{variant}" + ("" if variant in FLOORS else f"-seed{seed}")
        return Unit(name, settings, 0.1 if variant in FLOORS else minutes, table.get("device", "cpu"))

    def _scores_table(self, rows: Mapping[FitOf, SeedRows]) -> TableSection:
        order = (*FLOORS, *VARIANTS)
        lines = []
        for one in self.sets:
            cells = []
            for variant in order:
                some = rows.get((str(one["name"]), variant))
                there = variant == "poisson" or (
                    "zone" in one if variant == "weekly" else variant in self._variants(one)
                )
                cells.append(("pending" if there else "–") if some is None else _cell(some))
            lines.append([str(one["name"]), *cells])
        note = "Test log-likelihood per event: the mean over seeds, [95 % bootstrap interval], ± standard deviation over seeds."
        return TableSection("Test log-likelihood", ["log", *order], lines, note)

    def _tests_table(self, tests: Mapping[tuple[str, str, str], ModelDifference]) -> TableSection:
        head = [
            "log",
            "of",
            "over",
            "difference",
            "p",
            "p over seeds",
            "corrected",
            "better",
            "seeds ahead, significantly",
        ]
        lines = [[log, first, second, *one.cells()] for (log, first, second), one in tests.items()]
        note = "All tests are one family for Holm's correction; the larger of the two p counts."
        return TableSection("What each is worth", head, lines, note)

    def _finding(
        self, name: str, pair: tuple[str, str], tests: Mapping[tuple[str, str, str], ModelDifference]
    ) -> Finding:
        claim = f"{pair[0]} over {pair[1]}: a significant gain on at least {ENOUGH} logs"
        mine = {log: one for (log, *both), one in tests.items() if tuple(both) == pair}
        wanted = [str(one["name"]) for one in self.sets if pair[0] in self._variants(one)]
        waiting = [log for log in wanted if log not in mine]
        if waiting:
            return Finding(name, claim, "pending", f"not fitted yet: {', '.join(waiting)}")
        gains = [log for log, one in mine.items() if one.leader() == pair[0]]
        said = "; ".join(f"{log}: {one.size()} ({one.p_words()})" for log, one in mine.items())
        return Finding(name, claim, "holds" if len(gains) >= ENOUGH else "does not hold", said)


def _dataset(settings: Mapping[str, Any], workspace: Workspace) -> Dataset:
    """Return the data set with its columns named, whether or not this unit's model uses them; read once per process."""
    name = str(settings["data"])
    if name not in workspace.loaded:
        events, static = settings["columns"]
        options = ReadOptions(timezone=settings["zone"], covariates=tuple(events), static=tuple(static))
        workspace.loaded[name] = load(find_data(name, workspace.data), options=options)
    return workspace.loaded[name]


def _tests(rows: Mapping[FitOf, SeedRows], logs: Sequence[str]) -> dict[tuple[str, str, str], ModelDifference]:
    found = {}
    for log in logs:
        for first, second in PAIRS:
            one, other = rows.get((log, first)), rows.get((log, second))
            if one is not None and other is not None and len(one.by_seed) == len(other.by_seed):
                found[log, first, second] = model_difference((first, second), one, other, METRIC)
    return dict(zip(found, correct(list(found.values())), strict=True))


def _score(key: FitOf, rows: SeedRows) -> dict[str, Any]:
    estimate: Estimate = rows.estimate(METRIC)
    return {"log": key[0], "variant": key[1], "values": list(rows.values(METRIC)), METRIC: asdict(estimate)}


def _cell(rows: SeedRows) -> str:
    return estimate_cell(rows.estimate(METRIC), spread=rows.spread(METRIC))
