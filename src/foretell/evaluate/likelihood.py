"""Held-out log-likelihood of each event: in closed form, by quadrature with an error check, or by draws with their standard error."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Queries
from foretell.batches.carrying import EncodedPart, lengths_of_parts
from foretell.data import EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.ground.product_rows import product_names
from foretell.models.base import IntensityModel
from foretell.models.capabilities import ExactIntegral, exact_integral_of
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.loglik import Points, in_parts, integral_terms, quadrature, stratified, uniform
from foretell.options import Integral, Window
from foretell.shards.shard_map import ShardItem, Shards, cuts_of, tables_of
from foretell.shards.store import Table, joined
from foretell.train.likelihood_task import batch_at, batch_items, parts_at

UNMET = -1  # the type of an event that is not in the model's vocabulary


def with_all_names(model: IntensityModel, data: EventData) -> IntensityModel:
    """Return the model with a vocabulary that has all events that are possible at some time in the data."""
    if not isinstance(model, RuleModel):
        return model
    grounding, facts, products = model.histories.grounding, set[int](), dict[str, None]()
    for one in data:
        _, timeline = model.histories.timeline(model.vocabulary, one)
        facts.update(np.unique(timeline.holds[:, 0]).tolist())
        products.update(product_names(timeline))
    facts.update(grounding.always.tolist())
    names = (grounding.text(fact) for fact in facts if grounding.is_event(fact))
    return with_names(model, (*names, *products))


def with_names(model: IntensityModel, names: Iterable[str]) -> IntensityModel:
    """Return a copy of the model with `names` appended to its vocabulary. Both share their parameters; `model` is not changed."""
    fresh = sorted({name for name in names if name not in model.vocabulary})
    if not fresh:
        return model
    wide = copy.copy(model)
    wide.vocabulary = Vocabulary((*model.vocabulary.names, *fresh))
    return wide


def known_types(types: Tensor, model: IntensityModel) -> Tensor:
    """Convert types of the model with all names to types of `model`: int32, UNMET for names that `model` lacks."""
    return types.where(types < model.types, UNMET).int()


SHARP = 4  # draws per quadrature node, for models whose intensities can be high for a short moment
QUADRATURE_TOLERANCE = 1e-3  # nats per event between n and 2n nodes; above it, evaluation falls back to draws


IntegralMethod = Literal["closed form", "quadrature", "stratified", "uniform"]


@dataclass(frozen=True)
class IntegralEstimate:
    """How the integral was computed, and its error, in nats per event."""

    method: IntegralMethod
    points: int  # per gap; for uniform draws, per event
    doubling: float | None  # quadrature: |n nodes − 2n nodes|
    standard_error: float | None  # draws
    fallback: bool = False  # True: draws replaced quadrature, whose error was above the tolerance


@dataclass(frozen=True)
class EventScores:
    """One row per scored event, in the order of the data. Each row has the integral since the previous scored event.

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
    integral: np.ndarray  # ∫ λ since the previous scored event, or since the start of the scored part
    tail: np.ndarray  # ∫ λ after the last scored event, in the row of that event; else 0
    integral_variance: np.ndarray  # of `integral + tail` if they are estimated by draws; else 0
    tail_variance: np.ndarray  # of `tail` alone
    predicted_type: np.ndarray  # int32: argmax_e λ_e(t_i); UNMET: an event that is not in the vocabulary
    log_likelihoods: np.ndarray  # float64 [sequences]
    scored: np.ndarray  # int64 [sequences]: number of scored events
    used: IntegralEstimate

    @property
    def is_event(self) -> np.ndarray:
        return self.event >= 0

    @property
    def log_likelihood(self) -> np.ndarray:
        """Return for each row the log-intensity of its event minus the row's integrals."""
        return self.log_intensity - self.integral - self.tail

    @property
    def time_log_likelihood(self) -> np.ndarray:
        """Return the part of the log-likelihood for the times: `log λ(t_i) − ∫ λ`."""
        return self.log_total - self.integral - self.tail

    @property
    def type_log_likelihood(self) -> np.ndarray:
        """Return the part of the log-likelihood for the types: `log λ_{e_i}(t_i)/λ(t_i)`."""
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
    shards: Shards | None = None,
) -> EventScores:
    """Return the scores of all events; where `shards` compute the batches does not affect the results."""
    if points < 1:
        raise ForetellError(f"points = {points}: expected 1 or more")
    scoring = partial(_score, model, data, window, progress=progress, shards=shards)
    if exact_integral_of(model) is not None:
        return scoring(_Integration("closed form", 0))
    doubling = None
    if integral == "quadrature" and model.short_time is not None:
        integral, points = "stratified", SHARP * points  # polynomials do not approximate these intensities within a gap
    if integral == "quadrature":
        scores = scoring(_Integration(integral, points))
        doubling = scores.used.doubling
        assert doubling is not None
        if doubling <= QUADRATURE_TOLERANCE:
            return scores
        integral = "stratified"
    drawn = scoring(_Integration(integral, points, seed))
    return replace(drawn, used=replace(drawn.used, doubling=doubling, fallback=doubling is not None))


@dataclass(frozen=True)
class _Integration:
    method: IntegralMethod
    points: int
    seed: int = 0

    @property
    def draws(self) -> bool:
        return self.method in ("stratified", "uniform")

    def gaps(self, model: IntensityModel, history: Any, batch: Batch, generator: torch.Generator) -> _GapIntegrals:
        if self.method == "closed form":
            return _closed_form(model, history, batch)
        if self.method == "quadrature":
            return _by_quadrature(model, history, batch, nodes=self.points)
        return _by_draws(model, history, batch, method=self.method, points=self.points, generator=generator)

    def halves(self) -> tuple[int, int]:
        """Return the sizes of two independent sets of draws: their mean is the estimate, their difference gives its variance."""
        return max(1, self.points // 2), max(1, self.points - self.points // 2)

    def pass_over(self, lengths: np.ndarray, generator: torch.Generator) -> None:
        """Advance the generator by the draws of a batch with sequences of these lengths."""
        rows, longest = len(lengths), int(lengths.max(initial=0))
        shapes = [(rows, longest + 1, half) for half in self.halves()]
        if self.method == "uniform":
            shapes = [(rows, max(1, longest) * self.points)]
        for shape in shapes:
            torch.rand(*shape, generator=generator, dtype=torch.float64, device=generator.device)


@dataclass(frozen=True)
class _GapIntegrals:
    value: Tensor  # [B, G]
    variance: Tensor  # [B, G]
    doubled: Tensor  # [B, G]: `value` with twice the nodes


def _closed_form(model: IntensityModel, history: Any, batch: Batch) -> _GapIntegrals:
    assert isinstance(model, ExactIntegral)
    value = model.exact_integral(history, batch).double() * batch.gap_counts
    return _GapIntegrals(value, torch.zeros_like(value), value)


def _by_quadrature(model: IntensityModel, history: Any, batch: Batch, *, nodes: int) -> _GapIntegrals:
    value = _summed(model, history, batch, quadrature(batch, nodes, model.short_time))
    doubled = _summed(model, history, batch, quadrature(batch, 2 * nodes, model.short_time))
    return _GapIntegrals(value, torch.zeros_like(value), doubled)


def _by_draws(
    model: IntensityModel,
    history: Any,
    batch: Batch,
    *,
    method: IntegralMethod,
    points: int,
    generator: torch.Generator,
) -> _GapIntegrals:
    if method == "uniform":
        drawn = uniform(batch, batch.lengths.clamp(min=1) * points, generator)
        return _uniform_gaps(batch, drawn, integral_terms(model, history, batch, drawn).double())
    sets = [
        stratified(batch, half, generator, short=model.short_time) for half in _Integration(method, points).halves()
    ]
    first, second = (_summed(model, history, batch, half) for half in sets)
    mean = (first + second) / 2.0
    return _GapIntegrals(mean, (first - second).square() / 4.0, mean)


def _summed(model: IntensityModel, history: Any, batch: Batch, points: Points) -> Tensor:
    """Return the integral over every gap; if there are many points, they are evaluated in parts."""
    gaps = batch.gap_counts.shape
    value = torch.zeros(gaps, dtype=torch.float64, device=points.weights.device)
    for part in in_parts(points, gaps[1], model.queries_at_a_time):
        total = model.total(model.state(history, model.collator.plan_queries(batch, part.queries))).double()
        value += (total * part.weights).unflatten(1, (gaps[1], -1)).sum(-1)
    return value


def _uniform_gaps(batch: Batch, drawn: Points, terms: Tensor) -> _GapIntegrals:
    """Assign draws on the whole of [0, T] to the gaps that contain them; the variance of the sequence is divided among its gaps."""
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
    window: Window,
    how: _Integration,
    *,
    progress: Callable[[int, int], None] | None,
    shards: Shards | None,
) -> EventScores:
    scoring = _Scoring(model, with_all_names(model, data), data, window, how)
    items = batch_items(data, model, 2 * max(how.points, 1))
    items = [replace(item, value=(item.value, None)) for item in items]
    if shards is not None and how.draws:
        items = _with_draws(items, scoring)
    found = tables_of(f"scores-{how.method.replace(' ', '-')}", score_batches, scoring, items, shards, progress)
    whole = joined(found) if found else _no_rows()
    log_likelihoods = np.zeros(len(data))
    np.add.at(log_likelihoods, whole["sequence"], whole["log_intensity"] - whole["integral"] - whole["tail"])
    scored = np.bincount(whole["sequence"][whole["event"] >= 0], minlength=len(data))
    first = np.sort(
        np.unique(whole.pop("batch"), return_index=True)[1]
    )  # rows of each batch, in the order in which they are summed
    doubling, variance = (float(np.cumsum([0.0, *whole.pop(name)[first]])[-1]) for name in ("doubling", "variance"))
    events, order = max(int(scored.sum()), 1), np.lexsort((whole["event"], whole["sequence"]))
    used = IntegralEstimate(
        how.method,
        how.points,
        doubling / events if how.method == "quadrature" else None,
        float(np.sqrt(variance)) / events if how.draws else None,
    )
    ordered = {name: column[order] for name, column in whole.items()}
    return EventScores(**ordered, log_likelihoods=log_likelihoods, scored=scored, used=used)


@dataclass(frozen=True)
class _Scoring:
    """The inputs of scoring a batch, besides its sequences."""

    model: IntensityModel
    wide: IntensityModel  # the model with a name for every possible event
    data: EventData
    window: Window
    how: _Integration

    def gaps(self, read: EncodedPart, generator: torch.Generator) -> _GapIntegrals:
        return self.how.gaps(self.model, read.history, read.batch, generator)

    def generator(self) -> torch.Generator:
        return torch.Generator(self.model.device).manual_seed(self.how.seed)


def _with_draws(items: list[ShardItem], scoring: _Scoring) -> list[ShardItem]:
    """Give the first item of each shard the generator's state after all previous batches, so that draws do not depend on shards."""
    generator, found = scoring.generator(), []
    begins = {start for start, _ in cuts_of(items)}
    for place, item in enumerate(items):
        indices, _ = item.value
        state = generator.get_state().numpy().tobytes() if place in begins else None
        found.append(replace(item, value=(indices, state)))
        for lengths in lengths_of_parts(scoring.model, scoring.data.lengths[indices]):
            scoring.how.pass_over(lengths, generator)
    return found


@torch.no_grad()
def score_batches(scoring: _Scoring, items: Sequence[tuple[np.ndarray, bytes | None]]) -> Iterator[Table]:
    """Yield a table of rows per batch. An item has the generator's state if the previous batch is in another shard."""
    model, generator = scoring.model, scoring.generator()
    for indices, state_before in items:
        if state_before is not None:
            generator.set_state(torch.from_numpy(np.frombuffer(state_before, dtype=np.uint8).copy()))
        with model.evaluating():
            batch, parts = None, []
            for read in parts_at(scoring.data, indices, model, scoring.window):
                batch = read.batch
                parts.append((_event_logs(scoring, read), scoring.gaps(read, generator)))
            if batch is None or len(parts) > 1:
                batch = batch_at(scoring.data, indices, model, scoring.window)
            logs = [torch.cat(columns, dim=1) for columns in zip(*(found for found, _ in parts), strict=True)]
            gaps = _joined([found for _, found in parts])
            table = _rows(indices.tolist(), batch, logs, gaps)
        about = {
            "batch": int(indices[0]),
            "doubling": float((gaps.value - gaps.doubled).abs().sum()),
            "variance": float(gaps.variance.sum()),
        }
        yield table | {name: np.full(len(table["event"]), value) for name, value in about.items()}


def _event_logs(scoring: _Scoring, read: EncodedPart) -> tuple[Tensor, ...]:
    """Return four tensors [B, N]: at each event its log-intensity, the log of the total, the highest log-intensity and its type."""
    wide, batch = scoring.wide, read.batch
    state = wide.state(read.history, wide.collator.plan_queries(batch, Queries.of_events(batch)))
    logs = wide.log_intensities(state).double()
    highest, own = logs.max(-1), scoring.model.log_intensity(state, batch.types).double()
    return own, logs.logsumexp(-1), highest.values, known_types(highest.indices, scoring.model)


def _joined(parts: list[_GapIntegrals]) -> _GapIntegrals:
    """Join the gaps of parts of sequences. The last gap of a part is the first gap of the next; it is 0 in one of the two."""
    if len(parts) == 1:
        return parts[0]

    def whole(columns: list[Tensor]) -> Tensor:
        made = [columns[0]]
        for one in columns[1:]:
            made[-1][:, -1] += one[:, 0]
            made.append(one[:, 1:])
        return torch.cat(made, dim=1)

    return _GapIntegrals(*(whole([getattr(one, name.name) for one in parts]) for name in fields(_GapIntegrals)))


def _rows(indices: list[int], batch: Batch, logs: Sequence[Tensor], gaps: _GapIntegrals) -> dict[str, np.ndarray]:
    """Return a row per scored event of a batch, and one per sequence that has a scored gap but no scored event."""
    counts, scored = batch.event_counts, batch.scored
    row, event = torch.nonzero(counts, as_tuple=True)
    # Event g ends gap g. A gap that an unscored event ends belongs to the next scored event or, after the last one, to the tail.
    before = torch.nn.functional.pad(counts.cumsum(1), (1, 0))  # scored events before each gap
    value, variance = (torch.zeros_like(part).scatter_add(1, before, part) for part in (gaps.value, gaps.variance))
    tail, tail_variance = (part.gather(1, scored[:, None]).squeeze(1) for part in (value, variance))
    place = before[row, event]
    is_last = place == scored[row] - 1
    of_tail = torch.where(is_last, tail_variance[row], 0.0)
    bare = torch.nonzero(scored == 0).squeeze(1)
    names = torch.tensor(indices, device=row.device)
    log_intensity, log_total, log_predicted, predicted = logs
    nothing = torch.zeros(len(bare), dtype=torch.float64, device=row.device)
    found = {
        "sequence": torch.cat([names[row], names[bare]]),
        "event": torch.cat([batch.event_of(row, event), torch.full_like(bare, -1)]),
        "time": torch.cat([batch.times[row, event], batch.t_end[bare]]),
        "type": torch.cat([batch.types[row, event], torch.full_like(bare, -1)]).int(),
        "log_intensity": torch.cat([log_intensity[row, event], nothing]),
        "log_total": torch.cat([log_total[row, event], nothing]),
        "log_predicted": torch.cat([log_predicted[row, event], nothing]),
        "integral": torch.cat([value[row, place], nothing]),
        "tail": torch.cat([torch.where(is_last, tail[row], 0.0), tail[bare]]),
        "integral_variance": torch.cat([variance[row, place] + of_tail, tail_variance[bare]]),
        "tail_variance": torch.cat([of_tail, tail_variance[bare]]),
        "predicted_type": torch.cat([predicted[row, event], torch.full_like(bare, -1)]).int(),
    }
    return {name: column.cpu().numpy() for name, column in found.items()}


def _no_rows() -> dict[str, np.ndarray]:
    log_intensities = ("log_intensity", "log_total", "log_predicted")
    floats = ("time", *log_intensities, "integral", "tail", "integral_variance", "tail_variance")
    whole = {name: np.empty(0) for name in (*floats, "doubling", "variance")}
    whole |= {name: np.empty(0, dtype=np.int64) for name in ("sequence", "event", "batch")}
    return whole | {name: np.empty(0, dtype=np.int32) for name in ("type", "predicted_type")}
