"""Timed noise: a Hawkes process plus step functions, with intensities and integrals by plain loops.

`λ_e(t)` is that of the Hawkes process, plus a step function of `t`, plus one of the time since the last event of type `e`, if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foretell.reference.events import History
from foretell.reference.hawkes import SlowHawkes

Steps = Sequence[tuple[float, float]]  # pairs of the elapsed time at which a step begins, and its rate


@dataclass(frozen=True)
class SlowTimed:
    hawkes: SlowHawkes
    since_start: Mapping[str, Steps]
    since_own: Mapping[str, Steps]

    def intensity(self, type: str, time: float, history: History) -> float:
        rate = self.hawkes.intensity(type, time, history) + height(self.since_start[type], time)
        own = [event.time for event in history if event.type == type]
        return rate + height(self.since_own[type], time - own[-1]) if own else rate

    def integral(self, type: str, begin: float, end: float, history: History) -> float:
        """Return the integral of a type's intensity from `begin` to `end`, after all events of `history` and before any other."""
        value = self.hawkes.mu[type] * (end - begin) + area(self.since_start[type], begin, end)
        for event in history:
            for alpha, beta in zip(self.hawkes.alpha[type, event.type], self.hawkes.beta, strict=True):
                value += alpha / beta * (math.exp(-beta * (begin - event.time)) - math.exp(-beta * (end - event.time)))
        own = [event.time for event in history if event.type == type]
        return value + area(self.since_own[type], begin - own[-1], end - own[-1]) if own else value


def height(steps: Steps, elapsed: float) -> float:
    """Return the rate of the last step that has begun."""
    rate = 0.0
    for edge, next_rate in steps:
        if edge <= elapsed:
            rate = next_rate
    return rate


def area(steps: Steps, begin: float, end: float) -> float:
    edges = [edge for edge, _ in steps] + [math.inf]
    value = 0.0
    for (edge, rate), last in zip(steps, edges[1:], strict=True):
        value += rate * max(0.0, min(end, last) - max(begin, edge))
    return value
