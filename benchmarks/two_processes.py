"""Compares training with `--processes 2` and with one process of one thread: the same steps, measured in turns.

    python benchmarks/two_processes.py --data ../shared/data/stackoverflow --out benchmarks/results/two-processes.json

Every process of a round takes the same steps of `ft.fit` on the training split with one thread, and records wall time and its processor
time after each step. On idle cores, a step of two processes takes as long as the slower one: `busiest_cpu_ms` is the sum of the larger
processor times over steps, without waiting. `wall_ms` is the wall time on this machine, which may have other work (`load`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WARM_UP = 3


def worker(data: Path, model: str, batch: int, dim: int, steps: int) -> None:
    """Run the steps of one process, and record its times after each step."""
    import torch

    import foretell as ft
    from foretell.train.processes import joined_processes

    torch.set_num_threads(1)

    class Clock(ft.Callback):
        def __init__(self) -> None:
            self.wall: list[float] = []
            self.cpu: list[float] = []

        def on_step(self, epoch: int, step: int, steps: int) -> None:
            self.wall.append(time.monotonic())
            self.cpu.append(time.process_time())

        def stop(self) -> bool:
            return len(self.wall) > steps + WARM_UP

    split = ft.load(data).train
    assert split is not None
    made = {"anhp": ft.ANHP, "nhp": ft.NHP, "s2p2": ft.S2P2}[model](split.vocabulary, dim=dim, seed=0)
    clock = Clock()
    with joined_processes() as group:
        with contextlib.suppress(ft.TrainingInterrupt):
            ft.fit(made, split, epochs=100, batch=batch, patience=0, progress=False, callbacks=[clock])
        found = {"rank": group.rank, "wall": clock.wall[WARM_UP:], "cpu": clock.cpu[WARM_UP:]}
    sys.stdout.write("\n" + json.dumps(found) + "\n")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def took(processes: int, arguments: list[str]) -> dict[str, float]:
    """Return the milliseconds per step of a number of processes."""
    address = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, __file__, "--worker", *arguments]
    started = [
        subprocess.Popen(
            command,
            env=environment | (address | {"RANK": str(rank)} if processes > 1 else {}),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    said = [one.communicate()[0] for one in started]
    if any(one.returncode for one in started):
        raise SystemExit("a process failed")
    found = [json.loads(text.strip().splitlines()[-1]) for text in said]
    cpu = [[after - before for before, after in zip(one["cpu"], one["cpu"][1:], strict=False)] for one in found]
    steps = len(cpu[0])
    return {
        "steps": steps,
        "wall_ms": 1e3 * (found[0]["wall"][-1] - found[0]["wall"][0]) / steps,
        "busiest_cpu_ms": 1e3 * sum(max(one) for one in zip(*cpu, strict=True)) / steps,
        "all_cpu_ms": 1e3 * sum(map(sum, cpu)) / steps,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--models", default="anhp,nhp,s2p2")
    options.add_argument("--batches", default="32,128")
    options.add_argument("--dim", type=int, default=64)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--out", type=Path)
    options.add_argument("--worker", action="store_true")
    given = options.parse_args()
    if given.worker:
        return worker(given.data, given.models, int(given.batches), given.dim, given.steps)
    found: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    found |= {"date": time.strftime("%Y-%m-%d"), "data": given.data.name, "dim": given.dim, "cases": []}
    if given.out and given.out.exists():
        found["cases"] = json.loads(given.out.read_text())["cases"]
    for model in given.models.split(","):
        for batch in map(int, given.batches.split(",")):
            asked = ["--data", str(given.data), "--models", model, "--batches", str(batch)]
            asked += ["--dim", str(given.dim), "--steps", str(given.steps)]
            rounds = [{"one": took(1, asked), "two": took(2, asked)} for _ in range(given.rounds)]
            case: dict[str, Any] = {"model": model, "batch": batch}
            for name in ("wall_ms", "busiest_cpu_ms"):
                ratios = [one["one"][name] / one["two"][name] for one in rounds]
                case[f"faster_{name[:-3]}"] = round(statistics.median(ratios), 3)
            found["cases"].append(case | {"rounds": rounds})
            sys.stdout.write(f"{json.dumps(case)}\n")
            sys.stdout.flush()
            if given.out:
                given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
