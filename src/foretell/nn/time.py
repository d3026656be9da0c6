"""The embedding of a time (paper, equation 4): float64 times in, features in the model's dtype out.

Component `d` is sin (even `d`) or cos (odd `d`) of `t / (m·(5M/m)^(2⌊d/2⌋/dim))`. The phase is computed in float64 and
reduced to one turn, so that a Unix timestamp keeps its milliseconds; only the reduced phase is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

FULL_TURN = 2.0 * math.pi
EVEN = 8


class TimeEmbedding(nn.Module):
    """Waves of a time; `m` and `M` set the shortest and longest wavelength, `2πm` and `2π·5M` (paper, appendix A)."""

    turns_per_unit: Tensor
    quarter_turns: Tensor

    def __init__(self, dim: int, m: float = 1.0, M: float = 2000.0) -> None:  # noqa: N803 (the paper's letter)
        super().__init__()
        self.dim = dim
        self.set_range(m, M)

    def set_range(self, m: float, M: float) -> None:  # noqa: N803
        assert 0.0 < m < math.inf and 0.0 < M < math.inf, f"time range m={m}, M={M}"
        self.m, self.M = float(m), float(M)
        self._build(torch.device("cpu") if "turns_per_unit" not in self._buffers else self.turns_per_unit.device)

    def _build(self, device: torch.device) -> None:
        component = torch.arange(self.dim, dtype=torch.float64, device=device)
        exponent = 2.0 * torch.floor(component / 2.0) / max(self.dim, 1)
        wavelength = FULL_TURN * self.m * (5.0 * self.M / self.m) ** exponent
        # A constant wave of 1 in front and constant waves of 0 at the end make it [1; time; 0 …], of a width that is a multiple of eight.
        behind = self.width - 1 - self.dim
        self.register_buffer("turns_per_unit", F.pad(1.0 / wavelength, (1, behind)), persistent=False)
        quarters = F.pad(0.25 * (component % 2.0), (1, behind))
        quarters[0] = 0.25
        self.register_buffer("quarter_turns", quarters, persistent=False)

    @property
    def width(self) -> int:
        """The number of columns of `[1; time]`, padded with zeros to a multiple of eight, for which matrix products are faster."""
        return -(-(1 + self.dim) // EVEN) * EVEN

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> TimeEmbedding:
        """Move with the model, but stay float64: `model.float()` must not round the frequencies."""
        super()._apply(fn, recurse)
        self._build(self.turns_per_unit.device)
        return self

    def forward(self, times: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the features: [...] float64 to [..., dim] of `dtype`."""
        return self.with_one(times, dtype)[..., 1 : 1 + self.dim]

    def with_one(self, times: Tensor, dtype: torch.dtype) -> Tensor:
        """Return `[1; time; 0 …]`: [...] float64 to [..., width] of `dtype`."""
        assert times.dtype == torch.float64, "times are float64 wherever they become phases"
        turns = torch.addcmul(self.quarter_turns, times.unsqueeze(-1), self.turns_per_unit).frac_()
        phase = torch.empty(turns.shape, dtype=dtype, device=turns.device)
        return torch.mul(turns, FULL_TURN, out=phase).sin_()

    def widen(self, matrix: Tensor) -> Tensor:
        """Return the columns of a matrix for `[1; time]`, with zeros for the padding of `with_one`."""
        return F.pad(matrix[..., : 1 + self.dim], (0, self.width - 1 - self.dim))
