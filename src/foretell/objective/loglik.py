"""The log-likelihood of a batch (paper, equation 6), term by term.

`Σ log λ_{e_i}(t_i) − ∫ λ(t) dt`, over the events and gaps that the batch marks as scored. Terms are kept per event and per gap, so that
every reported score is a sum of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Queries, Sample
from foretell.models.base import IntensityModel
from foretell.models.capabilities import ExactIntegral, FusedLoss, GapIntensities, GapTerms


@dataclass(frozen=True)
class Points:
    """Points of a sequence: `Σ weight·λ(time)` over them estimates its integral."""

    queries: Queries
    weights: Tensor  # float64 [B, Q]

    @property
    def gap(self) -> Tensor:
        """The gap of each point, which equals the number of events that the point sees: int64 [1 or B, Q]."""
        return self.queries.seen()


def in_parts(points: Points, gaps: int, most: int) -> Iterator[Points]:
    """Split points that lie gap by gap into parts of about `most` points; each part has some points of every gap."""
    times, weights = (part.unflatten(1, (gaps, -1)) for part in (points.queries.times, points.weights))
    at_a_time = max(1, most // max(1, len(times) * gaps))
    for first in range(0, times.shape[2], at_a_time):
        part = slice(first, first + at_a_time)
        yield _by_gap(times[:, :, part], weights[:, :, part])


def stratified(
    batch: Batch,
    points: int,
    generator: torch.Generator | None,
    uniform: Tensor | None = None,
    short: float | None = None,
) -> Points:
    """Cut each gap into `points` equal parts and draw one point in each: unbiased, with less variance than uniform draws.

    `uniform` are optional draws on [0, 1), float64 [B, G, points], for callers that make their own, such as a captured graph. With `short`,
    half of the points are spread over the logarithm of the time since the gap began, above about that time (`log_stratified`).
    """
    start, length = batch.scored_start, batch.gap_length
    if uniform is None:
        uniform = torch.rand(*start.shape, points, generator=generator, dtype=torch.float64, device=start.device)
    if short is not None:
        return log_stratified(batch, uniform, short)
    part = torch.arange(points, dtype=torch.float64, device=start.device)
    times = start.unsqueeze(-1) + length.unsqueeze(-1) * ((part + uniform) / points)
    weights = (length / points).unsqueeze(-1).expand_as(times)
    return _by_gap(times, weights)


def log_stratified(batch: Batch, uniform: Tensor, short: float) -> Points:
    """Draw half of the points with density `1/(u + short)`, and half uniformly; `u` is the time since the scored part of the gap began.

    The intensity may be a million times higher in the first second of a gap of days. Only one of a hundred thousand uniform draws would be
    in that second, and the estimate would have a large error. Weights are those of multiple importance sampling (Veach & Guibas 1995,
    balance heuristic), which is unbiased. If there is one point per gap, it is of either kind with probability 1/2.
    """
    length, points = batch.gap_length.unsqueeze(-1), uniform.shape[-1]
    whole = torch.log1p(length / short)
    if points == 1:
        share, early = 0.5, uniform < 0.5
        place = torch.where(early, 2.0 * uniform, 2.0 * uniform - 1.0)
    else:
        count = points // 2
        share, number = count / points, torch.arange(points, device=uniform.device)
        early = (number < count).expand_as(uniform)
        place = torch.where(early, (number + uniform) / count, (number - count + uniform) / (points - count))
    wait = torch.minimum(torch.where(early, short * torch.expm1(place * whole), length * place), length)
    some = length > 0.0
    safe, safe_whole = torch.where(some, length, 1.0), torch.where(some, whole, 1.0)
    density = share / ((wait + short) * safe_whole) + (1.0 - share) / safe
    return _by_gap(batch.scored_start.unsqueeze(-1) + wait, torch.where(some, 1.0 / (points * density), 0.0))


def quadrature(batch: Batch, nodes: int, short: float | None = None) -> Points:
    """Return Gauss-Legendre nodes per gap: exact for polynomials of degree 2·nodes − 1 of time or, with `short`, of `log(u + short)`."""
    start, length = batch.scored_start.unsqueeze(-1), batch.gap_length.unsqueeze(-1)
    place, weight = gauss_legendre(nodes, start.device)
    if short is None:
        return _by_gap(start + length * place, length * weight)
    whole = torch.log1p(length / short)
    wait = torch.minimum(short * torch.expm1(place * whole), length)
    return _by_gap(start + wait, (wait + short) * whole * weight)


def uniform(batch: Batch, points: Tensor, generator: torch.Generator | None, unit: Tensor | None = None) -> Points:
    """Draw `points[b]` independent times in the scored part of sequence `b`, as the paper does.

    `unit` are optional draws on [0, 1), float64 [B, at least max(points)], for callers that make their own.
    """
    length = batch.gap_length
    cumulative = torch.cat([length.new_zeros(len(batch), 1), length.cumsum(1)], dim=1)
    whole = cumulative[:, -1:]
    most = int(points.max()) if len(points) else 0
    if unit is None:
        unit = torch.rand(len(batch), most, generator=generator, dtype=torch.float64, device=length.device)
    draws = unit[:, :most] * whole
    gap = (torch.searchsorted(cumulative, draws, right=True) - 1).clamp(0, length.shape[1] - 1)
    times = batch.scored_start.gather(1, gap) + (draws - cumulative.gather(1, gap))
    used = torch.arange(most, device=length.device)[None] < points[:, None]
    weights = torch.where(used, whole / points.clamp(min=1)[:, None], torch.zeros_like(draws))
    return Points(Queries.seeing(times, gap), weights)


@lru_cache
def gauss_legendre(nodes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return nodes and weights on [0, 1]; cached, because a captured graph may not copy them to its device."""
    place, weight = np.polynomial.legendre.leggauss(nodes)
    return torch.from_numpy((place + 1.0) / 2.0).to(device), torch.from_numpy(weight / 2.0).to(device)


def _by_gap(times: Tensor, weights: Tensor) -> Points:
    return Points(Queries.by_gap(times), weights.flatten(1))


@dataclass(frozen=True)
class Terms:
    event_log: Tensor  # float64 [B, N]: log λ_{e_i}(t_i), 0 where the event is not scored
    gap_integral: Tensor  # float64 [B, N + 1]: ∫ λ over the gap, 0 where the gap is not scored

    def log_likelihood(self) -> Tensor:
        """The log-likelihood of each sequence: [B]."""
        return self.event_log.sum(1) - self.gap_integral.sum(1)


def event_terms(model: IntensityModel, history: Any, batch: Batch) -> Tensor:
    state = model.state(history, model.collator.plan_queries(batch, Queries.of_events(batch)))
    log = model.log_intensity(state, batch.types)
    return torch.where(batch.event_counts, log, torch.zeros_like(log))


def integral_terms(model: IntensityModel, history: Any, batch: Batch, points: Points) -> Tensor:
    """Return `weight·λ` at every point: [B, Q]."""
    total = model.total(model.state(history, model.collator.plan_queries(batch, points.queries)))
    return total * points.weights.to(total.dtype)


def log_likelihood(
    model: IntensityModel, batch: Batch, points: Points | None, sample: Sample | None = None, history: Any = None
) -> Terms:
    """Return the terms of a batch. The integral is a sum over `points`, or exact if `points` is None; `history` is the encoded batch,
    if available."""
    history = model.encode(model.collator.plan_batch(batch)) if history is None else history
    if points is None:
        assert isinstance(model, ExactIntegral), f"{model.kind} has no closed-form integral"
        exact = model.exact_integral(history, batch).double()
        return Terms(event_terms(model, history, batch).double(), exact * batch.gap_counts)
    queries = model.collator.plan_queries(batch, points.queries, sample)
    found = model.ends_and_inside(history, batch, queries, False) if isinstance(model, GapTerms) else None
    if found is None:
        event_log = event_terms(model, history, batch)
        weighted = integral_terms(model, history, batch, points).double()
    else:
        event_log = torch.where(batch.event_counts, found.log_at_end, torch.zeros_like(found.log_at_end))
        weighted = found.total_inside.flatten(1).double() * points.weights
    by_gap = torch.zeros(batch.gap_counts.shape, dtype=torch.float64, device=weighted.device)
    return Terms(event_log.double(), by_gap.scatter_add(1, points.gap.expand_as(weighted), weighted))


@dataclass(frozen=True)
class Loss:
    objective: Tensor  # the value that a step minimises
    negative_log_likelihood: Tensor  # without pseudo-events


def training_loss(
    model: IntensityModel,
    batch: Batch,
    points: Points | None,
    pseudo_rate: float = 0.0,
    history: Any = None,
    sample: Sample | None = None,
) -> Loss:
    """Return the negative log-likelihood of a batch, summed, in the model's dtype: the loss of one training step.

    `pseudo_rate` adds this many pseudo-events of every type per unit of time, spread evenly: `−rate·∫ Σ_e log λ_e(t) dt`. So types that are
    rare in training do not become impossible; the pseudo-count of the Poisson baseline has the same effect. `history` is the encoded
    batch, if the caller has it. With `sample`, sums over possible events are estimated from a random sample of them.
    """
    if history is None and points is not None and isinstance(model, FusedLoss) and is_fused(model, points):
        return Loss(*model.fused_losses(batch, points.queries.times, points.weights, pseudo_rate))
    history = model.encode(model.collator.plan_batch(batch)) if history is None else history
    if points is None:
        assert isinstance(model, ExactIntegral), f"{model.kind} has no closed-form integral"
        exact = model.exact_integral(history, batch)
        loss = (exact * batch.gap_counts).sum() - event_terms(model, history, batch).sum()
        return Loss(loss, loss)
    found = _ends_and_inside(model, history, batch, points, bool(pseudo_rate), sample)
    weights = points.weights.to(found.total_inside.dtype).view_as(found.total_inside)
    loss = (found.total_inside * weights).sum() - (found.log_at_end * batch.event_counts).sum()
    if found.log_sum_inside is None:
        return Loss(loss, loss)
    return Loss(loss - pseudo_rate * (found.log_sum_inside * weights).sum(), loss)


def is_fused(model: FusedLoss, points: Points) -> bool:
    """Whether `training_loss` uses the fused kernels, which compute the loss and its gradients directly from the events."""
    return points.queries.visible.per_gap is not None and len(points.weights) > 0 and model.is_fused()


def _ends_and_inside(
    model: IntensityModel, history: Any, batch: Batch, points: Points, pseudo: bool, sample: Sample | None
) -> GapIntensities:
    """Compute intensities at events and points: in one call if points lie gap by gap, since each event ends a gap, else in two."""
    queries = model.collator.plan_queries(batch, points.queries, sample)
    found = model.ends_and_inside(history, batch, queries, pseudo) if isinstance(model, GapTerms) else None
    if found is not None:
        return found
    per_gap = points.queries.visible.per_gap
    if per_gap is None:
        state = model.state(history, points.queries)
        logs = model.log_intensities(state).sum(-1) if pseudo else None
        ends = model.log_intensity(model.state(history, Queries.of_events(batch)), batch.types)
        return GapIntensities(ends, model.total(state), logs)
    inside = points.queries.times.unflatten(1, (-1, per_gap))
    state = model.state(history, Queries.by_gap(torch.cat([inside, batch.gap_end.unsqueeze(-1)], dim=-1)))
    return model.at_ends_and_inside(state.unflatten(1, (-1, per_gap + 1)), batch.types, pseudo)
