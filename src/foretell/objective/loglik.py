"""The log-likelihood (paper, equation 6) of a batch, term by term.

`Σ log λ_{e_i}(t_i) − ∫ λ(t) dt` over what counts: events and gaps are scored as the batch says. Terms are kept per event and per gap,
so that every report above this level is a sum of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.batches.queries import Queries, Sample
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.fused import fuses, losses
from foretell.models.base import EndsAndInside, IntensityModel
from foretell.objective.integral import Points


@dataclass(frozen=True)
class Terms:
    event_log: Tensor  # float64 [B, N]: log λ_{e_i}(t_i), 0 where the event does not count
    gap_integral: Tensor  # float64 [B, N + 1]: ∫ λ over the gap, 0 where it does not count

    def log_likelihood(self) -> Tensor:
        """Of each sequence: [B]."""
        return self.event_log.sum(1) - self.gap_integral.sum(1)


def event_terms(model: IntensityModel, history: Any, batch: Batch) -> Tensor:
    state = model.state(history, model.collator.plan_queries(batch, Queries.of_events(batch)))
    log = model.log_intensity(state, batch.types)
    return torch.where(batch.event_counts, log, torch.zeros_like(log))


def integral_terms(model: IntensityModel, history: Any, batch: Batch, points: Points) -> Tensor:
    """`weight·λ` at every point: [B, Q]."""
    total = model.total(model.state(history, model.collator.plan_queries(batch, points.queries)))
    return total * points.weights.to(total.dtype)


def log_likelihood(model: IntensityModel, batch: Batch, points: Points | None, sample: Sample | None = None) -> Terms:
    """Terms of a batch, with the integral at `points`, or in closed form where there are none."""
    history = model.encode(model.collator.plan_batch(batch))
    if points is not None:
        queries = model.collator.plan_queries(batch, points.queries, sample)
        found = model.ends_and_inside(history, batch, queries, False)
        if found is not None:
            return _terms_of(found, batch, points)
    event_log = event_terms(model, history, batch).double()
    if points is None:
        exact = model.exact_integral(history, batch)
        assert exact is not None, f"{model.kind} has no closed-form integral"
        return Terms(event_log, exact.double() * batch.gap_counts)
    weighted = integral_terms(model, history, batch, points).double()
    by_gap = torch.zeros(batch.gap_counts.shape, dtype=torch.float64, device=weighted.device)
    by_gap = by_gap.scatter_add(1, points.gap.expand_as(weighted), weighted)
    return Terms(event_log, by_gap)


def _terms_of(found: EndsAndInside, batch: Batch, points: Points) -> Terms:
    event_log = torch.where(batch.event_counts, found.log_at_end, torch.zeros_like(found.log_at_end)).double()
    weighted = found.total_inside.flatten(1).double() * points.weights
    by_gap = torch.zeros(batch.gap_counts.shape, dtype=torch.float64, device=weighted.device)
    return Terms(event_log, by_gap.scatter_add(1, points.gap.expand_as(weighted), weighted))


@dataclass(frozen=True)
class Loss:
    objective: Tensor  # what a step descends
    negative_log_likelihood: Tensor  # the same without what was added to it


def training_loss(
    model: IntensityModel,
    batch: Batch,
    points: Points | None,
    pseudo_rate: float = 0.0,
    history: Any = None,
    sample: Sample | None = None,
) -> Loss:
    """The summed negative log-likelihood of a batch, in the model's dtype: what one training step descends.

    `pseudo_rate` adds that many pseudo-events of every type per unit of time, spread evenly over it: `−rate·∫ Σ_e log λ_e(t) dt`. It keeps
    types that are rare in training from becoming impossible, just as the pseudo-count of the Poisson floor does. `history` is the
    encoded batch, where the caller has it. `sample` says that sums over possible events may be estimated from some of them.
    """
    if history is None and points is not None and is_fused(model, points):
        return Loss(*losses(model, batch, points.queries.times, points.weights, pseudo_rate))
    history = model.encode(model.collator.plan_batch(batch)) if history is None else history
    if points is None:
        exact = model.exact_integral(history, batch)
        assert exact is not None, f"{model.kind} has no closed-form integral"
        loss = (exact * batch.gap_counts).sum() - event_terms(model, history, batch).sum()
        return Loss(loss, loss)
    found = _ends_and_inside(model, history, batch, points, bool(pseudo_rate), sample)
    weights = points.weights.to(found.total_inside.dtype).view_as(found.total_inside)
    loss = (found.total_inside * weights).sum() - (found.log_at_end * batch.event_counts).sum()
    if found.log_sum_inside is None:
        return Loss(loss, loss)
    return Loss(loss - pseudo_rate * (found.log_sum_inside * weights).sum(), loss)


def is_fused(model: IntensityModel, points: Points) -> TypeGuard[ANHP]:
    """Whether `training_loss` takes the kernels that go from the events to the gradients at once."""
    return points.queries.visible.per_gap is not None and len(points.weights) > 0 and fuses(model)


def _ends_and_inside(
    model: IntensityModel, history: Any, batch: Batch, points: Points, pseudo: bool, sample: Sample | None
) -> EndsAndInside:
    """One question to the model where the points lie gap by gap, since an event ends its gap; else two."""
    queries = model.collator.plan_queries(batch, points.queries, sample)
    found = model.ends_and_inside(history, batch, queries, pseudo)
    if found is not None:
        return found
    per_gap = points.queries.visible.per_gap
    if per_gap is None:
        state = model.state(history, points.queries)
        logs = model.log_intensities(state).sum(-1) if pseudo else None
        ends = model.log_intensity(model.state(history, Queries.of_events(batch)), batch.types)
        return EndsAndInside(ends, model.total(state), logs)
    inside = points.queries.times.unflatten(1, (-1, per_gap))
    state = model.state(history, Queries.by_gap(torch.cat([inside, batch.gap_end.unsqueeze(-1)], dim=-1)))
    return model.at_ends_and_inside(state.unflatten(1, (-1, per_gap + 1)), batch.types, pseudo)
