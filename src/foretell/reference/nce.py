"""Noise-contrastive estimation of one sequence (Mei, Wan and Eisner 2020): two intensity functions and drawn noise in, a number out.

`Σ log(λ_k/λ̲_k)` over the observed events plus `Σ log(λ^q_k/λ̲_k)` over those of `M` noise streams, with `λ̲_k = λ_k + M·λ^q_k`. A
noise event sees the real events before it and no other noise. Its `gap` is the number of events that it sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from foretell.reference.events import History, before_event
from foretell.reference.likelihood import Intensity

Rate = Callable[[str, float, History], float]  # of the noise process: for a type, at a time, given a history


class NoiseEvent(NamedTuple):
    type: str
    time: float
    gap: int


def objective(
    intensity: Intensity, rate: Rate, sequence: History, noise: Sequence[NoiseEvent], streams: int, first: int = 0
) -> Tensor:
    """Return the objective. `noise` has the events of all streams, in any order. `first=1` conditions on the first event."""
    value = torch.zeros((), dtype=torch.float64)
    for i in range(first, len(sequence)):
        type, time = sequence[i].type, sequence[i].time
        own = intensity(type, time, before_event(sequence, i))
        both = own + streams * rate(type, time, before_event(sequence, i))
        value = value + torch.log(own / both)
    for type, time, gap in noise:
        drawn = rate(type, time, sequence[:gap])
        both = intensity(type, time, sequence[:gap]) + streams * drawn
        value = value + torch.log(drawn / both)
    return value
