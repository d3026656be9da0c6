"""Choose settings by cross-validation on train and dev together, or on dev alone; the files of test are never opened.

    python experiments/crossvalidate.py experiments/mimic2/space.toml --data DATA_FOLDER

`space.toml` is a configuration in which a list contains the choices for a key. Random settings, and the plain defaults, are scored on
a few folds; the best are scored on more folds; then settings near the best are added. Every fit is logged in `crossvalidation.json`
beside the space (`space-x.toml`: `crossvalidation-x.json`). A logged fit is not repeated, so that a stopped search is continued. With
`folds = 0` there are no folds: a setting is fitted on train and scored on dev, and seeds take the place of the numbers of folds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretell.data import Dataset, EventData, load
from foretell.data.files import text_file
from foretell.data.loading import embedded_folder
from foretell.errors import ForetellError
from foretell.evaluate.likelihood import score_events
from foretell.reading import limits
from foretell.train.config import make_config, read_config
from foretell.train.fit import fit

Setting = dict[str, dict[str, Any]]  # {"model": {...}, "train": {...}}
SECTIONS = ("model", "train")


@dataclass(frozen=True)
class Search:
    folds: int = (
        5  # of a partition; fold number n is fold n % folds of partition n // folds; 0: dev judges, n is a seed
    )
    stopping: float = 0.1  # share of the sequences outside a fold on which the epoch is chosen
    draws: int = 40  # number of random settings; if there are fewer settings, all are tried
    rounds: int = 0  # number of rounds in which settings near the best are added
    changes: int = 10  # settings that a round adds, each one of the best with one or two keys drawn again
    rungs: tuple[int, ...] = (2, 5)  # number of folds that a setting has been scored on after each rung
    keep: tuple[int, ...] = (10, 1)  # settings that remain after each rung; the last rung comes once, at the end
    plain: bool = True  # whether the library's defaults are also tried
    seed: int = 0

    @classmethod
    def read(cls, table: Mapping[str, Any], source: str) -> Search:
        unknown = sorted(set(table) - {one.name for one in fields(cls)})
        if unknown:
            known = ", ".join(one.name for one in fields(cls))
            raise ForetellError(f"{source}: unknown key `search.{unknown[0]}`; known are {known}")
        values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in table.items()}
        made = cls(**values)
        if len(made.rungs) != len(made.keep) or not made.rungs or list(made.rungs) != sorted(made.rungs):
            raise ForetellError(
                f"{source}: search.rungs and search.keep: expected two lists of one length, rungs ascending"
            )
        return made


@dataclass(frozen=True)
class Space:
    """The choices for every key, and the settings that can be made of them."""

    choices: dict[tuple[str, str], list[Any]]

    @classmethod
    def read(cls, table: Mapping[str, Any], source: str) -> Space:
        unknown = sorted(set(table) - set(SECTIONS))
        if unknown:
            raise ForetellError(
                f"{source}: unknown table [{unknown[0]}]; known are data, search, {', '.join(SECTIONS)}"
            )
        keys = [(section, key) for section in SECTIONS for key in table.get(section, {})]
        values = {(section, key): table[section][key] for section, key in keys}
        return cls({key: value if isinstance(value, list) else [value] for key, value in values.items()})

    @property
    def plain(self) -> Setting:
        """Return the library's defaults for this kind of model (and, for a model of rules, for this program)."""
        kept = ("model", "kind"), ("model", "program")
        return setting_of({key: values[0] for key, values in self.choices.items() if key in kept})

    def draw(self, count: int, rng: np.random.Generator) -> list[Setting]:
        if math.prod(len(values) for values in self.choices.values()) <= count:
            return [
                setting_of(dict(zip(self.choices, one, strict=True)))
                for one in itertools.product(*self.choices.values())
            ]
        return [
            setting_of({key: values[rng.integers(len(values))] for key, values in self.choices.items()})
            for _ in range(count)
        ]

    def near(self, setting: Setting, rng: np.random.Generator) -> Setting:
        """Return the setting with other choices for one or two of its free keys."""
        free = [key for key, values in self.choices.items() if len(values) > 1]
        config = make_config(setting)  # adds the defaults of missing keys
        changed = {(section, key): getattr(getattr(config, section), key) for section, key in self.choices}
        for place in rng.choice(len(free), size=min(len(free), int(rng.integers(1, 3))), replace=False):
            others = [value for value in self.choices[free[place]] if value != changed[free[place]]]
            changed[free[place]] = others[rng.integers(len(others))]
        return setting_of(changed)


@dataclass
class Log:
    """Every setting that was tried, with the score of each fold; it is written to disk after every fit."""

    path: Path
    shared_out: dict[str, Any]  # how sequences are shared out into folds: scores of other folds cannot be compared
    trials: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name of the setting

    def __post_init__(self) -> None:
        if self.path.exists():
            earlier = json.loads(self.path.read_text(encoding="utf-8"))
            if earlier["folds"] != self.shared_out:
                raise ForetellError(
                    f"{self.path}: made with folds {earlier['folds']}, not {self.shared_out}; move it away"
                )
            self.trials = {name_of(trial["setting"]): trial for trial in earlier["trials"]}

    def folds(self, setting: Setting) -> list[dict[str, Any]]:
        return self.trials.setdefault(name_of(setting), {"setting": setting, "folds": []})["folds"]

    def score(self, setting: Setting, count: int) -> float:
        """Return nats per scored event over the first folds; a failed fit is worse than all others."""
        folds = self.folds(setting)[:count]
        if any(fold["log_likelihood"] is None for fold in folds):
            return -math.inf
        return sum(fold["log_likelihood"] for fold in folds) / sum(fold["events"] for fold in folds)

    def write(self, best: Setting | None = None) -> None:
        trials = [{**t, "mean": finite(self.score(t["setting"], len(t["folds"])))} for t in self.trials.values()]
        with text_file(self.path) as file:
            rows = ",\n".join(f"  {json.dumps(trial)}" for trial in trials)
            head = f' "folds": {json.dumps(self.shared_out)},\n "best": {json.dumps(best)},\n'
            file.write(f'{{\n{head} "trials": [\n{rows}\n ]\n}}\n')


@dataclass(frozen=True)
class Bench:
    """The inputs of a search: the sequences of train and then of dev, and the log."""

    data: EventData
    search: Search
    log: Log
    train: int = 0  # number of sequences of train; used if there are no folds

    def climb(self, settings: Sequence[Setting], rungs: Sequence[tuple[int, int]]) -> list[Setting]:
        """Score fewer and fewer settings on more and more folds; return the remaining settings, best first."""
        left = list({name_of(setting): setting for setting in settings}.values())
        for count, keep in rungs:
            for setting in left:
                self.score_folds(setting, count)
            left = sorted(left, key=lambda setting: -self.log.score(setting, count))[:keep]
            told = f"{count} folds: best {self.log.score(left[0], count):.4f} of {json.dumps(left[0])}"
            sys.stdout.write(f"{told}\n")
        return left

    def score_folds(self, setting: Setting, count: int) -> None:
        folds = self.log.folds(setting)
        while len(folds) < count:
            folds.append(self.fold(setting, len(folds)))
            self.log.write()
            sys.stdout.write(f"{json.dumps(folds[-1])} {json.dumps(setting)}\n")
            sys.stdout.flush()

    def fold(self, setting: Setting, number: int) -> dict[str, Any]:
        """Fit on the sequences outside a fold, choose the epoch on a part of them, and score the fold."""
        if self.search.folds:
            parts = partition(len(self.data), number, self.search)
        else:
            parts = np.arange(self.train), np.arange(self.train, len(self.data)), np.zeros(0, dtype=np.int64)
        fitted, stopping, scored = (self.data.select(part.tolist()) for part in parts)
        began = time.perf_counter()
        config = make_config({**setting, "train": {**setting["train"], "seed": number}}, "space")
        model = config.model.make(self.data.vocabulary, seed=number, dtype=getattr(torch, config.train.dtype))
        about: dict[str, Any] = {"fold": number}
        try:
            result = fit(model, fitted, stopping, config.train)
        except ForetellError as error:  # the loss is not a number: a failed fit
            return {**about, "log_likelihood": None, "events": 0, "error": str(error)}
        if self.search.folds:
            scores = score_events(model, scored)
            about |= {"log_likelihood": float(scores.log_likelihoods.sum()), "events": int(scores.scored.sum())}
        else:  # the score that chose the epoch is the setting's
            events = stopping.event_count
            about |= {"log_likelihood": result.best * events, "events": events}
        about |= {"stopping": result.best, "best_epoch": result.best_epoch, "epochs": len(result.records)}
        return {**about, "seconds": round(time.perf_counter() - began, 1)}


def partition(count: int, number: int, search: Search) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the indices of the sequences to fit, to choose the epoch on, and to score."""
    order = np.random.default_rng([search.seed, number // search.folds]).permutation(count)
    scored = np.array_split(order, search.folds)[number % search.folds]
    rest = np.setdiff1d(order, scored)
    shuffled = np.random.default_rng([search.seed, 1, number]).permutation(rest)
    slice_size = max(1, round(search.stopping * len(rest)))
    return np.sort(shuffled[slice_size:]), np.sort(shuffled[:slice_size]), np.sort(scored)


def without_test(path: str) -> EventData:
    """Return train and dev as one split, with the sequences of train first."""
    dataset = splits_without_test(path)
    sequences = [sequence for split in dataset.splits().values() for sequence in split]
    return EventData(sequences, dataset.vocabulary, dataset.card.origin, "train and dev")


def splits_without_test(path: str) -> Dataset:
    """Return train and dev; types that occur only in test are in the vocabulary if the card or `types.json` has them."""
    source = embedded_folder(path) or Path(path)
    if not source.is_dir():
        raise ForetellError(f"{source}: expected a folder with the splits train and dev")
    with tempfile.TemporaryDirectory() as folder:
        for file in source.iterdir():
            if file.is_file() and not file.name.startswith("test."):
                shutil.copy(file, folder)
        dataset = load(folder)
    assert dataset.test is None
    if not dataset.splits():
        raise ForetellError(f"{source}: expected a folder with the splits train and dev")
    return dataset


def run(bench: Bench, space: Space) -> Setting:
    search = bench.search
    rungs = list(zip(search.rungs, search.keep, strict=True))
    rng = np.random.default_rng(search.seed)
    first = [space.plain] if search.plain else []
    best = bench.climb([*first, *space.draw(search.draws, rng)], rungs[:-1])
    for _ in range(search.rounds):
        joined = [space.near(best[place % len(best)], rng) for place in range(search.changes)]
        best = bench.climb([*best, *joined], rungs[:-1])
    final = bench.climb(best, rungs[-1:])[0]
    bench.log.write(final)
    return final


def setting_of(values: Mapping[tuple[str, str], Any]) -> Setting:
    return {section: {key: v for (s, key), v in values.items() if s == section} for section in SECTIONS}


def name_of(setting: Setting) -> str:
    return json.dumps(setting, sort_keys=True)


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space", type=Path)
    parser.add_argument("--data", default=os.environ.get("FORETELL_DATA", ""))
    args = parser.parse_args()
    table = read_config(args.space)
    search = Search.read(table.pop("search", {}), str(args.space))
    path = table.pop("data")["path"]
    path = path if embedded_folder(path) else str(Path(args.data) / path)
    data, train = without_test(path), splits_without_test(path).train
    if not search.folds and (train is None or len(train) == len(data)):
        raise ForetellError(f"{path}: with search.folds = 0 expected sequences in train and in dev")
    shared_out = {"count": search.folds, "stopping": search.stopping, "seed": search.seed, "sequences": len(data)}
    name = args.space.stem.replace("space", "crossvalidation", 1)
    bench = Bench(
        data, search, Log(args.space.with_name(f"{name}.json"), shared_out), 0 if train is None else len(train)
    )
    final = run(bench, Space.read(table, str(args.space)))
    sys.stdout.write(f"final: {json.dumps(final)}\n")
    return 0


if __name__ == "__main__":
    logging.getLogger("foretell").setLevel(logging.ERROR)  # hundreds of fits would repeat every warning
    with limits(allow=(Path(__file__).parents[1] / "programs",)):
        sys.exit(main())
