"""Three ways to start a generative A-NHP, on folds of MIMIC-II and then on test: new, from a pretrained encoder, and also with its head.

    python experiments/pretraining/starts.py --data DATA_FOLDER [--folds 10] [--seeds 0 1 2 3 4] [--keep FOLDER]

The protocol is in README.md. Writes `results.json`. With `--keep`, scores of every sequence are stored in a folder, and a fit with stored
scores is not repeated.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from crossvalidate import Search, partition, without_test

from foretell.data import EventData, load
from foretell.evaluate.compare import holm
from foretell.evaluate.likelihood import score_events
from foretell.evaluate.permutation import compare_values
from foretell.models.attention.anhp import ANHP
from foretell.models.start_from import start_from
from foretell.train.config import PretrainOptions, RunConfig, make_config, read_config
from foretell.train.fit import fit
from foretell.train.label_tasks import Pretraining, pretrain

HERE = Path(__file__).resolve().parent
ARMS = ("scratch", "encoder", "head")


@dataclass(frozen=True)
class Scores:
    """Scores of the sequences that one fit was scored on."""

    log_likelihood: np.ndarray  # [sequences]
    errors: np.ndarray  # wrong next types
    events: np.ndarray  # scored events
    about: dict[str, Any]


@dataclass(frozen=True)
class Bench:
    config: RunConfig  # of the generative model
    pretraining: RunConfig
    keep: Path | None

    def arms(self, name: str, number: int, parts: tuple[EventData, EventData, EventData]) -> dict[str, Scores]:
        """Fit every arm on the first part, choose its epoch on the second, and score it on the third."""
        begun: dict[str, tuple[Pretraining, float]] = {}

        def pretrained() -> tuple[Pretraining, float]:
            if not begun:
                begin = time.perf_counter()
                begun[name] = self.pretrain(number, parts[0], parts[1]), time.perf_counter() - begin
            return begun[name]

        return {
            arm: self.kept(f"{name}-{number}-{arm}", lambda arm=arm: self.fit(arm, number, parts, pretrained))
            for arm in ARMS
        }

    def kept(self, name: str, make: Callable[[], Scores]) -> Scores:
        path = None if self.keep is None else self.keep / f"{name}.npz"
        if path is not None and path.exists():
            with np.load(path) as file:
                return Scores(file["log_likelihood"], file["errors"], file["events"], json.loads(str(file["about"])))
        found = make()
        sys.stdout.write(f"{name}: {json.dumps(found.about)}\n")
        sys.stdout.flush()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(
                path,
                log_likelihood=found.log_likelihood,
                errors=found.errors,
                events=found.events,
                about=np.array(json.dumps(found.about)),
            )
        return found

    def model(self, config: RunConfig, data: EventData, seed: int) -> ANHP:
        made = config.model.make(data.vocabulary, seed=seed, dtype=getattr(torch, config.train.dtype))
        assert isinstance(made, ANHP)
        return made

    def pretrain(self, seed: int, train: EventData, dev: EventData) -> Pretraining:
        task = self.pretraining.task
        assert isinstance(task, PretrainOptions)
        model = self.model(self.pretraining, train, seed)
        return pretrain(model, train, dev, self.pretraining.train, mask=task.mask, drop=task.drop, seed=seed)

    def fit(
        self,
        arm: str,
        seed: int,
        parts: tuple[EventData, EventData, EventData],
        pretrained: Callable[[], tuple[Pretraining, float]],
    ) -> Scores:
        train, dev, scored = parts
        model = self.model(self.config, train, seed)
        about: dict[str, Any] = {"arm": arm, "seed": seed}
        if arm != "scratch":
            source, seconds = pretrained()
            begun, _ = start_from(model, source.model, train, "pretrained", seed=seed, head=arm == "head")
            assert isinstance(begun, ANHP)
            model = begun
            accuracy = source.records[source.best_epoch - 1]["dev_accuracy"]
            about["pretraining"] = {
                "dev_cross_entropy": round(-source.best, 4),
                "dev_accuracy": round(accuracy, 4),
                "best_epoch": source.best_epoch,
                "seconds": round(seconds, 1),
            }
        begin = time.perf_counter()
        result = fit(model, train, dev, self.config.train, seed=seed)
        seconds = time.perf_counter() - begin
        found = score_events(model, scored)
        wrong = found.is_event & (found.predicted_type != found.type)
        errors = np.bincount(found.sequence, weights=wrong, minlength=len(scored))
        events = int(found.scored.sum())
        about |= {
            "log_likelihood": round(float(found.log_likelihoods.sum()) / events, 4),
            "type_error": round(float(errors.sum()) / events, 4),
            "events": events,
            "dev": round(result.best, 4),
            "best_epoch": result.best_epoch,
            "seconds": round(seconds, 1),
        }
        return Scores(found.log_likelihoods, errors, found.scored.astype(np.float64), about)


def averaged(rows: Sequence[tuple[np.ndarray, Scores]], sequences: int) -> Scores:
    """Average scores per sequence over the fits that scored it; `rows` are the sequences that a fit scored."""
    sums = {name: np.zeros(sequences) for name in ("log_likelihood", "errors", "events")}
    times = np.zeros(sequences)
    for places, scores in rows:
        times[places] += 1
        for name, total in sums.items():
            total[places] += getattr(scores, name)
    there = times > 0
    return Scores(*(sums[name][there] / times[there] for name in ("log_likelihood", "errors", "events")), about={})


def compared(arms: dict[str, list[tuple[np.ndarray, Scores]]], sequences: int) -> dict[str, Any]:
    """Return each arm's averages, and its difference from the first arm with a paired permutation test over sequences."""
    means = {arm: averaged(rows, sequences) for arm, rows in arms.items()}
    found: dict[str, Any] = {}
    for arm, mean in means.items():
        events = mean.events.sum()
        one: dict[str, Any] = {
            "log_likelihood": round(float(mean.log_likelihood.sum() / events), 4),
            "type_error": round(float(mean.errors.sum() / events), 4),
        }
        if arm != ARMS[0]:
            for name in ("log_likelihood", "errors"):
                first, second = getattr(mean, name), getattr(means[ARMS[0]], name)
                test = compare_values(first, second, np.arange(len(first)), "sequences", events=float(events))
                key = "type_error" if name == "errors" else name
                one[f"{key}_less_scratch"] = {
                    "difference": round(test.difference, 4),
                    "p": test.p_value,
                    "units": test.units,
                }
        found[arm] = one
    return found


def corrected(results: dict[str, Any]) -> None:
    """Correct all tests of the experiment by Holm's method, in place."""
    tests = [
        one
        for part in ("folds", "test")
        for arm in results[part]["arms"].values()
        for one in arm.values()
        if isinstance(one, dict)
    ]
    for one, p in zip(tests, holm([one["p"] for one in tests]), strict=True):
        one["p_corrected"] = round(p, 5)


def on_folds(bench: Bench, data: EventData, folds: int) -> dict[str, Any]:
    search = Search()
    arms: dict[str, list[tuple[np.ndarray, Scores]]] = {arm: [] for arm in ARMS}
    for number in range(folds):
        places = partition(len(data), number, search)
        fitted, stopping, scored = (data.select(part.tolist()) for part in places)
        for arm, scores in bench.arms("fold", number, (fitted, stopping, scored)).items():
            arms[arm].append((places[2], scores))
    return {"arms": compared(arms, len(data)), "fits": [scores.about for rows in arms.values() for _, scores in rows]}


def on_test(bench: Bench, path: str, seeds: Sequence[int]) -> dict[str, Any]:
    dataset = load(path)
    assert dataset.train is not None and dataset.dev is not None and dataset.test is not None
    arms: dict[str, list[tuple[np.ndarray, Scores]]] = {arm: [] for arm in ARMS}
    every = np.arange(len(dataset.test))
    for seed in seeds:
        for arm, scores in bench.arms("test", seed, (dataset.train, dataset.dev, dataset.test)).items():
            arms[arm].append((every, scores))
    return {
        "arms": compared(arms, len(dataset.test)),
        "fits": [scores.about for rows in arms.values() for _, scores in rows],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", type=Path, default=HERE)
    parser.add_argument("--data", default=os.environ.get("FORETELL_DATA", ""))
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    tables = {name: read_config(args.experiment / f"{name}.toml") for name in ("config", "pretrain")}
    path = str(Path(args.data) / tables["config"]["data"]["path"])
    bench = Bench(make_config(tables["config"]), make_config(tables["pretrain"]), args.keep)
    results = {"folds": on_folds(bench, without_test(path), args.folds), "test": on_test(bench, path, args.seeds)}
    corrected(results)
    out = args.out or args.experiment / "results.json"
    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for part, found in results.items():
        sys.stdout.write(f"{part}: {json.dumps(found['arms'])}\n")
    return 0


if __name__ == "__main__":
    logging.getLogger("foretell").setLevel(logging.ERROR)  # every fit would repeat the same warnings
    sys.exit(main())
