"""Time, memory and disk space of packing, opening and training on data larger than memory, compared with the same data in memory.

    python benchmarks/packed.py --sequences 100000 --folder /tmp/packed-bench --out benchmarks/results/packed.json

Sequences of a Poisson process with 20 types and 100 events on average are drawn into a packed folder, written to one CSV with mixed rows,
and packed from that file. `train` takes training steps from all data; `draw` trains on a hundredth for an epoch and evaluates a hundredth
of the test split. Each stage runs in its own process. Results are CPU seconds, wall seconds, the peak of memory that is not mapped from
files (RssAnon, sampled every 50 ms), and the peak of resident memory, including mapped files.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

RATE = ",".join(["1.0"] * 20)
T_END = 5.0


def measured(command: list[str], watched: Path) -> dict[str, Any]:
    """Return a command's CPU and wall seconds, its memory, and the largest size of a folder on disk meanwhile."""
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"anonymous_mib": 0, "resident_mib": 0, "disk_mib": 0}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    output: list[str] = []
    reader = threading.Thread(target=lambda: output.append(child.stdout.read() if child.stdout else ""))
    reader.start()
    ticks = 0
    while child.poll() is None:
        for name, key in (("RssAnon", "anonymous_mib"), ("VmHWM", "resident_mib")):
            found[key] = max(found[key], status(child.pid, name))
        if ticks % 20 == 0:
            found["disk_mib"] = max(found["disk_mib"], size_of(watched) >> 20)
        ticks += 1
        time.sleep(0.05)
    reader.join()
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    told = output[0].strip().splitlines()
    return {
        "cpu_seconds": round(cpu, 2),
        "wall_seconds": round(time.monotonic() - began, 2),
        **found,
        "said": told[-1:],
    }


def status(process: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith(name)), 0)


def size_of(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # gone meanwhile
            continue
    return total


def write_csv(source: Path, target: Path) -> None:
    """Write all splits of a packed folder to one CSV; the rows of each 100,000 consecutive sequences are mixed."""
    from foretell.data import load

    with open(target, "w") as file:
        file.write("sequence,time,event\n")
        for name, data in load(source).splits().items():
            columns = data.columns
            for first in range(0, len(data), 100_000):
                last = min(first + 100_000, len(data))
                low, high = int(columns.offsets[first]), int(columns.offsets[last])
                owners = np.repeat(np.arange(first, last), columns.lengths[first:last])
                order = np.argsort(columns.times[low:high], kind="stable")  # all sequences side by side
                times, types = columns.times[low:high][order].tolist(), columns.types[low:high][order].tolist()
                rows = zip(owners[order].tolist(), times, types, strict=True)
                file.writelines(f"{name}{one},{when!r},{kind}\n" for one, when, kind in rows)


def train(folder: Path, memory: bool, seconds: float) -> None:
    """Return events per CPU second of training steps, from the folder or from a copy in memory."""
    import torch

    from foretell.batches.order import epoch_order
    from foretell.data import load
    from foretell.train.config import TrainOptions, make_config
    from foretell.train.likelihood_task import LikelihoodTask

    torch.set_num_threads(1)
    opened = time.process_time()
    data = load(folder).train
    opened = time.process_time() - opened
    assert data is not None
    if memory:
        data = data.select(range(len(data)))
    model = make_config({"model": {"kind": "nhp", "dim": 32}}).model.make(data.vocabulary, seed=0, dtype=torch.float32)
    options = TrainOptions(batch=32)
    task = LikelihoodTask(model, data, options)
    order = epoch_order(data, options.batch, np.random.default_rng(0), options.buffer)
    began, events, steps = time.process_time(), 0, 0
    for place, batch in enumerate(order):
        loss = task.step(batch, place)
        events, steps = events + loss.count, steps + 1
        if time.process_time() - began > seconds:
            break
    rate = events / (time.process_time() - began)
    sys.stdout.write(json.dumps({"events_per_cpu_second": rate, "steps": steps, "open_cpu_seconds": opened}))


def draw(folder: Path) -> None:
    """Train for an epoch on a hundredth of the sequences, with a hundredth of dev, and score a hundredth of test."""
    import torch

    from foretell import NHP, evaluate, fit
    from foretell.data import load
    from foretell.train.splits import share_of

    torch.set_num_threads(1)
    train, dev, test = (share_of(one, 0.01) for one in load(folder).splits().values())
    began = time.process_time()
    model = fit(NHP(train.vocabulary, dim=32, seed=0), train, dev, epochs=1, progress=False).model
    learned = time.process_time() - began
    scored = evaluate(model, test, times=False).log_likelihood.value
    counts = {name: one.event_count for name, one in (("train", train), ("dev", dev), ("test", test))}
    sys.stdout.write(json.dumps({"events": counts, "fit_cpu_seconds": learned, "log_likelihood": scored}))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--sequences", type=int, default=100_000)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--out", type=Path)
    options.add_argument("--steps", default="simulate,csv,pack,train,draw")
    options.add_argument("--do", default="")
    options.add_argument("--seconds", type=float, default=20.0)
    given = options.parse_args()
    folder: Path = given.folder
    if given.do == "csv":
        return write_csv(folder / "drawn", folder / "all.csv")
    if given.do == "draw":
        return draw(folder / "packed")
    if given.do:
        return train(folder / "packed", given.do == "memory", given.seconds)
    folder.mkdir(parents=True, exist_ok=True)
    foretell, own = [sys.executable, "-m", "foretell"], [sys.executable, __file__, "--folder", str(folder)]
    drawing = [
        "data",
        "simulate",
        "poisson",
        "--rate",
        RATE,
        "--sequences",
        str(given.sequences),
        "--t-end",
        str(T_END),
    ]
    commands = {
        "simulate": [[*foretell, *drawing, "--packed", "--out", str(folder / "drawn")]],
        "csv": [[*own, "--do", "csv"]],
        "pack": [
            [*foretell, "data", "pack", str(folder / "all.csv"), str(folder / "packed"), "--shares", "0.8,0.1,0.1"]
        ],
        "train": [[*own, "--do", kind, "--seconds", str(given.seconds)] for kind in ("packed", "memory") * 3],
        "draw": [[*own, "--do", "draw"]],
    }
    found: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    found |= {"date": time.strftime("%Y-%m-%d"), "sequences": given.sequences, "types": 20, "runs": {}}
    if given.out and given.out.exists():
        found["runs"] = json.loads(given.out.read_text())["runs"]
    for step in given.steps.split(","):
        for target in {"simulate": ["drawn"], "pack": ["packed"]}.get(step, []):
            shutil.rmtree(folder / target, ignore_errors=True)
        found["runs"][step] = [measured(command, folder) for command in commands[step]]
        if step == "csv":
            found["csv_mib"] = (folder / "all.csv").stat().st_size >> 20
        sys.stdout.write(f"{step} {found['runs'][step]}\n")
        if given.out:
            given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
