"""Programs whose possible events are products of users and items: CPU seconds of check and replay, training, evaluation and a future.

$ python benchmarks/products.py --sizes 30 100 300 1000 --out benchmarks/results/products.jsonl

Each size runs in its own process, so that its peak memory can be measured. `--ways never` measures replay without products, with one row
per event.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

PROGRAM = """
:- embed(user, 8). :- embed(item, 8). :- embed(taste, 8).
:- event(watch, 8).
:- table(user, "users.csv").
:- table(item, "items.csv").
watch(U,P) :- user(U), taste(U), item(P).
taste(U) <- watch(U,P), item(P).
taste(U) :- user(U).
"""


def write_case(folder: Path, size: int, events: int, seed: int = 0) -> Path:
    """Write a file of `events` events in sequences of 200 (users with favourite items), tables of users and items, and a program."""
    rng = np.random.default_rng(seed)
    for name, letter in (("users", "u"), ("items", "p")):
        (folder / f"{name}.csv").write_text("name\n" + "".join(f"{letter}{one}\n" for one in range(size)))
    (folder / "case.ndtt").write_text(PROGRAM)
    favourite = rng.integers(0, size, (size, 5))
    lines = ["sequence,time,event"]
    for number in range(events // 200):
        users = rng.integers(0, size, 200)
        often = rng.random(200) < 0.7
        items = np.where(often, favourite[users, rng.integers(0, 5, 200)], rng.integers(0, size, 200))
        times = np.cumsum(rng.exponential(1.0, 200)).round(6)
        rows = zip(times.tolist(), users.tolist(), items.tolist(), strict=True)
        lines += [f'{number},{moment},"watch(u{user},p{item})"' for moment, user, item in rows]
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    return folder / "case.ndtt"


def cpu(work: Any) -> tuple[float, Any]:
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def measure(size: int, way: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    from foretell.data import load_file
    from foretell.ground.replay import replay
    from foretell.lang.program import Program
    from foretell.models.rules.andtt import ANDTT
    from foretell.train.step import StepOptions, Stepper

    path = write_case(folder, size, options.events)
    found: dict[str, Any] = {"size": size, "way": way, "events": options.events, "downsample": options.downsample}
    found["check"], program = cpu(lambda: replace(Program.from_file(path), products=way))
    _, data = cpu(lambda: load_file(folder / "events.csv"))
    found["replay"], replayed = cpu(lambda: replay(program, data))
    found["products"] = bool(replayed.timelines[0].grounding.products)
    del replayed
    model = ANDTT(program, dim=8, layers=1)
    found["prepare"], _ = cpu(lambda: (model.meet(data), model.prepare(data)))
    model.train()
    stepper = Stepper(model, 1e-3, StepOptions(points=1, downsample=options.downsample, seed=1))
    steps = []
    for number in range(options.steps):
        batch = model.collator.batch(data, [number % len(data)], unscored=model.unscored)
        steps.append(cpu(lambda batch=batch, number=number: stepper(batch, number))[0])
    found["step"], found["steps"] = float(np.median(steps[1:])), steps
    model.eval()
    if options.scored:
        measure_scores(model, data, options, found)
    if options.sampled:
        measure_future(model, data, options, found)
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def measure_scores(model: Any, data: Any, options: argparse.Namespace, found: dict[str, Any]) -> None:
    from foretell.evaluate.drawn_scores import drawn_scores

    some = data.select(range(options.scored // 200))
    found["evaluate"], scores = cpu(lambda: drawn_scores(model, some, options.evaluated))
    found |= {"evaluated": options.evaluated, "scores": scores.to_json()}


def measure_future(model: Any, data: Any, options: argparse.Namespace, found: dict[str, Any]) -> None:
    from foretell.sampling.core.futures import sample_futures

    one = data.select([0])
    found["future"], futures = cpu(lambda: sample_futures(model, one, horizon=1e9, n=1, events=options.sampled, seed=0))
    found |= {"sampled": len(futures[0].futures[0].times), "cost": futures[0].cost.__dict__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 100, 300, 1000])
    parser.add_argument("--ways", nargs="+", default=["always"])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--downsample", type=int, default=50)
    parser.add_argument("--scored", type=int, default=2000)
    parser.add_argument("--evaluated", type=int, default=100)
    parser.add_argument("--sampled", type=int, default=100, help="events of a future")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", action="store_true", help="measure in this process")
    options = parser.parse_args()
    if options.one:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(json.dumps(measure(options.sizes[0], options.ways[0], options, Path(folder))) + "\n")
        return
    for size in options.sizes:
        for way in options.ways:
            given = [
                f"--{name}={getattr(options, name)}"
                for name in ("events", "steps", "downsample", "scored", "evaluated", "sampled")
            ]
            command = [sys.executable, __file__, "--one", "--sizes", str(size), "--ways", way, *given]
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
            line = (
                done.stdout.strip().splitlines()[-1]
                if done.returncode == 0
                else json.dumps({"size": size, "way": way, "error": done.stderr[-400:]})
            )
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
