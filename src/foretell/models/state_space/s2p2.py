"""The state-space point process, S2P2 (Chang et al. 2025): layers of linear systems, updated by events, and a stream through
the layers.

`λ_k(t) = τ_k·softplus(z_k/τ_k)` with `z = W u_L(t) + c`, where the stream `u_L` is the last layer's output. A query passes once through
the layers, from their states right after the last event. Events are read by a parallel scan in each layer. Time is in the model's unit,
`time_scale`. Equations: docs/explanation/rivals.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.models.attention.layers import Dropout
from foretell.models.calendar import NO_INPUTS, QueryCovariates
from foretell.models.capabilities import GapIntensities
from foretell.models.covariates import plus
from foretell.models.registry import EmbeddingOptions, ModelSpec, register
from foretell.models.softplus_intensities import SoftplusIntensities
from foretell.models.state_space.layer import LayerStates, StateSpaceLayer
from foretell.models.state_space.s2p2_sampler import S2p2Sampler
from foretell.models.units import mean_gap, starting_rates
from foretell.nn.intensity import inverse_softplus
from foretell.nn.lookup import lookup
from foretell.options import option

FIRST_ARRAYS = ("frequency", "E", "C", "start", "step_bias")  # of the first layer, shown unchanged
ARRAYS = (*FIRST_ARRAYS, "B", "D", "step")  # of the other layers


@dataclass(frozen=True)
class StateHistory:
    layers: list[LayerStates]
    before: Tensor  # [B, N, H]: the last layer's output just before each event
    since: Tensor  # float64 [B, N + 1]: the start of each gap
    query: QueryCovariates = NO_INPUTS


@dataclass(frozen=True)
class S2p2Options(EmbeddingOptions):
    # H. The best value on clicks of users, with 3 layers; the authors use 128, and 4 layers, on taxi
    dim: int = option(64, flag="Dimension of the embeddings.", tuned=(16, 32, 64, 128))
    layers: int = option(3, flag="Layers of linear systems.", tuned=(1, 2, 3, 4))  # L
    states: int = option(16, tuned=(8, 16, 32), doc="Complex components of a layer's state.")  # P, as the authors
    dropout: float = option(0.0, free=True, doc="Share of the components that training drops.")  # the authors use 0.1

    smallest: ClassVar[int] = 2  # LayerNorm of one component is 0

    def mistakes(self) -> list[str]:
        found = super().mistakes()
        for name in ("layers", "states"):
            if getattr(self, name) < 1:
                found.append(f"{name} = {getattr(self, name)}: expected 1 or more")
        if not 0.0 <= self.dropout < 1.0:
            found.append(f"dropout = {self.dropout}: expected a share from 0 to below 1")
        return found


@register(
    ModelSpec("s2p2", "S2P2", S2p2Options, "layers of linear state-space systems that events move", "Chang et al. 2025")
)
class S2P2(SoftplusIntensities[S2p2Options]):
    """S2P2, the state-space point process: layers of linear systems in continuous time that jump at events.

    Between events each layer's complex state rotates and decays, `x(t) = exp(Λ(t − s)) x(s) + …`. Training scans the events in parallel,
    and its cost is linear in their number.

    Chang et al., "Deep Continuous-Time State-Space Models for Marked Event Sequences", NeurIPS 2025.

    Example:
        >>> ft.S2P2(3, dim=16, layers=2, states=8).options.layers
        2
    """

    shown_sizes = ("dim", "layers")
    shown_units = {"scale": "time_scale"}  # noqa: RUF012
    takes_covariates = takes_calendar = True

    def __init__(
        self,
        vocabulary: Vocabulary | int,
        options: S2p2Options | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **changes: Any,
    ) -> None:
        super().__init__(vocabulary, self.chosen(options, changes))
        self.dim, self.layers, self.states = self.options.dim, self.options.layers, self.options.states
        self.embedding = nn.Parameter(torch.empty(self.types, self.dim))
        self.systems = nn.ModuleList(StateSpaceLayer(self.dim, self.states, not one) for one in range(self.layers))
        self.w = nn.Parameter(torch.empty(self.types, self.dim))
        self.w_constant = nn.Parameter(torch.zeros(self.types))
        self.log_tau = nn.Parameter(torch.zeros(self.types))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.embedding.normal_(generator=generator)
            for layer in self.layer_list():
                layer.reset(generator)
            self.w.normal_(generator=generator).mul_(0.1 / math.sqrt(self.dim))
        self.to(dtype)

    def layer_list(self) -> list[StateSpaceLayer]:
        return [layer for layer in self.systems if isinstance(layer, StateSpaceLayer)]

    @torch.no_grad()
    def prepare(self, data: EventData) -> None:
        self.time_scale = mean_gap(data)
        rates = torch.as_tensor(starting_rates(data) * self.time_scale, dtype=torch.float64, device=self.device)
        tau = self.log_tau.double().exp()
        self.w_constant.copy_(inverse_softplus(rates / tau) * tau)  # these rates, while `w` is untrained
        self.fitted = True

    # Events

    def encode(self, batch: Batch) -> StateHistory:
        layers, streams = self._read(batch)
        query = self.query_inputs(batch)
        before = plus(streams[-1][0], self.at_queries(query, batch.times))
        return StateHistory(layers, before, batch.gap_start, query)

    def carried_sizes(self) -> list[int]:
        return [2 * self.states, self.states] * self.layers

    def carry(self, history: StateHistory, batch: Batch) -> tuple[Tensor, ...]:
        """Return the state and step of each layer after each row's last event."""
        row = torch.arange(len(batch), device=batch.lengths.device)
        parts = [part for one in history.layers for part in (one.state, one.step)]
        return tuple(one[row, batch.lengths].detach() for one in parts)

    def embeddings(self, batch: Batch) -> list[Tensor]:
        """Return the vectors of the events, and each layer's output right after each event: [B, N, H] each."""
        vectors = plus(lookup(self.embedding, batch.types), self.event_inputs(batch))
        return [vectors, *(stream[1] for stream in self._read(batch)[1])]

    def _read(self, batch: Batch) -> tuple[list[LayerStates], list[Tensor]]:
        """Return each layer's states for queries, and each layer's output just before and right after each event: [2, B, N, H]."""
        elapsed = self._elapsed(batch.times, batch.gap_start[:, :-1])
        table = torch.cat([layer.jumps(self.embedding) for layer in self.layer_list()], dim=1)
        found, added = lookup(table, batch.types), self.event_inputs(batch)
        if added is not None:
            found = found + torch.cat([layer.jumps(added) for layer in self.layer_list()], dim=-1)
        jumps = found.split(2 * self.states, dim=-1)
        drop, stream = self._drop(), None
        layers, streams = [], []
        for place, (layer, jump) in enumerate(zip(self.layer_list(), jumps, strict=True)):
            carried = None if batch.carried is None else batch.carried[2 * place : 2 * place + 2]
            states, stream = layer.read(elapsed, jump, stream, drop, carried)
            layers.append(states)
            streams.append(stream)
        return layers, streams

    def _elapsed(self, times: Tensor, since: Tensor) -> Tensor:
        """Return elapsed times in the model's unit; subtracted in float64."""
        return ((times - since) / self.time_scale).to(self.dtype)

    def _drop(self) -> Dropout:
        return Dropout(self.dropout if self.training else 0.0, self.noise)

    # Queries

    def state(self, history: StateHistory, queries: Queries) -> Tensor:
        """Return the last layer's output at each query: [B, Q, H]."""
        per_gap = queries.visible.per_gap
        if per_gap is not None:
            gaps = queries.times.shape[1] // per_gap
            times, since = queries.times.unflatten(1, (gaps, per_gap)), history.since[:, :gaps].unsqueeze(-1)
            layers = [(one.state[:, :gaps].unsqueeze(2), one.step[:, :gaps].unsqueeze(2)) for one in history.layers]
        else:
            seen = queries.seen().expand_as(queries.times)
            times, since = queries.times, history.since.gather(1, seen)
            layers = [(_at(one.state, seen), _at(one.step, seen)) for one in history.layers]
        elapsed = self._elapsed(times, since).unsqueeze(-1)
        drop, stream = self._drop(), None
        for layer, (state, step) in zip(self.layer_list(), layers, strict=True):
            g = layer.rotation(step, elapsed)
            stream = layer.out(layer.moved(g, state, layer.pushed(g, stream)), stream, drop)
        assert stream is not None
        stream = stream if per_gap is None else stream.flatten(1, 2)
        return plus(stream, self.at_queries(history.query, queries.times))

    def ends_and_inside(self, history: StateHistory, batch: Batch, queries: Queries, pseudo: bool) -> GapIntensities:
        """Return the likelihood's terms. Reading the events gives the last layer's output just before each event."""
        return self.gap_intensities(history.before, self.state(history, queries), batch, queries, pseudo)

    # Files and public names

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> S2p2Sampler:
        return S2p2Sampler.start(self, histories, seen)

    def named_arrays(self) -> dict[str, Tensor]:
        """Return parameters with `w` and `τ` in the data's unit. Decays, frequencies and steps are in the model's, `time_scale`."""
        names = self.vocabulary.names
        found = {f"embed.{name}": self.embedding[index] for index, name in enumerate(names)}
        for number, layer in enumerate(self.layer_list(), 1):
            found[f"layer.{number}.decay"] = layer.log_decay.exp()
            found |= {f"layer.{number}.{name}": array for name, array in _plain_arrays(layer).items()}
        found |= self.intensity_arrays() | self.input_arrays()
        return {name: array.detach() for name, array in found.items()}

    @torch.no_grad()
    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        names = self.vocabulary.names
        self.check_positive(arrays, *(f"layer.{number}.decay" for number in range(1, self.layers + 1)))
        self.embedding.copy_(torch.stack([arrays[f"embed.{name}"] for name in names]))
        for number, layer in enumerate(self.layer_list(), 1):
            layer.log_decay.copy_(arrays[f"layer.{number}.decay"].log())
            for name, target in _plain_arrays(layer).items():
                target.copy_(arrays[f"layer.{number}.{name}"])
        for name, target in self.input_arrays().items():
            target.copy_(arrays[name])
        self.load_intensity_arrays(arrays)


def _plain_arrays(layer: StateSpaceLayer) -> dict[str, Tensor]:
    """Return parameters that are shown unchanged; a complex number is a pair."""
    names = FIRST_ARRAYS if layer.first else ARRAYS
    found: dict[str, Tensor] = {name: getattr(layer, name) for name in names}
    return {**found, "gain": layer.norm.weight, "bias": layer.norm.bias}


def _at(table: Tensor, seen: Tensor) -> Tensor:
    """Return rows [B, Q, D] of a table [B, N + 1, D]."""
    return table.gather(1, seen.unsqueeze(-1).expand(-1, -1, table.shape[-1]))
