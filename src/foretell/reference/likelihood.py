"""The log-likelihood of one sequence (paper, equation 6): an intensity function in, a number out.

`Σ log λ_{e_i}(t_i) − ∫ Σ_e λ_e(t) dt`. The integral is a weighted sum over given points. The gap of a point is the number
of events before it, so that a point at the time of an event is either before or after this event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from foretell.reference.events import History, before_event

Intensity = Callable[[str, float, History], Tensor]  # of a type, at a time, given a history


class Point(NamedTuple):
    """A node of the integral: a time, the number of events that it sees, and its weight in the sum."""

    time: float
    gap: int
    weight: float


def event_logs(intensity: Intensity, sequence: History, first: int = 0) -> list[Tensor]:
    """Return `log λ_{e_i}(t_i)` of each event from `first` on: the first term of equation 6."""
    return [
        torch.log(intensity(sequence[i].type, sequence[i].time, before_event(sequence, i)))
        for i in range(first, len(sequence))
    ]


def integral(intensity: Intensity, types: Sequence[str], sequence: History, points: Sequence[Point]) -> Tensor:
    """Return `∫ Σ_e λ_e(t) dt`, the second term of equation 6."""
    value = torch.zeros((), dtype=torch.float64)
    for point in points:
        total = sum((intensity(type, point.time, sequence[: point.gap]) for type in types), start=torch.zeros(()))
        value = value + point.weight * total
    return value


def log_likelihood(
    intensity: Intensity, types: Sequence[str], sequence: History, points: Sequence[Point], first: int = 0
) -> Tensor:
    """Return equation 6. `first=1` conditions on the first event: it is history and not scored."""
    logs = sum(event_logs(intensity, sequence, first), start=torch.zeros((), dtype=torch.float64))
    return logs - integral(intensity, types, sequence, points)
