"""The training time after which the default A-NHP reaches the best dev score of the paper's preset.

    python benchmarks/time_to_score.py DATA [--fraction 0.1] [--epochs 60] [--out FILE]

Both are trained in one process, one after the other, with equal sizes (D = 32, L = 2) and their own settings: Adam at 1e-3 for the preset,
at 3e-3 for the default. Seconds include training and the scoring of dev after every epoch, which takes the same time for both. The output
is one line of JSON per data set.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import foretell as ft

DIM, LAYERS = 32, 2
FORMS: dict[str, dict[str, Any]] = {"paper": {"lr": 1e-3}, "default": {"lr": 3e-3}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the training sequences")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    data = ft.load(args.data)
    assert data.train is not None and data.dev is not None
    train = data.train.select(range(0, len(data.train), max(1, round(1.0 / args.fraction))))
    options = {"epochs": args.epochs, "batch": args.batch, "patience": 10, "device": args.device}
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, more in FORMS.items():
        model = (
            ft.ANHP.paper(data.vocabulary, dim=DIM, layers=LAYERS)
            if name == "paper"
            else ft.ANHP(data.vocabulary, dim=DIM, layers=LAYERS)
        )
        seconds, curve = 0.0, []
        for record in ft.fit(model, train, dev=data.dev, **options, **more).records:
            seconds += record["train_seconds"] + record["dev_seconds"]
            curve.append((round(seconds, 2), round(record["dev"], 5)))
        curves[name] = curve
    best = max(score for _, score in curves["paper"])
    reached = {name: next((when for when, score in one if score >= best), None) for name, one in curves.items()}
    found = {
        "data": Path(args.data).name,
        "settings": {key: value for key, value in vars(args).items() if key not in ("data", "out")},
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 1),
        "paper's best on dev": best,
        "seconds until then": reached,
        "curves": curves,
    }
    line = json.dumps(found) + "\n"
    sys.stdout.write(json.dumps({key: value for key, value in found.items() if key != "curves"}) + "\n")
    if args.out:
        with args.out.open("a") as file:
            file.write(line)


if __name__ == "__main__":
    main()
