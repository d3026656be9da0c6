"""Measures training steps: with the same clock, the same memory counters and the same data for every contestant.

A contestant is a script that passes `main` a function, which builds its model and batch for a case and returns a step. Out: one JSON
line per case on stdout, with the milliseconds of each step (forward + backward + update), the peak memory above that just before the
first step, and the first and last loss in nats per event.

On the CPU every case has its own process, because only the peak of a process's resident memory can be read. The parent loads neither
torch nor numpy, because on Linux a child's `ru_maxrss` starts from its parent's memory. On a GPU the allocator's counters are reset
between cases, so one process is enough.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MARK = "measured-case"  # the start of a child's result line, since its imports may print other lines
LEARNING_RATE = 1e-3


@dataclass(frozen=True, slots=True)
class Case:
    """The data of one measurement: `batch` sequences of `events` events, with `points` integration points per gap."""

    batch: int
    points: int
    events: int
    types: int
    dim: int
    layers: int


@dataclass(frozen=True, slots=True)
class Run:
    """The options of a measurement."""

    data: str
    device: str
    repeats: int
    warmup: int
    threads: int
    seed: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes above the baseline, by each counter of the device (`None`: the device lacks this counter)."""

    peak: int
    baseline: int
    by_rusage: int | None = None
    by_high_water: int | None = None
    reserved: int | None = None


def status_bytes(field: str) -> int:
    """Return one memory size of this process, such as `VmRSS` or `VmHWM`, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status: no line {field}; CPU memory is measured on Linux only")


def reset_high_water() -> bool:
    """Reset `VmHWM` to the present size; return False if the kernel does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Contestant:
    """A contestant: a step trains once and returns the loss in nats per event, as a tensor."""

    name: str
    step: Callable[[], Any]
    parameters: int


Build = Callable[[Case, Run], Contestant]


def read_batch(case: Case, path: str) -> tuple[Any, Any]:
    """Return times and types of the first `batch` sequences; if there are fewer, they are repeated."""
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        times, types = file["times"], file["types"]
    if times.shape[1] != case.events or types.min() < 0 or types.max() >= case.types:
        raise SystemExit(
            f"{path}: found {times.shape[1]} events and types {types.min()} to {types.max()}, "
            f"expected {case.events} and 0 to {case.types - 1}; see make_batch.py"
        )
    rows = np.arange(case.batch) % len(times)
    return times[rows], types[rows]


def cpu_memory(steps: Callable[[], None]) -> Memory:
    gc.collect()
    baseline = status_bytes("VmRSS")
    fresh = reset_high_water()
    steps()
    by_rusage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - baseline
    by_high_water = status_bytes("VmHWM") - baseline if fresh else None
    return Memory(by_rusage if by_high_water is None else by_high_water, baseline, by_rusage, by_high_water)


def cuda_memory(steps: Callable[[], None]) -> Memory:
    import torch

    # The matrix library keeps a workspace for each thread that calls it, from its first call on: a product
    # and its gradient put it into every case's baseline instead of the first case's peak.
    probe = torch.ones(64, 64, device="cuda", requires_grad=True)
    (probe @ probe).sum().backward()
    del probe
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    baseline = torch.cuda.memory_allocated()
    steps()
    peak = torch.cuda.max_memory_allocated() - baseline
    return Memory(peak, baseline, reserved=torch.cuda.max_memory_reserved())


def measure(case: Case, run: Run, build: Build) -> dict[str, Any]:
    import torch

    if run.threads:
        torch.set_num_threads(run.threads)
    cuda = run.device == "cuda"
    if cuda and not torch.cuda.is_available():
        raise SystemExit("--device cuda: torch finds no CUDA device; use --device cpu")
    torch.manual_seed(run.seed)
    contestant = build(case, run)
    wait: Callable[[], None] = torch.cuda.synchronize if cuda else lambda: None
    milliseconds: list[float] = []
    user: list[float] = []
    system: list[float] = []
    losses: list[float] = []

    def steps() -> None:
        for _ in range(run.warmup + run.repeats):
            wait()
            before = resource.getrusage(resource.RUSAGE_SELF)
            start = time.perf_counter()
            loss = contestant.step()
            wait()
            milliseconds.append((time.perf_counter() - start) * 1e3)
            after = resource.getrusage(resource.RUSAGE_SELF)
            user.append((after.ru_utime - before.ru_utime) * 1e3)
            system.append((after.ru_stime - before.ru_stime) * 1e3)
            losses.append(loss.item())

    memory = cuda_memory(steps) if cuda else cpu_memory(steps)
    if not all(map(math.isfinite, losses)):
        raise SystemExit(f"case {case.batch},{case.points}: a loss is not finite: {losses}")
    timed = milliseconds[run.warmup :]
    return {
        "contestant": contestant.name,
        **asdict(case),
        "median_ms": round(statistics.median(timed), 3),
        "ms": [round(value, 3) for value in timed],
        "warmup_ms": [round(value, 3) for value in milliseconds[: run.warmup]],
        # Processor time of all threads; system time is mostly memory fetched from the kernel anew.
        "median_user_ms": round(statistics.median(user[run.warmup :]), 3),
        "median_system_ms": round(statistics.median(system[run.warmup :]), 3),
        "load_average": round(os.getloadavg()[0], 2),
        "peak_bytes": memory.peak,
        "memory": asdict(memory),
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "parameters": contestant.parameters,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if cuda else cpu_name(),
        "threads": torch.get_num_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def measure_apart(case: Case, run: Run) -> dict[str, Any]:
    """Measure a case in a new process, whose memory no earlier case has used."""
    order = json.dumps({"case": asdict(case), "run": asdict(run)})
    child = subprocess.run(
        [sys.executable, sys.argv[0], "--apart", order], stdout=subprocess.PIPE, text=True, check=False
    )
    answers = [line for line in child.stdout.splitlines() if line.startswith(MARK)]
    if child.returncode or not answers:
        return {**asdict(case), "error": f"the case's process ended with status {child.returncode}"}
    return json.loads(answers[-1].removeprefix(MARK))


def measure_here(case: Case, run: Run, build: Build) -> dict[str, Any]:
    import torch

    try:
        return measure(case, run, build)
    except torch.OutOfMemoryError as error:
        return {**asdict(case), "error": str(error).splitlines()[0]}


def answer_apart(order: str, build: Build) -> None:
    request = json.loads(order)
    result = measure(Case(**request["case"]), Run(**request["run"]), build)
    sys.stdout.write(f"\n{MARK}{json.dumps(result)}\n")


def pair(text: str) -> tuple[int, int]:
    batch, points = (int(part) for part in text.split(","))
    if batch < 1 or points < 1:
        raise ValueError(text)
    return batch, points


def main(build: Build, description: str, **defaults: int) -> int:
    """Measure the cases of the command line; `defaults` replaces the default sizes for a contestant."""
    parser = argparse.ArgumentParser(description=description + "; one JSON line per case.")
    parser.add_argument("--data", metavar="FILE.npz", help="sequences, as make_batch.py writes them")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--points", type=int, default=1, help="integration points per gap")
    parser.add_argument(
        "--case",
        type=pair,
        action="append",
        metavar="BATCH,POINTS",
        help="may be repeated; instead of --batch and --points",
    )
    parser.add_argument("--events", type=int, default=72)
    parser.add_argument("--types", type=int, default=22)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="0 leaves torch's own number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--apart", help=argparse.SUPPRESS)
    parser.set_defaults(**defaults)
    args = parser.parse_args()
    if args.apart is not None:
        answer_apart(args.apart, build)
        return 0
    if args.data is None or not Path(args.data).is_file():
        parser.error(f"--data: found {args.data}, expected an npz file; make one with make_batch.py")
    if args.repeats < 1 or args.warmup < 0:
        parser.error("--repeats must be 1 or more, --warmup 0 or more")
    run = Run(args.data, args.device, args.repeats, args.warmup, args.threads, args.seed)
    failed = False
    for batch, points in args.case or [(args.batch, args.points)]:
        case = Case(batch, points, args.events, args.types, args.dim, args.layers)
        result = measure_here(case, run, build) if args.device == "cuda" else measure_apart(case, run)
        failed = failed or "error" in result
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    return int(failed)
