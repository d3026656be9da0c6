"""The cost of a training step of our S2P2 by the length of a sequence: prints a table, and `--out FILE` writes raw numbers as JSON lines.

    OMP_WAIT_POLICY=passive python benchmarks/s2p2_lengths.py --length 100 --length 1000
    python benchmarks/s2p2_lengths.py --device cuda --dim 128 --layers 4 --points 10

The data are random events of 22 types. A step is that of the training loop, not captured on CUDA: new integration times, forward, backward,
Adam.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

LENGTHS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
TYPES = 22


def measured(length: int, args: argparse.Namespace) -> dict[str, Any]:
    import numpy as np
    import torch

    from foretell.batches.batch import make_batch
    from foretell.data import EventData, EventSequence, Vocabulary
    from foretell.models.state_space.s2p2 import S2P2
    from foretell.train.step import StepOptions, Stepper

    random = np.random.default_rng(length)
    times = random.exponential(1.0, length).cumsum()
    sequence = EventSequence(times, random.integers(0, TYPES, length), float(times[-1]), "long")
    data = EventData([sequence], Vocabulary.of_size(TYPES), "window", "one")
    model = S2P2(data.vocabulary, dim=args.dim, layers=args.layers, states=args.states)
    model.prepare(data)
    model.to(args.device)
    stepper = Stepper(model, 1e-3, StepOptions(points=args.points, capture=False))
    batch = make_batch(data, [0], device=args.device)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    milliseconds = []
    for number in range(args.warmup + args.repeats):
        wait()
        start = time.perf_counter()
        stepper(batch, number)
        wait()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    return {
        "events": length,
        "median_ms": statistics.median(milliseconds[args.warmup :]),
        "ms": milliseconds[args.warmup :],
        **{name: getattr(args, name) for name in ("dim", "layers", "states", "points", "device")},
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, action="append", help="events; may be repeated")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--states", type=int, default=16)
    parser.add_argument("--points", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = []
    for length in args.length or LENGTHS:
        found.append(measured(length, args))
        ms = found[-1]["median_ms"]
        sys.stdout.write(f"{length:>8} events  {ms:10.2f} ms  {1e3 * ms / length:8.2f} us per event\n")
        sys.stdout.flush()
    if args.out is not None:
        args.out.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
