"""Scores event by event in, curves of goodness of fit out: time-rescaled gaps against the unit exponential, with the band of the KS test.

If the model is right, the integral of its intensity from one event to the next is a draw from Exp(1), and its place on [0, 1] is
uniform: the share of the predicted distribution of the next time that had passed when the event came (`foretell.evaluate.calibration`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from foretell.data import EventData
from foretell.evaluate.bootstrap import Units
from foretell.evaluate.calibration import Calibration, RescalingTest, calibrate, rescaling_test, residuals, uniform
from foretell.evaluate.likelihood import EventScores

SHOWN_POINTS = 240
KS_95 = 1.358  # √n times the KS distance stays below it 95 times of 100, for many gaps
TENTHS = 10


@dataclass(frozen=True)
class Fit:
    """The Kolmogorov-Smirnov test, and the curves to draw."""

    test: RescalingTest
    band: float  # the distance stays below it 95 times of 100 if the model is right
    expected: np.ndarray  # quantiles of Exp(1), at some probabilities …
    observed: np.ndarray  # … of the rescaled gaps …
    lowest: np.ndarray  # … and the band around them
    highest: np.ndarray
    share: np.ndarray  # of the predicted distribution …
    surplus: np.ndarray  # … and how many more of the gaps were over by then
    tenths: np.ndarray  # gaps by tenths of the predicted distribution

    @property
    def holds(self) -> bool:
        return self.test.ks <= self.band


def fit_of(events: EventScores) -> Fit | None:
    """None: there is no gap to look at."""
    found = residuals(events)
    gaps = np.sort(found)
    count = len(gaps)
    if not count:
        return None
    passed = uniform(gaps)
    band = KS_95 / math.sqrt(count)
    shown = min(count, SHOWN_POINTS)
    at = (np.arange(shown) + 0.5) / shown
    edge = 1.0 - 1e-12  # above it the band is open: no picture goes that far
    places = np.unique(np.linspace(0, count - 1, shown).astype(int))
    return Fit(
        rescaling_test(found),
        band,
        -np.log1p(-at),
        np.quantile(gaps, at, method="hazen"),
        -np.log1p(-np.clip(at - band, 0.0, edge)),
        -np.log1p(-np.clip(at + band, 0.0, edge)),
        passed[places],
        (places + 0.5) / count - passed[places],
        np.histogram(passed, np.linspace(0.0, 1.0, TENTHS + 1))[0],
    )


def calibration_of(events: EventScores, data: EventData, seed: int = 0) -> Calibration | None:
    """None: no event was scored."""
    if not events.is_event.any():
        return None
    units = Units(events.sequence, len(data))
    return calibrate(events, units, units.resampling(seed))
