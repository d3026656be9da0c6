"""Pooling over the proofs of a fact: `pool_β(x) = v⁻¹(Σ v(x))`, `v(x) = sign(x)·|x|^β`, element by element.

β = 1 is a plain sum, β → ∞ the entry of largest magnitude. The value is exactly this formula. In the backward pass, a sum whose terms
nearly cancel is kept away from zero, since the true derivative is unbounded there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SMALLEST = 1e-6  # lower limit of a sum in the backward pass, relative to its largest entry


def pool(x: Tensor, segment: Tensor, count: int, beta: Tensor) -> Tensor:
    """Pool rows [R, D] into `count` segments: [count, D]. `segment` [R] has the segment of each row, and `beta` [count] ≥ 1 the exponent of
    each segment."""
    return _Pool.apply(x, segment, count, beta)  # pyright: ignore[reportReturnType]


Seen = tuple[Tensor, ...]  # tensors that the forward pass saves for the backward pass


def pooled(x: Tensor, segment: Tensor, count: int, beta: Tensor) -> tuple[Tensor, Seen]:
    """Return the pools and the saved tensors; without autograd."""
    size = x.abs()
    largest = _spread(size, segment, count)
    unit = torch.where(largest > 0, largest, torch.ones_like(largest))  # prevents over- and underflow
    share = size / unit[segment]
    powers = share ** beta[segment].unsqueeze(-1)
    summed = torch.zeros_like(largest).index_add_(0, segment, x.sign() * powers)
    root = summed.abs() ** (1.0 / beta).unsqueeze(-1)
    return summed.sign() * root * unit, (x, segment, beta, unit, share, powers, summed, root)


def back_from_pools(seen: Seen, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the rows and of each segment's exponent."""
    x, segment, beta, unit, share, powers, summed, root = seen
    safe = summed.abs().clamp(min=SMALLEST)
    b = beta.unsqueeze(-1)
    outer = safe ** (1.0 / b - 1.0)
    grad_x = (grad * outer)[segment] * share ** (b[segment] - 1.0)
    logs = torch.where(share > 0, share, torch.ones_like(share)).log()
    inner = torch.zeros_like(summed).index_add_(0, segment, x.sign() * powers * logs)
    value = summed.sign() * root * unit
    by_beta = -value * safe.log() / b**2 + unit * outer * inner / b
    return grad_x, (grad * by_beta).sum(-1)


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, segment: Tensor, count: int, beta: Tensor) -> Tensor:
        value, seen = pooled(x, segment, count, beta)
        ctx.save_for_backward(*seen)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        grad_x, grad_beta = back_from_pools(ctx.saved_tensors, grads[0])
        return grad_x, None, None, grad_beta


def _spread(size: Tensor, segment: Tensor, count: int) -> Tensor:
    """Return the largest entry of every segment: [count, D]."""
    largest = size.new_zeros(count, size.shape[1])
    return largest.scatter_reduce_(0, segment.unsqueeze(-1).expand_as(size), size, "amax")


class _AtLeastOne(torch.autograd.Function):
    """`1 + max(b, 0)`. For `b ≤ 0` the gradient is passed on only if a step would increase `b`."""

    @staticmethod
    def forward(ctx: Any, b: Tensor) -> Tensor:
        ctx.save_for_backward(b)
        return 1.0 + b.clamp(min=0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = grads
        (b,) = ctx.saved_tensors
        return torch.where((b > 0) | (grad < 0), grad, torch.zeros_like(grad))


def at_least_one(b: Tensor) -> Tensor:
    """Return a pool exponent from its parameter: exactly 1 for `b ≤ 0`, from where training can still increase it."""
    return _AtLeastOne.apply(b)  # pyright: ignore[reportReturnType]
