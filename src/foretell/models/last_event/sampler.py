"""Sampler of THP and SAHP: between two events each type's intensity is monotone, so its values at both ends bound it.

Keys and values of every layer are kept, so that an event costs one new row per layer. Between events, only the curves of the last event
are evaluated. `Σ_e max(λ_e(start), λ_e(end))` is a bound. With a calendar, the bound has the larger ends of the curves plus the upper
bound of the calendar's terms, whose waves are bounded by pieces. The rounding errors of computed numbers are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from foretell.data import EventSequence
from foretell.models.attention.layers import Dropout
from foretell.models.covariates import plus
from foretell.models.future_covariates import CovariateSampler, DrawnCovariates
from foretell.models.last_event.causal_encoder import CausalLayer
from foretell.nn.intensity import softplus
from foretell.sampling.bounds.chebyshev import DEGREE
from foretell.sampling.core.sampler import Bounds
from foretell.sampling.core.start import in_float64, past_batch

if TYPE_CHECKING:
    from foretell.models.last_event.last_event import Curves, LastEventModel

# A curve is a few operations. Each rounds monotonically or errs by one unit in the last place (exp): 2e-16 of its parts.
ROUNDED = 4e-15
SMALLEST = 1e-307  # float64 loses digits below this, which would show in a large unit of time
OF_SUMS = 1e-12  # the relative error of a softplus, and of a sum over types in any order
NO_DROPOUT = Dropout(0.0, None)


class LastEventSampler(CovariateSampler):
    def __init__(
        self,
        model: LastEventModel,
        past: list[tuple[Tensor, Tensor]],  # by layer: keys and values, float64 [W, rows, D]
        rows: Tensor,  # int64 [W]: rows in use, with that of `bos`
        since: Tensor,  # float64 [W]: the time of the last event
        curves: Curves,  # float64 [W, 1, K]
        future: DrawnCovariates,
    ) -> None:
        self.model, self.past, self.rows, self.since, self._curves = model, past, rows, since, curves
        self.future = future
        self._unit = model._unit()

    @classmethod
    @torch.inference_mode()
    def start(cls, model: LastEventModel, histories: Sequence[EventSequence], seen: Sequence[int]) -> Self:
        """Return a sampler of sequences that start with the first `seen` events of each history."""
        model = in_float64(model)
        batch = past_batch(histories, seen, model)
        *below, top = model.layers_of(batch)
        future = DrawnCovariates.start(model.covariates, batch, model.calendar)
        past = []
        for layer, embedding in zip(model.encoder.layer_list(), below, strict=True):
            _, keys, values = layer.projected(embedding)
            past.append((keys.contiguous(), values.contiguous()))
        sequence = torch.arange(len(batch), device=model.device)
        curves = _made(model, plus(top[sequence, batch.lengths], future.query))
        return cls(model, past, batch.lengths + 1, batch.gap_start[sequence, batch.lengths], curves, future)

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> float:
        return self.model.time_scale

    def select(self, rows: Tensor) -> Self:
        past = [(keys[rows], values[rows]) for keys, values in self.past]
        curves = tuple(one[rows] for one in self._curves)
        return type(self)(self.model, past, self.rows[rows], self.since[rows], curves, self.future.select(rows))

    def name(self, row: int, choice: int) -> str:
        return self.model.vocabulary.names[choice]

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        scores = self.model.follow(self._curves, self._elapsed(times))
        clock = self.future.clock
        if clock is not None:
            scores = scores + clock.on_windows(times, torch.zeros_like(times), 0).v[0]
        return softplus(scores) * self._unit

    @torch.inference_mode()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        first, last = self._elapsed(start), self._elapsed(end)
        size = tuple(one.abs() for one in self._curves)
        scores, sizes = (
            torch.maximum(self.model.follow(curves, first), self.model.follow(curves, last))
            for curves in (self._curves, size)
        )
        clock = self.future.clock
        if clock is not None:
            scores = scores + clock.on_windows((start + end) / 2.0, (end - start) / 2.0, DEGREE).upper()
        upper = ((softplus(scores + ROUNDED * sizes) + SMALLEST) * self._unit).sum(-1) * (1.0 + OF_SUMS)
        upper = upper.nan_to_num(nan=torch.inf, posinf=torch.inf)
        middle = self.intensities((start + end) / 2.0).sum(-1)
        return Bounds(upper, self.future.judged(upper, middle, start, end))

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        some = (choices >= 0).nonzero().squeeze(1)
        if not len(some):
            return
        row = self.rows[some]
        if int(row.max()) >= self.past[0][0].shape[1]:
            self.past = [(_widened(keys), _widened(values)) for keys, values in self.past]
        encoder = self.model.encoder
        added = self.future.of_events(some, choices[some], times[some])
        x = plus(encoder.enter(choices[some], times[some], row.double()), added)
        for layer, (keys, values) in zip(encoder.layer_list(), self.past, strict=True):
            query, keys[some, row], values[some, row] = layer.projected(x)
            x = layer.combine(x, _attended(layer, query, keys[some], values[some], row), NO_DROPOUT)
        x = plus(x, None if self.future.query is None else self.future.query[some])
        for one, made in zip(self._curves, _made(self.model, x), strict=True):
            one[some] = made
        self.since[some] = times[some]
        self.rows[some] += 1

    def _elapsed(self, times: Tensor) -> Tensor:
        return self.model.elapsed(times, self.since[:, None]).unsqueeze(-1)


def _made(model: LastEventModel, embedding: Tensor) -> Curves:
    """Return curves of all types after events with embeddings [W, D]: [W, 1, K] each, as independent tensors."""
    shape = (len(embedding), 1, model.types)
    return tuple(one.expand(shape).clone() for one in model.curves(embedding.unsqueeze(1)))


def _attended(layer: CausalLayer, query: Tensor, keys: Tensor, values: Tensor, row: Tensor) -> Tensor:
    """Return the attention output of each sequence's event in `row`, which sees rows up to its own: [W, D]."""
    by_head = (-1, layer.heads, layer.dim // layer.heads)
    logits = torch.einsum("whd,wrhd->whr", query.view(by_head), keys.unflatten(-1, by_head[1:]))
    unseen = torch.arange(keys.shape[1], device=keys.device) > row[:, None]
    weights = logits.masked_fill(unseen[:, None], -torch.inf).softmax(-1)
    return torch.einsum("whr,wrhd->whd", weights, values.unflatten(-1, by_head[1:])).flatten(1)


def _widened(table: Tensor) -> Tensor:
    """Increase the capacity by half."""
    return nn.functional.pad(table, (0, 0, 0, max(16, table.shape[1] // 2)))
