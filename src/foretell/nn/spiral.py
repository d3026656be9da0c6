"""A decaying rotation, `g = exp((−a + iω) Δ u)`: real and imaginary part, from real decays, frequencies, steps and elapsed times.

`g − 1` is returned, too, with full precision for short times. The gradient is written by hand: it needs only `g` and the times, and
is finite even where `g` underflows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Spiral(NamedTuple):
    real: Tensor
    imaginary: Tensor
    real_change: Tensor  # real part of `g − 1`; its imaginary part is that of `g`


def spiral(decay: Tensor, frequency: Tensor, step: Tensor, elapsed: Tensor) -> Spiral:
    """Return `g` [..., P] from decays and frequencies [P], steps [..., P] and elapsed times [..., 1], which have no gradient."""
    return Spiral(*_Spiral.apply(decay, frequency, step, elapsed))  # pyright: ignore[reportGeneralTypeIssues]


class _Spiral(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, decay: Tensor, frequency: Tensor, step: Tensor, elapsed: Tensor) -> tuple[Tensor, ...]:
        scaled = step * elapsed
        shrinks, half = -decay * scaled, (0.5 * frequency) * scaled
        size, sine = torch.exp(shrinks), torch.sin(half)
        lost = 2.0 * size * sine * sine  # cos φ = 1 − 2 sin²(φ/2)
        imaginary = 2.0 * size * sine * torch.cos(half)
        real = size - lost
        ctx.save_for_backward(decay, frequency, step, elapsed, scaled, real, imaginary)
        return real, imaginary, torch.expm1(shrinks) - lost

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        decay, frequency, step, elapsed, scaled, real, imaginary = ctx.saved_tensors
        of_real = gradients[0] + gradients[2]
        of_imaginary = gradients[1]
        along = of_real * real + of_imaginary * imaginary
        around = of_imaginary * real - of_real * imaginary
        of_step = ((frequency * around - decay * along) * elapsed).sum_to_size(step.shape)
        rows = scaled.reshape(-1, scaled.shape[-1])
        of_decay = -(rows * along.view_as(rows)).sum(0)
        of_frequency = (rows * around.view_as(rows)).sum(0)
        return of_decay, of_frequency, of_step, None
