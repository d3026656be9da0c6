"""Noise for noise-contrastive estimation: draws all events of `M` noise streams exactly, given the observed events of a batch.

In the gap that begins at `s`, a Poisson or Hawkes process has `λ^q_k(t) = μ_k + Σ_j r_kj·exp(−β_j(t−s))`, where `r` is the excitation by
earlier events. Timed noise adds step functions of the time since the sequence began and since the last event of the same mark. Given the
observed events, `M` streams together are a Poisson process with intensity `M·λ^q`. It is a sum of simple parts (`noise_parts`): a constant,
a falling exponential for each decay, and step functions. Each part has a Poisson number of events, whose times are found by
inverting its integral, so that there is neither thinning nor truncation.

A *mark* is an event type of the noise process: a type of the data or, for models made of rules, a functor of events (`nce.NoiseSource`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.errors import ForetellError
from foretell.models.classical.hawkes import Hawkes
from foretell.objective.noise_parts import (
    ClockPart,
    ConstantPart,
    FallingPart,
    GapMarks,
    Noise,
    NoisePart,
    TimedNoise,
    since_own,
    since_start,
)

EVENTS_AT_ONCE = 256  # events whose effects on each other are computed in one product
NO_FACT = -1  # the fact of padding
WEIGHTS_AT_ONCE = 1 << 24  # limit of gaps × parts × marks per block


@dataclass(frozen=True)
class NoiseEvents:
    """The noise events of a batch, padded and sorted by time, and the noise intensities of the observed events."""

    times: Tensor  # float64 [B, Q]
    seen: Tensor  # int64 [B, Q]: the number of real events that each one sees, which is also its gap
    chosen: Tensor  # int64 [B, Q]: the type, or the fact where the model is made of rules
    log_rate: Tensor  # float64 [B, Q]: log λ^q of the event, in one stream
    valid: Tensor  # bool [B, Q]: False for padding
    pseudo: Tensor  # bool [B, Q]: True for a pseudo-event, which counts as observed
    log_rate_at_events: Tensor  # float64 [B, N]
    streams: int  # M
    drawn: int  # the number of valid events

    def rows(self, start: int, stop: int) -> NoiseEvents:
        """Return the noise of the rows `start` to `stop`, without unnecessary padding."""
        if start == 0 and stop >= len(self.valid):
            return self
        valid = self.valid[start:stop]
        width = int(valid.sum(1).max()) if len(valid) else 0
        names = ("times", "seen", "chosen", "log_rate", "valid", "pseudo")
        cut = {name: getattr(self, name)[start:stop, :width] for name in names}
        at_events = self.log_rate_at_events[start:stop]
        return replace(self, **cut, log_rate_at_events=at_events, drawn=int(valid.sum()))


@dataclass(frozen=True)
class PossibleMarks:
    """For models made of rules: the number of possible events of each mark in each gap, and a function that returns their facts."""

    count: Tensor  # float64 [B, G, K]
    # Maps rows, gaps, marks and numbers below the count (arrays [n] on the host) to facts [n].
    facts: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]

    def drawn(self, draws: _Draws, generator: torch.Generator) -> Tensor:
        """Draw one of the possible facts of each drawn mark, with equal probability."""
        count = self.count[draws.row, draws.gap, draws.mark]
        uniform = torch.rand(count.shape, generator=generator, dtype=torch.float64, device=count.device)
        which = torch.minimum((uniform * count).floor(), count - 1.0).long()
        host = (one.cpu().numpy() for one in (draws.row, draws.gap, draws.mark, which))
        return torch.from_numpy(self.facts(*host)).to(count.device)


@dataclass(frozen=True)
class _Draws:
    """Drawn events of a batch in flat arrays: all [draws]."""

    row: Tensor
    gap: Tensor
    time: Tensor
    mark: Tensor
    pseudo: Tensor

    def below(self, rows: int) -> _Draws:
        """Return the draws for a larger batch with this many rows before them."""
        return replace(self, row=self.row + rows)


class NoiseProcess:
    def __init__(self, process: Noise, device: torch.device, mark_of_type: Tensor | None = None) -> None:
        """`mark_of_type` [types] maps the types of the data to marks of the process; None if both are the same."""
        self.mark_of_type = None if mark_of_type is None else mark_of_type.to(device)
        self.timed = None
        if isinstance(process, TimedNoise):
            self.timed = process.since_start.to(device), process.since_own.to(device)
            process = process.hawkes
        if isinstance(process, Hawkes):
            found = process.mu, process.alpha.permute(1, 2, 0), process.beta  # alpha by cause: [K, J, K]
        else:
            rate = process.log_rate.exp()
            found = rate, rate.new_zeros(len(rate), 0, len(rate)), rate.new_zeros(0)
        self.mu, self.alpha, self.beta = (one.detach().double().to(device).contiguous() for one in found)
        rates = torch.cat([self.mu, self.alpha.flatten()])
        if not bool((rates.isfinite() & (rates >= 0.0)).all() and (self.beta.isfinite() & (self.beta > 0.0)).all()):
            raise ForetellError(
                "the noise process has rates or decays that are negative or not finite, so no noise can be drawn from it: "
                "its file is damaged; train again in a new folder"
            )

    def draw(
        self,
        batch: Batch,
        streams: int,
        generator: torch.Generator,
        pseudo_rate: float = 0.0,
        possible: PossibleMarks | None = None,
    ) -> NoiseEvents:
        """Draw new noise; `pseudo_rate` adds this many pseudo-events of every type (or possible event) per unit of time."""
        raised = self._raised(batch)
        rows, gaps = batch.gap_length.shape
        columns = 1 + len(self.beta) + 2 * (self.timed is not None) + bool(pseudo_rate)
        at_once = max(1, WEIGHTS_AT_ONCE // max(1, gaps * columns * len(self.mu)))
        blocks = []
        for first in range(0, max(rows, 1), at_once):
            some = slice(first, first + at_once)
            block = batch.rows(first, first + at_once)
            parts, count = self.parts(block, raised[some]), None if possible is None else possible.count[some]
            blocks.append(self._draws(block, parts, streams, generator, pseudo_rate, count).below(first))
        drawn = _Draws(*(torch.cat([getattr(one, name.name) for one in blocks]) for name in fields(_Draws)))
        parts = self.parts(batch, raised)
        rate = log_rate(parts, GapMarks(drawn.row, drawn.gap, drawn.mark), drawn.time)
        marks = self._marks(batch)
        row = torch.arange(len(batch), device=marks.device)[:, None].expand_as(marks)
        gap = torch.arange(marks.shape[1], device=marks.device)[None].expand_as(marks)
        at_events = log_rate(parts, GapMarks(row, gap, marks), batch.times)
        if possible is None:
            return _padded(batch, drawn, drawn.mark, 0, rate, at_events, streams)
        rate = (
            rate - possible.count[drawn.row, drawn.gap, drawn.mark].log()
        )  # of all possible events of the mark, one is drawn
        at_events = at_events - possible.count[row, gap, marks].clamp(min=1.0).log()
        chosen = possible.drawn(drawn, generator)
        if bool((chosen < 0).any()):  # candidates of products that are not possible events are not noise
            kept = chosen >= 0
            drawn = _Draws(*(getattr(drawn, one.name)[kept] for one in fields(_Draws)))
            chosen, rate = chosen[kept], rate[kept]
        return _padded(batch, drawn, chosen, NO_FACT, rate, at_events, streams)

    def _marks(self, batch: Batch) -> Tensor:
        return batch.types if self.mark_of_type is None else self.mark_of_type[batch.types]

    def _raised(self, batch: Batch) -> Tensor:
        """Return `r` [B, G, J, K]: the excitation of each mark by earlier events at the start of each gap, per decay."""
        times, effect = batch.gap_start[:, 1:], self.alpha[self._marks(batch)]  # [B, N, J, K]
        effect = effect * batch.is_event[..., None, None]  # an expiry excites nothing
        current = effect.new_zeros(len(batch), len(self.beta), len(self.mu))
        since = times.new_zeros(len(batch), 1)
        found = [current.unsqueeze(1)]
        for first in range(0, times.shape[1], EVENTS_AT_ONCE):
            part = slice(first, first + EVENTS_AT_ONCE)
            now = times[:, part]
            before = torch.ones(now.shape[1], now.shape[1], dtype=now.dtype, device=now.device).tril()
            elapsed = (now.unsqueeze(2) - now.unsqueeze(1)).clamp(
                min=0.0
            )  # [B, n, n]: from each event (last axis) to each later one
            decay = torch.exp(-elapsed.unsqueeze(1) * self.beta[:, None, None]) * before  # [B, J, n, n]
            new = (decay @ effect[:, part].transpose(1, 2)).transpose(1, 2)
            kept = torch.exp(-(now - since).unsqueeze(-1) * self.beta).unsqueeze(-1)
            found.append(new + kept * current.unsqueeze(1))
            current, since = found[-1][:, -1], now[:, -1:]
        return torch.cat(found, dim=1)

    def parts(self, batch: Batch, raised: Tensor | None = None) -> list[NoisePart]:
        """Return the parts whose sum is `λ^q`; `raised` is the excitation at the start of each gap, if known."""
        raised = self._raised(batch) if raised is None else raised
        found: list[NoisePart] = [ConstantPart(batch, self.mu), FallingPart(batch, raised, self.beta)]
        if self.timed is not None:
            of_start, of_own = self.timed
            own = since_own(batch, self._marks(batch), len(self.mu))
            found += [ClockPart(batch, of_start, since_start(batch, len(self.mu))), ClockPart(batch, of_own, own)]
        return found

    def _draws(
        self,
        batch: Batch,
        parts: list[NoisePart],
        streams: int,
        generator: torch.Generator,
        pseudo_rate: float,
        count: Tensor | None,
    ) -> _Draws:
        weights = [part.expected(streams) for part in parts]
        if count is not None:
            weights = [one * (count > 0.0).unsqueeze(2) for one in weights]
        if pseudo_rate:
            pseudo = ConstantPart(batch, torch.full_like(self.mu, pseudo_rate))
            expected = pseudo.expected(1)
            parts, weights = [*parts, pseudo], [*weights, expected if count is None else expected * count.unsqueeze(2)]
        upto = torch.cat(weights, dim=2).cumsum(-1)
        expected = upto[..., -1]
        number = torch.poisson(expected, generator=generator).long()
        row, gap, column = (
            one.repeat_interleave(number.flatten())
            for one in torch.unravel_index(torch.arange(number.numel(), device=number.device), number.shape)
        )
        uniform = torch.rand(2, len(row), generator=generator, dtype=torch.float64, device=number.device)
        whole = expected[row, gap, column]
        # Stay below the whole even if the product is rounded up, so that the mark found has a positive weight.
        target = torch.minimum(uniform[0] * whole, torch.nextafter(whole, torch.zeros_like(whole)))
        mark = torch.searchsorted(upto[row, gap, column], target.unsqueeze(-1), right=True).squeeze(-1)
        waited, begin = torch.empty_like(whole), 0
        for part in parts:
            mine = ((column >= begin) & (column < begin + part.columns)).nonzero().squeeze(1)
            places = GapMarks(row[mine], gap[mine], mark[mine])
            waited[mine] = part.waits(places, column[mine] - begin, uniform[1][mine])
            begin += part.columns
        time = batch.scored_start[row, gap] + torch.minimum(waited, batch.gap_length[row, gap])
        is_pseudo = column >= begin - bool(pseudo_rate)
        return _Draws(row, gap, torch.minimum(time, batch.gap_end[row, gap]), mark, is_pseudo)


def log_rate(parts: list[NoisePart], places: GapMarks, time: Tensor) -> Tensor:
    """Return `log λ^q` of marks at times, for one stream and all events of a mark together."""
    first, *others = (part.rate(places, time) for part in parts)
    return sum(others, start=first).log()


def _padded(
    batch: Batch, drawn: _Draws, chosen: Tensor, padding: int, log_rate: Tensor, at_events: Tensor, streams: int
) -> NoiseEvents:
    """Lay out the events of each sequence in order of time. Padding comes first in time and sees no events."""
    order = torch.argsort(drawn.time, stable=True)
    order = order[torch.argsort(drawn.gap[order], stable=True)]
    order = order[torch.argsort(drawn.row[order], stable=True)]
    row = drawn.row[order]
    count = torch.bincount(row, minlength=len(batch))
    place = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
    shape = len(batch), int(count.max()) if len(batch) else 0

    def laid_out(values: Tensor, padding: int = 0) -> Tensor:
        out = torch.full(shape, padding, dtype=values.dtype, device=values.device)
        out[row, place] = values[order]
        return out

    return NoiseEvents(
        laid_out(drawn.time),
        laid_out(drawn.gap),
        laid_out(chosen, padding),
        laid_out(log_rate),
        laid_out(torch.ones_like(drawn.pseudo)),
        laid_out(drawn.pseudo),
        at_events,
        streams,
        len(row),
    )
