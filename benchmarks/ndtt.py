"""A training step of NDTT: RoboCup's shipped program on the first game of its training data, and on all four games together.

    python benchmarks/ndtt.py [--device cuda] [--threads 1] [--events 400,950,game,games] [--out FILE]

A step is forward, backward and Adam, with new integration times in every step. Replaying the games is not included. Results are medians of
5 steps after the first one; `first` is that first step, which also builds the waves and the plan. Events move cells one after another, in
as many waves as a game has events. So operations are small, and one thread is as fast as many. On a busy machine, use `CPU time`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

REPEATS, DIM = 5, 32


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--events", default="400,950,game,games")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = []
    for events in given.events.split(","):
        one = measured(events, given)
        found.append(one)
        sys.stdout.write(
            f"{one['events']:>6,} events, {one['sequences']} sequence(s), {one['waves']:,} waves:  step {one['median_ms']:,} ms"
            f"  CPU time {one['cpu_ms']:,} ms  first {one['first_ms']:,} ms\n"
        )
        sys.stdout.flush()
    if given.out:
        given.out.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    return 0


def measured(events: str, given: argparse.Namespace) -> dict[str, Any]:
    import torch

    import foretell as ft
    from foretell.data import EventData, EventSequence
    from foretell.lang.program import Program
    from foretell.nn.cells import CellUpdate
    from foretell.train.step import StepOptions, Stepper

    torch.set_num_threads(given.threads)
    device = torch.device(given.device)
    data = ft.load("robocup")
    assert data.train is not None and data.dev is not None and data.test is not None
    games = [*data.train, *data.dev, *data.test] if events == "games" else [data.train[0]]
    ends = [len(one) if events.startswith("game") else int(events) for one in games]
    sequences = [
        EventSequence(one.times[:end], one.types[:end], one.t_end if end == len(one) else float(one.times[end]), one.id)
        for one, end in zip(games, ends, strict=True)
    ]
    model = ft.NDTT(Program.named("robocup", dim=DIM), data.vocabulary, dim=DIM)
    model.prepare(data.train)
    model.to(device)
    for part in (data.train, data.dev, data.test):
        model.ground(part)
    whole = EventData(sequences, data.vocabulary)
    batch = model.collator.batch(whole, range(len(sequences)), device=device, planned=False)
    stepper = Stepper(model, 1e-3, StepOptions())
    took = []
    for number in range(1 + REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        stepper(batch, number)
        if device.type == "cuda":
            torch.cuda.synchronize()
        took.append((time.perf_counter() - wall, time.process_time() - cpu))
    rows = model.collator.plan_batch(batch).rules
    assert rows is not None and rows.plan.recurrence is not None
    return {
        "events": sum(len(one) for one in sequences),
        "sequences": len(sequences),
        "waves": sum(isinstance(step, CellUpdate) for step in rows.plan.recurrence.waves.steps),
        "dim": DIM,
        "device": given.device,
        "threads": given.threads,
        "torch": torch.__version__,
        "median_ms": ms(wall for wall, _ in took[1:]),
        "cpu_ms": ms(cpu for _, cpu in took[1:]),
        "first_ms": ms([took[0][0]]),
    }


def ms(seconds: Any) -> float:
    return round(1000.0 * statistics.median(seconds), 1)


if __name__ == "__main__":
    sys.exit(main())
