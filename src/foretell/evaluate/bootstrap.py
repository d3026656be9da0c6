"""95 % intervals by resampling: whole sequences if there are enough, else blocks of consecutive events.

In: the sum and count of each metric for every unit (sequence or event). Out: percentile intervals. If a metric was estimated from random
draws (of an integral, or of futures), normal noise with the variance of the draws is added to each replicate. The count of each unit in
each replicate is recomputed from the seed when needed, some replicates at a time, so memory does not grow with the number of replicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

ENOUGH_SEQUENCES = 20
REPLICATES = 1000
LOW, HIGH = 2.5, 97.5
AT_A_TIME = 1 << 22  # number of weights in memory at a time


@dataclass(frozen=True)
class Estimate:
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def clipped(self, least: float, most: float) -> Estimate:
        """Return the estimate with its interval cut to [`least`, `most`]."""
        return Estimate(self.value, max(self.low, least), min(self.high, most))


NOTHING = Estimate(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Ratio:
    """A score `Σ sums / Σ counts` over units, or with `root` its square root (an RMSE from squared errors)."""

    sums: np.ndarray  # [units]
    counts: np.ndarray  # [units]
    variances: np.ndarray | None = None  # of `sums`, if random draws estimated a part of them
    root: bool = False

    @property
    def value(self) -> float:
        counts = self.counts.sum()
        if counts == 0:
            return float("nan")
        found = self.sums.sum() / counts
        return float(np.sqrt(found) if self.root else found)


@dataclass(frozen=True)
class Resampling:
    """How bootstrap replicates are drawn from units."""

    units: int
    unit: str  # "sequences" or "events"
    block: int | None
    seed: int
    first: np.ndarray | None = None  # for blocks: the index of the first event of each event's sequence …
    length: np.ndarray | None = None  # … and the number of events of that sequence

    def describe(self) -> str:
        if self.unit == "sequences":
            return f"{REPLICATES} bootstrap replicates over sequences"
        return f"{REPLICATES} bootstrap replicates over blocks of {self.block} consecutive events"

    def parts(self) -> Iterator[np.ndarray]:
        """Yield how often each unit is in each replicate, some at a time: [replicates, units]. The split changes no number."""
        if self.units * REPLICATES <= AT_A_TIME:
            yield self.weights
        else:
            yield from self._drawn(max(1, AT_A_TIME // self.units))

    @cached_property
    def weights(self) -> np.ndarray:
        """Return how often each unit is in each replicate: [all replicates, units]. For small data."""
        return np.concatenate(list(self._drawn(REPLICATES)))

    def _drawn(self, rows: int) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(self.seed)
        for done in range(0, REPLICATES, rows):
            count = min(rows, REPLICATES - done)
            if self.block is None:
                even = np.full(self.units, 1.0 / max(self.units, 1))
                yield rng.multinomial(self.units, even, size=count).astype(np.float64)
            else:
                yield np.stack([self._blocks(rng, self.block) for _ in range(count)])

    def _blocks(self, rng: np.random.Generator, block: int) -> np.ndarray:
        assert self.first is not None and self.length is not None
        begin = rng.integers(self.units, size=-(-self.units // block))
        first = self.first[begin][:, None]
        place = first + (begin[:, None] + np.arange(block) - first) % self.length[begin][:, None]
        return np.bincount(place.ravel()[: self.units], minlength=self.units).astype(np.float64)


def resample_sequences(count: int, seed: int) -> Resampling:
    return Resampling(count, "sequences", None, seed)


def resample_blocks(sequence_of_event: np.ndarray, seed: int) -> Resampling:
    """Resample blocks of about the cube root of the number of events. Each is within one sequence and wraps around its end."""
    count = len(sequence_of_event)
    starts = np.flatnonzero(np.r_[True, sequence_of_event[1:] != sequence_of_event[:-1]])
    lengths = np.diff(np.r_[starts, count])
    block = max(1, round(count ** (1.0 / 3.0)))
    return Resampling(count, "events", block, seed, np.repeat(starts, lengths), np.repeat(lengths, lengths))


def replicates(ratios: Sequence[Ratio], resampling: Resampling) -> np.ndarray:
    """Return each ratio in every replicate: [replicates, ratios]; NaN where the count is 0. All ratios share the replicates."""
    noise = np.random.default_rng([resampling.seed, 1])  # independent of the generator of the replicates
    sums, counts = (np.stack([getattr(one, part) for one in ratios], axis=1) for part in ("sums", "counts"))
    drawn = [place for place, one in enumerate(ratios) if one.variances is not None and one.variances.any()]
    spread = np.stack([ratios[place].variances for place in drawn], axis=1) if drawn else None  # pyright: ignore[reportArgumentType, reportCallIssue]
    found = []
    for weights in resampling.parts():
        top, below = weights @ sums, weights @ counts
        if spread is not None:
            top[:, drawn] += np.sqrt(weights @ spread) * noise.standard_normal((len(weights), len(drawn)))
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(np.where(below > 0, top / below, np.nan))
    whole = np.concatenate(found)
    roots = [place for place, one in enumerate(ratios) if one.root]
    whole[:, roots] = np.sqrt(np.maximum(whole[:, roots], 0.0))
    return whole


def interval(value: float, drawn: np.ndarray) -> Estimate:
    """Return a value with the quantiles of its replicates; replicates that are NaN are left out."""
    drawn = drawn[~np.isnan(drawn)]
    if np.isnan(value) or not len(drawn):
        return NOTHING
    low, high = np.percentile(drawn, [LOW, HIGH])
    return Estimate(float(value), float(low), float(high))


def estimates(ratios: Sequence[Ratio], resampling: Resampling) -> list[Estimate]:
    if not ratios:
        return []
    drawn = replicates(ratios, resampling)
    whole = np.atleast_1d(~np.isnan(drawn).any(0))
    quick = np.percentile(drawn[:, whole], [LOW, HIGH], axis=0)  # columns without NaN, all at once
    found = [interval(one.value, drawn[:, place]) if not whole[place] else NOTHING for place, one in enumerate(ratios)]
    for place, low, high in zip(np.flatnonzero(whole).tolist(), *quick.tolist(), strict=True):
        found[place] = Estimate(ratios[place].value, low, high)
    return found


@dataclass(frozen=True)
class Units:
    """Rows of scores and the sequences that they belong to."""

    sequence: np.ndarray  # int64 [rows], ascending
    sequences: int  # number of sequences in the data; some may have no row

    @property
    def whole_sequences(self) -> bool:
        return self.sequences >= ENOUGH_SEQUENCES

    def resampling(self, seed: int) -> Resampling:
        """Return how replicates are drawn: from sequences if there are enough, else from blocks of rows."""
        return (
            resample_sequences(self.sequences, seed) if self.whole_sequences else resample_blocks(self.sequence, seed)
        )

    def summed(self, values: np.ndarray) -> np.ndarray:
        """Sum the values of rows to one value per unit."""
        values = values.astype(np.float64)
        return np.bincount(self.sequence, weights=values, minlength=self.sequences) if self.whole_sequences else values

    def ratio(
        self, values: np.ndarray, counts: np.ndarray, variances: np.ndarray | None = None, *, root: bool = False
    ) -> Ratio:
        """Return the ratio `Σ values / Σ counts` over rows."""
        spread = None if variances is None or not variances.any() else self.summed(variances)
        return Ratio(self.summed(values), self.summed(counts), spread, root)
