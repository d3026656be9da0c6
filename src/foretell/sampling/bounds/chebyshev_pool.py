"""Pools of quantities that change with time: `v⁻¹(Σ v(x))`, `v(x) = sign(x)|x|^β`, over the rows of each segment, coordinate by coordinate.

Powers are followed where what is raised stays on one side of 0. Elsewhere the pool is known to grow with every entry, so that its range
is that from the pool of the lowest to the pool of the highest values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foretell.nn.pool import pool
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, point, power, tighter


def pooled(x: ChebyshevPiece, segment: Tensor, count: int, beta: Tensor) -> ChebyshevPiece:
    """Rows [R, P, D] to [count, P, D]; `beta` [count]."""
    if not x.degree:
        return point(_pool(x.v[0], segment, count, beta))
    shape = x.shape()
    middle, low, high = shape.centre, shape.lower(x.remainder), shape.upper(x.remainder)
    largest = middle.new_zeros(count, *middle.shape[1:])
    largest.scatter_reduce_(0, segment.view(-1, 1, 1).expand_as(middle), middle.abs(), "amax")
    unit = torch.where(largest > 0.0, largest, torch.ones_like(largest))
    side = torch.where(middle < 0.0, -1.0, 1.0)
    raised = power(x.times(side / unit[segment]), beta[segment].view(-1, 1, 1)).times(side)
    # Remainders hold what rounding does to every summand: where these cancel, much of the sum may be rounding.
    summed = ChebyshevPiece(
        torch.stack([_sum(one, segment, count) for one in raised.v.unbind(0)]), _sum(raised.remainder, segment, count)
    )
    side = torch.where(summed.v[0] < 0.0, -1.0, 1.0)
    found = power(summed.times(side), (1.0 / beta).view(-1, 1, 1)).times(side * unit)
    return tighter(found, *(_pool(one, segment, count, beta) for one in (low, high)))


def _pool(x: Tensor, segment: Tensor, count: int, beta: Tensor) -> Tensor:
    return pool(x.flatten(1), segment, count, beta).view(count, *x.shape[1:])


def _sum(x: Tensor, segment: Tensor, count: int) -> Tensor:
    return x.new_zeros(count, *x.shape[1:]).index_add_(0, segment, x)
