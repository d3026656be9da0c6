"""Features of the time since the last event on several scales, from the shortest gaps to the longest.

On a scale `s`, the features of a time `u` are `exp(−u/s)`, which distinguishes short times, and `log(1 + u/s)` divided by its value at
the longest scale, which distinguishes long ones. `ElapsedFeatures` adds `sin(2πu/p)` and `cos(2πu/p)` for some periods `p`. Times are
float64 and are subtracted before rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn


class TimeScales(nn.Module):
    """`count` time scales from `short` to `long` in the data's unit, evenly spaced in the logarithm."""

    scales: Tensor  # float64 [count]

    def __init__(self, count: int, short: float = 0.01, long: float = 10.0) -> None:
        super().__init__()
        self.count = count
        self.set_range(short, long)

    def set_range(self, short: float, long: float) -> None:
        assert 0.0 < short <= long < np.inf, f"scales of time from {short} to {long}"
        self.short, self.long = float(short), float(long)
        device = self.scales.device if "scales" in self._buffers else None
        self._build(device)

    def _build(self, device: torch.device | None) -> None:
        scales = torch.from_numpy(np.geomspace(self.short, self.long, self.count)).to(device)
        self.register_buffer("scales", scales, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> TimeScales:
        """Move with the model, but stay float64."""
        super()._apply(fn, recurse)
        self._build(self.scales.device)
        return self

    @property
    def width(self) -> int:
        """The number of columns of `features`."""
        return 2 * self.count

    def features(self, elapsed: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the features: [...] float64 to [..., 2·count] of `dtype`, exponentials first, then logarithms."""
        share = elapsed.clamp(min=0.0).unsqueeze(-1) / self.scales
        return torch.cat([torch.exp(-share), torch.log1p(share) * self.log_factors()], dim=-1).to(dtype)

    def log_factors(self) -> Tensor:
        """Return the factors of the logarithms: [count]."""
        return 1.0 / torch.log1p(self.long / self.scales)

    def densities(self, elapsed: Tensor, unit: float, dtype: torch.dtype) -> Tensor:
        """Return `exp(−u/s)·unit/s` on every scale, whose integral over all `u` is `unit`: [...] float64 to [..., count] of `dtype`."""
        share = elapsed.clamp(min=0.0).unsqueeze(-1) / self.scales
        return (torch.exp(-share) * (unit / self.scales)).to(dtype)


class ElapsedFeatures(TimeScales):
    """The features of `TimeScales`, plus waves of up to `most` periods; features of unset periods are 0."""

    turns: Tensor  # float64 [most]: 1/p, or 0

    def __init__(self, count: int, most: int) -> None:
        self.most = most
        self.periods: tuple[float, ...] = (0.0,) * most
        super().__init__(count)

    def set_periods(self, periods: Sequence[float]) -> None:
        """Set the periods, in the data's unit; 0 means unset."""
        assert len(periods) <= self.most and all(0.0 <= one < math.inf for one in periods), periods
        self.periods = (*map(float, periods), *[0.0] * (self.most - len(periods)))
        self._build(self.scales.device)

    def _build(self, device: torch.device | None) -> None:
        super()._build(device)
        turns = torch.tensor([1.0 / one if one else 0.0 for one in self.periods], dtype=torch.float64, device=device)
        self.register_buffer("turns", turns, persistent=False)

    @property
    def width(self) -> int:
        return super().width + 2 * self.most

    def features(self, elapsed: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the features: [...] float64 to [..., width] of `dtype`: exponentials, logarithms, sines, cosines."""
        found = super().features(elapsed, dtype)
        if not self.most:
            return found
        angle = 2.0 * math.pi * (elapsed.clamp(min=0.0).unsqueeze(-1) * self.turns).remainder(1.0)
        waves = torch.cat([torch.sin(angle), torch.cos(angle) * self.is_set()], dim=-1)
        return torch.cat([found, waves.to(dtype)], dim=-1)

    def is_set(self) -> Tensor:
        """Return 1 for each period that is set, else 0: float64 [most]."""
        return (self.turns > 0.0).double()
