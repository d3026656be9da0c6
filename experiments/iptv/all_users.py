"""Compares A-NDTT, NDTT and A-NHP on the weeks of all users: 4,832 possible events at every time, 72,109 test events.

    python experiments/iptv/all_users.py fit anhp --data iptv_weeks --device cuda --minutes 5 --out OUT     # also: andtt, ndtt, poisson
    python experiments/iptv/all_users.py compare OUT                                                        # → all_users.json

`iptv_weeks` is the output of `prepare.py`. Training data are cut into pieces of `--hours` (days, except for A-NDTT, which trains on whole
weeks). Training ends after `--minutes`; test is scored in whole weeks. Models of rules are scored with sampled possible events at drawn
times, the others with all types at drawn times, each with the standard error of its draws.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretell.data import Dataset, EventData, load
from foretell.evaluate.compare_drawn import compare_drawn
from foretell.evaluate.drawn_scores import DrawnScores, drawn_scores
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.build import save_model
from foretell.models.classical.poisson import Poisson
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.train.config import TrainOptions
from foretell.train.fit import fit
from foretell.train.run import environment
from foretell.train.trainer import TrainingInterrupt

TITLES = {"andtt": "A-NDTT", "ndtt": "NDTT", "anhp": "A-NHP", "poisson": "Poisson"}
HOURS = {"andtt": 168.0, "ndtt": 24.0, "anhp": 24.0}  # length of a training sequence
BATCH = {"andtt": 1, "ndtt": 8, "anhp": 4}
DIM = {"andtt": 32, "ndtt": 16, "anhp": 64}
TRAINED = 8  # number of possible events that are drawn at each integration time in training


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fit", "compare"])
    parser.add_argument("where", help="the model; or the folder of the scores")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument(
        "--judged", type=int, default=32, help="possible events that are drawn at each time when scoring"
    )
    parser.add_argument("--cut", type=int, help="train and test on so many sequences: to try the script")
    parser.add_argument("--out", type=Path, default=Path("."))
    args = parser.parse_args()
    if args.what == "compare":
        return compare(Path(args.where))
    if args.data is None or args.where not in TITLES:
        parser.error(f"fit: expected one of {', '.join(TITLES)}, and --data")
    fit_one(args.where, args)
    return 0


def fit_one(kind: str, args: argparse.Namespace) -> None:
    dataset = load(str(args.data))
    train, test = dataset.train, dataset.test
    assert train is not None and test is not None
    if args.cut:
        train, test = train.select(range(args.cut)), test.select(range(len(test) - 1, len(test)))
    model = model_of(kind, args.data, dataset)
    began = time.monotonic()
    found: dict[str, Any] = {"kind": kind, "minutes": args.minutes, "machine": environment(args.device)}
    steps: list[float] = []

    def stop() -> bool:
        steps.append(time.monotonic())
        return kind != "poisson" and steps[-1] - began > 60.0 * args.minutes

    hours = HOURS.get(kind)
    options = TrainOptions(
        batch=BATCH.get(kind, 1),
        lr=0.005 if kind != "anhp" else 0.002,
        epochs=200,
        patience=0,
        device=args.device,
        downsample=TRAINED if kind in ("andtt", "ndtt") else 0,
    )
    told: list[dict[str, Any]] = []
    with suppress(TrainingInterrupt):  # its time is up
        fit(model, train if hours is None else cut(train, hours), None, options, on_epoch=told.append, stop=stop)
    found |= {"steps": len(steps), "epochs": told, "seconds": time.monotonic() - began, "hours": hours}
    found["parameters"] = sum(one.numel() for one in model.parameters())
    say(found)
    args.out.mkdir(parents=True, exist_ok=True)
    save_model(model, args.out / f"{kind}.safetensors")
    began = time.monotonic()
    model.eval()
    judged = args.judged if kind in ("andtt", "ndtt") else None
    scores = drawn_scores(model, test, judged, points=1, progress=lambda done, of: say({"scored": done, "of": of}))
    found |= {"score_seconds": time.monotonic() - began, "test": scores.to_json()}
    if torch.cuda.is_available():
        found["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    save_scores(scores, args.out / f"{kind}.npz", found)
    say(found)


def model_of(kind: str, data: Path, dataset: Dataset) -> IntensityModel:
    names, program = dataset.vocabulary, data / "program" / "iptv.ndtt"
    if kind == "poisson":
        return Poisson(names)
    if kind == "anhp":
        return ANHP(names, dim=DIM[kind], layers=1)
    if kind == "ndtt":
        return NDTT(program, names, dim=DIM[kind])
    return ANDTT(program, names, dim=DIM[kind], layers=1)


def cut(data: EventData, hours: float) -> EventData:
    """Cut every sequence into pieces of a number of hours, each with its own clock."""
    pieces = []
    for one in data:
        edges = np.arange(0.0, one.t_end - 1e-9, hours)
        cuts = [*np.searchsorted(one.times, edges).tolist(), len(one)]
        for number, start in enumerate(edges.tolist()):
            rows = slice(cuts[number], cuts[number + 1])
            end = min(hours, one.t_end - start)
            times, types = one.times[rows] - start, one.types[rows]
            pieces.append(replace(one, times=times, types=types, t_end=end, id=f"{one.id}-{number}"))
    return EventData(pieces, data.vocabulary, "window", data.name)


def save_scores(scores: DrawnScores, path: Path, found: dict[str, Any]) -> None:
    arrays = {name: value for name, value in vars(scores).items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in vars(scores).items() if not isinstance(value, np.ndarray)}
    arrays["about"] = np.array(json.dumps({"fit": found, "scores": rest}))
    np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]


def read_scores(path: Path) -> tuple[dict[str, Any], DrawnScores]:
    with np.load(path) as kept:
        about = json.loads(str(kept["about"]))
        return about["fit"], DrawnScores(
            **{name: kept[name] for name in kept.files if name != "about"}, **about["scores"]
        )


def compare(folder: Path) -> int:
    kept = {kind: read_scores(folder / f"{kind}.npz") for kind in TITLES if (folder / f"{kind}.npz").exists()}
    found = compare_drawn([(TITLES[kind], scores) for kind, (_, scores) in kept.items()])
    here = Path(__file__).parent
    made = {"runs": {kind: about for kind, (about, _) in kept.items()}, **found.to_json()}
    (here / "all_users.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(found.lines()) + "\n")
    return 0


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what, default=str) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
