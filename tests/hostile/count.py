"""Many hostile cases, in turns over their kinds, with what came of them written down: `python -m tests.hostile.count RECORD --seconds 400`.

Each call goes on behind the seeds that the record has. A line of the record is a block of seeds of one kind: how many were read and
refused, what was wrong, the slowest case, and the largest memory of the process.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tests.hostile import commands, described
from tests.hostile.cases import KINDS, outcome

FIRST = 100_000  # the tests have the seeds below
WHOLE = {*commands.KINDS, *described.KINDS}
BLOCKS = {kind: 50 if kind in WHOLE else 250 for kind in KINDS}  # a whole command takes longer than reading a file
FINE = ("read", "refused")


def block(kind: str, first: int, last: int) -> dict[str, Any]:
    """Cases of one kind, and what came of them."""
    counts: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    slowest = (0.0, first)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            began = time.process_time()
            said = outcome(kind, seed, Path(folder))
            slowest = max(slowest, (time.process_time() - began, seed))
            counts[said.partition(":")[0]] += 1
            wrong += [] if said in FINE else [f"{seed}: {said}"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "kind": kind,
        "first": first,
        "last": last,
        **dict(counts),
        "wrong": wrong,
        "slowest_seconds": round(slowest[0], 3),
        "slowest_seed": slowest[1],
        "process_mib": round(memory),
        "date": time.strftime("%Y-%m-%d"),
    }


def lines_of(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


def goes_on(record: Path) -> dict[str, int]:
    """The first seed of each kind that is not written down yet."""
    at = dict.fromkeys(KINDS, FIRST)
    for line in lines_of(record):
        at[line["kind"]] = max(at[line["kind"]], line["last"])
    return at


def summary(record: Path) -> dict[str, Any]:
    """Per kind and over all: cases, what came of them, the slowest, and the largest memory."""
    kinds: dict[str, dict[str, Any]] = {}
    for line in lines_of(record):
        one = kinds.setdefault(
            line["kind"], {"cases": 0, "read": 0, "refused": 0, "wrong": 0, "slowest_seconds": 0.0, "process_mib": 0}
        )
        one["cases"] += line["last"] - line["first"]
        for name in FINE:
            one[name] += line.get(name, 0)
        one["wrong"] += len(line["wrong"])
        for name in ("slowest_seconds", "process_mib"):
            one[name] = max(one[name], line[name])
    return {
        "cases": sum(one["cases"] for one in kinds.values()),
        "wrong": sum(one["wrong"] for one in kinds.values()),
        "kinds": kinds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("record", type=Path)
    parser.add_argument("--seconds", type=float, default=400.0, help="after which no block begins")
    parser.add_argument("--most", type=int, default=8_000, help="cases of a kind that reads")
    parser.add_argument("--most-commands", type=int, default=2_000, help="cases of a kind that runs commands")
    parser.add_argument("--summary", action="store_true", help="only print the figures of the record")
    given = parser.parse_args()
    if given.summary:
        sys.stdout.write(json.dumps(summary(given.record), indent=1) + "\n")
        return
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)  # processor time is that of all threads
    began = time.monotonic()
    while time.monotonic() - began < given.seconds:
        at = goes_on(given.record)
        goals = {kind: given.most_commands if kind in WHOLE else given.most for kind in KINDS}
        open_ones = [kind for kind in KINDS if at[kind] - FIRST < goals[kind]]
        if not open_ones:
            break
        kind = min(open_ones, key=lambda one: (at[one] - FIRST) / goals[one])
        found = block(kind, at[kind], at[kind] + BLOCKS[kind])
        with given.record.open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
