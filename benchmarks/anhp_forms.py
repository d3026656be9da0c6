"""Compares a training step of the default A-NHP, of the paper's form (`preset = "plain"`) and of S2P2, measured in turns.

    python benchmarks/anhp_forms.py --device cpu --dim 32 --points 1 --batch 64

The data are random sequences of 72 events of 22 types. The output is one line of JSON with medians of nine rounds. On CUDA a step makes a
batch on the host and replays a captured graph; `graph_ms` is the time of the replay alone. Raw numbers: results/*-anhp-forms-*.jsonl.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import numpy as np
import torch

import foretell as ft
from foretell.train.config import TrainOptions
from foretell.train.likelihood_task import LikelihoodTask

TYPES, EVENTS, ROUNDS = 22, 72, 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    for name, default in (("dim", 32), ("points", 1), ("batch", 64), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    draw = np.random.default_rng(0)
    sequences = [
        ft.EventSequence(
            np.cumsum(draw.exponential(1.0, EVENTS)), draw.integers(0, TYPES, EVENTS), 10.0 * EVENTS, str(place)
        )
        for place in range(2 * args.batch)
    ]
    data = ft.EventData(sequences, ft.Vocabulary.of_size(TYPES))
    models = {
        "plain": ft.ANHP.preset("plain", data.vocabulary, dim=args.dim, layers=2),
        "default": ft.ANHP(data.vocabulary, dim=args.dim, layers=2),
        "s2p2": ft.S2P2(data.vocabulary),
    }
    options = TrainOptions(points=args.points, device=args.device, batch=args.batch)
    tasks = {}
    for name, model in models.items():
        model.prepare(data)
        tasks[name] = LikelihoodTask(model.to(args.device).train(), data, options)

    def run(task: LikelihoodTask, steps: int) -> float:
        began = time.perf_counter()
        for number in range(steps):
            task.step(np.arange(args.batch), number)
        if args.device.startswith("cuda"):
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - began) / steps

    def replay(task: LikelihoodTask, steps: int) -> float:
        (graph,) = task.stepper.executor.graphs.values()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            graph.graph.replay()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - began) / steps

    steps = 3 if args.device == "cpu" else 30
    for task in tasks.values():
        run(task, 12)
    times: dict[str, list[float]] = {name: [] for name in tasks}
    replays: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(ROUNDS):
        for name, task in tasks.items():
            times[name].append(run(task, steps))
            if args.device != "cpu":
                replays[name].append(replay(task, steps))
    medians, graphs = (
        {name: statistics.median(found) for name, found in taken.items() if found} for taken in (times, replays)
    )
    found: dict[str, object] = {
        "settings": vars(args),
        "torch": torch.__version__,
        "ms": {name: round(value, 3) for name, value in medians.items()},
        "default / plain": round(medians["default"] / medians["plain"], 2),
        "rounds": {name: [round(one, 3) for one in taken] for name, taken in times.items()},
    }
    if graphs:
        found["graph_ms"] = {name: round(value, 3) for name, value in graphs.items()}
        found["default / plain, graphs"] = round(graphs["default"] / graphs["plain"], 2)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
