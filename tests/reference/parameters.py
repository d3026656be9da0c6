"""Random parameters of the slow models of rules, and the softplus that their numbers by hand need."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def drawn(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if shape:
            found[name] = 0.6 * torch.randn(shape, generator=generator, dtype=torch.float64)
        else:  # an exponent, or a scale
            found[name] = 1.0 + torch.rand((), generator=generator, dtype=torch.float64)
    return found


def softplus(x: float, tau: float = 1.0) -> float:
    return tau * math.log(1.0 + math.exp(x / tau))
