"""Runs the same benchmarks in turns in two checkouts of foretell, to compare the speed and memory of an old and a new version.

    python benchmarks/two_trees.py OLD NEW --rounds 5 --out FILE
    python benchmarks/two_trees.py OLD NEW --device cuda --only anhp andtt
    python benchmarks/two_trees.py OLD NEW --only sampling sampling_andtt --data DATA/stackoverflow --anhp RUN --andtt RUN

Each measurement is a separate process, with the checkout's own scripts and sources; the checkouts take turns to begin a round. The table
shows medians over rounds and new / old. Runs must have a format that both checkouts can read. `--out` stores every measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRICS = {
    "median_ms",
    "median_user_ms",
    "cpu_ms",
    "captured_ms",
    "plan_ms",
    "peak_bytes",
    "peak_mib",
    "ours_seconds",
    "futures_seconds",
}
METRICS |= {"seconds", "cpu_seconds", "seconds_a_event", "two_over_one", "peak_MiB"}
RATES = {"events_a_second"}


@dataclass(frozen=True)
class Case:
    name: str
    script: str
    arguments: tuple[str, ...]
    out: str | None  # the flag that names a file for results; None: JSON on standard output


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--only", nargs="*", help="anhp, andtt, replay, sampling, sampling_andtt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--anhp", help="a run of A-NHP, for sampling")
    parser.add_argument("--andtt", help="a run of A-NDTT, for sampling_andtt")
    parser.add_argument("--data", help="the data of the A-NHP's run")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    every: list[dict[str, Any]] = []
    sys.stdout.write(f"{'case':32} {'metric':18} {'old':>10} {'new':>10} {'new/old':>8}\n")
    for case in cases(args):
        found: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
        for number in range(args.rounds):
            sides = [("old", args.old), ("new", args.new)]
            for side, tree in sides if number % 2 == 0 else reversed(sides):
                one = measured(case, tree.resolve())
                found[side].append(one)
                every.append({"case": case.name, "side": side, "round": number, **one})
        show(case.name, found)
        if args.out is not None:
            args.out.write_text("".join(json.dumps(one) + "\n" for one in every), encoding="utf-8")
    return 0


def cases(args: argparse.Namespace) -> Iterator[Case]:
    device = ("--device", args.device)
    wanted = args.only or ("anhp", "andtt", "replay", "sampling", "sampling_andtt")
    if "anhp" in wanted:
        sizes = (
            ("16,1", "64,1", "16,20")
            if args.device == "cpu"
            else ("16,1", "64,1", "256,1", "1024,1", "16,20", "64,20", "256,20")
        )
        for size in sizes:
            repeats = ("--rounds", "1", "--repeats", "15")
            yield Case(f"anhp {size}", "anhp.py", ("--case", size, *repeats, *device), "--out")
    if "andtt" in wanted:
        for size in ("400,1", "950,2", "game,2", "games,2"):
            yield Case(f"andtt {size}", "andtt.py", ("--case", size, *device), "--out")
    if "replay" in wanted and args.device == "cpu":
        yield Case("replay", "replay.py", (), "--json")
    if "sampling" in wanted and args.anhp:
        yield Case(
            "sampling", "sampling.py", (args.anhp, args.data, "--futures", "20", "--events", "20", *device), "--out"
        )
    if "sampling_andtt" in wanted and args.andtt:
        yield Case("sampling_andtt", "sampling_andtt.py", (args.andtt, *device), None)


def measured(case: Case, tree: Path) -> dict[str, float]:
    """Return all times and sizes of one run, by their places in the result."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [sys.executable, str(tree / "benchmarks" / case.script), *case.arguments]
        command += [] if case.out is None else [case.out, str(path)]
        extra = os.environ.get("PYTHONPATH_EXTRA", "")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(tree / "src"), extra]))}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{case.name} in {tree}: {done.stderr[-2000:]}")
        text = done.stdout if case.out is None else path.read_text(encoding="utf-8")
    try:
        results = [json.loads(text)]
    except json.JSONDecodeError:
        results = [json.loads(line) for line in text.splitlines()]
    return dict(pair for result in results for pair in numbers(result, ""))


def numbers(result: dict[str, Any], place: str) -> Iterator[tuple[str, float]]:
    for key, value in result.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{place}{key}: ")
        elif isinstance(value, int | float) and (key in METRICS or key.endswith(", seconds")):
            yield f"{place}{key}", float(value)
        elif key in RATES:
            yield f"{place}1 / {key}", 1.0 / value


def show(name: str, found: dict[str, list[dict[str, float]]]) -> None:
    for metric in found["old"][0]:
        old, new = (statistics.median(one[metric] for one in found[side]) for side in ("old", "new"))
        if metric in found["new"][0] and old > 0.0:
            sys.stdout.write(f"{name:32} {metric[-18:]:18} {old:10.4g} {new:10.4g} {new / old:8.3f}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
