"""Compares epochs whose plans a thread makes in advance with epochs whose steps make their own plans: seconds, measured in turns.

    python benchmarks/ahead.py --out benchmarks/results/ahead.json

An A-NDTT is trained on short sequences that form new batches in every epoch, so that every step needs a new plan. A step uses one thread.
On a CPU with an idle second core, this corresponds to a device that computes while the host plans.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import foretell as ft
from foretell.train import likelihood_task

PROGRAM = """
person(p1). person(p2). person(p3). person(p4).
:- event(meet). :- event(call).
knows(X,Y) <- meet(X,Y).
!knows(X,Y) <- call(X,Y).
meet(X,Y) :- person(X), person(Y).
call(X,Y) :- knows(X,Y).
call(X,Y) :- person(X), person(Y).
"""


def made_up(sequences: int, events: int) -> ft.EventData:
    rng = np.random.default_rng(0)
    names, times = [], []
    for _ in range(sequences):
        count = int(rng.integers(events // 2, events + 1))
        who = rng.integers(1, 5, (count, 2))
        kind = rng.choice(["meet", "call"], count)
        names.append([f"{one}(p{x},p{y})" for one, (x, y) in zip(kind.tolist(), who.tolist(), strict=True)])
        times.append(np.cumsum(rng.exponential(1.0, count)).tolist())
    return ft.EventData.from_names(names, times, t_ends=[one[-1] + 1.0 for one in times])


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=Path)
    options.add_argument("--device", default="cpu")
    options.add_argument("--sequences", type=int, default=192)
    options.add_argument("--events", type=int, default=40)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    torch.set_num_threads(1)
    data, program = made_up(given.sequences, given.events), ft.Program.from_text(PROGRAM)
    found: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    found |= {"date": time.strftime("%Y-%m-%d"), "device": given.device, "events": data.event_count, "runs": {}}
    for _ in range(given.rounds):
        for ahead in (0, 2):
            model = ft.ANDTT(program, dim=16, seed=0)
            began, used = time.perf_counter(), time.process_time()
            with mock.patch.object(likelihood_task, "steps_ahead", lambda options, model: options.ahead):
                records = ft.fit(
                    model, data, epochs=3, batch=16, ahead=ahead, device=given.device, progress=False
                ).records
            row = {
                "epoch_seconds": [one["train_seconds"] for one in records],
                "wall_seconds": time.perf_counter() - began,
                "cpu_seconds": time.process_time() - used,
                "train": records[-1]["train"],
                "load": os.getloadavg()[0],
            }
            found["runs"].setdefault(str(ahead), []).append(row)
    medians = {
        name: statistics.median(second for row in rows for second in row["epoch_seconds"][1:])
        for name, rows in found["runs"].items()
    }
    found["epoch_seconds"] = medians
    assert len({row["train"] for rows in found["runs"].values() for row in rows}) == 1
    sys.stdout.write(json.dumps(medians) + "\n")
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
