"""Operations of a network on a value: a tensor at some times, or a `ChebyshevPiece` on windows of time.

The equations of a query are written once with these operations. Training and evaluation apply them to tensors, bounds to pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.nn import intensity
from foretell.nn import pool as plain_pool
from foretell.sampling.bounds import chebyshev, curves
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, point, power, tighter

Value = TypeVar("Value", Tensor, ChebyshevPiece)


def tanh(x: Value) -> Value:
    return torch.tanh(x) if isinstance(x, Tensor) else chebyshev.tanh(x)


def softplus(x: Value) -> Value:
    return intensity.softplus(x) if isinstance(x, Tensor) else chebyshev.softplus(x)


def relu(x: Value) -> Value:
    return torch.relu(x) if isinstance(x, Tensor) else chebyshev.relu(x)


def gelu(x: Value) -> Value:
    """Return `x Φ(x)`: exact GELU."""
    return F.gelu(x) if isinstance(x, Tensor) else curves.gelu(x)


def log1p(x: Value) -> Value:
    """Return `log(1 + x)` for `x` above -1."""
    return torch.log1p(x) if isinstance(x, Tensor) else curves.log1p(x)


def affine(x: Value, weight: Tensor, bias: Tensor) -> Value:
    """Return `weight @ x + bias` for rows [..., in]."""
    return F.linear(x, weight, bias) if isinstance(x, Tensor) else x.through(weight.T).plus(bias)


def linear(x: Value, weight: Tensor) -> Value:
    """Return `weight @ x` for rows [..., in]."""
    return F.linear(x, weight) if isinstance(x, Tensor) else x.through(weight.T)


def halves(x: Value) -> tuple[Value, Value]:
    """Return the first and the second half of the components of rows [..., in]."""
    if isinstance(x, Tensor):
        first, second = x.chunk(2, dim=-1)
        return first, second
    return x.map(lambda part: part.chunk(2, dim=-1)[0]), x.map(lambda part: part.chunk(2, dim=-1)[1])


def summed(x: Value) -> Value:
    """Return the sum of all components: [..., in] to [..., 1]."""
    if isinstance(x, Tensor):
        return x.sum(-1, keepdim=True)
    return x.through(torch.ones(x.v.shape[-1], 1, dtype=x.v.dtype, device=x.v.device))


def side_by_side(parts: Sequence[Value]) -> Value:
    """Concatenate the components of all parts."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat([one for one in parts if isinstance(one, Tensor)], dim=-1)
    pieces = [one for one in parts if isinstance(one, ChebyshevPiece)]
    length = None
    if any(one.length is not None for one in pieces):
        length = torch.stack([one.off_length() for one in pieces]).square().sum(0).sqrt()
    v, remainder = (torch.cat([getattr(one, name) for one in pieces], -1) for name in ("v", "remainder"))
    return ChebyshevPiece(v, remainder, length)


def components(x: Value, index: Tensor) -> Value:
    """Return the components of rows [..., in] with these indices."""
    return x[..., index] if isinstance(x, Tensor) else x.map(lambda part: part[..., index])


def layer_norm(norm: nn.Module, x: Value) -> Value:
    assert isinstance(norm, nn.LayerNorm)
    if isinstance(x, Tensor):
        return norm(x)
    found = curves.normalised(x, norm.eps)
    return found.times(norm.weight).plus(norm.bias)


def pool(x: Value, segment: Tensor, count: int, beta: Tensor) -> Value:
    """Return `v⁻¹(Σ v(x))`, `v(x) = sign(x)|x|^β`, over the rows of each segment, element by element; with `β = 1` it is a sum.

    Rows are [R, D], or [R, P, D] for a piece; the result is [count, …]; `beta` [count]. The bounds of a power hold where its base keeps its
    sign. Elsewhere the pool increases with every entry, so its range is from the pool of the lowest values to the pool of the highest.
    """
    if isinstance(x, Tensor):
        return plain_pool.pool(x, segment, count, beta)
    if not x.degree:
        return point(_pool(x.v[0], segment, count, beta))
    linear = (beta == 1.0).view(-1, 1, 1)
    if bool(linear.all()):
        return _sums(x, segment, count)
    found = _power_pool(x, segment, count, beta)
    if not bool(linear.any()):
        return found
    sums = _sums(x, segment, count)
    return ChebyshevPiece(torch.where(linear, sums.v, found.v), torch.where(linear, sums.remainder, found.remainder))


def _power_pool(x: ChebyshevPiece, segment: Tensor, count: int, beta: Tensor) -> ChebyshevPiece:
    shape = x.shape()
    middle, low, high = shape.centre, shape.lower(x.remainder), shape.upper(x.remainder)
    largest = middle.new_zeros(count, *middle.shape[1:])
    largest.scatter_reduce_(0, segment.view(-1, 1, 1).expand_as(middle), middle.abs(), "amax")
    unit = torch.where(largest > 0.0, largest, torch.ones_like(largest))
    side = torch.where(middle < 0.0, -1.0, 1.0)
    raised = power(x.times(side / unit[segment]), beta[segment].view(-1, 1, 1)).times(side)
    # Remainders contain the rounding of every term: where terms cancel, much of the sum may be rounding.
    summed = _sums(raised, segment, count)
    side = torch.where(summed.v[0] < 0.0, -1.0, 1.0)
    found = power(summed.times(side), (1.0 / beta).view(-1, 1, 1)).times(side * unit)
    return tighter(found, *(_pool(one, segment, count, beta) for one in (low, high)))


def _pool(x: Tensor, segment: Tensor, count: int, beta: Tensor) -> Tensor:
    return plain_pool.pool(x.flatten(1), segment, count, beta).view(count, *x.shape[1:])


def _sums(x: ChebyshevPiece, segment: Tensor, count: int) -> ChebyshevPiece:
    nodes, _, *others = x.v.shape
    v = x.v.new_zeros(nodes, count, *others).index_add_(1, segment, x.v)
    return ChebyshevPiece(v, x.v.new_zeros(count, *others).index_add_(0, segment, x.remainder))
