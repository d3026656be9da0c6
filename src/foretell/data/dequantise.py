"""Times on a grid, such as whole seconds, spread evenly within it.

If many times are equal or lie on a grid, a density there is unbounded, and a log-likelihood means little. Times are spread with a
fixed seed, so that all models get the same data; the order of events is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretell.data.dataset import ON_A_GRID, EventData, grid_shares
from foretell.data.sequence import EventSequence

NEAR, FEW, OFF = (
    100.0,
    0.05,
    0.02,
)  # how many multiples are looked at, how many gaps they must be, and how far off a multiple may be


@dataclass(frozen=True)
class SpreadData:
    """The result: the grid, the share of gaps that were 0, and the data."""

    grid: float | None  # None: times lie on no grid, and none are equal
    ties: float
    data: EventData


def grid_of(data: EventData) -> float | None:
    """The spacing that almost all times have: the smallest gap, if others are multiples of it, or a decimal one.

    If there is neither but some times are equal, the smallest positive gap.
    """
    gaps = _gaps(data)
    positive = gaps[gaps > 0.0]
    if not len(positive):
        return 1.0 if len(gaps) else None
    smallest = float(positive.min())
    near = (
        positive[positive < NEAR * smallest] / smallest
    )  # rounded times are no exact multiples of it, least of all far away
    if len(near) >= FEW * len(positive) and (np.abs(near - np.round(near)) < OFF).mean() >= ON_A_GRID:
        return smallest
    found = next((spacing for spacing, share in grid_shares(data.columns.times) if share >= ON_A_GRID), None)
    if found is not None:
        return found
    return smallest if len(positive) < len(gaps) else None


def dequantise(data: EventData, grid: float | None = None, seed: int = 0) -> SpreadData:
    """Every time `t` becomes `t + grid·U` with `U` uniform on [0, 1), in order among equal times.

    A first event that is given (`origin = "first-event"`) stays at 0. The grid is that of the data, unless one is given.
    """
    grid = grid_of(data) if grid is None else grid
    gaps = _gaps(data)
    ties = float((gaps == 0.0).mean()) if len(gaps) else 0.0
    if grid is None:
        return SpreadData(None, ties, data)
    random = np.random.default_rng(seed)
    moved = [_spread(one, grid, random, data.origin == "first-event") for one in data]
    return SpreadData(grid, ties, replace(data, sequences=moved, report=None))


def _gaps(data: EventData) -> np.ndarray:
    found = [np.diff(one.times) for one in data]
    return np.concatenate(found) if found else np.empty(0)


def _spread(sequence: EventSequence, grid: float, random: np.random.Generator, given_first: bool) -> EventSequence:
    share = random.random(len(sequence))
    if given_first:
        share[:1] = 0.0
    # Shares in order within equal times: sort by time, then share, which leaves times as they are.
    times = sequence.times + grid * share[np.lexsort((share, sequence.times))]
    times = np.maximum.accumulate(times)  # times that lie off the grid stay in order, too
    end = max(sequence.t_end, float(times[-1])) if len(times) else sequence.t_end
    return replace(sequence, times=times, t_end=end)
