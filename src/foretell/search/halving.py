"""Successive halving as an experiment (`reproduce/experiment`): fits candidates for increasing numbers of epochs, and scores them on dev.

A fit has 1/9, 1/3 or all of the epochs that the rules give it, and a learning rate schedule of that length, so that every fit leaves a
usable model. Candidates begin with a short fit; the best third at one length continues to the next, and the others follow if time is left
(Li et al. 2018, 2020). The rules' own candidate gets all its epochs at once, and the leader is trained again at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretell.data import Dataset, EventData
from foretell.errors import ForetellError
from foretell.evaluate.scores import ScoringOptions
from foretell.ground.impossible import settle_impossible
from foretell.models.base import IntensityModel
from foretell.models.capabilities import DirectFit, GrowsVocabulary
from foretell.models.classical.hawkes import Hawkes
from foretell.models.registry import find_model
from foretell.models.rules.rule_model import RuleModel
from foretell.reading import limits
from foretell.reproduce.experiment import Definition, ExperimentSummary, Results, check_keys
from foretell.reproduce.unit import RUN, Record, Unit, UnitFolder, Workspace
from foretell.search.budget import read_budget
from foretell.search.candidates import Candidate, candidates_for
from foretell.search.finishing import FinalFit, final_fits, leaders
from foretell.train.auto_settings import DataTraits, wants_hawkes
from foretell.train.checkpoint import load_checkpoint
from foretell.train.config import RunConfig, make_config
from foretell.train.data_facts import data_facts
from foretell.train.fit import TrainingInterrupt, start_with_hawkes
from foretell.train.floor_fits import MOST_TYPES
from foretell.train.likelihood_task import scored_alike
from foretell.train.run import CONFIG, RunFolder
from foretell.train.splits import load_run

KEYS = ("kind", "title", "device", "dataset", "program", "undeclared", "train", "traits", "without_rules", "limits")
FLOORS = ("poisson", "weekly", "hawkes")
SHARES = (1 / 9, 1 / 3, 1.0)  # of the epochs that the rules give
WHOLE = len(SHARES) - 1
ETA = 3  # one in this many candidates is promoted
LEAST_STEPS, LEAST_EPOCHS = 15, 2  # minimum length of an informative fit
PARTIAL = "partial.json"  # the progress of a stopped unit
DEV_SCORES = ScoringOptions(integral="stratified", points=20, times=False)
CHECKPOINT_SECONDS = 5.0  # the most work lost when a process is killed
# The largest share of the remaining time for one fit: the rules' own candidate, a fit of the shortest length, any other.
FIRST_SHARE, SHORT_SHARE, LONG_SHARE = 0.75, 0.2, 0.95
FLOOR_SHARE = 0.25
BEGINNING = 0.02  # share of the budget that must be left for a candidate to begin
USEFUL = 1.5  # a longer fit begins only if this many times the shorter one's duration is left


@dataclass(frozen=True)
class Rung:
    """A candidate at one of the lengths."""

    candidate: Candidate
    place: int  # index in SHARES

    @property
    def name(self) -> str:
        return f"{self.candidate.name}-{self.place + 1}"

    @property
    def epochs(self) -> int:
        return max(LEAST_EPOCHS, round(SHARES[self.place] * self.candidate.tables["train"]["epochs"]))

    def unit(self) -> Unit:
        one = self.candidate
        about = {"candidate": one.name, "title": one.title, "why": one.why, "variant": one.variant}
        return Unit(self.name, {**about, "rung": self.place, "epochs": self.epochs, "tables": one.tables})


class AutoSearch:
    """The search as an experiment. Its definition has the data, their traits, and the settings fixed by the user."""

    def __init__(self, definition: Definition) -> None:
        check_keys(definition.table, KEYS, definition.source)
        self.folder, self.table, self.source = definition.folder, definition.table, definition.source
        self.traits = DataTraits(**definition.table["traits"])
        self.device = str(definition.table["device"])
        self.rules = {key: str(definition.table[key]) for key in ("program", "undeclared") if key in definition.table}
        self.program = self.rules.get("program", "")
        self.without_rules = bool(definition.table.get("without_rules", True))

    # The list of units.

    def units(self, done: Mapping[str, Record]) -> Sequence[Unit]:
        """Return the units in order: floors, the rules' own candidate, the best third of each length, candidates not yet begun, others,
        the leader again, and then the other variants."""
        able = {"weekly": self.traits.has_weeks, "hawkes": self.traits.types <= MOST_TYPES}
        floors = [self._floor(kind) for kind in FLOORS if able.get(kind, True)]
        waiting = self._waits_for_hawkes(done)
        decays = 0 if waiting else int(done.get("hawkes", {}).get("decays", 0))
        every = self.candidates(decays)
        if not every:
            return floors
        ready = [one for one in every if not waiting or one.tables["model"]["kind"] != "anhp"]
        begun = [Rung(one, WHOLE if one is every[0] else self._first(one)) for one in ready]
        ahead, behind = self._promotions(ready, done)
        kinds = [one for one in behind if not one.candidate.variant]
        variants = [one for one in behind if one.candidate.variant]
        head = [*begun[:1], *ahead, *begun[1:]] if ready[0] is every[0] else [*ahead, *begun]
        before, after = (
            [one.unit() for one in rungs if self._fits(one, done)] for rungs in ([*head, *kinds], variants)
        )
        return [*floors, *before, *(one.unit() for one in self._final_fits(ready, done)), *after]

    def candidates(self, decays: int) -> list[Candidate]:
        """Return all candidates, with the settings that the user has fixed."""
        found = candidates_for(self.traits, self.device, **self.rules, decays=decays, without_rules=self.without_rules)
        fixed = {key: value for key, value in self.table.get("train", {}).items()}
        return [replace(one, tables={**one.tables, "train": {**one.tables["train"], **fixed}}) for one in found]

    def _floor(self, kind: str) -> Unit:
        about = {"candidate": kind, "title": find_model(kind).about.title, "why": "a floor", "variant": False}
        return Unit(kind, {**about, "rung": WHOLE, "tables": {"model": {"kind": kind}, "train": {}}})

    def _waits_for_hawkes(self, done: Mapping[str, Record]) -> bool:
        """Whether A-NHP must wait for a Hawkes process that is not fitted yet; if that fit failed, it does not wait."""
        if self.program or not wants_hawkes(self.traits) or self.traits.types > MOST_TYPES:
            return False
        return "hawkes" not in done and not self._unit_folder("hawkes").error()

    def _first(self, candidate: Candidate) -> int:
        """Return the shortest length with enough steps for an informative fit."""
        batch = candidate.tables["train"]["batch"]
        per_epoch = -(-self.traits.sequences // batch)
        long_enough = [place for place in range(WHOLE) if Rung(candidate, place).epochs * per_epoch >= LEAST_STEPS]
        return long_enough[0] if long_enough else WHOLE

    def _promotions(self, every: Sequence[Candidate], done: Mapping[str, Record]) -> tuple[list[Rung], list[Rung]]:
        """Return two lists of candidates at their next length: those of the best third, longest first, and the others, best first."""
        ahead: list[Rung] = []
        behind: list[tuple[float, Rung]] = []
        for place in reversed(range(WHOLE)):
            scores = {
                one.name: float(record["dev"])
                for one in every
                if (record := done.get(Rung(one, place).name)) is not None and record.get("dev") is not None
            }
            ranked = sorted((one for one in every if one.name in scores), key=lambda one: -scores[one.name])
            best = len(ranked) // ETA
            ahead += [Rung(one, place + 1) for one in ranked[:best]]
            behind += [(scores[one.name], Rung(one, place + 1)) for one in ranked[best:]]
        return ahead, [one for _, one in sorted(behind, key=lambda pair: -pair[0])]

    def _final_fits(self, every: Sequence[Candidate], done: Mapping[str, Record]) -> Iterator[FinalFit]:
        """Yield the leaders' final fits that are done, or that the remaining time allows, judged by the duration of a complete fit."""
        fixed = self.table.get("train", {})
        budget = read_budget(self.folder)
        left = float("inf") if budget is None or not budget.began else budget.left()
        for one in final_fits(leaders(every, done), int(fixed.get("seed", 0)), WHOLE, fixed=fixed):
            whole = done.get(Rung(one.candidate, WHOLE).name)
            known = whole is not None and whole.get("dev") is not None and one.seconds(whole) <= left
            if known or self._unit_folder(one.name).record() is not None:
                yield one

    def _fits(self, rung: Rung, done: Mapping[str, Record]) -> bool:
        """Whether the fit is done already, or there is enough time left for it."""
        if self._unit_folder(rung.name).record() is not None:
            return True
        budget = read_budget(self.folder)
        if budget is None or not budget.began:
            return True
        earlier = done.get(Rung(rung.candidate, rung.place - 1).name) if rung.place else None
        if earlier is not None:
            return USEFUL * float(earlier["seconds"]) <= budget.left()
        if rung.candidate.variant:  # its epochs take as long as those of the rules' own candidate
            first = done.get(
                Rung(replace(rung.candidate, name=str(rung.candidate.tables["model"]["kind"])), WHOLE).name
            )
            if first is None or not first["epochs"]:
                return False
            return rung.epochs * float(first["seconds"]) / first["epochs"] <= budget.left()
        return BEGINNING * budget.seconds <= budget.left()

    def _unit_folder(self, name: str) -> UnitFolder:
        return UnitFolder(self.folder / "units" / name)

    # The work on one unit.

    def work(self, unit: Unit, workspace: Workspace) -> Mapping[str, Any]:
        bounds = self.table.get("limits", {})
        given = {**bounds, "allow": tuple(Path(one) for one in bounds["allow"])} if "allow" in bounds else bounds
        with limits(**given):
            return _Fit(self, unit, workspace).record()

    def summarise(self, results: Results) -> ExperimentSummary:
        return ExperimentSummary()

    def config(self, tables: Mapping[str, Mapping[str, Any]]) -> RunConfig:
        """Return the complete configuration of a candidate."""
        train = {"checkpoint_seconds": CHECKPOINT_SECONDS, "device": self.device, **tables["train"]}
        table = {"data": self.table["dataset"], "model": tables["model"], "train": train}
        return make_config(table, self.source)


def unit_folders(folder: Path) -> list[UnitFolder]:
    """Return the folders of the candidates that were started."""
    return [UnitFolder(path) for path in sorted((folder / "units").glob("*")) if path.is_dir()]


class _TooSlow(Exception):  # noqa: N818 (not an error)
    """The remaining time is too short for all planned epochs; `epochs` is the possible number."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs


class _Fit:
    """One unit: a fit within its time limit, and its scores on dev."""

    def __init__(self, search: AutoSearch, unit: Unit, workspace: Workspace) -> None:
        self.search, self.unit, self.workspace = search, unit, workspace
        self.tables = unit.plain()["tables"]
        if "epochs" in unit.settings:
            self.tables["train"]["epochs"] = unit.settings["epochs"]
        self.run = workspace.folder / RUN
        self.began = time.time()
        budget = read_budget(search.folder)
        self.allowed = float("inf") if budget is None else max(0.0, budget.left()) * self._share()
        self.late = False

    def _share(self) -> float:
        if self.unit.name in FLOORS:
            return FLOOR_SHARE
        if self.unit.settings["rung"] < WHOLE:
            return SHORT_SHARE
        first = not self.unit.settings["variant"] and "again" not in self.unit.settings
        return FIRST_SHARE if first else LONG_SHARE

    def record(self) -> dict[str, Any]:
        """Return the record of a unit; a unit that is stopped saves its progress in PARTIAL."""
        search = self.search
        if (self.run / CONFIG).exists():  # an earlier call may have reduced the number of epochs
            self.tables["train"]["epochs"] = RunFolder.open(self.run).config().train.epochs
        dataset = self._dataset(search.config(self.tables))
        try:
            self._fit(dataset)
        except TrainingInterrupt:
            if not self.late:
                if self._reached() and self._out_of_time():
                    self._keep_partial(self._scored(dataset))
                raise
        return self._scored(dataset)

    def _out_of_time(self) -> bool:
        budget = read_budget(self.search.folder)
        return budget is not None and budget.left() <= 0.0

    def _fit(self, dataset: Dataset) -> None:
        """Fit, and fit again with fewer epochs if the first epochs take too long."""
        assert dataset.train is not None
        while True:
            config = self.search.config(self.tables)
            table = {"data": self.search.table["dataset"], **self.tables}
            table["train"] = {"checkpoint_seconds": CHECKPOINT_SECONDS, **self.tables["train"]}
            workspace = replace(self.workspace, stop=self._stop)
            try:
                workspace.fit(
                    table,
                    dataset.train,
                    dataset.dev,
                    source=self.search.source,
                    about=data_facts(dataset),
                    start=self._start(dataset),
                    on_epoch=self._watch(config),
                )
                return
            except _TooSlow as slow:
                self.tables["train"]["epochs"] = slow.epochs
                RunFolder.open(self.run).discard()

    def _stop(self) -> bool:
        if self.workspace.stop():
            return True
        self.late = time.time() - self.began > self.allowed
        return self.late

    def _watch(self, config: RunConfig) -> Callable[[dict[str, Any]], None]:
        """Return a callback that measures the second epoch (the first one also plans and compiles) and raises `_TooSlow` if needed."""

        def told(record: dict[str, Any]) -> None:
            epochs = config.train.epochs
            if record["epoch"] != 2 or "dev_seconds" not in record or epochs <= 3:
                return
            each, spent = record["train_seconds"] + record["dev_seconds"], time.time() - self.began
            if spent + (epochs - 2) * each <= self.allowed:  # true also without a limit
                return
            possible = int((self.allowed - spent) / max(each, 1e-9))
            if possible < epochs:
                raise _TooSlow(max(3, possible))

        return told

    def _start(self, dataset: Dataset) -> Callable[[IntensityModel], None]:
        """Return a function that starts a model from the Hawkes process that was fitted as a floor, if the model has one."""

        def start(model: IntensityModel) -> None:
            folder = self.search._unit_folder("hawkes").path / RUN
            if getattr(model.options, "hawkes", 0) and (folder / CONFIG).exists() and RunFolder.open(folder).has_model:
                fitted = RunFolder.open(folder).model()
                assert isinstance(fitted, Hawkes) and dataset.train is not None
                start_with_hawkes(model, dataset.train, dataset.dev, fitted)

        return start

    def _dataset(self, config: RunConfig) -> Dataset:
        """Return the data for this unit's model, without test."""
        key = "rules" if self.search.program else "plain"
        if key not in self.workspace.loaded:
            self.workspace.loaded[key] = _alike(load_run(config), self.search)
        return self.workspace.loaded[key]

    def _reached(self) -> bool:
        return (self.run / CONFIG).exists() and RunFolder.open(self.run).has_model

    def _scored(self, dataset: Dataset) -> dict[str, Any]:
        if not self._reached():
            return {"gave_up": "an epoch takes longer than the time that it may take", **self._facts(None)}
        folder = RunFolder.open(self.run)
        model = folder.model(self.search.device)
        assert dataset.dev is not None
        began = time.time()
        evaluation = self.workspace.score(model, dataset.dev, DEV_SCORES).evaluation.to_json()
        estimate = evaluation["log_likelihood"]
        if estimate["value"] is None:
            raise ForetellError("the log-likelihood of dev is not a finite number")
        stopped = not isinstance(model, DirectFit) and not load_checkpoint(folder.checkpoint).progress.done
        found = {"dev": estimate["value"], "stopped": stopped, "interval": [estimate["low"], estimate["high"]]}
        found |= {"whole_run": True, "events": evaluation["events"], "score_seconds": round(time.time() - began, 2)}
        if isinstance(model, Hawkes):
            found["decays"] = model.decays
        return found | self._facts(model)

    def _facts(self, model: IntensityModel | None) -> dict[str, Any]:
        """Return the state of the fit, from its folder."""
        records = RunFolder.open(self.run).metrics() if self._reached() else []
        settings = self.unit.settings
        return {
            **{name: settings[name] for name in ("candidate", "title", "why", "variant", "rung")},
            "kind": self.tables["model"]["kind"],
            "again": settings.get("again"),  # for a final fit: "longer", "seed 2"
            "wanted": settings.get("epochs"),
            "planned": self.tables["train"].get("epochs"),  # fewer than wanted if time is short
            "epochs": len(records),
            "best_epoch": records[-1].get("best_epoch") if records else None,
            "steps": records[-1].get("step") if records else None,
            "parameters": None if model is None else sum(one.numel() for one in model.parameters()),
            "seconds": round(time.time() - self.began, 2),
        }

    def _keep_partial(self, found: Mapping[str, Any]) -> None:
        UnitFolder(self.workspace.folder).write(PARTIAL, found)


def _alike(dataset: Dataset, search: AutoSearch) -> Dataset:
    """With a program, leave out impossible events, and events that its models do not score, for all models."""
    if not search.program:
        return dataset
    config = search.config(search.candidates(0)[0].tables)
    dataset, _ = settled_dataset(config, dataset)
    if search.without_rules:
        return dataset
    model = rule_model(config, dataset)
    parts = {name: scored_alike(part, model) for name, part in dataset.splits().items()}
    return replace(dataset, **parts)


def settled_dataset(config: RunConfig, dataset: Dataset) -> tuple[Dataset, int]:
    """Treat events that the program makes impossible as `data.impossible` says; return the data and the number of such events."""
    made: dict[str, EventData] = {}
    count = 0
    model = rule_model(config, dataset)
    for name, part in dataset.splits().items():
        found = settle_impossible(model.program, part, config.data.impossible)
        made[name], count = found.data, count + found.impossible
    return replace(dataset, **made), count


def rule_model(config: RunConfig, dataset: Dataset) -> RuleModel[Any]:
    """Return a fresh model of the rules that has met the training data."""
    import torch

    model = config.model.make(dataset.vocabulary, seed=0, dtype=torch.float32)
    assert isinstance(model, RuleModel) and isinstance(model, GrowsVocabulary) and dataset.train is not None
    model.meet(dataset.train)
    return model
