"""The recurrent marked temporal point process, RMTPP (Du et al. 2016): a recurrent network reads the events; the rest is in closed form.

`λ(t) = exp(v·h + w(t − s) + b)` for an event of any type, where `h` is the network's state after the last event, at time `s`. The type is
drawn from `softmax(V h + c)`, independently of the time. The integral is `(λ(t) − λ(s))/w`, and its inverse gives exact draws. If
`w < 0`, there may be no further event. `h = tanh(W x + U h' + gap·g + b)`; a `bos` at time 0 comes before the first event. Time is in
the model's unit, `time_scale`. With a calendar, its waves are added to the exponent and to the types' scores. Then the
integral is numerical, and draws use thinning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.models.base import IntensityModel
from foretell.models.calendar import NO_INPUTS, QueryCovariates
from foretell.models.covariates import plus
from foretell.models.future_covariates import CovariateSampler, DrawnCovariates
from foretell.models.registry import EmbeddingOptions, ModelSpec, register
from foretell.models.units import mean_gap, starting_rates
from foretell.nn.lookup import lookup
from foretell.sampling.bounds.chebyshev import DEGREE
from foretell.sampling.core.sampler import Bounds, InverseSampler
from foretell.sampling.core.start import in_float64, read_past

ROUNDING = 1e-12
SMALLEST = 1e-307  # float64 loses digits below this
SERIES = 1e-2  # below this, a quotient of two small numbers is computed by its series


@dataclass(frozen=True)
class LastStates:
    """The state of the network in every gap, and the start of the gap."""

    h: Tensor  # [B, N + 1, D]
    since: Tensor  # float64 [B, N + 1]
    query: QueryCovariates = NO_INPUTS


@dataclass(frozen=True)
class RmtppOptions(EmbeddingOptions):
    """The dimension is the only option."""


@register(
    ModelSpec("rmtpp", "RMTPP", RmtppOptions, "a recurrent network; intensities in closed form", "Du et al. 2016")
)
class RMTPP(IntensityModel[RmtppOptions]):
    """RMTPP, the recurrent marked temporal point process: a recurrent network, and intensities in closed form.

    `λ(t) = exp(v · h + w (t − s) + b)` for an event of any type, where h is the state after the last event, at time s. The type is drawn
    from a softmax, independently of the time. Integral and inverse are exact.

    Du et al., "Recurrent Marked Temporal Point Processes: Embedding Event History to Vector", KDD 2016.

    Example:
        >>> ft.RMTPP(3, dim=16).title
        'RMTPP'
    """

    shown_sizes = ("dim",)
    rows_at_a_time = 32  # few sequences take almost as long as many
    takes_covariates = takes_calendar = True

    def __init__(
        self,
        vocabulary: Vocabulary | int,
        options: RmtppOptions | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **changes: Any,
    ) -> None:
        super().__init__(vocabulary, self.chosen(options, changes))
        self.dim = dim = self.options.dim
        self.embedding = nn.Parameter(torch.empty(self.types + 1, dim))  # of every type and of `bos`
        self.W = nn.Parameter(torch.empty(dim, dim + 1))  # acts on a type's vector and, last, on the preceding gap
        self.U = nn.Parameter(torch.empty(dim, dim))
        self.b = nn.Parameter(torch.zeros(dim))
        self.v = nn.Parameter(torch.empty(dim))
        self.level = nn.Parameter(torch.zeros(()))  # the paper's b in the intensity
        self.slope = nn.Parameter(torch.zeros(()))  # the paper's w, per `time_scale`
        self.V = nn.Parameter(torch.empty(self.types, dim))
        self.c = nn.Parameter(torch.zeros(self.types))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.embedding.normal_(generator=generator)
            for matrix in (self.W, self.U):
                matrix.uniform_(-1.0, 1.0, generator=generator).div_(math.sqrt(2 * dim))
            for weights in (self.v, self.V):
                weights.normal_(generator=generator).mul_(0.1 / math.sqrt(dim))
        self.to(dtype)

    @torch.no_grad()
    def prepare(self, data: EventData) -> None:
        self.time_scale = mean_gap(data)
        rates = torch.as_tensor(starting_rates(data) * self.time_scale, dtype=torch.float64)
        self.level.copy_(rates.sum().log())
        self.c.copy_((rates / rates.sum()).log())
        self.fitted = True

    # Events

    def encode(self, batch: Batch) -> LastStates:
        types = F.pad(batch.types, (1, 0), value=self.types)
        gaps = F.pad(self._elapsed(batch.times, batch.gap_start[:, :-1]), (1, 0))
        vectors = plus(lookup(self.embedding, types), self.event_inputs(batch, before=1))
        features = torch.cat([vectors, gaps.unsqueeze(-1)], dim=-1)
        before = features.new_zeros(1, len(batch), self.dim)
        if batch.carried is not None:  # the carried state replaces the one after `bos`
            features, before = features[:, 1:], batch.carried[0].unsqueeze(0)
        weights = (self.W, self.U, self.b, torch.zeros_like(self.b))
        h, _ = torch.rnn_tanh(features, before, weights, True, 1, 0.0, True, False, True)
        h = h if batch.carried is None else torch.cat([before.transpose(0, 1), h], dim=1)
        return LastStates(h, batch.gap_start, self.query_inputs(batch))

    def carried_sizes(self) -> list[int]:
        return [self.dim]

    def carry(self, history: LastStates, batch: Batch) -> tuple[Tensor, ...]:
        """Return the state after each row's last event."""
        row = torch.arange(len(batch), device=batch.lengths.device)
        return (history.h[row, batch.lengths].detach(),)

    def _elapsed(self, times: Tensor, since: Tensor) -> Tensor:
        """Return elapsed times in the model's unit; subtracted in float64."""
        return ((times - since) / self.time_scale).to(self.dtype)

    def embeddings(self, batch: Batch) -> list[Tensor]:
        """Return the vectors of the events, and the state after each event: [B, N, D] each."""
        vectors = plus(lookup(self.embedding, batch.types), self.event_inputs(batch))
        return [vectors, self.encode(batch).h[:, 1:]]

    # Queries

    def state(self, history: LastStates, queries: Queries) -> Tensor:
        """Return the state after the last event, the time since then, and waves of the calendar: [B, Q, D + 1 (+ F)]."""
        seen = queries.seen().expand(len(history.since), -1)
        h = plus(history.h.gather(1, seen.unsqueeze(-1).expand(-1, -1, self.dim)), history.query.added)
        parts = [h, self._elapsed(queries.times, history.since.gather(1, seen)).unsqueeze(-1)]
        if self.calendar is not None and history.query.starts is not None:
            parts.append(self.calendar.waves(history.query.starts[:, None], queries.times))
        return torch.cat(parts, dim=-1)

    def calendar_sizes(self) -> tuple[int, int]:
        """Return the sizes of the two calendar terms. At queries: the logarithm of the total, and the score of each type."""
        return self.dim, 1 + self.types

    # Intensities

    def log_total(self, state: Tensor) -> Tensor:
        found = (
            state[..., : self.dim] @ self.v + self.level + self.slope * state[..., self.dim] - math.log(self.time_scale)
        )
        return found if self.calendar is None else found + state[..., self.dim + 1 :] @ self.calendar.query[:, 0]

    def log_probabilities(self, state: Tensor) -> Tensor:
        """Return log-probabilities of the next event's type: [..., K]."""
        scores = F.linear(state[..., : self.dim], self.V, self.c)
        if self.calendar is not None:
            scores = scores + state[..., self.dim + 1 :] @ self.calendar.query[:, 1:]
        return torch.log_softmax(scores, dim=-1)

    def log_intensities(self, state: Tensor) -> Tensor:
        return self.log_probabilities(state) + self.log_total(state).unsqueeze(-1)

    def intensities(self, state: Tensor) -> Tensor:
        return self.log_intensities(state).exp()

    def total(self, state: Tensor) -> Tensor:
        return self.log_total(state).exp()

    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        return self.log_intensities(state).gather(-1, types.unsqueeze(-1)).squeeze(-1)

    def exact_integral(self, history: LastStates, batch: Batch) -> Tensor:
        """Return the integrals in float64: with a rising intensity, long gaps lose too many digits in float32."""
        length, before = (one / self.time_scale for one in (batch.gap_length, batch.scored_start - batch.gap_start))
        start = (plus(history.h, history.query.added) @ self.v + self.level).double() + self.slope.double() * before
        return start.exp() * length * growth(self.slope.double() * length)

    # Sampling, files and public names

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> RmtppSampler:
        """Return a sampler that inverts the integral, or with a calendar one that uses thinning. Both are exact."""
        return (InverseRmtppSampler if self.calendar is None else RmtppSampler).start(self, histories, seen)

    def named_arrays(self) -> dict[str, Tensor]:
        """Return all parameters, in the data's unit of time."""
        scale, names = self.time_scale, self.vocabulary.names
        found = {f"embed.{name}": self.embedding[index] for index, name in enumerate(names)}
        found |= {"bos": self.embedding[self.types], "cell.W": self.W[:, :-1], "cell.gap": self.W[:, -1] / scale}
        found |= {"cell.U": self.U, "cell.b": self.b, "time.v": self.v}
        found |= {"time.b": self.level - math.log(scale), "time.w": self.slope / scale}
        weights = torch.cat([self.c[:, None], self.V], dim=1)
        found |= {f"type.{name}.w": weights[index] for index, name in enumerate(names)}
        found |= self.input_arrays()
        return {name: array.detach() for name, array in found.items()}

    @torch.no_grad()
    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        scale, names = self.time_scale, self.vocabulary.names
        self.embedding.copy_(torch.stack([*(arrays[f"embed.{name}"] for name in names), arrays["bos"]]))
        self.W.copy_(torch.cat([arrays["cell.W"], arrays["cell.gap"][:, None] * scale], dim=1))
        for target, name in ((self.U, "cell.U"), (self.b, "cell.b"), (self.v, "time.v")):
            target.copy_(arrays[name])
        self.level.copy_(arrays["time.b"] + math.log(scale))
        self.slope.copy_(arrays["time.w"] * scale)
        weights = torch.stack([arrays[f"type.{name}.w"] for name in names])
        self.c.copy_(weights[:, 0])
        self.V.copy_(weights[:, 1:])
        for name, target in self.input_arrays().items():
            target.copy_(arrays[name])


class RmtppSampler(CovariateSampler):
    """Keeps only the state after the last event."""

    def __init__(self, model: RMTPP, h: Tensor, since: Tensor, future: DrawnCovariates) -> None:
        self.model, self.h, self.since, self.future = model, h, since, future  # float64 [W, D] and [W]

    @classmethod
    @torch.inference_mode()
    def start(cls, model: RMTPP, histories: Sequence[EventSequence], seen: Sequence[int]) -> Self:
        model = in_float64(model)
        read = read_past(histories, seen, model)
        batch, past, row = read.batch, read.history, torch.arange(len(read.batch), device=model.device)
        future = DrawnCovariates.start(model.covariates, batch, model.calendar)
        return cls(model, past.h[row, batch.lengths], past.since[row, batch.lengths], future)

    @property
    def count(self) -> int:
        return len(self.since)

    @property
    def width(self) -> float:
        return 0.5 * self.model.time_scale

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.model, self.h[rows], self.since[rows], self.future.select(rows))

    def name(self, row: int, choice: int) -> str:
        return self.model.vocabulary.names[choice]

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        elapsed = (times - self.since[:, None]).clamp(min=0.0) / self.model.time_scale
        h = plus(self.h, self.future.query)[:, None]
        parts, clock = [h.expand(-1, times.shape[1], -1), elapsed.unsqueeze(-1)], self.future.clock
        if clock is not None:
            parts.append(clock.calendar.waves(clock.starts[:, None], times))
        return self.model.intensities(torch.cat(parts, dim=-1))

    @torch.inference_mode()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        """Return bounds: without a calendar the intensity is monotone; the calendar's term in its logarithm is bounded by a piece."""
        middle = self.intensities((start + end) / 2.0).sum(-1)
        if self.future.clock is None:
            ends = torch.maximum(self.intensities(start).sum(-1), self.intensities(end).sum(-1))
        else:
            piece = self.future.clock.on_windows((start + end) / 2.0, (end - start) / 2.0, DEGREE)
            added = piece.map(lambda part: part[..., 0]).upper()
            ends = torch.exp(torch.maximum(self._log_plain(start), self._log_plain(end)) + added)
        upper = (ends * (1.0 + ROUNDING) + SMALLEST).nan_to_num(nan=math.inf, posinf=math.inf)
        return Bounds(upper, self.future.judged(upper, middle, start, end))

    def _log_plain(self, times: Tensor) -> Tensor:
        """Return the logarithm of the total intensity without the calendar's term: [W, P]."""
        model, elapsed = self.model, (times - self.since[:, None]).clamp(min=0.0) / self.model.time_scale
        h = plus(self.h, self.future.query)[:, None]
        return h @ model.v + model.level + model.slope * elapsed - math.log(model.time_scale)

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        some = (choices >= 0).nonzero().squeeze(1)
        gap = (times - self.since)[some] / self.model.time_scale
        vectors = plus(self.model.embedding[choices[some]], self.future.of_events(some, choices[some], times[some]))
        features = torch.cat([vectors, gap[:, None]], dim=1)
        model = self.model
        self.h[some] = torch.tanh(features @ model.W.T + self.h[some] @ model.U.T + model.b)
        self.since[some] = times[some]


class InverseRmtppSampler(RmtppSampler, InverseSampler):
    """Without a calendar, the integral is inverted and no thinning is needed."""

    @torch.inference_mode()
    def invert(self, start: Tensor, mass: Tensor) -> Tensor:
        """Return `start + u`, `u = log(1 + w·mass/λ)/w`, with intensity `λ` at `start`; infinite if `w·mass/λ` is −1 or less."""
        slope = self.model.slope / self.model.time_scale
        wait = mass / self.intensities(start[:, None]).sum(-1).squeeze(1)  # if this intensity stayed constant
        x = slope * wait
        return torch.where(x > -1.0, start + wait * inverse_growth(x.clamp(min=-1.0 + 1e-300)), math.inf)


def growth(x: Tensor) -> Tensor:
    """Return `(exp(x) − 1)/x`, which is 1 at 0, with accurate gradients near 0."""
    small = x.abs() < SERIES
    near = torch.where(small, x, 0.0)
    series = 1.0 + near / 2.0 * (1.0 + near / 3.0 * (1.0 + near / 4.0 * (1.0 + near / 5.0 * (1.0 + near / 6.0))))
    far = torch.where(small, 1.0, x)
    return torch.where(small, series, torch.expm1(far) / far)


def inverse_growth(x: Tensor) -> Tensor:
    """Return `log(1 + x)/x`, which is 1 at 0."""
    small = x.abs() < 1e-12
    safe = torch.where(small, 1.0, x)
    return torch.where(small, 1.0 - x / 2.0, torch.log1p(safe) / safe)
