"""Rates that follow a clock: a step function of elapsed time for every mark in; its value, its integral and the inverse of that out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812


@dataclass(frozen=True)
class Profile:
    """From `edges[k, r]` on, until the next edge, mark `k` has the rate `rate[k, r]`. Last steps never end; before 0 is nothing."""

    edges: Tensor  # float64 [K, R]: they rise from 0; equal ones are steps without length
    rate: Tensor  # float64 [K, R]
    mass: Tensor  # float64 [K, R]: the integral up to each edge

    @classmethod
    def of(cls, edges: Tensor, rate: Tensor) -> Self:
        """A ValueError says what is wrong with them: they may come from a file."""
        fine = edges.ndim == 2 and edges.shape == rate.shape and edges.shape[1] > 0
        if not fine or edges.dtype != torch.float64 or rate.dtype != torch.float64:
            found = f"{edges.dtype} {list(edges.shape)} and {rate.dtype} {list(rate.shape)}"
            raise ValueError(f"edges and rates are {found}, expected float64 of one shape, with steps")
        if not bool(edges.isfinite().all() and (edges[:, 0] == 0.0).all() and (edges.diff(dim=1) >= 0.0).all()):
            raise ValueError("edges of steps do not rise from 0")
        if not bool(rate.isfinite().all() and (rate >= 0.0).all()):
            raise ValueError("rates of steps are not all finite and 0 or more")
        mass = F.pad((edges.diff(dim=1) * rate[:, :-1]).cumsum(1), (1, 0))
        if not bool(mass.isfinite().all()):
            raise ValueError("steps have an infinite integral")
        return cls(edges.contiguous(), rate.contiguous(), mass.contiguous())

    @classmethod
    def from_steps(cls, steps: Sequence[tuple[np.ndarray, np.ndarray]]) -> Self:
        """From edges and rates of each mark, as many as it has: shorter ones get last steps again, without length."""
        most = max((len(edges) for edges, _ in steps), default=1)
        padded = [[np.pad(one, (0, most - len(one)), mode="edge") for one in pair] for pair in steps]
        edges, rate = np.array(padded, dtype=np.float64).reshape(len(steps), 2, most).transpose(1, 0, 2)
        return cls.of(torch.from_numpy(edges.copy()), torch.from_numpy(rate.copy()))

    def scaled(self, factors: Tensor) -> Self:
        """With the rates of each mark multiplied by its factor: [K]."""
        return type(self).of(self.edges, self.rate * factors.unsqueeze(-1))

    def to(self, device: torch.device) -> Self:
        return type(self)(self.edges.to(device), self.rate.to(device), self.mass.to(device))

    def upto(self, elapsed: Tensor) -> Tensor:
        """The integrals of all marks from 0: [..., K] from [..., K]."""
        flat = elapsed.clamp(min=0.0).reshape(-1, len(self.rate)).T.contiguous()
        step = torch.searchsorted(self.edges, flat, right=True) - 1
        found = self.mass.gather(1, step) + (flat - self.edges.gather(1, step)) * self.rate.gather(1, step)
        return found.T.reshape(elapsed.shape)

    def at(self, elapsed: Tensor, marks: Tensor) -> Tensor:
        """Rates of single marks: [...] from [...] and [...]."""
        step = _last(self.edges, marks, elapsed.clamp(min=0.0))
        return torch.where(elapsed >= 0.0, self.rate[marks, step], 0.0)

    def when(self, mass: Tensor, marks: Tensor) -> Tensor:
        """The elapsed time at which the integral of a mark is `mass`, which it must reach: [...] from [...] and [...]."""
        # Where a rate is 0 the mass stands still: the last such step is the one before it goes on.
        step = _last(self.mass, marks, mass)
        rate = self.rate[marks, step]
        more = torch.where(rate > 0.0, (mass - self.mass[marks, step]) / rate, 0.0)
        return self.edges[marks, step] + more


def _last(table: Tensor, rows: Tensor, value: Tensor) -> Tensor:
    """The last place in each one's row that is not above its value, where the first never is: by halving.

    `searchsorted` would need a copy of the row for each value.
    """
    flat, width = table.view(-1), table.shape[1]
    begin = rows * width
    found = torch.zeros_like(begin)
    step = 1 << max(0, (width - 1).bit_length() - 1)
    while step:
        further = found + step
        fits = (further < width) & (flat[begin + further.clamp(max=width - 1)] <= value)
        found, step = torch.where(fits, further, found), step >> 1
    return found
