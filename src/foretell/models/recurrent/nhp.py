"""The neural Hawkes process, NHP (Mei & Eisner 2017): a continuous-time LSTM reads the events, and its cell decays between them.

`λ_e(t) = τ_e·softplus(w_e·[1; h(t)]/τ_e)` with `h(t) = o ⊙ tanh(c(t))`. Every sequence begins with an event `bos` at time 0, which has its
own vector and no intensity and creates the first cell. Decays `δ` are per unit of the model's time, `time_scale`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.models.calendar import NO_INPUTS, QueryCovariates
from foretell.models.capabilities import GapIntensities
from foretell.models.covariates import plus
from foretell.models.recurrent.nhp_sampler import NHPSampler
from foretell.models.registry import EmbeddingOptions, ModelSpec, register
from foretell.models.softplus_intensities import SoftplusIntensities
from foretell.models.units import mean_gap, starting_rates
from foretell.nn.ctlstm import CellStates, EventInputs, ctlstm, read
from foretell.nn.ctlstm_steps import DECAY, GATES
from foretell.nn.intensity import inverse_softplus
from foretell.nn.lookup import lookup

SLOWEST, FASTEST = 0.01, 10.0  # initial decays per mean gap, from the first dimension to the last
FEW_FEATURES = 1.5  # columns per dimension, up to which one product with gate matrices is faster than two products
REMEMBERS = 1.0  # the initial constant of forget gates, so that σ keeps most of a memory


@dataclass(frozen=True)
class CellHistory:
    cells: CellStates
    since: Tensor  # float64 [B, N + 1]: the time at which each cell begins
    query: QueryCovariates = NO_INPUTS


@dataclass(frozen=True)
class NhpOptions(EmbeddingOptions):
    """The dimension is the only option."""


@register(ModelSpec("nhp", "NHP", NhpOptions, "a continuous-time LSTM whose cell decays", "Mei & Eisner 2017"))
class NHP(SoftplusIntensities[NhpOptions]):
    """NHP, the neural Hawkes process: a continuous-time LSTM whose cell decays between events.

    The cell decays from a start to a target, `c(t) = c̄ + (c − c̄) exp(−δ(t − s))`, and `λ_k(t) = softplus(w_k · h(t))`.

    Mei & Eisner, "The Neural Hawkes Process: A Neurally Self-Modulating Multivariate Point Process", NeurIPS 2017.

    Example:
        >>> model = ft.NHP(3, dim=16)
        >>> model.types
        3
    """

    shown_sizes = ("dim",)
    shown_units = {"scale": "time_scale"}  # noqa: RUF012
    # An event is a dozen small operations on all sequences, so few sequences take almost as long as many.
    rows_at_a_time = 32
    takes_covariates = takes_calendar = True

    def __init__(
        self,
        vocabulary: Vocabulary | int,
        options: NhpOptions | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **changes: Any,
    ) -> None:
        super().__init__(vocabulary, self.chosen(options, changes))
        self.dim = dim = self.options.dim
        self.embedding = nn.Parameter(torch.empty(self.types, dim))
        self.bos = nn.Parameter(torch.empty(1, dim))
        self.W = nn.Parameter(torch.empty(len(GATES), dim, dim))
        self.U = nn.Parameter(torch.empty(len(GATES), dim, dim))
        self.b = nn.Parameter(torch.zeros(len(GATES), dim))
        self.w = nn.Parameter(torch.empty(self.types, dim))
        self.w_constant = nn.Parameter(torch.zeros(self.types))
        self.log_tau = nn.Parameter(torch.zeros(self.types))
        self._start(seed)
        self.to(dtype)

    @torch.no_grad()
    def _start(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        spread = 1.0 / math.sqrt(2 * self.dim)  # W and U each act on one vector
        for matrix in (self.W, self.U):
            matrix.uniform_(-spread, spread, generator=generator)
        for vectors in (self.embedding, self.bos):
            vectors.normal_(generator=generator)
        self.w.normal_(generator=generator).mul_(0.1 / math.sqrt(self.dim))
        for gate in ("forget", "target_forget"):
            self.b[GATES.index(gate)] = REMEMBERS
        decays = torch.logspace(math.log10(SLOWEST), math.log10(FASTEST), self.dim, dtype=torch.float64)
        self.b[DECAY] = inverse_softplus(decays).to(self.b)

    @torch.no_grad()
    def prepare(self, data: EventData) -> None:
        self.time_scale = mean_gap(data)
        rates = torch.as_tensor(starting_rates(data) * self.time_scale, dtype=torch.float64, device=self.device)
        tau = self.log_tau.double().exp()
        self.w_constant.copy_(inverse_softplus(rates / tau) * tau)  # these rates, while `w` is untrained
        self.fitted = True

    # Events

    def encode(self, batch: Batch) -> CellHistory:
        vectors, W = torch.cat([self.embedding, self.bos]), self.W.flatten(0, 1).t()
        events = F.pad(batch.types, (1, 0), value=self.types)  # bos comes first
        inputs, features = None, self.event_features(batch, before=1)
        if features is not None and features.width <= FEW_FEATURES * self.dim:
            inputs = EventInputs(features.rows, features.vectors @ W)
        elif features is not None or self.has_inputs:  # each event has its own vector
            added = self.event_inputs(batch, before=1)
            assert added is not None, "something is added"
            vectors = (lookup(vectors, events) + added).flatten(0, 1)
            events = torch.arange(len(vectors), device=events.device).view_as(events)
        table = torch.addmm(self.b.flatten(), vectors, W)
        elapsed = self._elapsed(batch.times, batch.gap_start[:, :-1])
        cells = ctlstm(table, events, self.U.flatten(0, 1), elapsed, inputs, batch.carried)
        return CellHistory(cells, batch.gap_start, self.query_inputs(batch))

    def carried_sizes(self) -> list[int]:
        return [self.dim] * 4

    def carry(self, history: CellHistory, batch: Batch) -> tuple[Tensor, ...]:
        """Return the cell after each row's last event."""
        cells, row = history.cells, torch.arange(len(batch), device=batch.lengths.device)
        parts = cells.memory, cells.target, cells.decay, cells.output
        return tuple(one[row, batch.lengths].detach() for one in parts)

    def _elapsed(self, times: Tensor, since: Tensor) -> Tensor:
        """Return elapsed times in the model's unit; subtracted in float64."""
        return ((times - since) / self.time_scale).to(self.dtype)

    def embeddings(self, batch: Batch) -> list[Tensor]:
        """Return the vectors of a batch's events that enter the cell, and the cell's output right after each: [B, N, D] each."""
        cells = self.encode(batch).cells
        vectors = plus(lookup(self.embedding, batch.types), self.event_inputs(batch))
        return [vectors, (cells.output * torch.tanh(cells.memory))[:, 1:]]

    # Queries

    def state(self, history: CellHistory, queries: Queries) -> Tensor:
        """Return `h` at each query plus the terms of covariates and calendar: [B, Q, D]."""
        return plus(self._read(history, queries), self.at_queries(history.query, queries.times))

    def _read(self, history: CellHistory, queries: Queries) -> Tensor:
        cells = history.cells
        per_gap = queries.visible.per_gap
        if per_gap is not None:
            gaps = queries.times.shape[1] // per_gap
            memory, target, decay, output = (
                part[:, :gaps] for part in (cells.memory, cells.target, cells.decay, cells.output)
            )
            elapsed = self._elapsed(queries.times.unflatten(1, (gaps, per_gap)), history.since[:, :gaps].unsqueeze(-1))
            return read(memory, target, decay, output, elapsed).flatten(1, 2)
        seen = queries.seen().expand_as(queries.times)
        rows = torch.arange(len(seen), device=seen.device)[:, None]
        memory, target, decay, output = (
            part[rows, seen] for part in (cells.memory, cells.target, cells.decay, cells.output)
        )
        elapsed = self._elapsed(queries.times, history.since.gather(1, seen)).unsqueeze(-1)
        return read(memory, target, decay, output, elapsed).squeeze(2)

    def ends_and_inside(self, history: CellHistory, batch: Batch, queries: Queries, pseudo: bool) -> GapIntensities:
        """Return the likelihood's terms. The history has the cell just before each event, since the next cell is computed from it."""
        before = plus(history.cells.before, self.at_queries(history.query, batch.times))
        return self.gap_intensities(before, self.state(history, queries), batch, queries, pseudo)

    # Files and public names

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> NHPSampler:
        return NHPSampler.start(self, histories, seen)

    def named_arrays(self) -> dict[str, Tensor]:
        """Return parameters with `w` and `τ` in the data's unit. The decay gate is in the model's unit, `time_scale`."""
        names = self.vocabulary.names
        found = {f"embed.{name}": self.embedding[index] for index, name in enumerate(names)}
        found["bos"] = self.bos[0]
        for index, gate in enumerate(GATES):
            found[f"cell.{gate}.W"], found[f"cell.{gate}.U"] = self.W[index], self.U[index]
            found[f"cell.{gate}.b"] = self.b[index]
        found |= self.intensity_arrays() | self.input_arrays()
        return {name: array.detach() for name, array in found.items()}

    @torch.no_grad()
    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        self.check_positive(arrays)
        for name, target in self.named_arrays().items():
            if not name.startswith("intensity."):
                target.copy_(arrays[name])  # a view of the parameter itself
        self.load_intensity_arrays(arrays)
