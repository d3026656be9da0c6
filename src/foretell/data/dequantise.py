"""Dequantisation: times on a grid, such as whole seconds, are spread uniformly within the grid's spacing.

If many times are equal or lie on a grid, a density can grow without bound there, and log-likelihoods mean little. Times are spread
with a fixed seed, so that all models get the same data. The order of events is kept.
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
)  # longest tested gap (in smallest gaps), least share of tested gaps, tolerance (in smallest gaps)


@dataclass(frozen=True)
class SpreadData:
    """The result of `dequantise`: the grid's spacing, the share of gaps that were 0, and the new data."""

    grid: float | None  # None: there is no grid, and there are no ties
    ties: float
    data: EventData


def grid_of(data: EventData) -> float | None:
    """Return the spacing of a grid on which almost all times lie: the smallest gap if other gaps are multiples of it, or a decimal number.

    Without such a grid, it is the smallest positive gap if there are ties, else None.
    """
    gaps = _gaps(data)
    positive = gaps[gaps > 0.0]
    if not len(positive):
        return 1.0 if len(gaps) else None
    smallest = float(positive.min())
    near = (
        positive[positive < NEAR * smallest] / smallest
    )  # only short gaps, since rounding makes long ones inexact multiples
    if len(near) >= FEW * len(positive) and (np.abs(near - np.round(near)) < OFF).mean() >= ON_A_GRID:
        return smallest
    found = next((spacing for spacing, share in grid_shares(data.columns.times) if share >= ON_A_GRID), None)
    if found is not None:
        return found
    return smallest if len(positive) < len(gaps) else None


def dequantise(data: EventData, grid: float | None = None, seed: int = 0) -> SpreadData:
    """Replace each time `t` by `t + grid·U`, with `U` uniform on [0, 1). Within a tie, the draws are sorted.

    A first event at time 0 (`origin = "first-event"`) stays at 0. With `grid=None`, the grid is that of the data.
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
    # Sort the draws within ties: a sort by time, then draw, does not change the times.
    times = sequence.times + grid * share[np.lexsort((share, sequence.times))]
    times = np.maximum.accumulate(times)  # keeps times in order that do not lie on the grid
    end = max(sequence.t_end, float(times[-1])) if len(times) else sequence.t_end
    return replace(sequence, times=times, t_end=end)
