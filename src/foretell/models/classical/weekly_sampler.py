"""Sampler of the weekly Poisson process. Its integral is piecewise linear and is inverted by bisection, up to the rounding of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from foretell.sampling.core.sampler import Bounds, InverseSampler

if TYPE_CHECKING:
    from foretell.models.classical.weekly import WeeklyPoisson

HALVINGS = 80  # enough for the precision of float64


class WeeklySampler(InverseSampler):
    """Sequences differ only in their starts; the past does not matter."""

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
        """Return the highest rate over the hours of the week as bound."""
        most = self.model.log_rate.exp().sum(0).max()
        return Bounds(most.expand(start.shape).clone(), self.intensities((start + end) / 2.0).sum(-1))

    @torch.inference_mode()
    def invert(self, start: Tensor, mass: Tensor) -> Tensor:
        """Return the times at which the integral from `start` reaches `mass`; the highest and lowest rates bracket them."""
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
        """Do nothing: the sampler does not depend on events."""
