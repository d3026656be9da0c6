"""Sampler of the weekly Poisson process: its integral is piecewise linear, and is inverted by bisection down to the rounding of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from foretell.sampling.core.sampler import Bounds, InverseSampler

if TYPE_CHECKING:
    from foretell.models.classical.weekly import WeeklyPoisson

HALVINGS = 80  # more than float64 can tell of any time


class WeeklySampler(InverseSampler):
    """The past does not matter but for when a sequence started."""

    def __init__(self, model: WeeklyPoisson, starts: Tensor) -> None:
        self.model, self.starts = model, starts  # float64 [W]: moments

    @property
    def count(self) -> int:
        return len(self.starts)

    @property
    def width(self) -> float:
        return 1.0 / float(self.model.log_rate.exp().sum(0).max())

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.model, self.starts[rows])

    def name(self, row: int, choice: int) -> str:
        return self.model.vocabulary.names[choice]

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        return self.model.log_rate.T[self.model.hours(self.starts[:, None], times)].exp()

    @torch.inference_mode()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        """The highest hour of the week bounds them all."""
        most = self.model.log_rate.exp().sum(0).max()
        return Bounds(most.expand(start.shape).clone(), self.intensities((start + end) / 2.0).sum(-1))

    @torch.inference_mode()
    def invert(self, start: Tensor, mass: Tensor) -> Tensor:
        """No rate is 0: the time lies between those that the highest and the lowest rate would give."""
        total = self.model.log_rate.exp().sum(0)
        low, high = start + mass / total.max(), start + mass / total.min()
        calendar = self.model.calendar
        assert calendar is not None
        whole = self.model.mass(calendar.phases.moments(self.starts, start)) + mass
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            over = self.model.mass(calendar.phases.moments(self.starts, middle)) >= whole
            low, high = torch.where(over, low, middle), torch.where(over, middle, high)
        return high

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        """It does not remember events."""
