"""Compares `foretell train --data X` without other options with the floors, on every data set.

    python defaults.py prepare DATA OUT                        # DATA: a folder with the data sets; OUT: as they are used here
    python defaults.py run OUT RESULTS.jsonl --device cuda --jobs 15
    python defaults.py run OUT TRIALS.jsonl --device cuda --jobs 15 --trials     # what the rules were fitted with: one seed
    python defaults.py table RESULTS.jsonl [TRIALS.jsonl]

Training uses whole sequences with at most 50,000 events. Floors are fitted first; a model that starts from a Hawkes process uses the fitted
one. Scores are log-likelihoods of all events, in nats per event, with 40 draws per gap. A stopped run is continued.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "field"))
import field  # pyright: ignore[reportMissingImports]

SYNTHETIC = (
    "synth_hawkes1",
    "synth_hawkes2",
    "synth_self_correcting",
    "synth_stationary_poisson",
    "synthetic_conttime",
    "synthetic_hawkes",
    "synthetic_hawkeshib",
)
SETS = (*field.SETS, *SYNTHETIC)
SEEDS = (0, 1, 2)
FLOORS = ("poisson", "weekly", "hawkes")  # the second where there are dates
FEW = 1_000  # up to this number of test events, the score of each is stored for tests of significance
WAIT = 300  # seconds for the floors of a set
PROGRAMS = {"robocup, rules": ("robocup", "robocup")}  # a set with a program: the data, and the program
# The trials that the rules are based on: changes of the settings that they choose.
TRIALS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {},
    "no Hawkes": {"model": {"hawkes": 0}},
    "dim 32": {"model": {"dim": 32}},
    "dim 64": {"model": {"dim": 64}},
    "weight decay 1": {"train": {"decay": 1.0, "pseudo_count": 0.5}},
    "weight decay 0.1": {"train": {"decay": 0.1, "pseudo_count": 0.5}},
    "no weight decay": {"train": {"decay": 0.0, "pseudo_count": 0.0}},
    "dropout 0.3": {"model": {"dropout": 0.3}},
    "lr 1e-3": {"train": {"lr": 1e-3}},
}


def prepare(data: Path, out: Path) -> None:
    from dataclasses import replace

    from foretell.data.loading import load, save_dataset
    from foretell.train.splits import share_of

    for name in SETS:
        dataset = load(str(data / "processes" / name if name in field.LOGS else data / name))
        assert dataset.train is not None
        train = dataset.train
        if train.event_count > field.MOST_EVENTS:
            train = share_of(train, field.MOST_EVENTS / train.event_count)
        save_dataset(replace(dataset, train=train), out / name)


def opened(job: dict[str, Any], table: dict[str, Any]) -> tuple[Any, Any]:
    from foretell.train.config import make_config
    from foretell.train.splits import load_splits

    config = make_config(table)
    return config, load_splits(config.data)


def floors(job: dict[str, Any]) -> dict[str, Any]:
    """Fit Poisson and Hawkes to data prepared by the rules; the Hawkes process is stored for the models."""
    from foretell.models.build import save_model
    from foretell.train.auto_settings import choose_settings, traits_of, with_settings
    from foretell.train.fit import fit, floors_for

    _, dataset = opened(job, {"data": {"path": job["path"]}})
    chosen = choose_settings(traits_of(dataset.train, dataset.dev), job["device"])
    data = with_settings({"data": {"path": job["path"]}}, chosen)["data"]
    _, dataset = opened(job, {"data": data})
    result = dict(job)
    for floor in floors_for(dataset.vocabulary, dataset.train):
        began = time.monotonic()
        fit(floor, dataset.train, dataset.dev)
        result[floor.kind] = scores(floor, dataset) | {"seconds": round(time.monotonic() - began, 1)}
        if floor.kind == "hawkes":
            result[floor.kind] |= {"decays": floor.decays, "shrinkage": floor.options.shrinkage}
            save_model(floor, hawkes_file(job))
    return result


def hawkes_file(job: dict[str, Any]) -> Path:
    return Path(job["floors"]) / f"{job['set']}.safetensors"


def wait_for_hawkes(job: dict[str, Any]) -> Any:
    """Wait for the Hawkes process of a set, which another process fits, and return it."""
    from foretell.models.build import load_model

    for _ in range(WAIT):
        if hawkes_file(job).exists():
            return load_model(hawkes_file(job))
        time.sleep(1.0)
    raise RuntimeError(f"{hawkes_file(job)} was not written within {WAIT} s")


def scores(model: Any, dataset: Any) -> dict[str, Any]:
    """Return the log-likelihood per event on dev and test, its time part and the error of the integral; for data with dates, per second."""
    from foretell.evaluate.likelihood import score_events

    result: dict[str, Any] = {}
    clock = dataset.clock
    shift = float(np.log(clock.seconds_per_unit or 1.0)) if clock.absolute else 0.0
    for split, data in (("dev", dataset.dev), ("test", dataset.test)):
        found = score_events(model, data, integral="stratified", points=40, seed=1)
        events = max(int(found.scored.sum()), 1)
        result[split] = float(found.log_likelihood.sum()) / events - shift
        result[f"{split}_time"] = float(found.time_log_likelihood.sum()) / events - shift
        result[f"{split}_error"] = found.used.standard_error
        if split == "test":  # in the window of the field, for comparison
            inside = score_events(model, data, integral="stratified", points=40, seed=1, window=field.WINDOW)
            result["field"] = float(inside.log_likelihood.sum()) / max(int(inside.scored.sum()), 1) - shift
        if split == "test" and events <= FEW:
            result["events"] = [round(float(one), 4) for one in found.log_likelihood]
    return result


def fit_and_score(job: dict[str, Any]) -> dict[str, Any]:
    """Fit the model that the rules choose, with the changes of a trial."""
    import torch

    from foretell.train.auto_settings import choose_settings, traits_of, wants_hawkes, with_settings
    from foretell.train.fit import fit, start_with_hawkes

    torch.set_num_threads(1)
    if job["trial"] == "floors":
        return floors(job)
    program = PROGRAMS.get(job["set"], (None, None))[1]
    _, dataset = opened(job, {"data": {"path": job["path"]}})
    traits = traits_of(dataset.train, dataset.dev)
    hawkes = None if program or not wants_hawkes(traits) else wait_for_hawkes(job)
    chosen = choose_settings(
        traits, job["device"], decays=0 if hawkes is None else hawkes.decays, program=program is not None
    )
    given: dict[str, Any] = {"data": {"path": job["path"]}, "model": {}, "train": {}}
    for section, values in TRIALS[job["trial"]].items():
        given[section] |= values
    known = {one.key: one.value for one in chosen}
    asked = {f"{section}.{key}": value for section, own in TRIALS[job["trial"]].items() for key, value in own.items()}
    if asked and all(known.get(key, 0) == value for key, value in asked.items()):
        return {**job, "same_as": "default"}
    if program:
        given["model"] = {"program": program}
    given["train"] |= {"seed": job["seed"], "device": job["device"]}
    config, dataset = opened(job, with_settings(given, chosen))
    model = config.model.make(dataset.vocabulary, seed=job["seed"], dtype=torch.float32)
    began = time.monotonic()
    start_with_hawkes(model, dataset.train, dataset.dev, hawkes)
    found = fit(model, dataset.train, dataset.dev, config.train)
    result = {**job, "seconds": round(time.monotonic() - began, 1), "epochs": len(found.records)}
    return {**result, "best_epoch": found.best_epoch, "chosen": known, **scores(found.model, dataset)}


def guarded(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return fit_and_score(job)
    except Exception as error:  # the others continue; the results contain the error
        return {**job, "error": f"{type(error).__name__}: {error}"}


def run(args: argparse.Namespace) -> None:
    """Fit floors first, then the rest, with the largest sets first; when the time is up, the rest is left to the next call."""
    done = [json.loads(line) for line in args.results.read_text().splitlines()] if args.results.exists() else []
    have = {(one["set"], one["trial"], one["seed"]) for one in done if "error" not in one}
    stop = time.monotonic() + 60.0 * args.minutes
    kept = args.results.parent / "floors"
    kept.mkdir(parents=True, exist_ok=True)

    def job(name: str, trial: str, seed: int) -> dict[str, Any]:
        path = str(args.data / PROGRAMS.get(name, (name, None))[0])
        return {"set": name, "trial": trial, "seed": seed, "path": path, "device": args.device, "floors": str(kept)}

    slow = ("sepsis", "bpic12-o", "bpic12", "helpdesk", "synth_self_correcting", "bookorder", "stackoverflow")
    ordered = sorted(args.sets, key=lambda name: slow.index(name) if name in slow else len(slow))
    tasks = [job(name, "floors", 0) for name in reversed(ordered) if name not in PROGRAMS]
    tasks += [
        job(name, trial, seed)
        for trial in (TRIALS if args.trials else ["default"])
        for seed in (SEEDS[:1] if args.trials else SEEDS)
        for name in ordered
        if name not in PROGRAMS or "model" not in TRIALS[trial]
    ]
    left = [one for one in tasks if (one["set"], one["trial"], one["seed"]) not in have]
    with multiprocessing.get_context("spawn").Pool(args.jobs, maxtasksperchild=1) as pool:
        for found in pool.imap_unordered(guarded, left):
            line = {key: value for key, value in found.items() if key not in ("path", "floors")}
            with args.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            if time.monotonic() > stop:
                pool.terminate()
                return


def read(paths: list[Path]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    by: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if "error" not in row and "same_as" not in row:
                by[row["set"], row["trial"]].append(row)
    return by


def table(paths: list[Path]) -> None:
    """Return a table of the seeds' means ± half of their range on test, and of the floors; with trials, also a table of dev scores."""
    by = read(paths)
    print_ = sys.stdout.write
    head = [
        "set",
        "Poisson",
        "weekly",
        "Hawkes",
        "default",
        "lead over the best floor",
        "p, where worse",
        "events 2 to I",
    ]
    head.append("best of its kind in the field")
    print_("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|\n")
    for name in [*SETS, *PROGRAMS]:
        floor = by.get((PROGRAMS.get(name, (name, ""))[0], "floors"), [])
        mine = by.get((name, "default"), [])
        if not floor or not mine:
            continue
        best = max(floor[0][kind]["test"] for kind in FLOORS if kind in floor[0])
        test = np.array([one["test"] for one in mine])
        lead = test - best
        cells = [f"{floor[0][kind]['test']:.3f}" if kind in floor[0] else "" for kind in FLOORS]
        cells += [f"{test.mean():.3f} ± {np.ptp(test) / 2:.3f}", f"{lead.mean():+.3f} (least {lead.min():+.3f})"]
        cells.append(worse(mine, floor[0], lead))
        cells += [f"{np.mean([one.get('field', np.nan) for one in mine]):.3f}", best_of_the_field(name, mine[0])]
        print_(f"| {name} | " + " | ".join(cells) + " |\n")
    trials = [trial for trial in TRIALS if trial != "default" and any(key[1] == trial for key in by)]
    if not trials:
        return
    print_(
        "\ndev, seed 0:\n\n| set | Hawkes | default | "
        + " | ".join(trials)
        + " |\n|---|---|---"
        + "|---" * len(trials)
        + "|\n"
    )
    for name in SETS:
        first = {
            trial: [one for one in by.get((name, trial), []) if one["seed"] == 0] for trial in ["default", *trials]
        }
        if any(first.values()) and (name, "floors") in by:
            cells = [f"{one[0]['dev']:.3f}" if one else "–" for one in first.values()]
            print_(f"| {name} | {by[name, 'floors'][0]['hawkes']['dev']:.3f} | " + " | ".join(cells) + " |\n")


def best_of_the_field(name: str, mine: dict[str, Any]) -> str:
    """Return the mean test score of the runs of the same kind in experiments/field that are best on dev."""
    by: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for path in sorted((Path(__file__).parents[1] / "field" / "results").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            known = field.ALL.get(row.get("model"), [])
            if row.get("set") != PROGRAMS.get(name, (name, ""))[0] or "dev" not in row or row["trial"] >= len(known):
                continue
            if known[row["trial"]]["model"]["kind"] == mine["chosen"]["model.kind"]:
                by[row["model"], row["trial"]].append(row)
    whole = [rows for rows in by.values() if len(rows) >= len(SEEDS)]
    if not whole:
        return ""
    best = max(whole, key=lambda rows: float(np.mean([row["dev"] for row in rows])))
    return f"{np.mean([row['test'] for row in best]):.3f}"


def worse(mine: list[dict[str, Any]], floor: dict[str, Any], lead: np.ndarray) -> str:
    """Return, for seeds below the better floor, the p-value of a paired permutation test over events against that floor."""
    from foretell.evaluate.permutation import permutation_test

    better = max((kind for kind in FLOORS if kind in floor), key=lambda kind: floor[kind]["test"])
    if (lead >= 0.0).all() or "events" not in floor[better]:
        return ""
    behind = [one for one, gained in zip(mine, lead, strict=True) if gained < 0.0 and "events" in one]
    found = [permutation_test(one["events"], floor[better]["events"]).p_value for one in behind]
    return ", ".join(f"{one:.2f}" for one in found)


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
    fitted.add_argument("--sets", nargs="*", default=[*SETS, *PROGRAMS])
    fitted.add_argument("--trials", action="store_true", help="the trials that the rules were fitted with, one seed")
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path, nargs="+")
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.data, args.out)
    elif args.command == "run":
        run(args)
    else:
        table(args.results)


if __name__ == "__main__":
    main()
