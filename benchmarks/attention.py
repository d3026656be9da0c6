"""Compares the two attentions, forward and backward, on a task for both: every query attends to a prefix of the events, as in A-NHP.

    python benchmarks/attention.py [--device cuda]

`prefix` (nn/attention) is used by A-NHP: each query of a sequence sees a prefix of its events, so that nothing is gathered. `range`
(nn/range_attention) is used by A-NDTT: a query may see any range of one table of keys. Results are medians of 10 after 3 warm-ups, with two
queries per gap, 72 components of keys and 32 of values. On a GPU, A-NHP uses ranges if they are faster and its fused kernels do not compute
the whole step. The last lines are eager training steps (LayerNorm, dim 32, 2 layers), with prefixes only and with A-NHP's choice.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import make_batch
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.models.attention.anhp import ANHP
from foretell.nn import attention
from foretell.nn.attention import Visible, attention_with_null, with_null
from foretell.nn.range_attention import range_attention, range_tiles
from foretell.train.step import StepOptions, Stepper

CASES = [(64, 16), (16, 72), (64, 72), (1, 400), (4, 400), (1, 1336), (4, 1336), (1, 5000)]
WIDE, DEEP, PER_GAP = 72, 32, 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    device = torch.device(given.device)
    for batch, events in CASES:
        gaps = events + 1
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(batch, gaps * PER_GAP, WIDE, generator=generator).mul_(WIDE**-0.5).to(device).requires_grad_()
        k = torch.randn(batch, events, WIDE, generator=generator).to(device).requires_grad_()
        v = torch.randn(batch, events, DEEP, generator=generator).to(device).requires_grad_()
        seen = np.repeat(np.arange(gaps), PER_GAP)
        start = np.repeat(np.arange(batch) * events, len(seen))
        tiles = range_tiles(start, start + np.tile(seen, batch), batch * events, device=device, segment=start)

        def prefix(x: Tensor = x, k: Tensor = k, v: Tensor = v) -> Tensor:
            with by_prefixes():
                return attention_with_null([x], [with_null(k)], with_null(v), Visible(None, PER_GAP))

        def ranged(x: Tensor = x, k: Tensor = k, v: Tensor = v, tiles=tiles) -> Tensor:
            return range_attention(x.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), tiles).view(*x.shape[:2], -1)

        far = float((prefix() - ranged()).abs().max().detach())
        times = [milliseconds(function, [x, k, v], device) for function in (prefix, ranged)]
        sys.stdout.write(
            f"{batch:>3} × {events:>5,} events: prefix {times[0]:8.2f} ms  range {times[1]:8.2f} ms"
            f"  range / prefix {times[1] / times[0]:5.2f}  (largest difference {far:.1e})\n"
        )
        sys.stdout.flush()
    if device.type == "cuda":
        for batch, events in CASES:
            with by_prefixes():
                prefixes = step_milliseconds(batch, events, device)
            by_default = step_milliseconds(batch, events, device)
            sys.stdout.write(
                f"{batch:>3} × {events:>5,} events: a step of A-NHP by prefixes {prefixes:8.2f} ms  by default {by_default:8.2f} ms"
                f"  {by_default / prefixes:5.2f}\n"
            )
    return 0


@contextmanager
def by_prefixes() -> Iterator[None]:
    """Context in which attention to prefixes does not use ranges, even on a GPU."""
    kept = attention._ranges_win
    attention._ranges_win = lambda *_: False
    try:
        yield
    finally:
        attention._ranges_win = kept


def step_milliseconds(batch: int, events: int, device: torch.device) -> float:
    rng = np.random.default_rng(0)
    sequences = [
        EventSequence(np.sort(rng.uniform(0.0, events, events)), rng.integers(0, 20, events), float(events), str(row))
        for row in range(batch)
    ]
    data = EventData(sequences, Vocabulary.of_size(20), "window", "drawn")
    model = ANHP.preset("plain", data.vocabulary, dim=32, layers=2, layer_norm=True)
    model.prepare(data)
    stepper = Stepper(model.to(device), 1e-3, StepOptions(points=PER_GAP - 1, capture=False))
    there = make_batch(data, range(batch), device=device)
    took = []
    for number in range(13):
        torch.cuda.synchronize()
        began = time.perf_counter()
        stepper(there, number)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took[3:])


def milliseconds(function: Callable[[], Tensor], inputs: list[Tensor], device: torch.device) -> float:
    took = []
    for _ in range(13):
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        torch.autograd.grad(function().square().sum(), inputs)
        if device.type == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took[3:])


if __name__ == "__main__":
    sys.exit(main())
