"""The search space: read from a configuration in which lists are choices and `{low, high}` are ranges; it yields settings.

A setting is a flat dict of the searched keys: `{"model.dim": 32, "train.lr": 0.003}`. `Space.config` makes a whole configuration of it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from foretell.errors import ForetellError
from foretell.models.registry import model_options
from foretell.options import ConfigError, Flag, names_of, option, too_small
from foretell.shards.place import parse_place, with_jobs
from foretell.train.config import DataOptions, RunConfig, TrainOptions, make_config

Setting = dict[str, Any]

RANGE_KEYS = ("low", "high", "log", "step")
# Settings must be scored on the same events in the same way; and selecting a seed by its score would be selecting by chance.
FIXED = ("train.window", "train.dev_points", "train.seed")
KIND = "model.kind"
SECTIONS = {"data": DataOptions, "train": TrainOptions}


SearchSampler = Literal["auto", "grid", "random", "tpe"]
Pruner = Literal["median", "hyperband", "none"]
SAMPLER = Flag("How settings are chosen; auto: grid if it is small.", choices=True)


@dataclass(frozen=True)
class SearchOptions:
    trials: int | None = option(None, flag="Settings to try, earlier calls included; default: all, or 50.", least=1)
    minutes: float | None = option(None, flag="Stop after this time; the next call goes on; default: no limit.")
    jobs: int = option(1, flag="Settings at a time, each in a process of its own.")
    on: str = option("this", flag="Where: this (process), processes:N, ray, ray:N, or a cluster, ray://HOST:PORT.")
    sampler: SearchSampler = option("auto", flag=SAMPLER)
    pruner: Pruner = option("median", flag=Flag("When a setting is given up by its epochs so far.", choices=True))
    seed: int = option(0, flag="Of the search; a setting's own seed is train.seed.")
    storage: str = option("journal", flag="journal, sqlite, sqlite:PATH, or the URL of a database.")

    def check(self) -> SearchOptions:
        wrong = []
        for name, given, known in (("sampler", self.sampler, SearchSampler), ("pruner", self.pruner, Pruner)):
            if given not in get_args(known):
                wrong.append(f"{name} = {given}: expected one of {', '.join(get_args(known))}")
        wrong += too_small(self)
        if self.minutes is not None and not 0.0 < self.minutes < math.inf:
            wrong.append(f"minutes = {self.minutes}: expected a number above 0")
        if not 1 <= self.jobs <= 512:
            wrong.append(f"jobs = {self.jobs}: expected a number from 1 to 512")
        elif not wrong:
            with_jobs(parse_place(self.on), self.jobs)
        if not 0 <= self.seed < 2**32:
            wrong.append(f"seed = {self.seed}: expected a whole number from 0 to {2**32 - 1}")
        if wrong:
            raise ForetellError("\n".join(wrong))
        return self


@dataclass(frozen=True)
class Choices:
    values: tuple[Any, ...]

    def listed(self) -> tuple[Any, ...] | None:
        return self.values

    def to_json(self) -> Any:
        return list(self.values)


@dataclass(frozen=True)
class Range:
    low: float
    high: float
    whole: bool  # whole numbers only
    log: bool = False
    step: float | None = None

    def listed(self) -> tuple[Any, ...] | None:
        """Return all its values if there are finitely many, else None."""
        step = 1 if self.whole and self.step is None and not self.log else self.step
        if step is None:
            return None
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        return tuple(int(self.low + place * step) if self.whole else self.low + place * step for place in range(count))

    def to_json(self) -> Any:
        return {"low": self.low, "high": self.high, "log": self.log, "step": self.step}


@dataclass(frozen=True)
class Space:
    """The searched keys by their dotted names, and the fixed settings."""

    fixed: Mapping[str, Any]  # a table of tables, as `make_config` takes it
    open: Mapping[str, Choices | Range]
    kinds: tuple[str, ...]
    from_paper: bool = False  # True if no key was searched, so that the paper's grid is used
    source: str = "configuration"
    _known: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, table: Mapping[str, Any], source: str = "configuration") -> Space:
        """Read a space; every choice is checked as a configuration of its own, and the error lists all mistakes."""
        given = table.get("model", {})
        kind = given.get("kind", "anhp") if isinstance(given, Mapping) else "anhp"
        kinds = tuple(kind) if isinstance(kind, list) else (kind,)
        known = {str(one): _hints(one) for one in kinds}
        hints = {section: get_type_hints(options) for section, options in SECTIONS.items()}
        hints["model"] = {key: hint for theirs in reversed(known.values()) for key, hint in theirs.items()}
        fixed: dict[str, Any] = {}
        found: dict[str, Choices | Range] = {}
        problems = _not_searched(table)
        for section, values in table.items():
            if not isinstance(values, Mapping):
                fixed[section] = values
                continue
            fixed[section] = {}
            for key, value in values.items():
                name = f"{section}.{key}"
                opened = _opened(name, value, hints.get(section, {}).get(key), problems)
                if isinstance(opened, Choices) and len(opened.values) == 1:
                    fixed[section][key] = opened.values[0]
                elif opened is None:
                    fixed[section][key] = value
                elif section == "data" or name in FIXED:
                    problems.append(f"{name}: cannot be searched: {_why_fixed(section, key)}; give one value")
                else:
                    found[name] = opened
        if problems:
            raise ConfigError("\n".join(f"{source}: {problem}" for problem in problems))
        names = {kind: frozenset(hints) for kind, hints in known.items()}
        space = cls(fixed, found, tuple(str(one) for one in kinds), False, source, names)
        if not found:
            space = space._of_paper()
        space._check()
        return space

    def relevant(self, kind: str) -> dict[str, Choices | Range]:
        """Return the searched keys for one kind of model: without options that only other kinds have."""
        theirs = {KIND, *(f"model.{name}" for name in self._of_others(kind))}
        return {name: one for name, one in self.open.items() if name not in theirs}

    def _of_others(self, kind: str) -> set[str]:
        """Return the model options that only other kinds have."""
        return set().union(*self._known.values()) - self._known.get(kind, frozenset())

    def _start(self, kind: str) -> Setting:
        return {KIND: kind} if KIND in self.open else {}

    def config(self, setting: Setting) -> RunConfig:
        table = {
            section: dict(values) if isinstance(values, Mapping) else values for section, values in self.fixed.items()
        }
        kind = str(setting.get(KIND, self.kinds[0]))
        theirs, model = self._of_others(kind), table.get("model", {})
        if isinstance(model, Mapping):
            table["model"] = {key: value for key, value in model.items() if key not in theirs} | {"kind": kind}
        for name, value in setting.items():
            section, key = name.split(".", 1)
            part = table.setdefault(section, {})
            if isinstance(part, dict):  # else `make_config` reports that it is no table
                part[key] = value
        return make_config(table, self.source)

    def first(self) -> Setting:
        """Return the first choice of every list, and the low end of every range."""
        return self._start(self.kinds[0]) | {name: _ends(one)[0] for name, one in self.relevant(self.kinds[0]).items()}

    def size(self) -> int | None:
        """Return the number of settings; None: infinitely many."""
        count = 0
        for kind in self.kinds:
            lists = [one.listed() for one in self.relevant(kind).values()]
            if any(values is None for values in lists):
                return None
            count += math.prod(len(values) for values in lists if values is not None)
        return count

    def settings(self) -> Iterator[Setting]:
        """Yield all settings; the first key varies slowest."""
        for kind in self.kinds:
            relevant = self.relevant(kind)
            for values in itertools.product(*(one.listed() or () for one in relevant.values())):
                yield self._start(kind) | dict(zip(relevant, values, strict=True))

    def endless(self) -> list[str]:
        return [name for name, one in self.open.items() if one.listed() is None]

    def to_json(self) -> dict[str, Any]:
        return {"fixed": self.fixed, "open": {name: one.to_json() for name, one in self.open.items()}}

    def _of_paper(self) -> Space:
        options = dataclasses.fields(model_options(self.kinds[0]))
        grid = {f"model.{one.name}": Choices(one.metadata["tuned"]) for one in options if one.metadata.get("tuned")}
        if not grid:
            raise ConfigError(
                f"{self.source}: nothing to search: {self.kinds[0]} has neither dim nor layers; give lists of values, "
                f"such as {'lr = [1e-3, 3e-3]' if not options else f'{options[0].name} = [1, 2, 4]'}"
            )
        return Space(self.fixed, grid, self.kinds, True, self.source, self._known)

    def _check(self) -> None:
        """Check configurations that together contain every choice and both ends of every range."""
        problems: dict[str, None] = {}
        for kind in self.kinds:
            tried = {name: _ends(one) for name, one in self.relevant(kind).items()}
            start = self._start(kind) | {name: values[0] for name, values in tried.items()}
            others = [start | {name: value} for name, values in tried.items() for value in values[1:]]
            for setting in (start, *others):
                try:
                    self.config(setting)
                except ConfigError as error:
                    problems |= dict.fromkeys(str(error).splitlines())
        if problems:
            raise ConfigError("\n".join(problems))


def _ends(one: Choices | Range) -> tuple[Any, ...]:
    if isinstance(one, Choices):
        return one.values
    return (int(one.low), int(one.high)) if one.whole else (one.low, one.high)


def _hints(kind: Any) -> dict[str, Any]:
    try:
        options = model_options(kind)
    except ForetellError:  # reported where the configuration is checked
        return {}
    hints = get_type_hints(options)
    return {name: hints[name] for name in names_of(options)}


def _opened(name: str, value: Any, hint: Any, problems: list[str]) -> Choices | Range | None:
    """Return the choices or the range that a value describes; None if it is fixed."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if isinstance(value, list):
        takes_lists = any(get_origin(kind) in (list, tuple) for kind in kinds)
        if takes_lists and not (value and all(isinstance(one, list) for one in value)):
            return None  # the value of this key is itself a list; choices of it are a list of lists
        if not value:
            problems.append(f"{name} = []: expected at least one choice")
            return None
        spelled = [json.dumps(one, sort_keys=True) for one in value]
        if len(set(spelled)) < len(spelled):
            problems.append(f"{name} = {value!r}: the same choice twice")
        return Choices(tuple(value))
    if not isinstance(value, Mapping) or all(isinstance(one, str) for one in value.values()):
        return None  # a table of strings is itself a value, such as a mapping of types
    return _range(name, value, kinds, problems) if value.keys() & {"low", "high"} else None


def _range(name: str, value: Mapping[str, Any], kinds: Sequence[Any], problems: list[str]) -> Range | None:
    form = "{low = 1e-4, high = 1e-2, log = true}"
    unknown = sorted(set(value) - set(RANGE_KEYS))
    low, high, step, log = value.get("low"), value.get("high"), value.get("step"), value.get("log", False)
    numbers = all(_number(one) for one in (low, high)) and (step is None or _number(step)) and isinstance(log, bool)
    if unknown or not numbers or low is None or high is None:
        problems.append(f"{name} = {dict(value)!r}: expected a range such as {form}, with step where it has one")
        return None
    if float not in kinds and int not in kinds:
        problems.append(f"{name}: a range, but it is no number: give a list of choices")
        return None
    whole = float not in kinds
    wrong = None
    if not low < high or not math.isfinite(high - low):
        wrong = "low must be below high"
    elif log and low <= 0:
        wrong = "with log = true low must be above 0"
    elif log and step is not None:
        wrong = "log and step do not go together"
    elif step is not None and not 0 < step <= high - low:
        wrong = "step must be above 0 and fit between low and high"
    elif whole and any(one != int(one) for one in (low, high, *([] if step is None else [step]))):
        wrong = "this key is a whole number"
    if wrong:
        problems.append(f"{name} = {dict(value)!r}: {wrong}")
        return None
    return Range(low, high, whole, log, step)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _not_searched(table: Mapping[str, Any]) -> list[str]:
    """Return messages about settings that a trial would ignore: it trains a model of the next event from scratch."""
    found = []
    if "task" in table:
        found.append("[task]: settings are judged by the log-likelihood of what happens next; leave this table out")
    train = table.get("train", {})
    if isinstance(train, Mapping) and train.get("init"):
        found.append(f"train.init = {train['init']!r}: every setting starts afresh; leave it out")
    return found


def _why_fixed(section: str, key: str) -> str:
    if section == "data":
        return "scores on other data cannot be compared"
    if key == "seed":
        return "a seed that was chosen by its score is luck, no setting"
    return "scores that were taken in another way cannot be compared"
