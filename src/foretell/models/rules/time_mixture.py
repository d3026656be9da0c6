"""Factors of the intensities of all functors' events, as functions of the time since the last event of the sequence.

    r(t) = (1 + Σ_j softplus(v_j·[1; emb])·exp(−u/s_j)·T/s_j) · exp(Σ_k a_k·[1; emb]·exp(−u/s_k)),

where `u` is the time since the last event, exogenous or not, `T` is the unit of time, and each functor has its own `v` and `a`. The first
factor is a mixture over time scales, like that of A-NHP (`coarse_intensities.py`). It can only increase intensities, and makes bursts. The
second is a shape: it is bounded for given embeddings and can rise and fall, so an event can make the next one less likely for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch, Queries
from foretell.nn.elapsed import TimeScales
from foretell.nn.intensity import softplus
from foretell.plan.plan import Intensities

QUIET = -3.0  # the initial constant of the mixture's amplitudes: softplus(-3) is 0.05


@dataclass(frozen=True)
class Densities:
    """`exp(−u/s)·T/s` on every scale of the mixture, then `exp(−u/s)` on every scale of the shape."""

    table: Tensor  # [B·Q + B·N, scales]: at all queries, then at all events
    row: Tensor  # int64: for each possible event, then each observed event, its row in `table`

    def of(self, places: Tensor) -> Tensor:
        """Return the densities of some possible or observed events: [n, scales]."""
        return self.table.index_select(0, self.row.index_select(0, places))


class TimeMixture(nn.Module):
    """`count` scales of the mixture and `shape` scales of the shape. Without any, every factor is 1."""

    def __init__(self, count: int, shape: int, dims: Sequence[int]) -> None:
        super().__init__()
        self.count, self.shape = count, shape
        self.scales, self.shape_scales = TimeScales(count), TimeScales(shape)
        self.v = nn.ParameterList(torch.zeros(count, 1 + dim) for dim in dims) if count else nn.ParameterList()
        self.a = nn.ParameterList(torch.zeros(shape, 1 + dim) for dim in dims) if shape else nn.ParameterList()
        with torch.no_grad():
            for one in self.v:
                one[:, 0] = QUIET

    @property
    def timed(self) -> bool:
        """Whether there are any scales."""
        return bool(self.count or self.shape)

    def set_range(self, short: float, long: float) -> None:
        """Set all scales between `short` and `long`, in the data's unit."""
        for scales in (self.scales, self.shape_scales):
            scales.set_range(short, long)

    def arrays(self, number: int) -> dict[str, Tensor]:
        """Return the parameters of one functor under their public names."""
        found = {"mixture": self.v[number]} if self.count else {}
        return found | ({"shape": self.a[number]} if self.shape else {})

    def densities_at(self, elapsed: Tensor, unit: float, dtype: torch.dtype) -> Tensor:
        """Return densities [..., count + shape] for elapsed times [...] float64."""
        mixed = self.scales.densities(elapsed, unit, dtype)
        if not self.shape:
            return mixed
        return torch.cat([mixed, self.shape_scales.features(elapsed, dtype)[..., : self.shape]], dim=-1)

    def densities(self, batch: Batch, queries: Queries, unit: float, dtype: torch.dtype) -> Densities | None:
        """Return densities for planned queries about a batch; None if there are no scales."""
        if not self.timed:
            return None
        seen = queries.seen().clamp(max=batch.times.shape[1]).expand(len(batch), -1)
        inside = queries.times - batch.gap_start.gather(1, seen)
        at_ends = batch.times - batch.gap_start[:, :-1]
        table = self.densities_at(torch.cat([inside.flatten(), at_ends.flatten()]), unit, dtype)
        return Densities(table, torch.cat([queries.plan.query, inside.numel() + queries.plan.event]))

    def log_factors(self, functors: Iterable[int], part: Intensities, rows: Tensor, densities: Tensor) -> Tensor:
        """Return `log r`, [n], for events of one dimension with these functors, from embeddings and densities."""
        own = list(functors)
        if len(own) == 1:
            return self.log_factor(own[0], rows, densities)
        parts = (one.index_select(0, part.order).split(part.counts) for one in (rows, densities))
        found = torch.cat([self.log_factor(one, x, y) for x, y, one in zip(*parts, own, strict=True)])
        return torch.zeros_like(found).index_copy(0, part.order, found)

    def log_factor(self, functor: int, rows: Tensor, densities: Tensor) -> Tensor:
        """Return `log r`, [n], for events of one functor, from embeddings [n, dim] and densities."""
        mixed, shaped = densities.split([self.count, self.shape], dim=-1)
        found = rows.new_zeros(len(rows))
        if self.count:
            found = torch.log1p((softplus(_amplitudes(self.v[functor], rows)) * mixed).sum(-1))
        return found + (_amplitudes(self.a[functor], rows) * shaped).sum(-1) if self.shape else found


def _amplitudes(vectors: Tensor, rows: Tensor) -> Tensor:
    return F.linear(rows, vectors[:, 1:], vectors[:, 0])
