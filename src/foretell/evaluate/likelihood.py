"""Held-out log-likelihood, event by event: closed form, quadrature with a check on itself, or draws with their standard error."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.capabilities import ExactIntegral
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.loglik import Points, in_parts, integral_terms, quadrature, stratified, uniform
from foretell.options import Integral, Window
from foretell.train.likelihood_task import batches_of

UNMET = -1  # the type of an event that the model's vocabulary lacks


def with_all_names(model: IntensityModel, data: EventData) -> IntensityModel:
    """With a name for every event that is possible at some time in the data."""
    if not isinstance(model, RuleModel):
        return model
    grounding, facts = model.histories.grounding, set[int]()
    for one in data:
        _, timeline = model.histories.timeline(model.vocabulary, one.types, one.times, one.unscored)
        facts.update(np.unique(timeline.holds[:, 0]).tolist())
    facts.update(grounding.always.tolist())
    return with_names(model, (grounding.text(fact) for fact in facts if grounding.is_event(fact)))


def with_names(model: IntensityModel, names: Iterable[str]) -> IntensityModel:
    """With these names behind its own. The two share their parameters; the caller's model keeps its vocabulary."""
    fresh = sorted({name for name in names if name not in model.vocabulary})
    if not fresh:
        return model
    wide = copy.copy(model)
    wide.vocabulary = Vocabulary((*model.vocabulary.names, *fresh))
    return wide


def known_types(types: Tensor, model: IntensityModel) -> Tensor:
    """Types of a model with all names as those of the model itself: int32, UNMET where it has no name for one."""
    return types.where(types < model.types, UNMET).int()


SHARP = 4  # draws for each node that quadrature would have had, where intensities are high for a moment
QUADRATURE_TOLERANCE = 1e-3  # nats an event between n and 2n nodes; above it, evaluation falls back to draws


@dataclass(frozen=True)
class IntegralEstimate:
    """How the integral was computed, and how far it can be trusted; nats an event."""

    method: Literal["closed form", "quadrature", "stratified", "uniform"]
    points: int  # a gap; for uniform draws, an event
    doubling: float | None  # quadrature: |n nodes − 2n nodes|
    standard_error: float | None  # draws
    fallback: bool = False  # True: quadrature was asked for and did not settle


@dataclass(frozen=True)
class EventScores:
    """One row a scored event, in the order of the data; every row carries the integral since the scored event before it.

    The tail after a sequence's last scored event belongs to that event's row (`tail`); a sequence without scored events has a row with
    `event = -1`, so that its integral is not lost.
    """

    sequence: np.ndarray  # int64: index into the data
    event: np.ndarray  # int64: index into the sequence
    time: np.ndarray
    type: np.ndarray  # int32
    log_intensity: np.ndarray  # log λ_{e_i}(t_i)
    log_total: np.ndarray  # log λ(t_i)
    log_predicted: np.ndarray  # log λ_e(t_i) of the most intense event
    integral: np.ndarray  # ∫ λ since the scored event before, or since the scored part of the sequence begins
    tail: np.ndarray  # ∫ λ after the last scored event, in its row; else 0
    integral_variance: np.ndarray  # of the two together, where they are draws; else 0
    tail_variance: np.ndarray  # of the tail alone
    predicted_type: np.ndarray  # int32: argmax_e λ_e(t_i); UNMET: an event that the vocabulary lacks
    log_likelihoods: np.ndarray  # float64 [sequences]
    scored: np.ndarray  # int64 [sequences]: scored events of each
    used: IntegralEstimate

    @property
    def is_event(self) -> np.ndarray:
        return self.event >= 0

    @property
    def log_likelihood(self) -> np.ndarray:
        """Of each row: its event's log-intensity less the integrals it carries."""
        return self.log_intensity - self.integral - self.tail

    @property
    def time_log_likelihood(self) -> np.ndarray:
        """The part that says when: `log λ(t_i) − ∫ λ`."""
        return self.log_total - self.integral - self.tail

    @property
    def type_log_likelihood(self) -> np.ndarray:
        """The part that says what: `log λ_{e_i}(t_i)/λ(t_i)`."""
        return self.log_intensity - self.log_total


@torch.no_grad()
def score_events(
    model: IntensityModel,
    data: EventData,
    *,
    integral: Integral = "quadrature",
    points: int = 10,
    window: Window = "all",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> EventScores:
    if points < 1:
        raise ForetellError(f"points = {points}: expected 1 or more")
    if isinstance(model, ExactIntegral):
        return _score(model, data, _closed_form, "closed form", 0, window, progress)
    doubling = None
    if integral == "quadrature" and model.short_time is not None:
        integral, points = "stratified", SHARP * points  # what no polynomial follows within a gap
    if integral == "quadrature":
        scores = _score(model, data, partial(_by_quadrature, nodes=points), integral, points, window, progress)
        doubling = scores.used.doubling
        assert doubling is not None
        if doubling <= QUADRATURE_TOLERANCE:
            return scores
        integral = "stratified"
    generator = torch.Generator(model.device).manual_seed(seed)
    by_draws = partial(_by_draws, method=integral, points=points, generator=generator)
    drawn = _score(model, data, by_draws, integral, points, window, progress)
    return replace(drawn, used=replace(drawn.used, doubling=doubling, fallback=doubling is not None))


@dataclass(frozen=True)
class _GapIntegrals:
    value: Tensor  # [B, G]
    variance: Tensor  # [B, G]
    doubled: Tensor  # [B, G]: the same with twice the nodes


Integrator = Callable[[IntensityModel, Any, Batch], _GapIntegrals]


def _closed_form(model: IntensityModel, history: Any, batch: Batch) -> _GapIntegrals:
    assert isinstance(model, ExactIntegral)
    value = model.exact_integral(history, batch).double() * batch.gap_counts
    return _GapIntegrals(value, torch.zeros_like(value), value)


def _by_quadrature(model: IntensityModel, history: Any, batch: Batch, *, nodes: int) -> _GapIntegrals:
    value = _summed(model, history, batch, quadrature(batch, nodes, model.short_time))
    doubled = _summed(model, history, batch, quadrature(batch, 2 * nodes, model.short_time))
    return _GapIntegrals(value, torch.zeros_like(value), doubled)


def _by_draws(
    model: IntensityModel, history: Any, batch: Batch, *, method: Integral, points: int, generator: torch.Generator
) -> _GapIntegrals:
    if method == "uniform":
        drawn = uniform(batch, batch.lengths.clamp(min=1) * points, generator)
        return _uniform_gaps(batch, drawn, integral_terms(model, history, batch, drawn).double())
    # Two independent sets of draws: their mean is the estimate, their difference gives its variance.
    halves = [max(1, points // 2), max(1, points - points // 2)]
    sets = [stratified(batch, half, generator, short=model.short_time) for half in halves]
    first, second = (_summed(model, history, batch, half) for half in sets)
    return _GapIntegrals((first + second) / 2.0, (first - second).square() / 4.0, (first + second) / 2.0)


def _summed(model: IntensityModel, history: Any, batch: Batch, points: Points) -> Tensor:
    """The integral over every gap; some of its points at a time, where they are many."""
    gaps = batch.gap_counts.shape
    value = torch.zeros(gaps, dtype=torch.float64, device=points.weights.device)
    for part in in_parts(points, gaps[1], model.queries_at_a_time):
        total = model.total(model.state(history, model.collator.plan_queries(batch, part.queries))).double()
        value += (total * part.weights).unflatten(1, (gaps[1], -1)).sum(-1)
    return value


def _uniform_gaps(batch: Batch, drawn: Points, terms: Tensor) -> _GapIntegrals:
    """Draws on the whole of [0, T] laid into the gaps they fell in; the variance is the sequence's, spread over its gaps."""
    gaps = torch.zeros(batch.gap_counts.shape, dtype=torch.float64, device=terms.device)
    value = gaps.scatter_add(1, drawn.gap.expand_as(terms), terms)
    count = (drawn.weights > 0).sum(1).clamp(min=2)
    mean = terms.sum(1) / count
    used = drawn.weights > 0
    spread = ((terms - mean[:, None]).square() * used).sum(1) * count / (count - 1)
    share = batch.gap_length / batch.gap_length.sum(1, keepdim=True).clamp(min=1e-300)
    return _GapIntegrals(value, spread[:, None] * share, value)


def _score(
    model: IntensityModel,
    data: EventData,
    integrate: Integrator,
    method: Literal["closed form", "quadrature", "stratified", "uniform"],
    points: int,
    window: Window,
    progress: Callable[[int, int], None] | None,
) -> EventScores:
    rows: list[dict[str, np.ndarray]] = []
    log_likelihoods, scored = np.zeros(len(data)), np.zeros(len(data), dtype=np.int64)
    doubling, variance, done = 0.0, 0.0, 0
    wide = with_all_names(model, data)
    for indices, batch in batches_of(data, model, window, 2 * max(points, 1)):
        history = model.encode(batch)
        state = wide.state(history, wide.collator.plan_queries(batch, Queries.of_events(batch)))
        logs = wide.log_intensities(state).double()
        gaps = integrate(model, history, batch)
        doubling += float((gaps.value - gaps.doubled).abs().sum())
        variance += float(gaps.variance.sum())
        table = _rows(indices, batch, model, state, logs, gaps)
        rows.append(table)
        np.add.at(log_likelihoods, table["sequence"], table["log_intensity"] - table["integral"] - table["tail"])
        scored[indices] = batch.scored.cpu().numpy()
        done += len(indices)
        if progress is not None:
            progress(done, len(data))
    events = max(int(scored.sum()), 1)
    whole = {name: np.concatenate([table[name] for table in rows]) for name in rows[0]} if rows else _no_rows()
    order = np.lexsort((whole["event"], whole["sequence"]))
    used = IntegralEstimate(
        method,
        points,
        doubling / events if method == "quadrature" else None,
        float(np.sqrt(variance)) / events if method in ("stratified", "uniform") else None,
    )
    ordered = {name: column[order] for name, column in whole.items()}
    return EventScores(**ordered, log_likelihoods=log_likelihoods, scored=scored, used=used)


def _rows(
    indices: list[int], batch: Batch, model: IntensityModel, state: Tensor, logs: Tensor, gaps: _GapIntegrals
) -> dict[str, np.ndarray]:
    """The scored events of a batch, and one row for each sequence that has none but a gap that counts."""
    counts, scored = batch.event_counts, batch.scored
    row, event = torch.nonzero(counts, as_tuple=True)
    # Gap g is ended by event g. What unscored events end goes on to the next scored one; after the last of these it is the tail.
    before = torch.nn.functional.pad(counts.cumsum(1), (1, 0))  # scored events before each gap
    value, variance = (torch.zeros_like(part).scatter_add(1, before, part) for part in (gaps.value, gaps.variance))
    tail, tail_variance = (part.gather(1, scored[:, None]).squeeze(1) for part in (value, variance))
    place = before[row, event]
    is_last = place == scored[row] - 1
    of_tail = torch.where(is_last, tail_variance[row], 0.0)
    bare = torch.nonzero(scored == 0).squeeze(1)
    names = torch.tensor(indices, device=row.device)
    log_intensity = model.log_intensity(state, batch.types).double()
    highest = logs.max(-1)
    nothing = torch.zeros(len(bare), dtype=torch.float64, device=row.device)
    found = {
        "sequence": torch.cat([names[row], names[bare]]),
        "event": torch.cat([event, torch.full_like(bare, -1)]),
        "time": torch.cat([batch.times[row, event], batch.t_end[bare]]),
        "type": torch.cat([batch.types[row, event], torch.full_like(bare, -1)]).int(),
        "log_intensity": torch.cat([log_intensity[row, event], nothing]),
        "log_total": torch.cat([logs.logsumexp(-1)[row, event], nothing]),
        "log_predicted": torch.cat([highest.values[row, event], nothing]),
        "integral": torch.cat([value[row, place], nothing]),
        "tail": torch.cat([torch.where(is_last, tail[row], 0.0), tail[bare]]),
        "integral_variance": torch.cat([variance[row, place] + of_tail, tail_variance[bare]]),
        "tail_variance": torch.cat([of_tail, tail_variance[bare]]),
        "predicted_type": torch.cat([known_types(highest.indices[row, event], model), torch.full_like(bare, -1)]).int(),
    }
    return {name: column.cpu().numpy() for name, column in found.items()}


def _no_rows() -> dict[str, np.ndarray]:
    log_intensities = ("log_intensity", "log_total", "log_predicted")
    floats = ("time", *log_intensities, "integral", "tail", "integral_variance", "tail_variance")
    whole = {name: np.empty(0) for name in floats}
    whole |= {name: np.empty(0, dtype=np.int64) for name in ("sequence", "event")}
    return whole | {name: np.empty(0, dtype=np.int32) for name in ("type", "predicted_type")}
