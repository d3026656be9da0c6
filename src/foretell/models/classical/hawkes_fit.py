"""Maximum likelihood for the Hawkes process by expectation-maximisation: data in, `μ`, `α` and `β` out.

Every event is shared out between the background and the earlier events that may have caused it; `μ` and `α` then have closed
forms, and each `β_j` is a one-dimensional maximisation. No step can lower the (pseudo-count penalised) likelihood. With `dev` data,
the iterate that scores best there is kept: with as many `α` as pairs of types, the maximum itself is often a poor floor.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, make_batch
from foretell.data import EventData
from foretell.models.classical.hawkes import Hawkes, decayed_counts
from foretell.models.units import PSEUDO_COUNT, mean_gap, scored_counts

log = logging.getLogger("foretell")

BLOCK_FLOATS = 16_000_000  # decayed counts held at a time: 128 MB
KEPT_FLOATS = 128_000_000  # past this they are computed again in every round instead of kept
ROUNDS, STEPS_A_ROUND = 40, 10
TOLERANCE = 1e-5  # nats an event gained in a round, below which the fit is done
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class HawkesBlock:
    """Scored events of some sequences: the decayed counts just before each, and its type."""

    batch: Batch
    before: Tensor  # [n, K·J]
    types: Tensor  # [n]


@dataclass(frozen=True)
class Exposure:
    """For every event of the data as a possible cause: its type, and how long it was watched afterwards."""

    types: Tensor
    watched: Tensor  # T − s

    def integral(self, beta: Tensor) -> Tensor:
        """`(1 − exp(−β(T−s)))/β` of each: [n, J]."""
        return -torch.expm1(-self.watched[:, None] * beta) / beta

    def by_type(self, beta: Tensor, types: int) -> Tensor:
        summed = torch.zeros(types, len(beta), dtype=torch.float64)
        return summed.index_add_(0, self.types, self.integral(beta))


def fit_hawkes(
    model: Hawkes,
    data: EventData,
    dev: EventData | None = None,
    progress: Callable[[int, float], None] | None = None,
    rounds: int = ROUNDS,
    beta: Tensor | None = None,
) -> list[float]:
    """Fit in place, with decays `beta` if they are given; the mean log-likelihood an event after each round comes back."""
    if model.dtype != torch.float64 or model.device.type != "cpu":
        dtype, device = model.dtype, model.device
        curve = fit_hawkes(model.double().cpu(), data, dev, progress, rounds, beta)
        model.to(device, dtype)
        return curve
    counts, observed = scored_counts(data)
    scored = float(counts.sum() - PSEUDO_COUNT * len(counts))
    exposure = _exposure(data)
    _start(model, data, counts / observed, exposure, beta)
    curve: list[float] = []
    best: tuple[float, dict[str, Tensor]] | None = None
    blocks = None
    for number in range(rounds):
        if blocks is None or beta is None:
            blocks = _Blocks(model, data)
        value = -math.inf
        for _ in range(STEPS_A_ROUND):
            value = _share_out(model, blocks, exposure, observed)
        if beta is None:
            _move_decays(model, blocks, exposure)
        curve.append(value / max(scored, 1.0))
        if progress is not None:
            progress(number, curve[-1])
        if dev is not None:
            on_dev = _mean_log_likelihood(model, dev)
            if best is None or on_dev > best[0]:
                best = (on_dev, {name: tensor.clone() for name, tensor in model.state_dict().items()})
            elif on_dev < best[0] - 0.01:
                break
        if len(curve) > 1 and curve[-1] - curve[-2] < TOLERANCE:
            break
    if best is not None:
        model.load_state_dict(best[1])
    model.fitted = True
    return curve


def _start(model: Hawkes, data: EventData, rates: np.ndarray, exposure: Exposure, beta: Tensor | None = None) -> None:
    """Half of each rate from the background, half excited evenly by everything; decays spread around the mean gap."""
    with torch.no_grad():
        spread = torch.linspace(1.0, -1.0, model.decays, dtype=torch.float64) if model.decays > 1 else torch.zeros(1)
        model.beta.copy_(10.0**spread / mean_gap(data) if beta is None else beta)
        rate = torch.from_numpy(rates)
        model.mu.copy_(rate / 2.0)
        share = exposure.by_type(model.beta.double(), model.types).sum()
        observed = sum(sequence.t_end for sequence in data)
        each = (
            rate * observed / 2.0 / share if share > 0.0 else torch.zeros_like(rate)
        )  # no event is watched after: no excitement
        model.alpha.copy_(each[:, None, None].expand_as(model.alpha))


class _Blocks:
    """The decayed counts of the data under the current decays, kept if they fit and made again if they do not."""

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
            yield HawkesBlock(batch, before[batch.event_counts], batch.types[batch.event_counts])


def _runs(data: EventData, most: int) -> Iterator[list[int]]:
    """Sequences in order of length, as many together as have at most `most` padded events."""
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
    """The counts of each gap's start, decayed to the event that ends it: [B, N, K·J]."""
    elapsed = (batch.times - batch.gap_start[:, :-1]).unsqueeze(-1)
    return (counts[:, :-1] * torch.exp(-elapsed * beta).unsqueeze(-2)).flatten(-2)


def _share_out(model: Hawkes, blocks: _Blocks, exposure: Exposure, observed: float) -> float:
    """One step of expectation-maximisation for `μ` and `α`; the log-likelihood before it comes back."""
    mu, alpha = model.mu.detach(), model.alpha.detach().flatten(1)
    background = torch.full_like(mu, PSEUDO_COUNT)
    excited = torch.zeros_like(alpha)
    value = 0.0
    for block in blocks:
        rate = mu[block.types] + (alpha[block.types] * block.before).sum(-1)
        value += float(rate.log().sum())
        background.index_add_(0, block.types, mu[block.types] / rate)
        excited.index_add_(0, block.types, block.before / rate[:, None])
    exposed = exposure.by_type(blocks.beta, model.types)
    value -= float(mu.sum()) * observed + float((alpha.unflatten(1, exposed.shape).sum(0) * exposed).sum())
    flat = exposed.flatten()
    with torch.no_grad():
        model.mu.copy_(background / observed)
        raised = torch.where(flat > 0.0, alpha * excited / flat.clamp(min=1e-300), torch.zeros_like(alpha))
        model.alpha.copy_(raised.unflatten(1, exposed.shape))
    return value


def _move_decays(model: Hawkes, blocks: _Blocks, exposure: Exposure) -> None:
    """The exact maximisation over each `β_j` given who caused whom: `−β·(waited time) − Σ α·(exposure)`."""
    mu, alpha, types = model.mu.detach(), model.alpha.detach(), model.types
    waited = torch.zeros(model.decays, dtype=torch.float64)
    for block in blocks:
        rate = mu[block.types] + (alpha.flatten(1)[block.types] * block.before).sum(-1)
        waited_for = _waited_counts(block.batch, blocks.beta, types)[block.batch.event_counts]
        waited += ((alpha[block.types] * waited_for).sum(1) / rate[:, None]).sum(0)
    causes = alpha.sum(0)[exposure.types]  # [n, J]

    def gain(log_beta: Tensor) -> Tensor:
        beta = log_beta.exp()
        return -beta * waited - (causes * exposure.integral(beta)).sum(0)

    low, high = blocks.beta.log() - 1.0, blocks.beta.log() + 1.0
    for _ in range(32):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        better_left = gain(left) > gain(right)
        low, high = torch.where(better_left, low, left), torch.where(better_left, right, high)
    middle = (low + high) / 2.0
    with torch.no_grad():
        model.beta.copy_(torch.where(gain(middle) >= gain(blocks.beta.log()), middle, blocks.beta.log()).exp())


def _waited_counts(batch: Batch, beta: Tensor, types: int) -> Tensor:
    """`Σ_s (t−s)·exp(−β(t−s))` just before each event, by type of cause: [B, N, K, J]."""
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
    watched = np.concatenate([sequence.t_end - sequence.times for sequence in data])
    return Exposure(torch.from_numpy(types), torch.from_numpy(watched))


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
