"""From an embedding's score `x = w·[1; emb]` to an intensity (paper, equation 5), in float32 without under- or overflow."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

# Below this, log(log(1 + e^x)) is x to within float64's precision: x - e^x/2, with e^-37 < 1e-16.
LOG_SOFTPLUS_IS_LINEAR_BELOW = -37.0
LINEAR_ABOVE = 40.0


def softplus(x: Tensor) -> Tensor:
    """`log(1 + e^x)`, to the last bit of float64 (PyTorch's own default turns linear at 20)."""
    return F.softplus(x, threshold=LINEAR_ABOVE)


def log_softplus(x: Tensor) -> Tensor:
    """Its logarithm; where the softplus itself would be 0 in floating point, this is still finite and has a gradient."""
    linear = x < LOG_SOFTPLUS_IS_LINEAR_BELOW
    inside = torch.where(linear, torch.zeros_like(x), x)
    return torch.where(linear, x, torch.log(softplus(inside)))


def inverse_softplus(y: Tensor) -> Tensor:
    """The `x` with `log(1 + e^x) = y > 0`."""
    return y + torch.log(-torch.expm1(-y))
