"""Softplus and its logarithm, from scores `x = w·[1; emb]` to intensities (paper, equation 5), without under- or overflow in float32."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

# Below this, log(log(1 + e^x)) equals x in float64: the difference is e^x/2, with e^-37 < 1e-16.
LOG_SOFTPLUS_IS_LINEAR_BELOW = -37.0
LINEAR_ABOVE = 40.0


def softplus(x: Tensor) -> Tensor:
    """Return `log(1 + e^x)`, to the last bit of float64 (PyTorch's default is linear from 20 on)."""
    return F.softplus(x, threshold=LINEAR_ABOVE)


def log_softplus(x: Tensor) -> Tensor:
    """Return `log(softplus(x))`, which is finite and has a gradient even where softplus itself is 0 in floating point."""
    linear = x < LOG_SOFTPLUS_IS_LINEAR_BELOW
    inside = torch.where(linear, torch.zeros_like(x), x)
    return torch.where(linear, x, torch.log(softplus(inside)))


def inverse_softplus(y: Tensor) -> Tensor:
    """Return the `x` with `log(1 + e^x) = y > 0`."""
    return y + torch.log(-torch.expm1(-y))
