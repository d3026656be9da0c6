"""The cost of covariates: a training step with ten columns of numbers compared with one without, and the memory of a million events.

    python benchmarks/columns.py                # steps of every neural model, and memory
    python benchmarks/columns.py --rounds 40 --out FILE

Steps with and without columns take turns in one process with one thread, on the same events; a twentieth of the values is missing. The
ratio is the median over rounds, in processor time, since the machine may be busy. Memory is that of Python and numpy objects (tracemalloc),
without and with the tables from which a model reads batches.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import platform
import statistics
import sys
import time
import tracemalloc
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch

import foretell as ft
from foretell.models.covariates import take_covariates
from foretell.models.registry import find_model
from foretell.train.config import TrainOptions
from foretell.train.likelihood_task import LikelihoodTask

KINDS = ("anhp", "nhp", "rmtpp", "thp", "sahp", "s2p2")
DIMS = (32, 64)
SEQUENCES, EVENTS, TYPES, BATCH, WARM = 64, 72, 10, 32, 4
COLUMNS = [f"x{place}" for place in range(10)]
RESULTS = Path(__file__).parent / "results" / f"columns-{date.today()}.jsonl"


def made(sequences: int, events: int, columns: list[str]) -> ft.EventData:
    """Return random sequences that are read from a pandas frame."""
    rng = np.random.default_rng(0)
    rows = sequences * events
    times = np.cumsum(rng.exponential(1.0, (sequences, events)), axis=1).ravel()
    names = rng.integers(0, TYPES, rows).astype(str)
    frame = pd.DataFrame({"sequence": np.repeat(np.arange(sequences), events), "time": times, "event": names})
    for name in columns:
        frame[name] = np.where(rng.random(rows) < 0.05, np.nan, rng.normal(size=rows))
    found = ft.from_frame(frame, covariates=columns).train
    assert found is not None
    return found


def steps(rounds: int) -> list[dict[str, Any]]:
    """Return a row per model and dimension."""
    both = made(SEQUENCES, EVENTS, []), made(SEQUENCES, EVENTS, COLUMNS)
    rows = []
    for kind in KINDS:
        for dim in DIMS:
            tasks = []
            for data in both:
                model: Any = find_model(kind)(data.vocabulary, dim=dim)  # pyright: ignore[reportCallIssue, reportArgumentType]
                model.prepare(data)
                take_covariates(model, data)
                assert model.has_covariates == (data is both[1])
                tasks.append(LikelihoodTask(model, data, TrainOptions(points=1)))
            spent: tuple[list[float], list[float]] = ([], [])
            for number in range(rounds + WARM):
                for side in (0, 1) if number % 2 else (1, 0):
                    begun = time.process_time()
                    tasks[side].step(np.arange(BATCH) + BATCH * (number % 2), number)
                    spent[side].append(time.process_time() - begun)
            plain, columns = (one[WARM:] for one in spent)
            ratio = statistics.median(more / less for less, more in zip(plain, columns, strict=True))
            medians = [round(1e3 * statistics.median(one), 2) for one in (plain, columns)]
            about = {
                "model": kind,
                "dim": dim,
                "batch": BATCH,
                "events": EVENTS,
                "columns": len(COLUMNS),
                "rounds": rounds,
            }
            rows.append(about | {"plain_ms": medians[0], "columns_ms": medians[1], "ratio": round(ratio, 3)})
    return rows


def memory() -> dict[str, Any]:
    """Return the bytes per event of a million events in ten thousand sequences."""
    made(10, 10, COLUMNS)  # imports
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    data = made(10_000, 100, COLUMNS)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    model = ft.NHP(data.vocabulary, dim=8)
    model.prepare(data)
    take_covariates(model, data)
    LikelihoodTask(model, data, TrainOptions(points=1)).step(np.arange(BATCH), 0)
    gc.collect()
    ready = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    count = data.event_count
    return {
        "events": count,
        "columns": len(COLUMNS),
        "held": round(held / count, 1),
        "in_training": round(ready / count, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    machine = {
        "cpu": platform.processor(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "date": str(date.today()),
    }
    with asked.out.open("w", encoding="utf-8") as file:
        for row in (*steps(asked.rounds), memory()):
            line = json.dumps(row | machine | {"load": round(os.getloadavg()[0], 1)})
            file.write(line + "\n")
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
