"""Time and memory of training, evaluation and sampling on one sequence of a million events.

    python benchmarks/long_sequence.py --folder /tmp/long --out benchmarks/results/long-sequence.json

The sequence is drawn from a Poisson process with 20 types, and split in time: 80 % train, 10 % dev, 10 % test. Each model trains for an
epoch, scores all events of the sequence, optionally predicts the next times of the test part, and samples 10,000 further events. Each
command runs in its own process with one thread; results are CPU seconds, wall seconds and peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from packed import measured

MODELS = {
    "nhp": ["--carry-events", "1024"],
    "s2p2": ["--carry-events", "1024"],
    "anhp": ["--window-events", "512", "--history-events", "512", "--batch", "8"],
}
RATE = ",".join(["0.05"] * 20)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--out", type=Path)
    options.add_argument("--events", type=int, default=1_000_000)
    options.add_argument("--models", default="nhp,s2p2,anhp")
    options.add_argument("--steps", default="train,evaluate,times,sample")
    options.add_argument("--dim", type=int, default=8)
    given = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    foretell, data = [sys.executable, "-m", "foretell"], folder / f"{given.events}.jsonl"
    found: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    found |= {"date": time.strftime("%Y-%m-%d"), "events": given.events, "types": 20, "dim": given.dim, "runs": {}}
    if given.out and given.out.exists():
        found["runs"] = json.loads(given.out.read_text())["runs"]
    if not data.exists():
        drawing = ["data", "simulate", "poisson", "--rate", RATE, "--sequences", "1", "--t-end", str(given.events)]
        measured([*foretell, *drawing, "--seed", "1", "--out", str(data)], folder)
    for model in given.models.split(","):
        run = folder / f"run-{model}"
        training = ["train", "--data", data, "--model", model, "--out", run, "--epochs", 1, "--no-floors", "--quiet"]
        commands: dict[str, list[Any]] = {
            "train": [*training, "--set", f"model.dim={given.dim}", *MODELS[model]],
            "evaluate": ["evaluate", run, data, "--no-times", "--json", "--quiet"],
            "times": ["evaluate", run, "--json", "--quiet"],
            "sample": ["sample", run, "--history", data, "--horizon", 1e6, "--events", 10_000, "--quiet"],
        }
        if model == "anhp":
            commands["sample"] += ["--history-events", 1024]
        for step in given.steps.split(","):
            if step == "train":
                shutil.rmtree(run, ignore_errors=True)
            ran = measured([*foretell, *map(str, commands[step])], folder)
            ran["load"] = os.getloadavg()
            if step in ("evaluate", "times"):
                said = json.loads(ran.pop("said")[0])
                ran |= {name: said[name] for name in ("events", "sequences", "log_likelihood", "rmse")}
            found["runs"].setdefault(model, {})[step] = ran
            sys.stdout.write(f"{model} {step} {ran}\n")
            sys.stdout.flush()
            if given.out:
                given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
