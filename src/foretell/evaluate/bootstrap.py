"""95 % intervals by resampling: whole sequences where there are enough of them, else blocks of consecutive events.

In: for every unit (sequence or event) sums and counts of each metric. Out: percentile intervals. Where an integral was drawn at random,
each replicate draws that part anew: a normal with the variance of the draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ENOUGH_SEQUENCES = 20
REPLICATES = 1000
LOW, HIGH = 2.5, 97.5


@dataclass(frozen=True)
class Estimate:
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Resampling:
    """How often each unit is in each replicate, and in words how that was done."""

    weights: np.ndarray  # [replicates, units]
    unit: str  # "sequences" or "events"
    block: int | None

    def describe(self) -> str:
        if self.unit == "sequences":
            return f"{REPLICATES} bootstrap replicates over sequences"
        return f"{REPLICATES} bootstrap replicates over blocks of {self.block} consecutive events"


def resample_sequences(count: int, rng: np.random.Generator) -> Resampling:
    weights = rng.multinomial(count, np.full(count, 1.0 / count), size=REPLICATES)
    return Resampling(weights.astype(np.float64), "sequences", None)


def resample_blocks(sequence_of_event: np.ndarray, rng: np.random.Generator) -> Resampling:
    """Blocks of about the cube root of the number of events, within one sequence, wrapping around its end."""
    count = len(sequence_of_event)
    block = max(1, round(count ** (1.0 / 3.0)))
    weights = np.zeros((REPLICATES, count))
    starts = np.flatnonzero(np.r_[True, sequence_of_event[1:] != sequence_of_event[:-1]])
    first = np.repeat(starts, np.diff(np.r_[starts, count]))
    length = np.repeat(np.diff(np.r_[starts, count]), np.diff(np.r_[starts, count]))
    for replicate in weights:
        begin = rng.integers(count, size=-(-count // block))
        place = begin[:, None] + np.arange(block)
        wrapped = first[begin][:, None] + (place - first[begin][:, None]) % length[begin][:, None]
        np.add.at(replicate, wrapped.ravel()[:count], 1.0)
    return Resampling(weights, "events", block)


def mean_estimate(
    sums: np.ndarray,
    counts: np.ndarray,
    resampling: Resampling,
    rng: np.random.Generator,
    *,
    variances: np.ndarray | None = None,
    root: bool = False,
) -> Estimate:
    """`Σ sums / Σ counts` with its interval; with `root`, its square root (an RMSE from squared errors)."""
    if counts.sum() == 0:
        return Estimate(float("nan"), float("nan"), float("nan"))
    top = resampling.weights @ sums
    if variances is not None and variances.any():
        top = top + np.sqrt(resampling.weights @ variances) * rng.standard_normal(len(top))
    below = resampling.weights @ counts
    replicates = top[below > 0] / below[below > 0]
    value = sums.sum() / counts.sum()
    if root:
        value, replicates = np.sqrt(value), np.sqrt(np.maximum(replicates, 0.0))
    low, high = np.percentile(replicates, [LOW, HIGH])
    return Estimate(float(value), float(low), float(high))
