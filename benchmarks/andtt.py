"""A training step of A-NDTT: RoboCup's shipped program on the first game of its training data, and on all four games together.

    python benchmarks/andtt.py [--device cuda] [--threads 2] [--preset default] [--out FILE]

A step is forward, backward and Adam, with new integration times in every step. Replaying the game is not included; building the plan is
listed separately. Results are medians of 10 steps after 3 warm-up steps. `redraw` is the time to draw new times and to put them into the
plan. On a CPU each case has its own process, and memory is the peak of that process, including Python, torch and the data. On a GPU each
case is measured step by step (eager) and as a captured graph, and memory is the allocator's. `OMP_WAIT_POLICY=passive` is set, as the
command line does: on a busy machine, threads that spin while they wait slow it down. `--preset default` measures the default A-NDTT, with
the mixture over time scales; without it, the paper's equations (`plain`) are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

REPEATS, WARMUP, DIM = 10, 3, 32
CASES = [("400", 1), ("800", 1), ("400", 2), ("950", 2), ("game", 2), ("games", 2)]
COLUMNS = {"median_ms": "step", "cpu_ms": "CPU time", "captured_ms": "captured", "launches": "launches"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", action="append", help="EVENTS,LAYERS; EVENTS may be `game` or `games`")
    parser.add_argument("--preset", choices=("plain", "default"), default="plain")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = [(one.split(",")[0], int(one.split(",")[1])) for one in given.case] if given.case else CASES
    found = []
    for events, layers in chosen:
        if given.device == "cpu" and len(chosen) > 1:
            command = [sys.executable, __file__, "--threads", str(given.threads), "--case", f"{events},{layers}"]
            command += ["--preset", given.preset]
            line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            one = json.loads(line)
        else:
            one = measured(events, layers, given)
        found.append(one)
        if len(chosen) > 1:
            sys.stdout.write(shown(one) + "\n")
        else:
            sys.stdout.write(json.dumps(one) + "\n")
        sys.stdout.flush()
    if given.out:
        given.out.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    return 0


def shown(one: dict[str, Any]) -> str:
    parts = [f"{one['events']:>6,} events, {one['sequences']} sequence(s), {one['layers']} layer(s):"]
    parts += [
        f"{title} {one[key]:,}" + (" ms" if key.endswith("ms") else "") for key, title in COLUMNS.items() if key in one
    ]
    parts += [f"plan {one['plan_ms']} ms", f"redraw {one['redraw_ms']} ms", f"memory {one['peak_mib']:,} MiB"]
    return "  ".join(parts)


def measured(events: str, layers: int, given: argparse.Namespace) -> dict[str, Any]:
    import torch

    import foretell as ft
    from foretell.batches.batch import Batch
    from foretell.data import EventData, EventSequence
    from foretell.lang.program import Program
    from foretell.models.rules.andtt import ANDTT
    from foretell.objective.loglik import stratified
    from foretell.train.step import StepOptions, Stepper

    torch.set_num_threads(given.threads)
    device = torch.device(given.device)
    data = ft.load("robocup")
    games = [*data.train, *data.dev, *data.test] if events == "games" else [data.train[0]]
    sequences = [
        EventSequence(one.times, one.types, one.t_end, str(place))
        if events.startswith("game")
        else EventSequence(
            one.times[: int(events)], one.types[: int(events)], float(one.times[int(events)]), str(place)
        )
        for place, one in enumerate(games)
    ]

    def fresh() -> ANDTT:
        program, sizes = Program.named("robocup", dim=DIM), {"dim": DIM, "layers": layers}
        if given.preset == "plain":
            made = ANDTT.preset("plain", program, data.vocabulary, **sizes)
        else:
            made = ANDTT(program, data.vocabulary, **sizes)
        made.prepare(data.train)
        return made.to(device)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def timed(function: Callable[[], Any]) -> tuple[float, float]:
        wait()
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        wait()
        return time.perf_counter() - wall, time.process_time() - cpu

    def batched(model: ANDTT) -> Batch:
        return model.collator.batch(EventData(sequences, data.vocabulary), range(len(sequences)), device=device)

    model = fresh()
    batch = batched(model)
    points = stratified(batch, 1, torch.Generator(device).manual_seed(0))
    model.collator.plan_queries(batch, points.queries)  # the plan is built again below
    builds = []
    for _ in range(REPEATS):
        model.collator.plans.clear()
        model.histories._slots.clear()
        builds.append(timed(lambda: model.collator.plan_queries(batch, points.queries))[0])
    planned = model.collator.plan_queries(batch, points.queries).plan
    generator = torch.Generator(device)

    def redraw() -> None:
        drawn = stratified(batch, 1, generator).queries.times
        times = torch.cat([batch.times.new_zeros(1), batch.times.flatten(), drawn.flatten()])
        times.index_select(0, planned.source)

    redraws = [timed(redraw)[0] for _ in range(REPEATS + WARMUP)][WARMUP:]
    found: dict[str, Any] = {"events": sum(len(one) for one in sequences), "sequences": len(sequences)}
    found |= {
        "preset": given.preset,
        "layers": layers,
        "dim": DIM,
        "device": given.device,
        "torch": torch.__version__,
        **planned.plan.sizes(),
    }
    for capture in (False, True) if device.type == "cuda" else (False,):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        trained = fresh() if capture else model
        batch = batched(trained)
        stepper = Stepper(trained, 1e-3, StepOptions(capture=capture))
        took = [timed(partial(stepper, batch, number)) for number in range(REPEATS + WARMUP)][WARMUP:]
        found["captured_ms" if capture else "median_ms"] = ms([wall for wall, _ in took])
        if device.type == "cpu":
            found["cpu_ms"], found["threads"] = ms([cpu for _, cpu in took]), given.threads
        elif not capture:
            found["launches"] = launches(partial(stepper, batch, 99))
    found |= {"plan_ms": ms(builds), "redraw_ms": ms(redraws)}
    peak = (
        torch.cuda.max_memory_allocated()
        if device.type == "cuda"
        else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    )
    return found | {"peak_mib": peak >> 20}


def launches(function: Callable[[], Any]) -> int:
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        function()
        torch.cuda.synchronize()
    return sum(one.device_type == DeviceType.CUDA for one in seen.events())


def ms(seconds: list[float]) -> float:
    return round(1000 * statistics.median(seconds), 2)


if __name__ == "__main__":
    sys.exit(main())
