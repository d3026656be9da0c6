"""A mixture over time scales that multiplies the intensities of events of all functors, as that of A-NHP does (`coarse_intensities.py`).

    r(t) = 1 + Σ_j softplus(v_j·[1; emb])·exp(−u/s_j)·T/s_j,

where `u` is the time since the last event of the sequence, exogenous or not, `T` is the unit of time, and each functor has its own `v`.
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

QUIET = -3.0  # what amplitudes start from: softplus(-3) is 0.05


@dataclass(frozen=True)
class Densities:
    """`exp(−u/s)·T/s` on every scale."""

    table: Tensor  # [B·Q + B·N, scales]: of all queries, and of all events
    row: Tensor  # int64: of each possible event, and of each that happened

    def of(self, places: Tensor) -> Tensor:
        """Of some of the latter: [n, scales]."""
        return self.table.index_select(0, self.row.index_select(0, places))


class TimeMixture(nn.Module):
    """`count` scales; none: every factor is 1."""

    def __init__(self, count: int, dims: Sequence[int]) -> None:
        super().__init__()
        self.count = count
        self.scales = TimeScales(count)
        self.v = nn.ParameterList(torch.zeros(count, 1 + dim) for dim in dims) if count else nn.ParameterList()
        with torch.no_grad():
            for one in self.v:
                one[:, 0] = QUIET

    def densities(self, batch: Batch, queries: Queries, unit: float, dtype: torch.dtype) -> Densities | None:
        """For planned queries about a batch; None where there are no scales."""
        if not self.count:
            return None
        seen = queries.seen().clamp(max=batch.times.shape[1]).expand(len(batch), -1)
        inside = queries.times - batch.gap_start.gather(1, seen)
        at_ends = batch.times - batch.gap_start[:, :-1]
        table = self.scales.densities(torch.cat([inside.flatten(), at_ends.flatten()]), unit, dtype)
        return Densities(table, torch.cat([queries.plan.query, inside.numel() + queries.plan.event]))

    def log_factors(self, functors: Iterable[int], part: Intensities, rows: Tensor, densities: Tensor) -> Tensor:
        """`log r` for the events of one dimension, whose functors these are, from embeddings and densities: [n]."""
        own = [self.v[number] for number in functors]
        if len(own) == 1:
            return torch.log1p(_more(rows, own[0], densities))
        parts = (one.index_select(0, part.order).split(part.counts) for one in (rows, densities))
        found = torch.cat([_more(x, v, y) for x, y, v in zip(*parts, own, strict=True)])
        return torch.log1p(torch.zeros_like(found).index_copy(0, part.order, found))


def _more(rows: Tensor, v: Tensor, densities: Tensor) -> Tensor:
    return (softplus(F.linear(rows, v[:, 1:], v[:, 0])) * densities).sum(-1)
