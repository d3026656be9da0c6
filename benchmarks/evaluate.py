"""The time to evaluate a whole split: log-likelihood and next type in one pass, next times by quadrature in another.

    python benchmarks/evaluate.py RUN                          # the test split of a run, on the CPU
    python benchmarks/evaluate.py RUN --data DATA --device cuda
    python benchmarks/evaluate.py --data DATA                  # an A-NHP with fresh parameters (dim 64, 2 layers)

Out: one JSON object with wall and processor seconds of each pass, nodes per event (the number of evaluations of the intensity), and the
estimated error of the predicted times. `--sequences N` evaluates an evenly spaced subset of sequences, and the output says so.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from foretell.data import EventData, load
from foretell.evaluate.likelihood import score_events
from foretell.evaluate.next_time import predict_next_times
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.train.run import RunFolder
from foretell.train.splits import in_vocabulary, load_splits

Found = TypeVar("Found")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--data", help="a data set; default: the run's own")
    parser.add_argument("--split", default="test")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sequences", type=int, help="at most so many")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if args.run is None and args.data is None:
        parser.error("give a RUN, or --data")
    torch.set_num_threads(args.threads)
    model, data = opened(args.run, args.data, args.split, args.device)
    if args.sequences is not None and args.sequences < len(data):
        data = data.select(range(0, len(data), -(-len(data) // args.sequences)))
    found = {
        "model": str(args.run or "fresh A-NHP"),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {args.threads} threads",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "sequences": len(data),
        "events": data.event_count,
        **measured(model, data),
    }
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


def opened(run: Path | None, path: str | None, split: str, device: str) -> tuple[IntensityModel, EventData]:
    if run is None:
        assert path is not None
        dataset = load(path)
        model = ANHP.preset("plain", dataset.vocabulary, dim=64, layers=2)
        train = dataset.splits().get("train") or dataset.splits()[split]
        model.prepare(train)
        return model.to(device), dataset.splits()[split]
    folder = RunFolder.open(run)
    model = folder.model(device)
    dataset = load(path) if path is not None else load_splits(folder.config().data)
    return model, in_vocabulary(dataset.splits()[split], model.vocabulary)


def measured(model: IntensityModel, data: EventData) -> dict[str, object]:
    few = data.select(range(min(8, len(data))))
    counted = Counted(model)
    with model.evaluating():
        predict_next_times(model, few), score_events(model, few)  # builds kernels and allocates memory
        scores, likelihood = timed(model, lambda: score_events(model, data))
        counted.count = 0
        times, next_times = timed(model, lambda: predict_next_times(model, data))
    fine = np.isfinite(times.predicted)
    wait = times.predicted - before(data)[: len(times.predicted)]
    return {
        "likelihood": {**likelihood, "integral": scores.used.method, "doubling": scores.used.doubling},
        "next_times": {**next_times, "nodes_an_event": counted.count / max(1, len(times.event))},
        "undefined": int((~fine).sum()),
        "off_by_of_the_wait": {
            "root_mean_square": float(np.sqrt(np.mean((times.error[fine] / wait[fine]) ** 2))),
            "median": float(np.median(times.error[fine] / wait[fine])),
        },
    }


class Counted:
    """Counts the queries at which a model computes the intensities of all types."""

    def __init__(self, model: IntensityModel) -> None:
        self.count = 0
        asked = model.intensities

        def intensities(state: torch.Tensor) -> torch.Tensor:
            self.count += state.shape[0] * state.shape[1]
            return asked(state)

        model.intensities = intensities


def before(data: EventData) -> np.ndarray:
    """Return the time of the event before each event, and 0 for the first."""
    return np.concatenate([np.concatenate([[0.0], one.times[:-1]]) for one in data if len(one)])


def timed(model: IntensityModel, work: Callable[[], Found]) -> tuple[Found, dict[str, float]]:
    wall, processor = time.perf_counter(), time.process_time()
    found = work()
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return found, {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}


if __name__ == "__main__":
    sys.exit(main())
