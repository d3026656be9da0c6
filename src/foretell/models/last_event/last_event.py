"""Models whose intensities up to the next event depend on the embedding of the last one: the base class of THP and SAHP.

The last event, `f` at time `s`, is embedded from itself and the events before it. From that vector each type gets a curve over elapsed
time, and its intensity is `τ_e·log(1 + exp(curve/τ_e))`. The same curve determines the intensity at an event and the integral
before it. Curves are computed once per event and then evaluated at all query times.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.models.attention.layers import Dropout
from foretell.models.base import IntensityModel
from foretell.models.calendar import NO_INPUTS, QueryCovariates
from foretell.models.capabilities import GapIntensities
from foretell.models.covariates import plus
from foretell.models.last_event.causal_encoder import CausalEncoder, Encoding
from foretell.models.last_event.sampler import LastEventSampler
from foretell.models.registry import HeadOptions
from foretell.models.units import mean_gap, starting_rates, wave_range
from foretell.nn.intensity import log_softplus, softplus
from foretell.nn.lookup import lookup
from foretell.nn.time import TimeEmbedding
from foretell.options import option

# The parameters of a curve for every type: [..., K] each, or [K] if they are equal after all events. Levels are divided by τ.
Curves = tuple[Tensor, ...]


@dataclass(frozen=True)
class LastEvents:
    """The last event of every gap; `bos` for the first gap."""

    embedding: Tensor  # [B, N + 1, D], with the terms of covariates at queries
    time: Tensor  # float64 [B, N + 1]
    query: QueryCovariates = NO_INPUTS


@dataclass(frozen=True)
class LastEventOptions(HeadOptions):
    """Each of the `heads` has dim / heads components."""

    layer_norm: bool = option(True, doc="Normalise before and after each sublayer.")
    feed_forward: int | None = option(
        None, doc="Width of the hidden layer of a feed-forward sublayer; 0: none; None: twice `dim`."
    )

    def mistakes(self) -> list[str]:
        found = super().mistakes()
        if self.heads < 1 or (self.dim >= 1 and self.dim % self.heads):
            found.append(f"heads = {self.heads}: expected a divisor of dim = {self.dim}, which the heads share")
        return found


class LastEventModel(IntensityModel[LastEventOptions]):
    shown_sizes = ("dim", "layers")
    unit_names = ("m", "M", "time_scale")
    shown_units = {"m": "m", "M": "M"}  # noqa: RUF012
    rows_at_a_time = 16  # the work per sequence is small
    takes_covariates = takes_calendar = True
    encoding: ClassVar[Encoding]
    per_type: ClassVar[tuple[str, ...]]  # vectors and scales per type, under their public names

    def __init__(
        self,
        vocabulary: Vocabulary | int,
        options: LastEventOptions | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **changes: Any,
    ) -> None:
        chosen = self.chosen(options, changes)
        feed_forward = 2 * chosen.dim if chosen.feed_forward is None else chosen.feed_forward
        super().__init__(vocabulary, replace(chosen, feed_forward=feed_forward))
        self.dim, self.layers, self.heads, self.time_dim = chosen.dim, chosen.layers, chosen.heads, chosen.dim
        self.encoder = CausalEncoder(
            self.types,
            dim=self.dim,
            layers=self.layers,
            heads=self.heads,
            layer_norm=chosen.layer_norm,
            feed_forward=feed_forward,
            encoding=self.encoding,
        )
        self.log_tau = nn.Parameter(torch.zeros(self.types))
        generator = torch.Generator().manual_seed(seed)
        self.encoder.start(generator)
        self._make_curves(generator)
        self.to(dtype)

    @property
    def time(self) -> TimeEmbedding:
        return self.encoder.time

    # Methods that each model defines

    @abstractmethod
    def _make_curves(self, generator: torch.Generator) -> None:
        """Create the parameters of the curves with initial values."""

    @abstractmethod
    def start_at(self, rates: Tensor, embedding: Tensor) -> None:
        """Initialise curves after an event with that embedding [D] to constant intensities [K], in events per `time_scale`."""

    @abstractmethod
    def elapsed(self, times: Tensor, since: Tensor) -> Tensor:
        """Return positions along the curve, in the model's dtype, from float64 times and times of last events."""

    @abstractmethod
    def curves(self, embedding: Tensor) -> Curves:
        """Return the curves of all types after an event with that embedding [..., D]."""

    @abstractmethod
    def follow(self, curves: Curves, elapsed: Tensor) -> Tensor:
        """Return the curves divided by τ, [..., K], after elapsed times [..., 1]. Each is monotone in time."""

    @abstractmethod
    def _arrays_of_types(self) -> dict[str, Tensor]:
        """Return the arrays named in `per_type`, [K, …] each, in the data's unit."""

    @abstractmethod
    def _load_arrays_of_types(self, arrays: dict[str, Tensor]) -> None:
        """Set parameters from arrays like those of `_arrays_of_types`."""

    # Events

    def encode(self, batch: Batch) -> LastEvents:
        query = self.query_inputs(batch)
        return LastEvents(plus(self.layers_of(batch)[-1], query.added), batch.gap_start, query)

    def layers_of(self, batch: Batch) -> list[Tensor]:
        """Return the embeddings of `bos` and the events of a batch at layers 0 … L: [B, N + 1, D] each."""
        return self.encoder(batch, self._drop(), self.event_inputs(batch, before=1))

    def embeddings(self, batch: Batch) -> list[Tensor]:
        """Return the embeddings of the events of a batch at layers 0 … L: [B, N, D] each."""
        return [layer[:, 1:] for layer in self.layers_of(batch)]

    def _drop(self) -> Dropout:
        return Dropout(self.dropout if self.training else 0.0, self.noise)

    @torch.no_grad()
    def prepare(self, data: EventData) -> None:
        self.time.set_range(*wave_range(data, self.options.shortest_wave))
        self.time_scale = mean_gap(data)
        rates = torch.as_tensor(starting_rates(data) * self.time_scale, dtype=torch.float64)
        with self.evaluating():
            start = data[0].start if len(data) else None
            nothing_yet = EventSequence(np.empty(0), np.empty(0, dtype=np.int32), 1.0, "nothing yet", start=start)
            batch = self.collator.batch(EventData([nothing_yet], self.vocabulary), [0], device=self.device)
            self.start_at(rates.to(self.device), self.encode(batch).embedding[0, 0])
        self.fitted = True

    # Queries

    def state(self, history: LastEvents, queries: Queries) -> Tensor:
        """Return the last event's embedding, elapsed time and calendar waves: [B, Q, D + 1 (+ F)]. (Curves would take more memory.)"""
        per_gap = queries.visible.per_gap
        if per_gap is not None:
            gaps = queries.times.shape[1] // per_gap
            embedding = history.embedding[:, :gaps].repeat_interleave(per_gap, dim=1)
            since = history.time[:, :gaps].repeat_interleave(per_gap, dim=1)
        else:
            seen = queries.seen().expand(len(history.time), -1)
            embedding = history.embedding.gather(1, seen.unsqueeze(-1).expand(-1, -1, self.dim))
            since = history.time.gather(1, seen)
        parts = [embedding, self.elapsed(queries.times, since).unsqueeze(-1)]
        if self.calendar is not None and history.query.starts is not None:
            parts.append(self.calendar.waves(history.query.starts[:, None], queries.times))
        return torch.cat(parts, dim=-1)

    def _scores(self, state: Tensor) -> Tensor:
        """Return the curves of all types divided by τ, plus the calendar's terms: [..., K]."""
        found = self.follow(self.curves(state[..., : self.dim]), state[..., self.dim : self.dim + 1])
        return found if self.calendar is None else found + state[..., self.dim + 1 :] @ self.calendar.query

    def calendar_sizes(self) -> tuple[int, int]:
        """Return the sizes of the two calendar terms. At queries: the score of each type, added to its curve."""
        return self.dim, self.types

    def _unit(self) -> Tensor:
        return self.log_tau.exp() / self.time_scale

    def _log_unit(self) -> Tensor:
        return self.log_tau - math.log(self.time_scale)

    def intensities(self, state: Tensor) -> Tensor:
        return softplus(self._scores(state)) * self._unit()

    def log_intensities(self, state: Tensor) -> Tensor:
        return log_softplus(self._scores(state)) + self._log_unit()

    def total(self, state: Tensor) -> Tensor:
        return softplus(self._scores(state)) @ self._unit()

    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        own = self._scores(state).gather(-1, types.unsqueeze(-1)).squeeze(-1)
        return log_softplus(own) + self._log_unit_of(types)

    def _log_unit_of(self, types: Tensor) -> Tensor:
        return lookup(self._log_unit()[:, None], types).squeeze(-1)

    def ends_and_inside(
        self, history: LastEvents, batch: Batch, queries: Queries, pseudo: bool
    ) -> GapIntensities | None:
        """Return the likelihood's terms if queries are grouped by gap: curves are computed once per event, for all points of its gap."""
        per_gap = queries.visible.per_gap
        if per_gap is None:
            return None
        curves, since = self.curves(history.embedding), history.time
        inside = self.elapsed(queries.times.unflatten(1, (-1, per_gap)), since.unsqueeze(-1))
        scores = self.follow(tuple(one.unsqueeze(-2) for one in curves), inside.unsqueeze(-1))
        shape, types = (*batch.types.shape, self.types), batch.types.unsqueeze(-1)
        own = tuple((one if one.dim() == 1 else one[:, :-1]).expand(shape).gather(-1, types) for one in curves)
        at_end = self.follow(own, self.elapsed(batch.times, since[:, :-1]).unsqueeze(-1)).squeeze(-1)
        starts = history.query.starts
        if self.calendar is not None and starts is not None:
            scores = scores + self.calendar.of_queries(starts, queries.times).unflatten(1, (-1, per_gap))
            waves = self.calendar.waves(starts[:, None], batch.times)
            at_end = at_end + (waves * lookup(self.calendar.query.T, batch.types)).sum(-1)
        return GapIntensities(
            log_softplus(at_end) + self._log_unit_of(batch.types),
            softplus(scores) @ self._unit(),
            (log_softplus(scores) + self._log_unit()).sum(-1) if pseudo else None,
        )

    # Files and public names

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> LastEventSampler:
        return LastEventSampler.start(self, histories, seen)

    def named_arrays(self) -> dict[str, Tensor]:
        names = self.vocabulary.names
        found = self.encoder.named_arrays(names) | self.input_arrays()
        of_types = self._arrays_of_types()
        for index, name in enumerate(names):
            for what in self.per_type:
                found[f"intensity.{name}.{what}"] = of_types[what][index]
        return {name: array.detach() for name, array in found.items()}

    @torch.no_grad()
    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        names = self.vocabulary.names
        for name in names:
            for what in ("tau", "nu"):
                scale = arrays.get(f"intensity.{name}.{what}")
                if scale is not None and not bool((scale > 0).all()):
                    raise ForetellError(f"intensity.{name}.{what} = {float(scale)}: expected a number above 0")
        for name, target in (self.encoder.named_arrays(names) | self.input_arrays()).items():
            target.copy_(arrays[name])
        stacked = {what: [arrays[f"intensity.{name}.{what}"] for name in names] for what in self.per_type}
        self._load_arrays_of_types({what: torch.stack(rows) for what, rows in stacked.items()})
