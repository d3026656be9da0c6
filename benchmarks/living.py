"""The cost of an event while many additions are alive: `python benchmarks/living.py [--out FILE]`.

Every event adds a new fact, which lives for the duration of `living` events; so after the first `living` events, one addition expires per
event. The cost is the CPU time of this process: the time of replaying `living` events is subtracted from that of `EVENTS` more.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.ground.chunk import ReplayOptions, replay_chunk
from foretell.ground.engine import Engine
from foretell.lang.program import Program

EVENTS = 30_000
SIZES = (1_000, 10_000, 100_000)
RULES = ":- exogenous(login). :- embed(_, 0). session(U) <- login(U) for {}."


def seconds(program: Program, vocabulary: Vocabulary, events: int) -> float:
    times, types = np.arange(events) + 0.5, np.arange(events, dtype=np.int32)
    data = EventData([EventSequence(times, types, float(events), "s")], vocabulary)
    start = time.process_time()
    replay_chunk(Engine(program), data, ReplayOptions())
    return time.process_time() - start


def measure(living: int) -> dict[str, float]:
    program = Program.from_text(RULES.format(living))
    vocabulary = Vocabulary(tuple(f"login(u{number})" for number in range(living + EVENTS)))
    few, many = (seconds(program, vocabulary, events) for events in (living, living + EVENTS))
    return {"living": living, "us_per_event": round((many - few) / EVENTS * 1e6, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = [measure(living) for living in SIZES]
    text = "".join(json.dumps(one) + "\n" for one in found)
    sys.stdout.write(text)
    if args.out is not None:
        args.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
