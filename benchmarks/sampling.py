"""Compares exact sampling from a trained A-NHP with EasyTPP's thinning, measured in turns in one run.

    foretell train experiments/stackoverflow/config.toml --data DATA/stackoverflow --out RUN
    python benchmarks/sampling.py RUN DATA/stackoverflow --rival RIVAL/bin/python

It draws next events of one history (the test sequence whose length is nearest to 72), and whole futures. RIVAL is an environment with
`easy_tpp`; without it, only our sampler is timed. Out: lines of text, and one JSON object with `--out`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch

from foretell.data import EventSequence, load
from foretell.models.attention.anhp import ANHP
from foretell.sampling.core.futures import sample_futures, sample_next
from foretell.train.run import RunFolder
from foretell.train.splits import in_vocabulary

LENGTH = 72


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("data")
    parser.add_argument("--rival", type=Path, help="a Python with easy_tpp")
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--rival-draws", type=int, default=8, help="independent ones that are timed")
    parser.add_argument("--futures", type=int, default=100)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="calls of a side in its turn, whose median counts")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = RunFolder.open(given.run).model(given.device)
    assert isinstance(model, ANHP)
    splits = load(given.data).splits()
    test = in_vocabulary(splits["test"], model.vocabulary)
    history = test[int(np.argmin(np.abs(test.lengths - LENGTH)))]
    ours, shared, independent = [], [], []
    for number in range(given.rounds):
        took = []
        for repeat in range(1 + given.repeats):
            began = time.perf_counter()
            (found,) = sample_next(model, [history], n=given.draws, horizon=50.0, seed=100 * number + repeat)
            took.append(time.perf_counter() - began)
        ours.append(statistics.median(took[1:]))  # the first is not timed, on neither side
        if given.rival is not None:
            shared.append(rival(given, model, history, ["--shared", str(given.draws), "--repeats", str(given.repeats)]))
            independent.append(rival(given, model, history, ["--independent", str(given.rival_draws)]))
    result: dict[str, Any] = {
        "history": len(history),
        "draws": given.draws,
        "ours_seconds": statistics.median(ours),
        "cost_next": vars(found.cost),
    }
    say(f"{given.draws:,} next events of {len(history)} events: ours {result['ours_seconds']:.3f} s, {found.cost}")
    if given.rival is not None:
        each = statistics.median(independent)
        result |= {"rival_seconds_a_draw": each, "rival_shared_seconds": statistics.median(shared) * given.draws}
        whole, one = each * given.draws, result["rival_shared_seconds"]
        say(
            f"EasyTPP: independent draws {each:.3f} s each, {whole:,.0f} s for as many: {whole / result['ours_seconds']:,.0f} times ours"
        )
        say(
            f"EasyTPP: draws that share 500 proposals {one:.2f} s in all: {one / result['ours_seconds']:.1f} times ours"
        )
    began = time.perf_counter()
    (futures,) = sample_futures(model, [history], n=given.futures, events=given.events, horizon=1e9)
    cost = futures.cost
    result |= {
        "futures": given.futures,
        "events": given.events,
        "futures_seconds": time.perf_counter() - began,
        "cost_futures": vars(cost),
        "proposals_and_bounds_an_event": (cost.proposals + cost.bounds) / cost.accepted,
    }
    say(
        f"{given.futures} futures of {given.events} events: {result['futures_seconds']:.1f} s, "
        f"{result['proposals_and_bounds_an_event']:.2f} proposals and bounds per event, {cost}"
    )
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def rival(given: argparse.Namespace, model: ANHP, history: EventSequence, how: list[str]) -> float:
    """Return the seconds per draw."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.npz"
        np.savez(path, times=history.times, types=history.types)
        sizes = ["--types", model.types, "--dim", model.dim, "--layers", model.layers, "--threads", given.threads]
        command = [given.rival, Path(__file__).with_name("rival_thinning.py"), "--history", path, *sizes, *how]
        done = subprocess.run([str(one) for one in command], check=True, capture_output=True, text=True)
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return told["seconds"] / told["draws"]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
