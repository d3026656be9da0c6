"""The field: A-NHP by default and as in the paper, S2P2 and NHP on eleven logs, each with the same number of trials on dev.

    python field.py prepare DATA OUT            # DATA: a folder with the data sets; OUT: their copies, as every model gets them
    python field.py run OUT RESULTS.jsonl --device cuda --jobs 12
    python field.py table RESULTS.jsonl

Times on a grid, and ties, are spread evenly within it with a fixed seed (`data.dequantise`). Training uses at most 50,000 events, and
events 2 to I are scored. The trial of each model that is best on dev is fitted with two more seeds; all three fits are scored on test.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

MOST_EVENTS = 50_000
SEEDS = (0, 1, 2)
LOGS = ("helpdesk", "sepsis", "bpic12", "bpic12-o", "bpic13-incidents", "env-permit")
SETS = ("stackoverflow", "mimic2", "bookorder", "iptv_small", "robocup", *LOGS)
WINDOW = "events-2-to-I"
TRAIN = {"window": WINDOW, "patience": 25, "schedule": "cosine", "clip": 1.0, "dtype": "float32"}
BATCH_EVENTS, STEPS, EPOCHS = 1_000, 3_000, (20, 100)  # events per step, steps of a fit, and limits of its epochs
# Every model has two trials per data set; S2P2 a third, with as many integration points as its authors have.
TRIALS: dict[str, list[dict[str, Any]]] = {
    "A-NHP": [
        {"model": {"kind": "anhp", "dim": 32}, "train": {"lr": 3e-3, "points": 2}},
        {"model": {"kind": "anhp", "dim": 64, "dropout": 0.1}, "train": {"lr": 3e-3, "points": 2}},
    ],
    "S2P2": [
        {"model": {"kind": "s2p2"}, "train": {"lr": 5e-3, "points": 2}},
        {"model": {"kind": "s2p2", "dropout": 0.1}, "train": {"lr": 5e-3, "points": 2}},
        {"model": {"kind": "s2p2", "dropout": 0.1}, "train": {"lr": 5e-3, "points": 10}},
    ],
    "A-NHP, paper": [
        {"model": {"kind": "anhp", "preset": "plain", "dim": 32}, "train": {"lr": 1e-3, "points": 2}},
        {"model": {"kind": "anhp", "preset": "plain", "dim": 64}, "train": {"lr": 3e-3, "points": 2}},
    ],
    "NHP": [
        {"model": {"kind": "nhp", "dim": 32}, "train": {"lr": 3e-3, "points": 2}},
        {"model": {"kind": "nhp", "dim": 64}, "train": {"lr": 3e-3, "points": 2}},
    ],
}
# The gain from each part of the default A-NHP: the paper's equations with one part, and the whole model without one.
PARTS: dict[str, dict[str, Any]] = {
    "decay": {"heads": 4, "head_size": "split", "head_decay": True},
    "elapsed": {"elapsed": 12},
    "mixture": {"intensity_scales": 12},
    "sublayers": {"layer_norm": True, "feed_forward": 64, "activation": "gelu"},
}
WITHOUT: dict[str, dict[str, Any]] = {
    "decay": {"head_decay": False},
    "elapsed": {"elapsed": 0},
    "periods": {"periods": 0},
    "mixture": {"intensity_scales": 0},
    "sublayers": {"layer_norm": False, "feed_forward": 0},
}
ABLATION: dict[str, list[dict[str, Any]]] = {
    name: [{"model": {"kind": "anhp", "dim": 32, **changes}, "train": {"lr": 3e-3, "points": 2}}]
    for name, changes in (
        ("plain", {"preset": "plain"}),
        *((f"plain + {part}", {"preset": "plain", **options}) for part, options in PARTS.items()),
        ("default", {}),
        *((f"default - {part}", options) for part, options in WITHOUT.items()),
        ("default + waves", {"time_dim": "dim"}),
    )
}
# Models of rules, if there is a program; `decay` and `pseudo_count` were chosen on dev in experiments/robocup.
PROGRAMS = {"robocup": "robocup", "iptv_small": str(Path(__file__).parents[1] / "iptv_small" / "clock.ndtt")}
OF_RULES = {"lr": 5e-3, "points": 2, "decay": 1.0, "pseudo_count": 0.5}
# All 320 events are possible at all times, so each integration time uses a sample of 32, as in experiments/iptv_small.
ON_SET = {"iptv_small": {"downsample": 32, "decay": 0.0, "pseudo_count": 0.0}}
RULES: dict[str, list[dict[str, Any]]] = {
    "A-NDTT": [
        {"model": {"kind": "andtt", "dim": 16, "layers": 1}, "train": OF_RULES},
        {"model": {"kind": "andtt", "dim": 16, "layers": 1, "layer_norm": True}, "train": OF_RULES},
    ],
    "A-NDTT, paper": [
        {"model": {"kind": "andtt", "preset": "plain", "dim": 16, "layers": layers}, "train": OF_RULES}
        for layers in (1, 2)
    ],
    "A-NDTT, shape": [
        {
            "model": {"kind": "andtt", "dim": 16, "layers": 1, "intensity_scales": 0, "intensity_shape": 4},
            "train": OF_RULES,
        }
    ],
    "NDTT": [{"model": {"kind": "ndtt", "dim": dim}, "train": OF_RULES} for dim in (16, 32)],
    "S2-NDTT": [
        *({"model": {"kind": "s2ndtt", "dim": 16, "intensity_shape": shape}, "train": OF_RULES} for shape in (0, 4)),
        *(
            {
                "model": {"kind": "s2ndtt", "dim": dim, "states": dim // 2, "intensity_shape": 4},
                "train": {**OF_RULES, "decay": 3.0},
            }
            for dim in (16, 8)
        ),
    ],
}
ALL = {**TRIALS, **ABLATION, **RULES}


def traces(path: Path) -> Iterator[list[tuple[float, str]]]:
    """Return the cases of an XES file: seconds since the epoch and activities, sorted by time."""
    with gzip.open(path) as file:
        for _, element in ElementTree.iterparse(file):
            if element.tag.rpartition("}")[2] != "trace":
                continue
            events = []
            for event in element:
                if event.tag.rpartition("}")[2] == "event":
                    found = {one.get("key"): one.get("value") for one in event}
                    when = datetime.fromisoformat(str(found["time:timestamp"]).replace("Z", "+00:00"))
                    events.append((when.timestamp(), str(found["concept:name"])))
            yield sorted(events, key=lambda event: event[0])
            element.clear()


def convert(source: Path, to: Path) -> None:
    """Convert XES files to JSON lines; the first event of a case is at time 0 and is not scored."""
    to.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev", "test"):
        with gzip.open(to / f"{split}.jsonl.gz", "wt") as file:
            for number, events in enumerate(traces(source / f"{split}.xes.gz")):
                times = [round(time - events[0][0], 6) for time, _ in events]
                row = {"id": str(number), "times": times, "events": [name for _, name in events], "t_end": times[-1]}
                file.write(json.dumps(row) + "\n")
    (to / "dataset.toml").write_text(f'name = "{source.name}"\norigin = "first-event"\ntime_unit = "seconds"\n')


def prepare(data: Path, out: Path) -> None:
    from dataclasses import replace

    from foretell.data.dequantise import dequantise, grid_of
    from foretell.data.loading import load, save_dataset
    from foretell.train.splits import share_of

    about = {}
    for name in SETS:
        source = data / name
        if name in LOGS:
            source = out / "xes" / name
            convert(data / "processes" / name, source)
        dataset = load(str(source))
        assert dataset.train is not None
        grid, made, ties = grid_of(dataset.train), {}, {}
        for split, events in dataset.splits().items():
            found = dequantise(events, grid)
            made[split], ties[split] = found.data, round(found.ties, 4)
        if made["train"].event_count > MOST_EVENTS:
            made["train"] = share_of(made["train"], MOST_EVENTS / made["train"].event_count)
        save_dataset(replace(dataset, **made), out / name)
        about[name] = {"grid": grid, "ties": ties, "events": {split: one.event_count for split, one in made.items()}}
    (out / "about.json").write_text(json.dumps(about, indent=1))


def fit_and_score(job: dict[str, Any]) -> dict[str, Any]:
    """Fit a model; return its score on dev and, if requested, on test with its parts."""
    import torch

    from foretell.evaluate.likelihood import score_events
    from foretell.reading import limits
    from foretell.train.config import make_config
    from foretell.train.fit import fit
    from foretell.train.splits import load_splits

    torch.set_num_threads(1)
    table = ALL[job["model"]][job["trial"]]
    train = load_splits(make_config({"data": {"path": job["path"]}}).data).train
    assert train is not None
    batch = int(np.clip(round(BATCH_EVENTS * len(train) / train.event_count), 1, len(train)))
    epochs = int(np.clip(STEPS * batch // len(train), *EPOCHS))
    more = {"seed": job["seed"], "device": job["device"], "batch": batch, "epochs": epochs}
    if job["epochs"]:
        more["epochs"] = min(epochs, job["epochs"])
    of_rules = job["model"] in RULES
    program, own = ({"program": PROGRAMS[job["set"]]}, ON_SET.get(job["set"], {})) if of_rules else ({}, {})
    config = make_config(
        {
            "data": {"path": job["path"]},
            "model": {**table["model"], **program},
            "train": {**TRAIN, **table["train"], **own, **more},
        }
    )
    dataset = load_splits(config.data)
    assert dataset.train is not None and dataset.dev is not None and dataset.test is not None
    with limits(allow=(Path(__file__).parents[2] / "programs",)):
        model = config.model.make(dataset.vocabulary, seed=job["seed"], dtype=torch.float32)
    began = time.monotonic()
    found = fit(model, dataset.train, dataset.dev, config.train)
    result = {**job, **more, "seconds": round(time.monotonic() - began, 1), "best_epoch": found.best_epoch}
    for split, data in (("dev", dataset.dev), ("test", dataset.test)):
        scores = score_events(found.model, data, integral="stratified", points=40, window=WINDOW, seed=1)
        events = max(int(scores.scored.sum()), 1)
        result[split] = float(scores.log_likelihood.sum()) / events
        result[f"{split}_time"] = float(scores.time_log_likelihood.sum()) / events
        result[f"{split}_error"] = scores.used.standard_error
    return result


def guarded(job: dict[str, Any]) -> dict[str, Any]:
    from foretell.reading import limits

    try:
        with limits(
            allow=(Path(__file__).parents[2] / "programs",)
        ):  # a program of an experiment includes one of these
            return fit_and_score(job)
    except Exception as error:  # the others continue; the results contain the error
        return {**job, "error": f"{type(error).__name__}: {error}"}


def run(data: Path, results: Path, device: str, jobs: int, minutes: float, wanted: dict[str, Any]) -> None:
    """Fit all trials with the first seed, then the best trial of each model with the other seeds."""
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    have = {(one["set"], one["model"], one["trial"], one["seed"]) for one in done}
    stop = time.monotonic() + 60.0 * minutes

    def job(name: str, model: str, trial: int, seed: int) -> dict[str, Any]:
        settings = {"set": name, "model": model, "trial": trial, "seed": seed}
        return {**settings, "path": str(data / name), "device": device, "epochs": wanted["epochs"]}

    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for seeds in (SEEDS[:1], SEEDS[1:]) if wanted["seeds"] else (SEEDS[:1],):
            tasks = []
            for model in wanted["models"]:
                for name in wanted["sets"]:
                    trials = [trial for trial in range(len(ALL[model])) if trial in (wanted["trials"] or [trial])]
                    if seeds == SEEDS[1:]:
                        mine = [one for one in done if one["set"] == name and one["model"] == model and "dev" in one]
                        first = [one for one in mine if one["seed"] == SEEDS[0]]
                        trials = [max(first, key=lambda one: one["dev"])["trial"]] if first else []
                    tasks += [
                        job(name, model, trial, seed)
                        for trial in trials
                        for seed in seeds
                        if (name, model, trial, seed) not in have
                    ]
            for found in pool.imap_unordered(guarded, tasks):
                found.pop("path")
                done.append(found)
                with results.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                if time.monotonic() > stop:
                    pool.terminate()
                    return


def table(results: Path) -> None:
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    by: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if "dev" in row:
            by[row["set"], row["model"]].append(row)
    models = [name for name in ALL if any(model == name for _, model in by)]
    sys.stdout.write("| set | " + " | ".join(models) + " |\n|---" + "|---" * len(models) + "|\n")
    for name in SETS:
        cells = []
        for model in models:
            mine = by.get((name, model), [])
            first = [one for one in mine if one["seed"] == SEEDS[0]]
            if not first:
                cells.append("–")
                continue
            best = max(first, key=lambda one: one["dev"])["trial"]
            chosen = [one for one in mine if one["trial"] == best]
            test, when = (np.array([one[key] for one in chosen]) for key in ("test", "test_time"))
            cells.append(f"{test.mean():.3f} ± {np.ptp(test) / 2:.3f} ({when.mean():.3f})")
        sys.stdout.write(f"| {name} | " + " | ".join(cells) + " |\n")


def picture(results: Path, out: Path, against: str = "S2P2") -> None:
    """Draw for each data set how much better or worse than one model the others are on test: a dot per seed."""
    import matplotlib.pyplot as plt

    rows = [json.loads(line) for line in results.read_text().splitlines()]
    rows = [row for row in rows if "dev" in row]
    first = {(row["set"], row["model"], row["trial"]): row["dev"] for row in rows if row["seed"] == SEEDS[0]}
    chosen: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        mine = {
            trial: dev for (name, model, trial), dev in first.items() if (name, model) == (row["set"], row["model"])
        }
        if mine and row["trial"] == max(mine, key=lambda trial: mine[trial]):
            chosen[row["set"], row["model"]].append(row["test"])
    models = [name for name in TRIALS if name != against and any(model == name for _, model in chosen)]
    figure, axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
    for place, model in enumerate(models):
        for line, name in enumerate(SETS):
            if (name, model) in chosen and (name, against) in chosen:
                better = np.array(chosen[name, model]) - np.mean(chosen[name, against])
                label = model if line == 0 else None
                axes.scatter(
                    better, np.full(len(better), line + 0.18 * (place - 0.5)), s=16, color=f"C{place}", label=label
                )
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_yticks(range(len(SETS)), SETS)
    axes.invert_yaxis()
    axes.set_xlabel(f"nats per event on test above {against} (its mean of three seeds)")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(out, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    made = commands.add_parser("prepare")
    made.add_argument("data", type=Path)
    made.add_argument("out", type=Path)
    fitted = commands.add_parser("run")
    fitted.add_argument("data", type=Path)
    fitted.add_argument("results", type=Path)
    fitted.add_argument("--device", default="cpu")
    fitted.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    fitted.add_argument("--minutes", type=float, default=600.0)
    fitted.add_argument("--sets", nargs="*", default=list(SETS))
    fitted.add_argument("--models", nargs="*", default=list(TRIALS))
    fitted.add_argument("--trials", nargs="*", type=int, help="numbers of the trials; default: all of a model")
    fitted.add_argument("--epochs", type=int, default=0, help="at most so many of each fit")
    fitted.add_argument("--ablation", action="store_true", help="the parts of the default A-NHP, one seed")
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path)
    drawn = commands.add_parser("picture")
    drawn.add_argument("results", type=Path)
    drawn.add_argument("out", type=Path)
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.data, args.out)
    elif args.command == "run":
        models = list(ABLATION) if args.ablation else args.models
        wanted = {"sets": args.sets, "models": models, "trials": args.trials, "seeds": not args.ablation}
        wanted["epochs"] = args.epochs
        run(args.data, args.results, args.device, args.jobs, args.minutes, wanted)
    elif args.command == "picture":
        picture(args.results, args.out)
    else:
        table(args.results)


if __name__ == "__main__":
    main()
