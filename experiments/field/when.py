"""Does a model of rules predict times better than a constant rate? RoboCup, several seeds per setting, each on its own core.

    python when.py run RESULTS.jsonl --jobs 15
    python when.py table RESULTS.jsonl

Data and scores are those of `field.py`. The time part of every test event is stored; a setting is chosen by its mean score on dev.
Differences from Poisson are tested by flipping the signs of events, for each seed with Holm's correction, and for the mean over the seeds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

FLIPS = 100_000
EPOCHS = 20
BASE = {
    "model": {"kind": "s2ndtt", "program": "robocup", "dim": 16, "intensity_shape": 4},
    "train": {
        **{"window": "events-2-to-I", "schedule": "cosine", "clip": 1.0, "patience": 0, "epochs": EPOCHS, "batch": 1},
        **{"lr": 5e-3, "points": 2, "decay": 3.0, "pseudo_count": 0.5},
    },
}
SETTINGS: dict[str, dict[str, Any]] = {
    "S2-NDTT": {},
    "S2-NDTT, average 0.9": {"average": 0.9},
    "S2-NDTT, average 0.9, decay 10": {"average": 0.9, "decay": 10.0},
}


def games() -> dict[str, Any]:
    from foretell.data import load
    from foretell.data.dequantise import dequantise, grid_of

    data = load("robocup")
    assert data.train is not None
    grid = grid_of(data.train)
    return {name: dequantise(one, grid).data for name, one in data.splits().items()}


def score(model: Any, data: Any) -> dict[str, Any]:
    from foretell.evaluate.likelihood import score_events

    found = score_events(model, data, integral="stratified", points=40, window="events-2-to-I", seed=1)
    times = found.log_total - found.integral - found.tail
    return {"mean": float(found.log_likelihood.sum() / found.scored.sum()), "times": times.round(5).tolist()}


def fitted(job: tuple[str, int]) -> dict[str, Any]:
    import torch

    from foretell.train.config import make_config
    from foretell.train.fit import fit

    torch.set_num_threads(1)
    name, seed = job
    config = make_config({"model": BASE["model"], "train": {**BASE["train"], **SETTINGS[name], "seed": seed}})
    data, began = games(), time.monotonic()
    model = config.model.make(data["train"].vocabulary, seed=seed, dtype=torch.float32)
    found = fit(model, data["train"], data["dev"], config.train)
    dev, test = score(found.model, data["dev"]), score(found.model, data["test"])
    result = {"setting": name, "seed": seed, "best_epoch": found.best_epoch, "seconds": time.monotonic() - began}
    when = float(np.mean(dev["times"]))
    return {**result, "dev": dev["mean"], "dev_time": when, "test": test["mean"], "test_times": test["times"]}


def run(results: Path, jobs: int, seeds: int) -> None:
    from foretell.models.classical.poisson import Poisson
    from foretell.train.fit import fit

    data = games()
    poisson = fit(Poisson(data["train"].vocabulary), data["train"], data["dev"]).model
    floor = score(poisson, data["test"])
    results.write_text(json.dumps({"setting": "Poisson", "test": floor["mean"], "test_times": floor["times"]}) + "\n")
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for found in pool.imap_unordered(fitted, [(name, seed) for seed in range(seeds) for name in SETTINGS]):
            with results.open("a") as file:
                file.write(json.dumps(found) + "\n")


def p_value(differences: np.ndarray) -> float:
    """Return the two-sided p: the share of random sign flips whose mean is at least as far from 0."""
    draw, extreme = np.random.default_rng(0), 0
    for _ in range(FLIPS // 1000):
        means = draw.choice([-1.0, 1.0], size=(1000, len(differences))) @ differences
        extreme += int((np.abs(means) >= abs(differences.sum()) - 1e-12).sum())
    return (extreme + 1) / (FLIPS + 1)


def holm(values: list[float]) -> list[float]:
    order, found, largest = np.argsort(values), [0.0] * len(values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, values[index] * (len(values) - place)))
        found[index] = largest
    return found


def table(results: Path) -> None:
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    floor = np.array(next(row for row in rows if row["setting"] == "Poisson")["test_times"])
    by: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by[row["setting"]].append(row)
    sys.stdout.write(f"Poisson: times {floor.mean():.3f}\n")
    for name, mine in by.items():
        if name == "Poisson":
            continue
        mine.sort(key=lambda row: row["seed"])
        over = np.array([row["test_times"] for row in mine]) - floor
        each = holm([p_value(one) for one in over])
        types = [row["test"] - float(np.mean(row["test_times"])) for row in mine]
        dev, test = (np.mean([row[key] for row in mine]) for key in ("dev", "test"))
        error = over.mean(0).std(ddof=1) / np.sqrt(over.shape[1])
        sys.stdout.write(
            f"{name}: {len(mine)} seeds, dev {dev:.3f}, test {test:.3f}, types {np.mean(types):.3f}, times over Poisson's "
            f"{over.mean():.3f} ± {error:.3f} (p = {p_value(over.mean(0)):.5f}); by seed "
            + ", ".join(f"{one.mean():.3f} (p = {p:.4f})" for one, p in zip(over, each, strict=True))
            + "\n"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    fits = commands.add_parser("run")
    fits.add_argument("results", type=Path)
    fits.add_argument("--jobs", type=int, default=1)
    fits.add_argument("--seeds", type=int, default=5)
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path)
    args = parser.parse_args()
    if args.command == "run":
        run(args.results, args.jobs, args.seeds)
    else:
        table(args.results)


if __name__ == "__main__":
    main()
