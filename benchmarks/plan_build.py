"""The time to build the parts of a plan; if possible events are sampled, this happens in every training step.

    python benchmarks/plan_build.py [--merge] [--json FILE]
    python benchmarks/plan_build.py --program P.ndtt --data FOLDER --keep 8 [--split train] [--sequences 3]

Without a program, the data are the first game of RoboCup's training data: its first 400 and 950 events, and all. There is one query per gap
and one thread. Results are milliseconds of CPU time, medians of repeats: `once` is for the parts that depend on the sequence alone and are
stored, `slots` for those of every step, `merge` for making the plan from slots. A pair is a slot and an addition that it attends to.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are loaded

import argparse
import json
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretell.batches.timelines import Histories
from foretell.data import EventSequence, Vocabulary, load
from foretell.lang.program import Program
from foretell.plan.history import GroundingArrays, SlotHistory
from foretell.plan.parameters import DimensionLayout, ParameterBook
from foretell.plan.plan import make_plan
from foretell.plan.slots import slots_of_history

DIM = 32
SIZES = (400, 950, None)


def median_ms(repeats: int, function: Callable[[], Any]) -> tuple[float, Any]:
    took, made = [], None
    for _ in range(repeats):
        start = time.process_time()
        made = function()
        took.append(time.process_time() - start)
    return round(1000 * statistics.median(took), 1), made


def measure(
    known: Histories, vocabulary: Vocabulary, types: np.ndarray, times: np.ndarray, given: argparse.Namespace
) -> dict[str, Any]:
    replayed, (_, timeline) = median_ms(1, lambda: known.timeline(vocabulary, types, times))
    grounded = GroundingArrays(timeline.grounding, known.layout)
    once, history = median_ms(given.repeats, lambda: SlotHistory(grounded, timeline))
    states, rng = np.arange(1, timeline.states), np.random.default_rng(0)
    took, slots = median_ms(given.repeats, lambda: slots_of_history(history, states, given.keep, rng))
    row = {
        "events": len(types),
        "keep": given.keep,
        "replay_ms": replayed,
        "once_ms": once,
        "slots_ms": took,
        "slots": len(slots.slot_fact),
        "possible": len(slots.possible_slot),
        "proofs": len(slots.proof_instance),
        "additions": len(slots.addition_event),
        "pairs": int((slots.ask_high - slots.ask_low).sum()),
        "peak_MiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    if given.merge:
        book = ParameterBook(known.layout, DIM)
        book.read(timeline.grounding)
        merged, _ = median_ms(given.repeats, lambda: make_plan([slots], known.layout, book, torch.device("cpu")))
        row["merge_ms"] = merged
    return row


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    program = Program.named("robocup", dim=DIM) if given.program is None else Program.from_file(given.program, dim=DIM)
    dataset = load("robocup" if given.data is None else given.data)
    data = dataset.splits()[given.split]
    known = Histories(program, DimensionLayout(program, DIM))
    for sequence, size in sequences(given, list(data)):
        yield {
            "sequence": sequence.id,
            **measure(known, data.vocabulary, sequence.types[:size], sequence.times[:size], given),
        }


def sequences(given: argparse.Namespace, found: list[EventSequence]) -> list[tuple[EventSequence, int | None]]:
    if given.data is None:
        return [(found[0], size) for size in SIZES]
    return [(one, None) for one in (found if given.sequences is None else found[: given.sequences])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", default="train")
    parser.add_argument("--sequences", type=int, help="only the first so many")
    parser.add_argument("--keep", type=int, help="possible events at a query; all if not given")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--merge", action="store_true", help="also make the plan")
    parser.add_argument("--json", type=Path, help="also write the results there")
    given = parser.parse_args()
    if (given.program is None) != (given.data is None):
        parser.error("--program and --data go together")
    torch.set_num_threads(1)
    found = []
    for row in rows(given):
        found.append(row)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    if given.json is not None:
        about = {"machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__}
        given.json.write_text(json.dumps({**about, "rows": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
