"""Maximum likelihood for the Hawkes process by expectation-maximisation: computes `μ`, `α` and `β` from data.

Every event is shared between the background and the earlier events that may have caused it. `μ` and `α` then have closed
forms, and each `β_j` is a one-dimensional maximisation. No step lowers the likelihood (with its penalty from pseudo-counts). With `dev`
data, the step with the best score on dev is kept, and dev also selects the number of decays and the shrinkage of `α`: as there is one `α`
per pair of types, the maximum itself is often a poor floor.

Shrinkage by `κ` adds `κ` events per type whose excitation is the average over all types, `a_ej = Σ_f N_efj / Σ_f X_fj`:

    α_efj = (N_efj + κ x_j a_ej) / (X_fj + κ x_j),

where `N` is the number of events attributed to a cause, `X` the time that causes were observed for, weighted by their decay, and `x_j` its
mean per event.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, make_batch
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.models.classical.decay_search import best_decays
from foretell.models.classical.hawkes import Hawkes, decayed_counts
from foretell.models.units import PSEUDO_COUNT, mean_gap, scored_counts

log = logging.getLogger("foretell")
N = TypeVar("N", int, float)

BLOCK_FLOATS = 16_000_000  # decayed counts in memory at a time: 128 MB
KEPT_FLOATS = 128_000_000  # above this size they are recomputed in every round
ROUNDS, STEPS_A_ROUND = 40, 10
TOLERANCE = 1e-5  # the fit ends when a round gains less, in nats per event
PATIENCE = 2 * STEPS_A_ROUND  # the fit ends after this many steps without a better dev score
DECAYS = (1, 2, 4)  # candidates if dev can choose
SHRINKAGES = (1.0, 4.0, 16.0)
ENOUGH_FLOATS = 32_000_000  # size of the counts of two decays, above which a part of train is used to choose
CHOOSING_ROUNDS = 12
LEAST_GAIN = 1e-4  # the fit ends when a round gains less on dev, in nats per event


@dataclass(frozen=True)
class HawkesBlock:
    """Scored events of some sequences, sorted by type, with the decayed counts just before each."""

    batch: Batch
    before: Tensor  # [n, K·J]
    order: Tensor  # [n]: the order of the batch's scored events
    types: tuple[tuple[int, slice], ...]  # the rows of each type that occurs


@dataclass(frozen=True)
class Exposure:
    """Every event of the data as a possible cause: its type, and the scored time after it."""

    types: Tensor
    after: Tensor  # time from the event to the start of scoring: 0 unless the event is not scored
    watched: Tensor  # length of scoring after that: T − s − `after`

    def integral(self, beta: Tensor) -> Tensor:
        """Return `exp(−β·after)·(1 − exp(−β·watched))/β` of each: [n, J]."""
        return -torch.exp(-self.after[:, None] * beta) * torch.expm1(-self.watched[:, None] * beta) / beta

    def by_type(self, beta: Tensor, types: int) -> Tensor:
        summed = torch.zeros(types, len(beta), dtype=torch.float64)
        return summed.index_add_(0, self.types, self.integral(beta))


def fit_hawkes(
    model: Hawkes,
    data: EventData,
    dev: EventData | None = None,
    progress: Callable[[int, float], None] | None = None,
    rounds: int | None = None,
    beta: Tensor | None = None,
    shrinkage: float = 0.0,
    start: Hawkes | None = None,
) -> list[float]:
    """Fit in place, from the decays `beta` if given and from the parameters of another fit `start` if given.

    Return the mean log-likelihood per event after each round.
    """
    if model.dtype != torch.float64 or model.device.type != "cpu":
        dtype, device = model.dtype, model.device
        curve = fit_hawkes(model.double().cpu(), data, dev, progress, rounds, beta, shrinkage, start)
        model.to(device, dtype)
        return curve
    counts, observed = scored_counts(data)
    if not observed > 0.0:
        raise ForetellError(f"{data.name}: every sequence ends at time 0, so there is no time to learn from")
    scored = float(counts.sum() - PSEUDO_COUNT * len(counts))
    exposure = _exposure(data)
    if start is None:
        _start(model, mean_gap(data), torch.from_numpy(counts) / observed, observed, exposure, beta)
    else:
        model.load_state_dict(start.state_dict())
    curve: list[float] = []
    best = _BestOnDev(model, dev) if dev is not None else None
    blocks = None
    for number in range(ROUNDS if rounds is None else rounds):
        if blocks is None or beta is None:
            blocks = _Blocks(model, data)
        value, before = -math.inf, -math.inf if best is None else best.score
        for _ in range(STEPS_A_ROUND):
            value = _share_out(model, blocks, exposure, observed, shrinkage)
            if best is not None and best.look(blocks.beta):
                break
        curve.append(value / max(scored, 1.0))
        if best is not None and best.is_over:
            break
        if beta is None:
            _move_decays(model, blocks, exposure)
            if best is not None:
                best.look(model.beta.detach())
        if progress is not None:
            progress(number, curve[-1])
        if best is not None and before < best.score < before + LEAST_GAIN:
            break
        if len(curve) > 1 and abs(curve[-1] - curve[-2]) < TOLERANCE:
            break
    if best is not None:
        best.take()
    model.fitted = True
    return curve


class _BestOnDev:
    """The parameters of the step that scores best on dev."""

    def __init__(self, model: Hawkes, dev: EventData) -> None:
        self.model, self.dev, self.exposure = model, dev, _exposure(dev)
        counts, self.observed = scored_counts(dev)
        self.scored = max(float(counts.sum() - PSEUDO_COUNT * len(counts)), 1.0)
        self.blocks: _Blocks | None = None
        self.score, self.waited = -math.inf, 0
        self.state: dict[str, Tensor] = {}
        self.look(model.beta.detach())

    @property
    def is_over(self) -> bool:
        return self.waited >= PATIENCE

    def look(self, beta: Tensor) -> bool:
        """Score the model, which has decays `beta`; return True if the fit should stop."""
        if self.blocks is None or not torch.equal(self.blocks.beta, beta):
            self.blocks = _Blocks(self.model, self.dev)
        value = log_likelihood_of_blocks(self.model, self.blocks, self.exposure, self.observed) / self.scored
        self.waited += 1
        if value > self.score:
            self.score, self.waited = value, 0
            self.state = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return self.is_over

    def take(self) -> None:
        if self.state:  # otherwise no score was finite
            self.model.load_state_dict(self.state)


def fit_best_hawkes(
    model: Hawkes, data: EventData, dev: EventData | None, progress: Callable[[int, float], None] | None = None
) -> None:
    """Fit in place. Dev selects the decays and the shrinkage, unless the options set them."""
    decays, shrinkage = model.options.decays, model.options.shrinkage
    if dev is None or dev.event_count == 0:  # no data to choose by
        fit_hawkes(model, data, None, progress, shrinkage=0.0 if shrinkage == "auto" else shrinkage)
        model.settle(model.decays, 0.0 if shrinkage == "auto" else shrinkage)
        return
    some = _some(data)
    tried: dict[tuple[int, float], Hawkes] = {}

    def score(count: int, by: float) -> float:
        if (count, by) not in tried:
            tried[count, by] = Hawkes(model.vocabulary, decays=count, shrinkage=by)
            fit_hawkes(tried[count, by], some, dev, rounds=CHOOSING_ROUNDS, shrinkage=by)
            if progress is not None:
                progress(len(tried) - 1, _mean_log_likelihood(tried[count, by], some))
        return _mean_log_likelihood(tried[count, by], dev)

    count = model.decays
    by = 0.0 if shrinkage == "auto" else shrinkage
    if decays == "auto":
        count = _first_peak(DECAYS, lambda one: score(one, by))
    if shrinkage == "auto" and model.types > 1:
        by = _first_peak((0.0, *SHRINKAGES), lambda one: score(count, one))
    score(count, by)
    model.settle(count, by)
    after = len(tried)
    told = None if progress is None else lambda number, value: progress(after + number, value)
    fit_hawkes(model, data, dev, told, shrinkage=by, start=tried[count, by])


def _first_peak(values: Sequence[N], score: Callable[[N], float]) -> N:
    """Return the value before the first one that scores no better than its predecessor; the last value if there is none."""
    best = values[0]
    for value in values[1:]:
        if score(value) <= score(best):
            break
        best = value
    return best


def _some(data: EventData) -> EventData:
    """Return enough sequences to choose with, evenly spread over the data; all sequences if there are not more."""
    step = 2 * data.event_count * len(data.vocabulary) / ENOUGH_FLOATS
    if step <= 1.0:
        return data
    return data.select(np.unique(np.arange(0.0, len(data), step).astype(int)).tolist())


def _start(
    model: Hawkes, gap: float, rate: Tensor, observed: float, exposure: Exposure, beta: Tensor | None = None
) -> None:
    """Initialise: half of each rate is background, half is excitation, equal for all causes; decays spread around 1 / mean gap."""
    with torch.no_grad():
        spread = torch.zeros(model.decays, dtype=torch.float64)
        if model.decays > 1:
            torch.linspace(1.0, -1.0, model.decays, dtype=torch.float64, out=spread)
        model.beta.copy_(10.0**spread / gap if beta is None else beta)
        model.mu.copy_(rate / 2.0)
        share = exposure.by_type(model.beta.double(), model.types).sum()
        each = (
            rate * observed / 2.0 / share if share > 0.0 else torch.zeros_like(rate)
        )  # no event is observed afterwards: no excitation
        model.alpha.copy_(each[:, None, None].expand_as(model.alpha))


class _Blocks:
    """The decayed counts of the data under the current decays, stored if they fit into memory and otherwise recomputed."""

    def __init__(self, model: Hawkes, data: EventData) -> None:
        self.model, self.data = model, data
        self.beta = model.beta.detach().clone()
        width = model.types * model.decays
        self.kept: list[HawkesBlock] | None = None
        if data.event_count * width <= KEPT_FLOATS:
            self.kept = list(self._make())

    def __iter__(self) -> Iterator[HawkesBlock]:
        return iter(self.kept) if self.kept is not None else self._make()

    def _make(self) -> Iterator[HawkesBlock]:
        width = self.model.types * self.model.decays
        for indices in _runs(self.data, max(1, BLOCK_FLOATS // width)):
            batch = make_batch(self.data, indices)
            before = _before_events(batch, self.beta, decayed_counts(batch, self.beta, self.model.types).counts)
            types = batch.types[batch.event_counts]
            order = types.argsort(stable=True)
            present, counts = types.unique(return_counts=True)
            ends = counts.cumsum(0).tolist()
            rows = [
                (kind, slice(end - count, end))
                for kind, count, end in zip(present.tolist(), counts.tolist(), ends, strict=True)
            ]
            yield HawkesBlock(batch, before[batch.event_counts][order], order, tuple(rows))


def _runs(data: EventData, most: int) -> Iterator[list[int]]:
    """Yield sequences sorted by length, in groups with at most `most` padded events."""
    order = sorted(range(len(data)), key=lambda index: len(data[index]))
    run: list[int] = []
    for index in order:
        if run and (len(run) + 1) * max(len(data[index]), 1) > most:
            yield run
            run = []
        run.append(index)
    if run:
        yield run


def _before_events(batch: Batch, beta: Tensor, counts: Tensor) -> Tensor:
    """Return the counts at each gap's start, decayed to the event that ends it: [B, N, K·J]."""
    elapsed = (batch.times - batch.gap_start[:, :-1]).unsqueeze(-1)
    return (counts[:, :-1] * torch.exp(-elapsed * beta).unsqueeze(-2)).flatten(-2)


def _rates(model: Hawkes, block: HawkesBlock) -> Tensor:
    """Return the intensity of each event's own type just before it: [n]."""
    mu, alpha = model.mu.detach(), model.alpha.detach().flatten(1)
    rates = [torch.addmv(mu[kind], block.before[rows], alpha[kind]) for kind, rows in block.types]
    return torch.cat(rates) if rates else mu.new_empty(0)


def log_likelihood_of_blocks(model: Hawkes, blocks: _Blocks, exposure: Exposure, observed: float) -> float:
    """Return the log-likelihood of all events under a model with the blocks' decays."""
    exposed = exposure.by_type(blocks.beta, model.types)
    value = sum(float(_rates(model, block).log().sum()) for block in blocks)
    return value - float(model.mu.detach().sum()) * observed - float((model.alpha.detach().sum(0) * exposed).sum())


def _share_out(model: Hawkes, blocks: _Blocks, exposure: Exposure, observed: float, shrinkage: float) -> float:
    """Make one step of expectation-maximisation for `μ` and `α`; return the log-likelihood before the step."""
    mu, alpha = model.mu.detach(), model.alpha.detach().flatten(1)
    background = torch.full_like(mu, PSEUDO_COUNT)
    excited = torch.zeros_like(alpha)
    value = 0.0
    for block in blocks:
        rate = _rates(model, block)
        value += float(rate.log().sum())
        for kind, rows in block.types:
            inverse = rate[rows].reciprocal()
            background[kind] += mu[kind] * inverse.sum()
            excited[kind] += inverse @ block.before[rows]
    exposed = exposure.by_type(blocks.beta, model.types)  # [K, J]
    value -= float(mu.sum()) * observed + float((alpha.unflatten(1, exposed.shape).sum(0) * exposed).sum())
    shared = (alpha * excited).unflatten(1, exposed.shape)  # [K, K, J]: events of one type caused by another
    if shrinkage:
        more = shrinkage * exposed.sum(0) / max(len(exposure.types), 1)
        average = shared.sum(1, keepdim=True) / exposed.sum(0).clamp(min=1e-300)
        shared, exposed = shared + more * average, exposed + more
    with torch.no_grad():
        model.mu.copy_(background / observed)
        model.alpha.copy_(torch.where(exposed > 0.0, shared / exposed.clamp(min=1e-300), torch.zeros_like(shared)))
    return value


def _move_decays(model: Hawkes, blocks: _Blocks, exposure: Exposure) -> None:
    """Maximise exactly over each `β_j` with fixed causes: `−β·(waited time) − Σ α·(exposure)`."""
    alpha, types = model.alpha.detach(), model.types
    waited = torch.zeros(model.decays, dtype=torch.float64)
    for block in blocks:
        rate = _rates(model, block)
        waited_for = _waited_counts(block.batch, blocks.beta, types)[block.batch.event_counts][block.order]
        for kind, rows in block.types:
            waited += torch.einsum("nfj,fj,n->j", waited_for[rows], alpha[kind], rate[rows].reciprocal())
    causes = alpha.sum(0)[exposure.types]  # [n, J]

    with torch.no_grad():
        model.beta.copy_(best_decays(waited, causes, exposure.after, exposure.watched, blocks.beta))


def _waited_counts(batch: Batch, beta: Tensor, types: int) -> Tensor:
    """Return `Σ_s (t−s)·exp(−β(t−s))` just before each event, by type of cause: [B, N, K, J]."""
    rows, width = batch.times.shape
    counts = torch.zeros(rows, types, len(beta), dtype=torch.float64)
    waited = torch.zeros_like(counts)
    everywhere = torch.arange(rows)
    found = []
    elapsed = batch.times - batch.gap_start[:, :-1]
    for step in range(width):
        passed = elapsed[:, step, None, None]
        decay = torch.exp(-passed * beta)
        waited = (waited + passed * counts) * decay
        counts = counts * decay
        found.append(waited)
        counts = counts.index_put((everywhere, batch.types[:, step]), counts.new_ones(()), accumulate=True)
    return torch.stack(found, dim=1) if found else torch.zeros(rows, 0, types, len(beta), dtype=torch.float64)


def _exposure(data: EventData) -> Exposure:
    types = np.concatenate([sequence.types for sequence in data]).astype(np.int64)
    after = np.concatenate([np.maximum(sequence.scored_from - sequence.times, 0.0) for sequence in data])
    watched = np.concatenate([sequence.t_end - sequence.times for sequence in data]) - after
    return Exposure(*(torch.from_numpy(one) for one in (types, after, watched)))


def _mean_log_likelihood(model: Hawkes, data: EventData) -> float:
    value, events = 0.0, 0
    with torch.no_grad():
        for indices in _runs(data, max(1, BLOCK_FLOATS // (model.types * model.decays))):
            batch = make_batch(data, indices)
            history = model.encode(batch)
            before = _before_events(batch, model.beta, history.counts)[batch.event_counts]
            types = batch.types[batch.event_counts]
            value += float(model.log_intensity(before, types).sum())
            value -= float((model.exact_integral(history, batch) * batch.gap_counts).sum())
            events += len(types)
    return value / max(events, 1)
