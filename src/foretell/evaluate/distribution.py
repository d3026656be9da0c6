"""Makes the `NextEventDistribution` of one sequence from the moments of the next time and the probability of each event."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from foretell.evaluate.next_time import UNDEFINED_ABOVE
from foretell.evaluate.patterns import EventPattern
from foretell.evaluate.prediction import LikelyEvent, MatchingEvents, NextEventDistribution


@dataclass(frozen=True)
class PredictionRequest:
    top: int
    pattern: EventPattern | None


def has_mean(no_event: float) -> bool:
    """Return whether the mean is reported, given the probability that nothing happens up to the horizon."""
    return no_event <= UNDEFINED_ABOVE


@dataclass(frozen=True)
class Moments:
    """Mean and quantiles of the next event's time, on the sequence's clock; NaN for a time that is never reached."""

    mean: float
    mean_error: float
    quantiles: list[float]  # in the order of QUANTILES
    no_event: float
    defined: bool  # whether the mean is defined
    horizon: float


def distribution_of(
    request: PredictionRequest,
    by: Literal["quadrature", "samples"],
    moments: Moments,
    probabilities: dict[str, float],
    possible: int,
    draws: int | None = None,
) -> NextEventDistribution:
    """Return the distribution of the next event; `probabilities` maps each event to its probability of being next."""
    defined = moments.defined and math.isfinite(moments.mean)
    times = [None if math.isnan(one) else one for one in moments.quantiles]
    ranked = sorted(((p, name) for name, p in probabilities.items() if p > 0.0), key=lambda one: (-one[0], one[1]))
    return NextEventDistribution(
        by=by,
        mean=moments.mean if defined else None,
        mean_error=moments.mean_error if defined and math.isfinite(moments.mean_error) else None,
        median=times[2],
        interval_50=(times[1], times[3]),
        interval_90=(times[0], times[4]),
        no_event=moments.no_event,
        horizon=moments.horizon,
        possible=possible,
        events=tuple(LikelyEvent(name, p) for p, name in ranked[: request.top]),
        who=None if request.pattern is None else _matching(request.pattern, ranked, request.top),
        draws=draws,
    )


def _matching(pattern: EventPattern, ranked: list[tuple[float, str]], top: int) -> MatchingEvents:
    matching = [(p, name) for p, name in ranked if pattern.matches(name)]
    total = float(np.sum([p for p, _ in matching])) if matching else 0.0
    best = tuple(LikelyEvent(name, p, p / total) for p, name in matching[:top])
    return MatchingEvents(pattern.text, total, len(matching), best)
