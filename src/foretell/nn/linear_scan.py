"""A linear recurrence `x_i = g_i x_{i−1} + b_i` along a sequence, in parallel and in time linear in its length.

The sequence is cut into chunks of about the square root of its length. All chunks take their steps together, a smaller scan computes
the values at the ends of chunks, and these are added to the next chunks. Only products of the `g` are computed, never quotients or
logarithms: with `|g| ≤ 1` nothing overflows, and underflow means that the past is forgotten.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

SHORT = 12  # up to this length, steps are taken one after the other


def linear_scan(g: Tensor, b: Tensor) -> Tensor:
    """Return all `x_i`, starting from zero: [B, N, P] from gates `g` and inputs `b` [B, N, P], real or complex."""
    return _LinearScan.apply(g, b)  # pyright: ignore[reportReturnType]


class _LinearScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, b: Tensor) -> Tensor:
        x = _scan(g, b)
        ctx.save_for_backward(g, x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Compute gradients: that of `b` is a scan from the end, with the conjugates of the following gates."""
        g, x = ctx.saved_tensors
        (gradient,) = gradients
        following = torch.cat([g[:, 1:], torch.zeros_like(g[:, :1])], dim=1)
        of_b = _scan(following.conj().flip(1), gradient.flip(1)).flip(1)
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        return of_b * before.conj(), of_b


def _scan(g: Tensor, b: Tensor) -> Tensor:
    rows, length, size = b.shape
    if length <= SHORT:
        return _steps(g.unsqueeze(1), b.unsqueeze(1))[0].squeeze(1)
    chunk = math.isqrt(length - 1) + 1
    chunks = -(-length // chunk)
    padding = (0, 0, 0, chunks * chunk - length)
    gates, inputs = (torch.nn.functional.pad(one, padding).view(rows, chunks, chunk, size) for one in (g, b))
    inside, passed = _steps(gates, inputs)
    carried = _scan(passed[:, :-1, -1], inside[:, :-1, -1])
    inside[:, 1:] += passed[:, 1:] * carried.unsqueeze(2)
    return inside.view(rows, chunks * chunk, size)[:, :length]


def _steps(g: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the recurrence within chunks [B, chunks, chunk, P] from zero, and the product of all gates up to each position."""
    x, passed = b.clone(memory_format=torch.contiguous_format), g.clone(memory_format=torch.contiguous_format)
    for place in range(1, b.shape[2]):
        gate = g[:, :, place]
        x[:, :, place].addcmul_(gate, x[:, :, place - 1])
        torch.mul(gate, passed[:, :, place - 1], out=passed[:, :, place])
    return x, passed
