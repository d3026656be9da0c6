"""Attention of queries to tables of the past, at single moments or on time pieces.

The output of a head is `Σ α v / (1 + Σ α)` with weights `α = e^logit`. At the nodes, weights are divided by their sum, so that they sum
to 1 there and the mean needs no division of series. Only the error of that sum between the nodes has to be bounded.

If a head decays, all its logits fall by `γu` with the time `u` since the last event. This does not change the weights of events
relative to each other. So the output is their mean times `Y/(1 + Y)`, with `Y = e^(level − γu)` and `level` the logarithm of the
sum of the weights without the decay, one number per head and query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.models.attention.past_table import PastTable
from foretell.models.attention.query_layout import QueryLayout
from foretell.sampling.bounds.chebyshev import ROUNDED, ChebyshevPiece, exp_off, overshoot, point, tighter
from foretell.sampling.bounds.curves import inverse
from foretell.sampling.bounds.time_windows import TimeWindows

Tell = Callable[[PastTable, Tensor], None]  # called with attention weights at single moments: [., ., H, rows]


@dataclass(frozen=True)
class ForgettingHeads:
    rates: Tensor  # γ of every head of a run: [H]
    windows: TimeWindows


def attend(
    queries: QueryLayout,
    table: PastTable,
    features: ChebyshevPiece,
    x: ChebyshevPiece | Tensor,
    forgetting: ForgettingHeads | None,
    tell: Tell | None = None,
) -> ChebyshevPiece:
    """Return the concatenated outputs of a run of heads: [., ., D]. `x`, the embedding, may be one vector for all queries."""
    folded, ahead, degree = table.folded, table.features, features.degree
    heads, rows = folded.shape[1], folded.shape[2]
    if isinstance(x, ChebyshevPiece):
        inputs, alike, size = torch.cat([features.v, x.v], -1), None, x.v.abs().amax((0, -1))
    else:
        inputs, alike, size = features.v, queries.meet(folded[..., ahead:], x).flatten(1), x.abs().max()
        folded = folded[..., :ahead]
    logits = queries.times(inputs, folded.flatten(1, 2).mT, alike).unflatten(-1, (heads, rows))
    top = logits.amax(-1, keepdim=True)
    weights = (logits - top).exp_()
    whole = weights.sum(-1, keepdim=True)
    means = queries.weigh(weights, table.values) / whole
    level = (whole.log() + top).squeeze(-1)
    if not degree:
        if tell is not None:
            tell(table, weights[0] / whole[0])
        return point(_kept(means, ChebyshevPiece(level, level[0] * 0.0), forgetting).v[0].flatten(-2))
    off = features.remainder.clone()
    off[..., 0] = ROUNDED * size.clamp(min=1.0)
    matrix = table.folded_off
    if isinstance(x, ChebyshevPiece):
        off = torch.cat([off, x.off_length()], -1)
    else:
        matrix = matrix[..., :ahead]
    off = queries.times(off[None], matrix.flatten(1, 2).mT)[0].unflatten(-1, (heads, rows))
    off = exp_off(ChebyshevPiece(logits.sub_(level.unsqueeze(-1)), off).shape(), off)
    of = queries.weigh(off[None], table.values_off)[0]
    found = _bounded(queries, table, means, of)
    found = _kept(found, ChebyshevPiece(level, -torch.log1p(-of[..., -1].clamp(max=1.0))), forgetting)
    length = torch.linalg.vector_norm(found.off_length(), dim=-2)
    return ChebyshevPiece(found.v.flatten(-2), found.remainder.flatten(-2), length)


def _bounded(queries: QueryLayout, table: PastTable, means: Tensor, of: Tensor) -> ChebyshevPiece:
    """Return means at the nodes with remainders. `of`, [., ., H, size + 2], has the remainders of weighted values, length and weights."""
    of_values, of_length, of_whole = of[..., :-2], of[..., -2:-1], of[..., -1:]
    centre, low, high = (
        queries.each(one.flatten(1)).unflatten(-1, (means.shape[-2], -1))
        for one in (table.values_centre, table.low, table.high)
    )
    rounded = ROUNDED * torch.maximum(-low, high)
    away, most = means - centre, overshoot(len(means) - 1)
    length = torch.linalg.vector_norm(away, dim=-1, keepdim=True).amax(0) * most
    left = (1.0 - of_whole).clamp(min=0.0)
    remainder = (of_values + away.abs_().amax(0) * most * of_whole) / left + rounded
    length = (of_length + length * of_whole) / left + torch.linalg.vector_norm(rounded, dim=-1, keepdim=True)
    # Whatever the weights are, the output lies between the smallest and the largest of 0 and the values.
    return tighter(ChebyshevPiece(means, remainder, length), low - rounded, high + rounded)


def _kept(means: ChebyshevPiece | Tensor, level: ChebyshevPiece, forgetting: ForgettingHeads | None) -> ChebyshevPiece:
    """Return `Y/(1 + Y)` times the means of every head, for pieces or for values at one moment [1, ., ., H, size]."""
    found = ChebyshevPiece(means, means[0] * 0.0) if isinstance(means, Tensor) else means
    if forgetting is None:
        return found
    return found * remembered(level, forgetting).map(lambda part: part.unsqueeze(-1))


def remembered(level: ChebyshevPiece, forgetting: ForgettingHeads) -> ChebyshevPiece:
    """Return `Y/(1 + Y)`, [., ., H], with `Y = e^(level − γu)`.

    If `Y` is below 1, compute `1 − 1/(1 + Y)`, otherwise `1/(1 + Z)` with `Z = 1/Y`. So the exponential is always the smaller one.
    """
    rates, windows = forgetting.rates, forgetting.windows
    start, end = (one.unsqueeze(-1) for one in windows.range())
    if not level.degree:
        return point(torch.sigmoid(level.v[0] - rates * start))
    falls = level.v.mean(0) <= rates * (start + end) / 2.0
    side = torch.where(falls, 1.0, -1.0)
    since = torch.where(falls, start, end)  # the end of the window where that exponential is largest
    power = (level.v - rates * since) * side
    remainder = level.remainder + ROUNDED * (rates * since + level.v.abs().amax(0))
    first = ChebyshevPiece(power.exp(), exp_off(ChebyshevPiece(power, remainder).shape(), remainder))
    found = inverse(first * windows.exponentials(rates * side, since))
    return ChebyshevPiece(torch.where(falls, 1.0 - found.v, found.v), found.remainder)
