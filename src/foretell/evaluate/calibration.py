"""Calibration of predicted probabilities: for times, how often central intervals contain the event; for types, how often guesses are right.

A central interval of level `p` is from the `(1 − p)/2` to the `(1 + p)/2` quantile of the predicted time. It contains the true time if the
residual, mapped to [0, 1], lies between `(1 − p)/2` and `(1 + p)/2`, so no interval has to be computed. For the first event after a
tail, the residual is that of the tail and the event's gap together, so that a correct model has the right coverage.

In: rows of a scored model. Out: coverage at many levels with 95 % intervals, and how often the most intense type was right, for guesses
grouped by probability.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
import torch

from foretell.evaluate.bootstrap import Estimate, Resampling, Units, estimates
from foretell.evaluate.likelihood import EventScores


@dataclass(frozen=True)
class RescalingTest:
    residuals: int
    mean: float  # 1 for a correct model; above 1, the model expects more events than happen
    ks: float  # the largest distance between the residuals' distribution function and that of Exp(1)
    p_value: float  # the probability of a distance at least this large if the model is correct


def residuals(events: EventScores) -> np.ndarray:
    """Return the residual of each scored event, in the order of the data."""
    passed = np.cumsum(events.integral + events.tail)
    at = (passed - events.tail)[events.is_event]
    return np.maximum(np.diff(at, prepend=0.0), 0.0)


def residual_variances(events: EventScores) -> np.ndarray:
    """Return the variances of the residuals if integrals were drawn. A tail belongs to the next scored event, as in `residuals`."""
    passed = np.cumsum(events.integral_variance)
    at = (passed - events.tail_variance)[events.is_event]
    return np.maximum(np.diff(at, prepend=0.0), 0.0)


def uniform(found: np.ndarray) -> np.ndarray:
    """Map residuals to [0, 1]: the predicted probability that the event comes no later than it did."""
    return -np.expm1(-found)


def rescaling_test(found: np.ndarray) -> RescalingTest:
    distance = ks_distance(uniform(found))
    mean = float(found.mean()) if len(found) else math.nan
    return RescalingTest(len(found), mean, distance, kolmogorov_p(distance, len(found)))


def ks_distance(places: np.ndarray) -> float:
    """Return the Kolmogorov-Smirnov distance between values on [0, 1] and the uniform distribution."""
    count = len(places)
    if not count:
        return math.nan
    ordered, rank = np.sort(places), np.arange(count)
    return float(max((ordered - rank / count).max(), ((rank + 1) / count - ordered).max()))


def kolmogorov_p(distance: float, count: int) -> float:
    """Return the probability that the distance of `count` uniform values is at least `distance`.

    Kolmogorov's limit with the correction for finite `count` of Vrbik (2018): the error is below 3e-3 from 10 values on, 2e-4 from 100 on.
    """
    if not count or math.isnan(distance):
        return math.nan
    root = math.sqrt(count)
    return kolmogorov_tail(distance * root + 1.0 / (6.0 * root) + (distance * root - 1.0) / (4.0 * count))


def kolmogorov_tail(x: float) -> float:
    """Return `P(K > x)` for Kolmogorov's distribution, from whichever of its two series converges quickly."""
    if x <= 0.0:
        return 1.0
    if x < 1.0:
        below = sum(math.exp(-((2 * k - 1) ** 2) * math.pi**2 / (8.0 * x * x)) for k in range(1, 8))
        return min(1.0, max(0.0, 1.0 - math.sqrt(2.0 * math.pi) / x * below))
    tail = 2.0 * sum((-1.0) ** (k - 1) * math.exp(-2.0 * k * k * x * x) for k in range(1, 8))
    return min(1.0, max(sys.float_info.min, tail))  # never 0, even if it underflows


LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))
BINS = 10


@dataclass(frozen=True)
class Coverage:
    level: float  # the coverage of a correct model
    coverage: Estimate


@dataclass(frozen=True)
class CalibrationBin:
    """Guesses of the next type, given its time, whose probability lies between `low` and `high`."""

    low: float
    high: float
    events: int
    probability: float  # on average
    right: Estimate  # share of guesses that were right; equal to `probability` if the model is calibrated


@dataclass(frozen=True)
class Calibration:
    times: tuple[Coverage, ...]
    types: tuple[CalibrationBin, ...]
    type_error: float  # expected calibration error: |right − probability|, averaged over events

    def coverage(self, level: float) -> Estimate:
        return next(one.coverage for one in self.times if one.level == level)


def calibrate(events: EventScores, units: Units, resampling: Resampling) -> Calibration:
    real = events.is_event
    found, spread = residuals(events), residual_variances(events)
    covered = [_covered(found, spread, real, level) for level in LEVELS]
    ratios = [units.ratio(values, real, variances) for values, variances in covered]
    probability = np.exp(events.log_predicted - events.log_total)
    right = (events.predicted_type == events.type) & real
    place = np.clip((probability * BINS).astype(np.int64), 0, BINS - 1)
    inside = [real & (place == number) for number in range(BINS)]
    ratios += [units.ratio(right & chosen, chosen) for chosen in inside]
    made = estimates(ratios, resampling)
    bins = tuple(
        CalibrationBin(
            number / BINS,
            (number + 1) / BINS,
            int(chosen.sum()),
            float(probability[chosen].mean()),
            made[len(LEVELS) + number],
        )
        for number, chosen in enumerate(inside)
        if chosen.any()
    )
    off = sum(one.events * abs(one.right.value - one.probability) for one in bins)
    # If integrals were drawn, replicates have normal noise, which can leave [0, 1].
    times = tuple(Coverage(level, one.clipped(0.0, 1.0)) for level, one in zip(LEVELS, made, strict=False))
    return Calibration(times, bins, off / max(1, int(real.sum())))


def _covered(
    found: np.ndarray, spread: np.ndarray, real: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return for each row whether the interval contains the event, and the variance of that if the residual was drawn."""
    values = np.zeros(len(real))
    values[real] = np.abs(2.0 * uniform(found) - 1.0) < level
    if not spread.any():
        return values, None
    low, high = (-np.log1p(-(1.0 + side * level) / 2.0) for side in (-1.0, 1.0))
    scale = np.sqrt(2.0 * np.maximum(spread, 1e-300))
    share = (_erf((high - found) / scale) - _erf((low - found) / scale)) / 2.0
    variances = np.zeros(len(real))
    variances[real] = share * (1.0 - share)
    return values, variances


def _erf(values: np.ndarray) -> np.ndarray:
    return torch.erf(torch.from_numpy(values)).numpy()
