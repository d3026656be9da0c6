"""What a plug-in is: a class that makes units of a definition, works on one of them, and says what came of all of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate
from foretell.reproduce.definition import Definition
from foretell.reproduce.rows import ScoreRows, read_rows
from foretell.reproduce.unit import ROWS, Record, Unit, UnitFolder
from foretell.reproduce.workspace import Workspace

Verdict = Literal["holds", "does not hold", "not significant", "pending"]

# `kind` in experiment.toml → the class that it stands for; imported when it is needed.
KINDS = {
    "models": "foretell.reproduce.models:Models",
    "datasets": "foretell.reproduce.kinds.datasets:Datasets",
    "synthetic": "foretell.reproduce.kinds.synthetic:Synthetic",
    "speed": "foretell.reproduce.kinds.speed:Speed",
    "shares": "foretell.reproduce.kinds.shares:Shares",
    "by-action": "foretell.reproduce.kinds.by_action:ByAction",
}


@dataclass(frozen=True)
class Finding:
    """Something that the paper found, and what became of it here."""

    name: str
    claim: str  # what the paper says
    verdict: Verdict
    detail: str  # in words, with the numbers
    value: float | None = None  # the one number that decides, where there is one


@dataclass(frozen=True)
class TableSection:
    """A table of the generated page."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def estimate_cell(one: Estimate, kind: str = "mean", spread: float | None = None) -> str:
    """A score in a table: its value, [its interval] and ± its spread over the seeds; shares in per cent."""
    scale, digits = (100.0, 1) if kind == "share" else (1.0, 3)
    value, low, high = (f"{scale * part:.{digits}f}".replace("-", "−") for part in (one.value, one.low, one.high))
    return f"{value} [{low}, {high}]" + ("" if spread is None else f" ± {scale * spread:.{digits}f}")


def verdict_of(lost: int | bool, weak: int | bool) -> Verdict:
    """Of several tests: some are lost significantly, or some are not significant, or all are won."""
    return "does not hold" if lost else "not significant" if weak else "holds"


@dataclass(frozen=True)
class Picture:
    name: str  # of the file: scores.png
    draw: Callable[[Path], None]  # may need matplotlib, which need not be there


@dataclass(frozen=True)
class ExperimentSummary:
    sections: Sequence[TableSection] = ()
    findings: Sequence[Finding] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)  # JSON, for results.json
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Results:
    """What is there of an experiment: the records of the units that are done."""

    folder: Path  # OUT/NAME
    units: Sequence[Unit]  # all that are known by now
    records: Mapping[str, Record]  # by the unit's name; only those that are done

    def unit_folder(self, name: str) -> UnitFolder:
        return UnitFolder(self.folder / "units" / name)

    def rows(self, name: str) -> ScoreRows | None:
        """The scores of a unit event by event; None: it kept none."""
        path = self.unit_folder(name).path / ROWS
        return read_rows(path) if path.exists() else None


class Experiment(Protocol):
    """A plug-in. It is made from its definition alone, in the main process and again in every worker."""

    def __init__(self, definition: Definition) -> None: ...

    def units(self, done: Mapping[str, Record]) -> Sequence[Unit]:
        """All units that are known once these are done, in a fixed order; called again after each one, so that some may wait for others."""
        ...

    def work(self, unit: Unit, workspace: Workspace) -> Mapping[str, Any]:
        """Do it; returns what to record (JSON). `workspace.fit` stops and resumes by itself; other long steps call `give_way`."""
        ...

    def summarise(self, results: Results) -> ExperimentSummary:
        """Of what is done so far, which may be nothing."""
        ...


def open_experiment(definition: Definition) -> Experiment:
    place = KINDS.get(definition.kind)
    if place is None:
        raise ForetellError(f"{definition.source}: kind = {definition.kind!r}: expected one of {', '.join(KINDS)}")
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)(definition)


def results_of(definition: Definition, experiment: Experiment, out: Path) -> Results:
    """What the folder has of it; units that appear only when others are done are found too."""
    folder = out / definition.name
    records: dict[str, Record] = {}
    while True:
        units = experiment.units(records)
        found = {one.name: UnitFolder(folder / "units" / one.name) for one in units}
        done = {
            one.name: record
            for one in units
            if found[one.name].state(one) == "done" and (record := found[one.name].record()) is not None
        }
        if done.keys() == records.keys():
            return Results(folder, units, done)
        records = done
