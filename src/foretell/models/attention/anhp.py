"""The attentive neural Hawkes process, A-NHP (paper, sections 2-4 and appendix A).

The events of a batch are embedded once, layer by layer; of each layer only keys and values are kept. A query then embeds its
coarse types at its time by attending to those tables, and never touches the events again. Matrices act on `[1; time; embedding]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.models.attention.anhp_sampler import ANHPSampler
from foretell.models.attention.fused import fused_losses, is_fused
from foretell.models.attention.layers import (
    AttentionHistory,
    AttentionLayer,
    Dropout,
    FoldedKeys,
    KeyTable,
    LayerMatrices,
    Parts,
)
from foretell.models.attention.start import fade, start
from foretell.models.attention.structure import AnhpOptions, make_structure
from foretell.models.base import IntensityModel
from foretell.models.capabilities import GapIntensities
from foretell.models.registry import ModelSpec, register
from foretell.models.units import mean_gap, starting_rates, wave_range
from foretell.nn.attention import Visible, attention_with_null, with_null
from foretell.nn.intensity import inverse_softplus, log_softplus
from foretell.nn.lookup import lookup
from foretell.nn.time import TimeEmbedding
from foretell.sampling.bounds.values import Value, affine, components, side_by_side, softplus

# With fewer keys than this many times the dimension, it is cheaper to fold Q into the keys than to project every query.
FOLD_BELOW = 2


@register(ModelSpec("anhp", "A-NHP", AnhpOptions, "attention over all earlier events", "Yang, Mei & Eisner 2022"))
class ANHP(IntensityModel[AnhpOptions]):
    shown_sizes = ("dim", "layers")
    unit_names = ("m", "M", "time_scale")
    shown_units = {"m": "m", "M": "M"}  # noqa: RUF012
    back_to_types: Tensor
    group_order: Tensor
    group_of_type: Tensor

    def __init__(
        self,
        vocabulary: Vocabulary | int,
        options: AnhpOptions | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **changes: Any,
    ) -> None:
        super().__init__(vocabulary, self.chosen(options, changes).resolved())
        chosen = self.options
        if chosen.bos and "bos" in self.vocabulary:
            raise ForetellError(
                "bos: the data have an event type `bos` of their own; rename it, or turn the option off"
            )
        self.dim, self.layers, self.heads = dim, layers, heads = chosen.dim, chosen.layers, chosen.heads
        self.time_dim = chosen.time_dim or dim
        edges: Any = chosen.edges  # pairs by now
        self.structure = make_structure(self.vocabulary, heads=heads, coarse=chosen.coarse, edges=edges)

        self.time = TimeEmbedding(self.time_dim)
        width = 1 + self.time_dim + dim
        own = [group for group in self.structure.groups if group.base is None]
        self.fine = nn.Parameter(torch.empty(self.types, dim))
        self.coarse_base = nn.Parameter(torch.empty(len(own), dim))
        self.bos_base = nn.Parameter(torch.empty(1, dim)) if chosen.bos else None
        self.attention = nn.ModuleList(
            AttentionLayer(len(self.structure.heads), dim, width, chosen.layer_norm, chosen.feed_forward or 0)
            for _ in range(layers)
        )
        self.w = nn.Parameter(torch.empty(self.types, dim))
        self.w_constant = nn.Parameter(torch.empty(self.types))
        self.log_tau = nn.Parameter(torch.zeros(self.types))
        self._index_groups()
        start(self, seed)
        self.to(dtype)

    def _index_groups(self) -> None:
        """Types in the order of their groups, and back."""
        order = [member for group in self.structure.groups for member in group.members]
        self.register_buffer("back_to_types", torch.tensor(np.argsort(order), dtype=torch.long), persistent=False)
        self.register_buffer("group_order", torch.tensor(order, dtype=torch.long), persistent=False)
        of_type = np.empty(self.types, dtype=np.int64)
        for index, group in enumerate(self.structure.groups):
            of_type[list(group.members)] = index
        self.register_buffer("group_of_type", torch.from_numpy(of_type), persistent=False)

    def layer_list(self) -> list[AttentionLayer]:
        return [layer for layer in self.attention if isinstance(layer, AttentionLayer)]

    def prepare(self, data: EventData) -> None:
        m, longest = wave_range(data, self.options.shortest_wave)
        self.time.set_range(m, longest)
        self.start_rates(data)
        fade(self, self.time_scale)
        self.fitted = True

    def start_rates(self, data: EventData) -> None:
        """Take the unit of time from data, and constants that give the rates of data as long as nothing is seen."""
        self.time_scale = mean_gap(data)
        with torch.no_grad():
            rates = torch.as_tensor(starting_rates(data) * self.time_scale, dtype=torch.float64)
            base = (self.w * self._bases()[self.group_of_type]).sum(-1)
            self.w_constant.copy_(inverse_softplus(rates).to(base) - base)

    # Events

    def encode(self, batch: Batch) -> AttentionHistory:
        return self._encode(batch, self.layers - 1)

    def embeddings(self, batch: Batch) -> list[Tensor]:
        """The embeddings of the events of a batch at layers 0 … L: [B, N, D] each."""
        first = 2 if self.options.bos else 1
        return [layer[:, first:] for layer in self._encode(batch, self.layers).embeddings]

    def _encode(self, batch: Batch, top: int) -> AttentionHistory:
        """In front of the events stands a null event, all of whose vectors are 0: the 1 in the attention's denominator."""
        bases = [self.fine] if self.bos_base is None else [self.fine, self.bos_base]
        table = torch.cat([*bases, self.fine.new_zeros(1, self.dim)])
        types = F.pad(batch.types, (len(bases) - 1, 0), value=self.types)
        types = F.pad(types, (1, 0), value=len(table) - 1)
        time = self.time.with_one(F.pad(batch.times, (len(bases), 0)), self.dtype)
        time[:, 0] = 0.0
        embedding = lookup(table, types)
        visible = Visible(None, 1, extra=-1)  # the null event sees nothing, the next nothing, then each one more
        matrices = self._matrices()
        timely = self._time_shares(time, matrices)
        embeddings, tables = [embedding], []
        for number, layer in enumerate(self.layer_list()):
            known = table if number == 0 and len(table) < types.numel() else None
            tables.append(self._tables(matrices[number], timely[number], embedding, types, known, fold=number == 0))
            if number < top:
                attended = self._attend_history(layer, tables[-1], time, embedding, types, visible)
                embedding = layer.combine(embedding, attended, self._drop())
                if not layer.is_plain:  # sublayers have constants of their own, which the null event must not get
                    embedding = with_null(embedding[:, 1:])
                embeddings.append(embedding)
        return AttentionHistory(tables, embeddings)

    def _matrices(self) -> list[LayerMatrices]:
        """`K/sqrt(D)`, `V` and `Q` of all layers, cut into what meets [1; time] and what meets the embedding, all at once."""
        layers = self.layer_list()
        scale = 1.0 / math.sqrt(self.dim)
        whole = torch.stack([matrix for layer in layers for matrix in (layer.K * scale, layer.V, layer.Q)])
        by_time, by_embedding = self._parts(whole)
        parts = [Parts(t, e) for t, e in zip(by_time, by_embedding, strict=True)]
        return [LayerMatrices(*parts[3 * number : 3 * number + 3]) for number in range(len(layers))]

    def _time_shares(self, time: Tensor, matrices: list[LayerMatrices]) -> list[list[Tensor]]:
        """What the events' times contribute to keys and values, [keys, values of head 1, of head 2, …] for every layer."""
        wanted = [part.by_time[i] for one in matrices for i in range(len(one.K.by_time)) for part in (one.K, one.V)]
        if not wanted:
            return [[] for _ in matrices]
        shares = F.linear(time, torch.cat(wanted)).split(self.dim, dim=-1)
        per_layer = len(wanted) // len(matrices)
        return [list(shares[per_layer * number : per_layer * (number + 1)]) for number in range(len(matrices))]

    def _tables(
        self,
        matrices: LayerMatrices,
        timely: list[Tensor],
        embedding: Tensor,
        types: Tensor,
        known: Tensor | None,
        fold: bool,
    ) -> list[KeyTable]:
        """Keys and values of all events; where the embeddings are just the types' vectors, these (`known`) are multiplied instead.

        Layer 1 is always folded: there a query's embedding does not change with time and costs nothing more.
        """

        def project(share: Tensor, matrix: Tensor) -> Tensor:
            if known is not None:
                return share + lookup(F.linear(known, matrix), types)
            return torch.addmm(share.flatten(0, 1), embedding.flatten(0, 1), matrix.T).view_as(share)

        fold = fold or types.shape[1] < FOLD_BELOW * self.dim
        tables = []
        for index, head in enumerate(self.structure.heads):
            keys = project(timely[2 * index], matrices.K.by_embedding[index])
            values = project(timely[2 * index + 1], matrices.V.by_embedding[index])
            hidden = None
            if head.source is not None:
                hidden = (types != head.source) & (types < self.types)
            folded = (
                FoldedKeys(keys @ matrices.Q.by_time[index], keys @ matrices.Q.by_embedding[index]) if fold else None
            )
            tables.append(KeyTable(keys, values, folded, hidden))
        return tables

    def _parts(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """What meets [1; time] and what meets the embedding, of matrices [..., 1 + T + D]."""
        return self.time.widen(matrix), matrix[..., 1 + self.time_dim :]

    def _attend_history(
        self,
        layer: AttentionLayer,
        tables: list[KeyTable],
        time: Tensor,
        embedding: Tensor,
        types: Tensor,
        visible: Visible,
    ) -> Tensor:
        attended = torch.zeros_like(embedding)
        for index, (head, table) in enumerate(zip(self.structure.heads, tables, strict=True)):
            if not head.serves_history():
                continue
            out = self._attend(layer.Q[index], table, time, embedding, None, visible)
            attended = attended + (out if head.reader is None else out * (types == head.reader).unsqueeze(-1))
        return attended

    def _attend(
        self,
        matrix: Tensor,
        table: KeyTable,
        time: Tensor,
        embedding: Tensor | None,
        base: Tensor | None,
        visible: Visible,
    ) -> Tensor:
        """One head: [B, Q, D]. A query's embedding is `base + embedding`, of which either may be nothing."""
        folded = table.folded
        if folded is not None:
            by_time = folded.by_time if base is None else folded.based_on(base)
            if embedding is None:
                return attention_with_null([time], [by_time], table.values, visible, table.hidden)
            keys = [by_time, folded.by_embedding]
            return attention_with_null([time, embedding], keys, table.values, visible, table.hidden)
        assert embedding is not None, "layer 1 is folded"
        by_time, by_embedding = self._parts(matrix)
        if base is not None:
            by_time = by_time + F.pad((by_embedding @ base).unsqueeze(-1), (0, by_time.shape[-1] - 1))
        query = F.linear(time, by_time) + F.linear(embedding, by_embedding)
        return attention_with_null([query], [table.keys], table.values, visible, table.hidden)

    # Queries

    def state(self, history: AttentionHistory, queries: Queries) -> Tensor:
        """The top layer's embedding of each coarse type at each query, counted from its base vector: [B, Q, groups·D]."""
        time = self.time.with_one(queries.times, self.dtype)
        visible = replace(queries.visible, extra=1) if self.options.bos else queries.visible
        layers = self.layer_list()

        def attend(number: int, head: int, moved: Tensor | None, base: Tensor) -> Tensor:
            return self._attend(layers[number].Q[head], history.tables[number][head], time, moved, base, visible)

        def nothing() -> Tensor:
            return torch.zeros(*time.shape[:2], self.dim, dtype=self.dtype, device=time.device)

        top = self.query_embeddings(attend, nothing)
        return top[0] if len(top) == 1 else torch.cat(top, dim=-1)

    def query_embeddings(
        self, attend: Callable[[int, int, Value | None, Tensor], Value], nothing: Callable[[], Value]
    ) -> list[Value]:
        """The top layer's embedding of each coarse type (paper, equation 1), counted from its base vector, of tensors or of bounds.

        `attend(layer, head, moved, base)` is what a head finds for queries whose embedding is `base + moved`, where `moved` is None as
        long as it is 0; `nothing()` are zeros, for a type that no head serves. Without sublayers the base vector never enters a tensor of
        queries.
        """
        found: list[Value] = []
        for index, base in enumerate(self._bases()):
            heads = [i for i, head in enumerate(self.structure.heads) if head.serves_group(index)]
            moved: Value | None = None
            for number, layer in enumerate(self.layer_list()):
                attended = None
                for i in heads:
                    out = attend(number, i, moved, base)
                    attended = out if attended is None else attended + out
                moved = layer.step(base, moved, nothing() if attended is None else attended, self._drop())
            assert moved is not None, "there is a layer"
            found.append(moved)
        return found

    def _bases(self) -> Tensor:
        """The base vector of every group: [groups, D]."""
        if self.structure.groups[0].base is not None:
            return self.fine  # each type embeds itself
        return self.coarse_base

    def _drop(self) -> Dropout:
        return Dropout(self.dropout if self.training else 0.0, self.noise)

    # Intensities

    def _scores(self, state: Tensor) -> Tensor:
        """`w_e·[1; emb]/τ_e` for all types: [..., K]."""
        groups, tau = self.structure.groups, self.log_tau.exp()
        w, constant = self.w / tau[:, None], self._constants() / tau
        if len(groups) == 1:
            return F.linear(state, w, constant)
        if len(groups) == self.types:
            embeddings = state.unflatten(-1, (len(groups), self.dim))
            return (embeddings[..., self.group_of_type, :] * w).sum(-1) + constant
        return self._scores_of_groups(state.split(self.dim, dim=-1), w, constant)

    def _scores_of_groups(self, embeddings: Sequence[Value], w: Tensor, constant: Tensor) -> Value:
        sizes = [len(group.members) for group in self.structure.groups]
        in_order = lookup(torch.cat([w, constant[:, None]], dim=1), self.group_order).split(sizes)
        parts = [affine(one, rows[:, :-1], rows[:, -1]) for one, rows in zip(embeddings, in_order, strict=True)]
        return components(side_by_side(parts), self.back_to_types)

    def intensities_of_groups(self, embeddings: Sequence[Value]) -> Value:
        """Intensities of all types from what `query_embeddings` found: [..., K]."""
        tau = self.log_tau.exp()
        w, constant = self.w / tau[:, None], self._constants() / tau
        single = len(embeddings) == 1
        scores = affine(embeddings[0], w, constant) if single else self._scores_of_groups(embeddings, w, constant)
        return softplus(scores) * (tau / self.time_scale)

    def _constants(self) -> Tensor:
        """What every type's score starts from: its constant and its group's base vector."""
        return self.w_constant + (self.w * lookup(self._bases(), self.group_of_type)).sum(-1)

    def intensities(self, state: Tensor) -> Tensor:
        return softplus(self._scores(state)) * (self.log_tau.exp() / self.time_scale)

    def log_intensities(self, state: Tensor) -> Tensor:
        return log_softplus(self._scores(state)) + (self.log_tau - math.log(self.time_scale))

    def total(self, state: Tensor) -> Tensor:
        return softplus(self._scores(state)) @ (self.log_tau.exp() / self.time_scale)

    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        if len(self.structure.groups) > 1:
            chosen = self.group_of_type[types][..., None, None].expand(*types.shape, 1, self.dim)
            state = state.unflatten(-1, (-1, self.dim)).gather(-2, chosen).squeeze(-2)
        own = lookup(torch.cat([self.w, self._constants()[:, None], self.log_tau[:, None]], dim=1), types)
        w, constant, log_tau = own.split([self.dim, 1, 1], dim=-1)
        score = (w * state).sum(-1, keepdim=True) + constant
        return (log_softplus(score / log_tau.exp()) + (log_tau - math.log(self.time_scale))).squeeze(-1)

    def at_ends_and_inside(self, state: Tensor, types: Tensor, pseudo: bool) -> GapIntensities:
        """All from one product with `w`: the scores of a gap's end are looked up, those inside it summed."""
        scores = self._scores(state)
        tau = self.log_tau.exp()
        log_unit = self.log_tau - math.log(self.time_scale)
        at_end = scores[:, :-1, -1].gather(-1, types.unsqueeze(-1)).squeeze(-1)
        inside = scores[:, :, :-1]
        return GapIntensities(
            log_softplus(at_end) + lookup(log_unit[:, None], types).squeeze(-1),
            softplus(inside) @ (tau / self.time_scale),
            (log_softplus(inside) + log_unit).sum(-1) if pseudo else None,
        )

    def is_fused(self) -> bool:
        return is_fused(self)

    def fused_losses(self, batch: Batch, inside: Tensor, weights: Tensor, pseudo_rate: float) -> tuple[Tensor, Tensor]:
        return fused_losses(self, batch, inside, weights, pseudo_rate)

    # In and out

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> ANHPSampler:
        return ANHPSampler.start(self, histories, seen)

    def named_arrays(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        names = self.vocabulary.names
        for index, name in enumerate(names):
            found[f"embed.{name}"] = self.fine[index]
        for row, group in enumerate(g for g in self.structure.groups if g.base is None):
            found[f"coarse.{group.name}"] = self.coarse_base[row]
        if self.bos_base is not None:
            found["embed.bos"] = self.bos_base[0]
        for number, layer in enumerate(self.layer_list(), start=1):
            for index, head in enumerate(self.structure.heads):
                for letter, matrix in (("V", layer.V), ("K", layer.K), ("Q", layer.Q)):
                    found[f"attend.{head.name}.{number}.{letter}"] = matrix[index]
            for name, parameter in layer.named_parameters():
                if name not in ("V", "K", "Q"):
                    found[f"layer.{number}.{name}"] = parameter
        w = torch.cat([self.w_constant[:, None], self.w], dim=1) / self.time_scale
        tau = self.log_tau.exp() / self.time_scale
        for index, name in enumerate(names):
            found[f"intensity.{name}.w"] = w[index]
            found[f"intensity.{name}.tau"] = tau[index]
        return {name: array.detach() for name, array in found.items()}

    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        for name in self.vocabulary.names:
            tau = arrays[f"intensity.{name}.tau"]
            if not bool((tau > 0).all()):
                raise ForetellError(f"intensity.{name}.tau = {float(tau)}: expected a number above 0")
        with torch.no_grad():
            for name, target in self.named_arrays().items():
                if not name.startswith("intensity."):
                    target.copy_(arrays[name])  # a view of the parameter itself
            for index, name in enumerate(self.vocabulary.names):
                w = arrays[f"intensity.{name}.w"] * self.time_scale
                self.w_constant[index], self.w[index] = w[0], w[1:]
                self.log_tau[index] = (arrays[f"intensity.{name}.tau"] * self.time_scale).log()
