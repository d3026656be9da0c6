"""Goodness of fit of the times: if the model is right, `∫ λ` between neighbouring events is exponential with mean 1 (time rescaling).

In: the rows of a scored model. Out: one residual a scored event, and the Kolmogorov-Smirnov test of all of them against Exp(1).

A sequence is watched up to `t_end` only, and the long gaps are the ones that are cut off there: without them the residuals would be too
short. In rescaled time a right model has no memory, so what is left of one sequence goes on in the next, up to that one's first event:
the residuals are then independent Exp(1), however short the sequences are. Only what is left of the very last is not used.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np

from foretell.evaluate.likelihood import EventScores


@dataclass(frozen=True)
class RescalingTest:
    residuals: int
    mean: float  # 1 is expected; above it, the model expects more events than happen
    ks: float  # the largest distance between the residuals' distribution function and that of Exp(1)
    p_value: float  # of a distance as large, if the model were right


def residuals(events: EventScores) -> np.ndarray:
    """One for each scored event, in the order of the data."""
    passed = np.cumsum(events.integral + events.tail)
    at = (passed - events.tail)[events.is_event]
    return np.maximum(np.diff(at, prepend=0.0), 0.0)


def residual_variances(events: EventScores) -> np.ndarray:
    """Of the residuals, where the integrals were drawn: as with these, what is left of a sequence belongs to the next event."""
    passed = np.cumsum(events.integral_variance)
    at = (passed - events.tail_variance)[events.is_event]
    return np.maximum(np.diff(at, prepend=0.0), 0.0)


def uniform(found: np.ndarray) -> np.ndarray:
    """Residuals as places on [0, 1]: the predicted probability that the event comes no later than it did."""
    return -np.expm1(-found)


def rescaling_test(found: np.ndarray) -> RescalingTest:
    distance = ks_distance(uniform(found))
    mean = float(found.mean()) if len(found) else math.nan
    return RescalingTest(len(found), mean, distance, kolmogorov_p(distance, len(found)))


def ks_distance(places: np.ndarray) -> float:
    """Between the distribution function of places on [0, 1] and that of the uniform distribution."""
    count = len(places)
    if not count:
        return math.nan
    ordered, rank = np.sort(places), np.arange(count)
    return float(max((ordered - rank / count).max(), ((rank + 1) / count - ordered).max()))


def kolmogorov_p(distance: float, count: int) -> float:
    """The probability of such a distance or a larger one of `count` uniform places.

    Kolmogorov's limit with the correction for finite `count` of Vrbik (2018): right to 3e-3 from 10 places on, to 2e-4 from 100 on.
    """
    if not count or math.isnan(distance):
        return math.nan
    root = math.sqrt(count)
    return kolmogorov_tail(distance * root + 1.0 / (6.0 * root) + (distance * root - 1.0) / (4.0 * count))


def kolmogorov_tail(x: float) -> float:
    """`P(K > x)` of Kolmogorov's distribution: of its two series the one that converges at once."""
    if x <= 0.0:
        return 1.0
    if x < 1.0:
        below = sum(math.exp(-((2 * k - 1) ** 2) * math.pi**2 / (8.0 * x * x)) for k in range(1, 8))
        return min(1.0, max(0.0, 1.0 - math.sqrt(2.0 * math.pi) / x * below))
    tail = 2.0 * sum((-1.0) ** (k - 1) * math.exp(-2.0 * k * k * x * x) for k in range(1, 8))
    return min(1.0, max(sys.float_info.min, tail))  # small as it may be, it is not 0
