"""Write the event sequences that a speed benchmark trains on, all of one length.

In: optionally a `.jsonl` or `.jsonl.gz` file, one sequence per line with `times` and integer `types`; the
sequences with at least `--events` events are shuffled by the seed and cut to their first `--events`.
Without a file: a seeded draw, gaps exponential with mean 0.83, types Zipf, the most common first.
Out: an npz with `times` float64 [S, events], `types` int64 [S, events] and `source` (where from).

    python benchmarks/make_batch.py --out batch.npz [--data train.jsonl.gz] [--sequences 1024]
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MEAN_GAP = 0.83


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences of equal length; `times[s, i]` and `types[s, i]` are event `i` of sequence `s`."""

    times: np.ndarray
    types: np.ndarray
    source: str


def draw(sequences: int, events: int, types: int, seed: int) -> Batch:
    """Draw independent Poisson-like sequences: the cost of a training step does not depend on the events."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(MEAN_GAP, (sequences, events)), axis=1)
    weights = 1.0 / np.arange(1, types + 1)
    kinds = rng.choice(types, size=(sequences, events), p=weights / weights.sum())
    return Batch(times, kinds.astype(np.int64), f"synthetic, seed {seed}")


def cut(path: Path, sequences: int, events: int, types: int, seed: int) -> Batch:
    """Return at most `sequences` real sequences, each cut to its first `events` events."""
    times: list[list[float]] = []
    kinds: list[list[int]] = []
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            record: dict[str, Any] = json.loads(line)
            if len(record["times"]) < events:
                continue
            head = record["types"][:events]
            if min(head) < 0 or max(head) >= types:
                raise SystemExit(
                    f"{path.name}:{number}: types run from {min(head)} to {max(head)}, "
                    f"expected 0 to {types - 1}; pass a larger --types"
                )
            times.append(record["times"][:events])
            kinds.append(head)
    if not times:
        raise SystemExit(f"{path.name}: no sequence has {events} events; pass a smaller --events")
    chosen = np.random.default_rng(seed).permutation(len(times))[:sequences]
    source = f"{path.name}, {len(chosen)} of {len(times)} sequences with {events} events or more, seed {seed}"
    return Batch(np.array(times, np.float64)[chosen], np.array(kinds, np.int64)[chosen], source)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a batch of equally long event sequences as npz.")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.npz")
    parser.add_argument("--data", type=Path, metavar="FILE.jsonl.gz", help="real sequences; default: a draw")
    parser.add_argument("--sequences", type=int, default=1024)
    parser.add_argument("--events", type=int, default=72)
    parser.add_argument("--types", type=int, default=22)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.data is not None and not args.data.is_file():
        parser.error(f"--data {args.data}: no such file; leave --data out for synthetic sequences")
    if args.data is None:
        batch = draw(args.sequences, args.events, args.types, args.seed)
    else:
        batch = cut(args.data, args.sequences, args.events, args.types, args.seed)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    partial = args.out.with_name(args.out.name + ".partial")
    with partial.open("wb") as file:
        np.savez(file, times=batch.times, types=batch.types, source=np.array(batch.source))
    partial.replace(args.out)
    sys.stdout.write(f"{args.out}: {batch.times.shape[0]} x {batch.times.shape[1]} events ({batch.source})\n")


if __name__ == "__main__":
    main()
