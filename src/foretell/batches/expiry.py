"""Batches of sequences in which additions expire: one column per event or expiry, so that every change of the database ends a gap.

The column of an expiry lies between those of events. An expiry is not an event: it is not scored, and does not reset the time since
the last event.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.batches.covariates import CovariateRows
from foretell.ground.timeline import Timeline


def with_expiries(batch: Batch, timelines: Sequence[Timeline]) -> tuple[Batch, Tensor]:
    """Return the batch with its expiries, and the number of each column's event, int64 [B, N']: -1 for an expiry, counted on in padding."""
    lengths = np.array([len(one.times) for one in timelines], dtype=np.int64)
    events = np.array([int((~one.is_expiry).sum()) for one in timelines], dtype=np.int64)
    padding = max((batch.times.shape[1] - events).min(initial=batch.times.shape[1]), 0)
    width = int(lengths.max(initial=0)) + int(padding)
    times = np.broadcast_to(batch.t_end.cpu().numpy()[:, None], (len(timelines), width)).copy()
    is_expiry = np.zeros((len(timelines), width), dtype=bool)
    for row, one in enumerate(timelines):
        times[row, : lengths[row]], is_expiry[row, : lengths[row]] = one.times, one.is_expiry
    seen = np.concatenate([np.zeros((len(timelines), 1), dtype=np.int64), np.cumsum(~is_expiry, axis=1)], axis=1)
    most = batch.times.shape[1]
    device = batch.times.device
    gap = torch.as_tensor(np.minimum(seen, most), device=device)  # the gap of the events alone in which each gap lies
    inside = torch.as_tensor(~is_expiry & (seen[:, :-1] < most), device=device)
    event = gap[:, :-1].clamp(max=max(most - 1, 0))
    when, t_end = torch.as_tensor(times, device=device), batch.t_end[:, None]
    start = torch.cat([torch.zeros_like(t_end), when], dim=1)
    end = torch.cat([when, t_end], dim=1)
    scored_start = torch.maximum(start, batch.scored_start.gather(1, gap)).minimum(end)
    counts = batch.gap_counts.gather(1, gap)
    made = replace(
        batch,
        times=when,
        types=_of_events(batch.types, event, inside),
        lengths=torch.as_tensor(lengths, device=device),
        gap_start=batch.gap_start.gather(1, gap),
        gap_end=end,
        gap_length=(end - scored_start) * counts,
        scored_start=scored_start,
        event_counts=_of_events(batch.event_counts, event, inside),
        gap_counts=counts,
        covariates=None if batch.covariates is None else _of_changes(batch.covariates, event, inside),
        history_only=_of_events(batch.history_only, event, inside) | torch.as_tensor(is_expiry, device=device),
    )
    return made, torch.as_tensor(np.where(is_expiry, -1, seen[:, :-1]), device=device)


def _of_changes(rows: CovariateRows, event: Tensor, inside: Tensor) -> CovariateRows:
    """Spread numbers of events over the columns of changes: NaN for expiries. Models of rules have no other covariates."""
    found = rows.numbers
    numbers = found.new_full((*event.shape, found.shape[2]), math.nan)
    if found.shape[1]:
        chosen = found.gather(1, event.unsqueeze(-1).expand(-1, -1, found.shape[2]))
        numbers = torch.where(inside.unsqueeze(-1), chosen, numbers)
    return replace(rows, numbers=numbers, codes=rows.codes.new_zeros(*event.shape, 0))


def _of_events(values: Tensor, event: Tensor, inside: Tensor) -> Tensor:
    """Spread values of events over the columns of changes: zero for expiries."""
    if not values.shape[1]:
        return values.new_zeros(event.shape)
    return torch.where(inside, values.gather(1, event), torch.zeros((), dtype=values.dtype, device=values.device))
