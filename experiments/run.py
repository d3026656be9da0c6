"""Train and score the model of an experiment's `config.toml`, for some seeds, beside the floors; write `results.json` next to it.

    python experiments/run.py experiments/synth_hawkes1 --data DATA_FOLDER [--seeds 0 1 2] [--device cuda] [--floors]
    python experiments/run.py experiments/robocup --config andtt --predict 'kick(-P)' 'pass(-P,-Q)' --keep FOLDER

DATA_FOLDER holds one folder for each data set, as `foretell data describe` reads them. `FORETELL_DATA` may name it instead. A result of
another device or seed that is in the file already is kept; one of the same is replaced. The floors are Poisson and Hawkes with their
defaults and, where the experiment has a `hawkes.toml`, Hawkes with the settings in it.

An experiment may have several models: `--config andtt` takes `andtt.toml` instead of `config.toml`. `--predict` asks who takes part in
events, too; the patterns of one `--predict` are also scored together. `--keep` leaves the scores of every test event in a folder, for
`compare.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from kept import Kept, keep_scores

from foretell.data import Dataset
from foretell.evaluate.participants import guess_participants, parse_pattern
from foretell.evaluate.scores import score
from foretell.models.base import IntensityModel
from foretell.models.build import AndttOptions, AnhpOptions
from foretell.models.hawkes import Hawkes
from foretell.train.config import RunConfig, make_config, read_config
from foretell.train.fit import fit
from foretell.train.floors import floors_for
from foretell.train.run import environment
from foretell.train.splits import load_splits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, nargs="+")
    parser.add_argument("--data", default=os.environ.get("FORETELL_DATA", ""))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--floors", action="store_true", help="fit and score Poisson and Hawkes instead of the model")
    parser.add_argument("--times", action="store_true", help="also predict the time of every next event")
    parser.add_argument("--config", default="config", help="the name of the TOML file in the experiment")
    parser.add_argument("--predict", nargs="+", action="append", default=[], help="patterns such as 'pass(+P,-Q)'")
    parser.add_argument("--keep", type=Path, help="a folder for the scores of every test event")
    parser.add_argument("--out", type=Path, help="a folder for the results instead of the experiment's own")
    args = parser.parse_args()
    for experiment in args.experiment:
        table = read_config(experiment / f"{args.config}.toml")
        if args.data and table["data"]["path"] != "robocup":
            table["data"]["path"] = str(Path(args.data) / table["data"]["path"])
        table["train"] = {**table.get("train", {}), "device": args.device}
        config = make_config(table, str(experiment / f"{args.config}.toml"))
        dataset = load_splits(config.data)
        asked = Asked(args.times, args.predict, args.keep)
        found = [floor(model, dataset, asked) for model in floors(experiment, dataset)] if args.floors else []
        if not args.floors:
            found = [one_seed(config, table, dataset, seed, asked) for seed in args.seeds]
        if args.config != "config":
            found = [{"config": args.config, **one} for one in found]
        record((args.out or experiment) / (f"results-{experiment.name}.json" if args.out else "results.json"), found)
        for one in found:
            sys.stdout.write(f"{experiment.name}: {json.dumps(one)}\n")
            sys.stdout.flush()
    return 0


@dataclass(frozen=True)
class Asked:
    """What is wanted of a trained model."""

    times: bool  # the time of every next event
    predict: list[list[str]]  # participants: groups of patterns
    keep: Path | None  # where the scores of single events go


def one_seed(config: RunConfig, table: dict[str, Any], dataset: Dataset, seed: int, asked: Asked) -> dict[str, Any]:
    config = make_config({**table, "train": {**table["train"], "seed": seed}})
    model = config.model.make(dataset.vocabulary, seed=seed, dtype=getattr(torch, config.train.dtype))
    assert dataset.train is not None
    began = time.perf_counter()
    result = fit(model, dataset.train, dataset.dev, config.train)
    seconds = time.perf_counter() - began
    options = config.model
    sizes = {"dim": options.dim, "layers": options.layers} if isinstance(options, AnhpOptions | AndttOptions) else {}
    about = {"seed": seed, **sizes, "epochs": len(result.records), "best_epoch": result.best_epoch, "dev": result.best}
    return {
        **about,
        "fit_seconds": round(seconds, 1),
        **scores(model, dataset, asked, seed),
        **machine(config.train.device),
    }


def floors(experiment: Path, dataset: Dataset) -> list[IntensityModel]:
    found = list(reversed(floors_for(dataset.vocabulary)))
    own = experiment / "hawkes.toml"
    if own.exists():
        config = make_config(read_config(own), str(own))
        found.append(config.model.make(dataset.vocabulary, seed=0, dtype=torch.float64))
    return found


def floor(model: IntensityModel, dataset: Dataset, asked: Asked) -> dict[str, Any]:
    assert dataset.train is not None
    began = time.perf_counter()
    result = fit(model, dataset.train, dataset.dev)
    seconds = round(time.perf_counter() - began, 1)
    sizes = {"decays": model.decays} if isinstance(model, Hawkes) else {}
    about = {"seed": None, **sizes, "dev": result.best, "fit_seconds": seconds}
    return {**about, **scores(model, dataset, asked, None), **machine("cpu")}


def scores(model: IntensityModel, dataset: Dataset, asked: Asked, seed: int | None) -> dict[str, Any]:
    assert dataset.test is not None
    scored = score(model, dataset.test, times=asked.times, predict=asked.predict[0] if asked.predict else ())
    found = scored.evaluation.to_json()
    for group in asked.predict[1:]:  # for the participants alone: how the integral is taken is of no account
        again = score(model, dataset.test, integral="stratified", points=1, times=False, predict=group)
        found["participants"] += again.evaluation.to_json()["participants"]
    if asked.keep is not None:
        patterns = [parse_pattern(text) for group in asked.predict for text in group]
        with model.evaluating():
            guesses = guess_participants(model, dataset.test, patterns) if patterns else []
        keep_scores(asked.keep, Kept.of(model, seed, scored.events, guesses))
    truths = [sequence.metadata.get("nll_true") for sequence in dataset.test]
    true = [float(value) for value in truths if isinstance(value, int | float)]
    if len(true) == len(truths):
        found["true_log_likelihood"] = -sum(true) / dataset.test.event_count
    return found


def machine(device: str) -> dict[str, Any]:
    about = environment(device)
    return {"device": about.get("gpu", "CPU"), "torch": about["torch"]}


def record(path: Path, found: list[dict[str, Any]]) -> None:
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    same = {name_of(one) for one in found}
    kept = [one for one in earlier if name_of(one) not in same]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept + found, indent=1) + "\n", encoding="utf-8")


def name_of(one: dict[str, Any]) -> tuple[Any, ...]:
    return one["model"], one.get("config"), one.get("decays"), one["seed"], one["device"]


if __name__ == "__main__":
    sys.exit(main())
