"""Where the integral of the total intensity is looked at, and with what weights (paper, appendix C).

`uniform` draws times on the whole of [0, T] (the paper's), `stratified` inside every gap between events, and `quadrature` puts
Gauss-Legendre nodes into every gap. All three give times and weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.batches.queries import Queries


@dataclass(frozen=True)
class Points:
    """`Σ weight·λ(time)` over a sequence's points is its integral."""

    queries: Queries
    weights: Tensor  # float64 [B, Q]

    @property
    def gap(self) -> Tensor:
        """Where each point lies, which is also how many events it sees: int64 [1 or B, Q]."""
        return self.queries.seen()


def in_parts(points: Points, gaps: int, most: int) -> Iterator[Points]:
    """Points that lie gap by gap, at most about `most` at a time: some of every gap's, then the next."""
    times, weights = (part.unflatten(1, (gaps, -1)) for part in (points.queries.times, points.weights))
    at_a_time = max(1, most // max(1, len(times) * gaps))
    for first in range(0, times.shape[2], at_a_time):
        part = slice(first, first + at_a_time)
        yield _by_gap(times[:, :, part], weights[:, :, part])


def stratified(batch: Batch, points: int, generator: torch.Generator | None, uniform: Tensor | None = None) -> Points:
    """Each gap is cut into `points` equal parts with one draw in each: unbiased, and less variance than uniform draws.

    `uniform` may hold the draws on [0, 1), float64 [B, G, points], where the caller makes them (a captured graph does).
    """
    start, length = batch.gap_start, batch.gap_length
    if uniform is None:
        uniform = torch.rand(*start.shape, points, generator=generator, dtype=torch.float64, device=start.device)
    part = torch.arange(points, dtype=torch.float64, device=start.device)
    times = start.unsqueeze(-1) + length.unsqueeze(-1) * ((part + uniform) / points)
    weights = (length / points).unsqueeze(-1).expand_as(times)
    return _by_gap(times, weights)


def quadrature(batch: Batch, nodes: int) -> Points:
    """Gauss-Legendre nodes in every gap: exact for polynomials of degree 2·nodes − 1."""
    start, length = batch.gap_start.unsqueeze(-1), batch.gap_length.unsqueeze(-1)
    place, weight = gauss_legendre(nodes, start.device)
    return _by_gap(start + length * place, length * weight)


def uniform(batch: Batch, points: Tensor, generator: torch.Generator | None) -> Points:
    """`points[b]` independent draws on the scored part of sequence `b`, as the paper draws them."""
    length = batch.gap_length
    cumulative = torch.cat([length.new_zeros(len(batch), 1), length.cumsum(1)], dim=1)
    whole = cumulative[:, -1:]
    most = int(points.max()) if len(points) else 0
    draws = torch.rand(len(batch), most, generator=generator, dtype=torch.float64, device=length.device) * whole
    gap = (torch.searchsorted(cumulative, draws, right=True) - 1).clamp(0, length.shape[1] - 1)
    times = batch.gap_start.gather(1, gap) + (draws - cumulative.gather(1, gap))
    used = torch.arange(most, device=length.device)[None] < points[:, None]
    weights = torch.where(used, whole / points.clamp(min=1)[:, None], torch.zeros_like(draws))
    return Points(Queries.seeing(times, gap), weights)


@lru_cache
def gauss_legendre(nodes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [0, 1]; kept, since a captured graph may not copy them to its device."""
    place, weight = np.polynomial.legendre.leggauss(nodes)
    return torch.from_numpy((place + 1.0) / 2.0).to(device), torch.from_numpy(weight / 2.0).to(device)


def _by_gap(times: Tensor, weights: Tensor) -> Points:
    return Points(Queries.by_gap(times), weights.flatten(1))
