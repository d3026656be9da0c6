"""The time to sample from a model of rules, whose database changes with every event.

    python benchmarks/sampling_andtt.py RUN                    # one future of 500 events from the beginning
    python benchmarks/sampling_andtt.py RUN --futures 100 --events 100 --start 1500

RUN is the run of an A-NDTT, as written by `foretell train experiments/robocup/andtt.toml`. Out: one JSON object with wall and processor
seconds, the time per event, and the counts of thinning per event.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import torch

from foretell.sampling.core.futures import sample_futures
from foretell.train.run import RunFolder
from foretell.train.splits import in_vocabulary, load_splits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--events", type=int, default=500, help="of each future")
    parser.add_argument("--futures", type=int, default=1)
    parser.add_argument(
        "--start", type=float, default=0.0, help="events of the first test sequence up to then are history"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = RunFolder.open(args.run)
    model = folder.model(args.device)
    history = in_vocabulary(load_splits(folder.config().data).splits()["test"], model.vocabulary)[0]
    wall, processor = time.perf_counter(), time.process_time()
    (found,) = sample_futures(
        model, [history], horizon=1e3 * history.t_end, n=args.futures, events=args.events, start=args.start
    )
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    events = sum(len(one.events) for one in found.futures)
    cost = found.cost
    result = {
        "run": str(args.run),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {args.threads} threads",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "futures": args.futures,
        "events": events,
        "seconds": wall,
        "processor_seconds": processor,
        "ms_an_event": 1e3 * wall / events,
        "proposals_and_bounds_an_event": (cost.proposals + cost.bounds) / max(cost.accepted, 1),
        "pieces_an_event": cost.pieces / max(cost.accepted, 1),
    }
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
