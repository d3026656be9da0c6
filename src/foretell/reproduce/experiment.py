"""Reads experiments: from `experiments/NAME/experiment.toml` it makes a checked `Definition`, and opens the class of its `kind`.

The `kind` of a definition names the class that makes its units, runs a unit, and evaluates all units. That class reads the rest
of the file. `[quick]` has the changes for a quick run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate
from foretell.reproduce.rows import ScoreRows, read_rows
from foretell.reproduce.unit import ROWS, Record, Unit, UnitFolder, Workspace, slug
from foretell.train.config import read_config
from foretell.wording import did_you_mean

FILE = "experiment.toml"
QUICK = "quick"


@dataclass(frozen=True)
class Definition:
    name: str
    folder: Path  # the folder of `experiment.toml`
    table: Mapping[str, Any]  # the whole file; for a quick run, `[quick]` is merged into it
    quick: bool = False
    models: tuple[str, ...] = ()  # names of the models to run; empty: all
    seeds: tuple[int, ...] = ()  # seeds that replace those of the definition; empty: the definition's

    @property
    def source(self) -> str:
        """Return the name of the definition for messages."""
        return str(self.folder / FILE)

    def placed(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return a [model] table with the absolute path of its program (a unit's settings have the relative one).

        Paths of programs are relative to the definition's folder or, as in shipped configurations of `foretell train`, to the folder
        above `experiments`.
        """
        program = str(model.get("program", ""))
        if not program.endswith(".ndtt"):
            return dict(model)
        beside = self.folder / program
        return {**model, "program": str(beside if beside.is_file() else self.folder.parents[1] / program)}

    @property
    def kind(self) -> str:
        return str(self.table.get("kind", "models"))

    @property
    def title(self) -> str:
        return str(self.table.get("title", self.name))

    @property
    def choices(self) -> list[str]:
        """Return the names that `--models` accepts: those of models, or of what the kind compares instead."""
        named = self.table.get("model") or self.table.get("set") or ()
        paired = [name for pair in self.table.get("pairs", ()) for name in pair]
        return list(dict.fromkeys([*(str(one.get("name")) for one in named), *map(str, paired)]))

    def has_any(self, models: Iterable[str]) -> bool:
        return not {slug(one) for one in models}.isdisjoint(map(slug, self.choices))

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Return the names that `--models` selects; all if it is not given."""
        names, wanted = list(names), {slug(one) for one in self.models}
        found = [one for one in names if not wanted or slug(one) in wanted]
        if not found:
            raise ForetellError(
                f"{self.name}: none of the models {', '.join(self.models)}; there are {', '.join(names)}"
            )
        return found

    @property
    def own_seeds(self) -> tuple[int, ...]:
        """Return the seeds that the user chose, else those of the file."""
        return self.seeds or tuple(self.table.get("seeds", (0,)))

    def entries(self, section: str, known: Iterable[str]) -> list[Mapping[str, Any]]:
        """Return the tables `[[section]]`; other keys than `known` are refused."""
        found = list(self.table.get(section, ()))
        for one in found:
            check_keys(one, known, f"{self.source}, [[{section}]] {one.get('name')}")
        return found

    def model_tables(
        self, entry: Mapping[str, Any], folder: Path, like: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return `{"model": …, "train": …}` of a `[[model]]`: merges its file in `folder`, the tables of `like`, and its own keys.

        The changes that a quick run makes to every model are merged last.
        """
        made: dict[str, Any] = {"train": dict(self.table.get("train", {})), "model": {}}
        if "config" in entry:
            found = read_config(folder / entry["config"])
            made = merged(made, {key: found.get(key, {}) for key in ("model", "train")})
        made = merged(made, like or {})
        made = merged(made, {"model": entry.get("model", {}), "train": entry.get("train", {})})
        return merged(made, self.table.get("change", {}))


@dataclass(frozen=True)
class Choice:
    """The user's choices for an experiment."""

    quick: bool = False
    models: tuple[str, ...] = ()
    seeds: tuple[int, ...] = field(default=())


def read_definition(name: str, choice: Choice | None = None) -> Definition:
    """Find an experiment by its name, or by the path of its folder."""
    choice = choice or Choice()
    folder = _folder(name)
    table = read_config(folder / FILE)
    quick = table.pop(QUICK, {})
    if choice.quick:
        table = merged(table, quick)
    return Definition(folder.name, folder, table, choice.quick, choice.models, choice.seeds)


def names() -> list[str]:
    """Return the names of all experiments."""
    return sorted(path.parent.name for path in experiments().glob(f"*/{FILE}"))


def experiments() -> Path:
    """Return the folder of all definitions; an installed package has a copy of the repository's folder."""
    shipped = Path(__file__).parent / "definitions"
    return (shipped if shipped.is_dir() else Path(__file__).parents[3]) / "experiments"


def check_models(definitions: Iterable[Definition], models: Iterable[str]) -> None:
    """Check that every requested model is in one of the experiments, so that a mistyped name is not ignored."""
    short = list(dict.fromkeys(slug(name) for one in definitions for name in one.choices))
    wrong = []
    for one in models:
        if slug(one) not in short:
            hint = did_you_mean(slug(one), short, before="; ")
            wrong.append(f"`models={one}`: there is no such model{hint}; there are {', '.join(short)}")
    if wrong:
        raise ForetellError("\n".join(wrong))


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables key by key; other values are replaced."""
    made = dict(table)
    for key, value in changes.items():
        old = made.get(key)
        made[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return made


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise one error that names all unknown keys."""
    known = list(known)
    wrong = []
    for key in table:
        if key not in known:
            hint = did_you_mean(key, known, otherwise=f"known are {', '.join(known)}")
            wrong.append(f"{where}: unknown key `{key}`; {hint}")
    if wrong:
        raise ForetellError("\n".join(wrong))


def _folder(name: str) -> Path:
    own = Path(name)
    written_as_a_path = "/" in name or name in (".", "..") or own.is_absolute()
    if (own / FILE).is_file() and written_as_a_path:
        return own.resolve()
    folder = experiments() / name
    if name and (folder / FILE).is_file():
        return folder
    if name and (own / FILE).is_file():
        return own.resolve()
    hint = did_you_mean(name, names(), before="; ")
    raise ForetellError(
        f"experiment {name!r}: no experiment has this name, and there is no folder with an {FILE}{hint}; known are {', '.join(names())}"
    )


Verdict = Literal["holds", "does not hold", "not significant", "not resolved", "pending"]

# `kind` in experiment.toml → its class, which is imported when it is needed.
KINDS = {
    "models": "foretell.reproduce.models:Models",
    "auto": "foretell.search.halving:AutoSearch",
    "datasets": "foretell.reproduce.kinds.datasets:Datasets",
    "synthetic": "foretell.reproduce.kinds.synthetic:Synthetic",
    "speed": "foretell.reproduce.kinds.speed:Speed",
    "shares": "foretell.reproduce.kinds.shares:Shares",
    "by-action": "foretell.reproduce.kinds.by_action:ByAction",
    "covariates": "foretell.reproduce.kinds.covariates:Covariates",
}


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, and whether it holds here."""

    name: str
    claim: str  # the paper's claim
    verdict: Verdict
    detail: str  # in words, with the numbers
    value: float | None = None  # the number that decides, if there is a single one


@dataclass(frozen=True)
class TableSection:
    """A table of the generated page."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def estimate_cell(one: Estimate, kind: str = "mean", spread: float | None = None) -> str:
    """Return a score for a table: value, [interval] and ± spread over the seeds; shares are in per cent."""
    scale, digits = (100.0, 1) if kind == "share" else (1.0, 3)
    value, low, high = (f"{scale * part:.{digits}f}".replace("-", "−") for part in (one.value, one.low, one.high))
    return f"{value} [{low}, {high}]" + ("" if spread is None else f" ± {scale * spread:.{digits}f}")


def verdict_of(lost: int | bool, weak: int | bool) -> Verdict:
    """Return the verdict of several tests, by whether some are lost significantly, some are not significant, or all are won."""
    return "does not hold" if lost else "not significant" if weak else "holds"


@dataclass(frozen=True)
class Picture:
    name: str  # the name of the file, such as scores.png
    draw: Callable[[Path], None]  # may need matplotlib, which may not be installed


@dataclass(frozen=True)
class ExperimentSummary:
    sections: Sequence[TableSection] = ()
    findings: Sequence[Finding] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)  # JSON, for results.json
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Results:
    """The results of an experiment: the records of its finished units."""

    folder: Path  # OUT/NAME
    units: Sequence[Unit]  # all units that are known so far
    records: Mapping[str, Record]  # records of finished units, by name
    earlier: Mapping[str, Any] = field(default_factory=dict)  # `results.json`, for units not in the folder

    def unit_folder(self, name: str) -> UnitFolder:
        return UnitFolder(self.folder / "units" / name)

    def rows(self, name: str) -> ScoreRows | None:
        """Return the scores of a unit for each event; None if it stored none."""
        path = self.unit_folder(name).path / ROWS
        return read_rows(path) if path.exists() else None


class Experiment(Protocol):
    """The protocol of kinds of experiments. An object is made from its definition alone, in the main process and in every worker."""

    def __init__(self, definition: Definition) -> None: ...

    def units(self, done: Mapping[str, Record]) -> Sequence[Unit]:
        """Return the units known when `done` are finished, in a fixed order. Called after each unit, so that units can wait for others."""
        ...

    def work(self, unit: Unit, workspace: Workspace) -> Mapping[str, Any]:
        """Run a unit; return its record (JSON). `workspace.fit` stops and resumes by itself; other long steps call `give_way`."""
        ...

    def summarise(self, results: Results) -> ExperimentSummary:
        """Summarise the finished units; there may be none yet."""
        ...


def open_experiment(definition: Definition) -> Experiment:
    place = KINDS.get(definition.kind)
    if place is None:
        raise ForetellError(f"{definition.source}: kind = {definition.kind!r}: expected one of {', '.join(KINDS)}")
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)(definition)


def results_of(definition: Definition, experiment: Experiment, out: Path) -> Results:
    """Return the results in an experiment's folder, including units that are only known once others are done."""
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
