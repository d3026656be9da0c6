"""LayerNorm and the feed-forward sublayer, where a model has them, of quantities that change with time."""

from __future__ import annotations

import math

import torch
from torch import nn

from foretell.models.attention.layers import Sublayers
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, power, relu, tighter


def after(sublayers: nn.Module, x: ChebyshevPiece) -> ChebyshevPiece:
    """What follows the residual connection: rows [..., D]."""
    assert isinstance(sublayers, Sublayers)
    if sublayers.norms is not None:
        x = _layer_norm(sublayers.norms[0], x)
    if sublayers.expand is not None and sublayers.contract is not None:
        inner = relu(x.through(sublayers.expand.weight.T).plus(sublayers.expand.bias))
        x = x + inner.through(sublayers.contract.weight.T).plus(sublayers.contract.bias)
        if sublayers.norms is not None:
            x = _layer_norm(sublayers.norms[1], x)
    return x


def _layer_norm(norm: nn.Module, x: ChebyshevPiece) -> ChebyshevPiece:
    assert isinstance(norm, nn.LayerNorm)
    size = x.v.shape[-1]
    moved = x.through(torch.eye(size, dtype=torch.float64, device=x.v.device) - 1.0 / size)
    square = moved * moved
    variance = square.through(torch.full((size, 1), 1.0 / size, dtype=torch.float64, device=x.v.device))
    found = moved * power(variance.plus(x.v.new_tensor(norm.eps)), -0.5).map(
        lambda part: part.expand(*part.shape[:-1], size)
    )
    if found.degree:  # no component of a vector of length √D is above that
        edge = torch.full_like(found.remainder, math.sqrt(size))
        found = tighter(found, -edge, edge)
    return found.times(norm.weight).plus(norm.bias)
