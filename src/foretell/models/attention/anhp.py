"""The attentive neural Hawkes process, A-NHP (paper, sections 2-4 and appendix A).

The events of a batch are embedded once, layer by layer, and only keys and values of each layer are kept. A query then embeds its
coarse types at its time by attending to these tables; it does not need the events again. Matrices act on `[1; time; embedding]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.models.attention.anhp_sampler import ANHPSampler
from foretell.models.attention.coarse_intensities import CoarseIntensities
from foretell.models.attention.fused import fused_losses, fused_queries, is_fused
from foretell.models.attention.layers import (
    AttentionHistory,
    AttentionLayer,
    Dropout,
    FoldedKeys,
    KeyTable,
    LayerMatrices,
    Parts,
    QueryRows,
)
from foretell.models.attention.start import fade, start, start_decay
from foretell.models.attention.structure import AnhpOptions, AttentionHead, make_structure
from foretell.models.classical.hawkes import Hawkes
from foretell.models.covariates import plus
from foretell.models.gap_periods import gap_periods
from foretell.models.registry import ModelSpec, register
from foretell.models.units import gap_range, mean_gap, starting_rates, wave_range
from foretell.nn.attention import Ages, Visible, attention_with_null, head_attention, with_null
from foretell.nn.elapsed import ElapsedFeatures
from foretell.nn.fused.heads import heads_by_kernels, heads_fit_kernels
from foretell.nn.intensity import inverse_softplus
from foretell.nn.lookup import lookup
from foretell.nn.time import TimeEmbedding
from foretell.sampling.bounds.values import Value

# With fewer keys than this multiple of the dimension, multiplying Q into the keys is cheaper than projecting every query.
FOLD_BELOW = 2


@register(ModelSpec("anhp", "A-NHP", AnhpOptions, "attention over all earlier events", "Yang, Mei & Eisner 2022"))
class ANHP(CoarseIntensities):
    """A-NHP, the attentive neural Hawkes process: every query attends to all earlier events.

    Events are embedded layer by layer; a query of type k at time t attends to the events before t, and its top embedding gives the
    intensity: `λ_k(t) = softplus(w_k · [1; ⟦k⟧(t)])`, here multiplied by a mixture over time scales (`intensity_scales`). By default heads
    decay with an event's age and see the time since the last event; `ANHP.paper(vocabulary)` has exactly the paper's equations.

    Yang, Mei & Eisner, "Transformer Embeddings of Irregularly Spaced Events and Their Participants", ICLR 2022.

    Example:
        >>> data = ft.load("robocup")
        >>> model = ft.ANHP(data.vocabulary, dim=16, layers=1)
        >>> paper = ft.ANHP.paper(data.vocabulary, dim=16, layers=2)
        >>> model.intensity(data.test[0], [100.0, 200.0]).shape
        (2, 528)
    """

    shown_sizes = ("dim", "layers")
    unit_names = ("m", "M", "time_scale")
    shown_units = {"m": "m", "M": "M"}  # noqa: RUF012
    takes_covariates = takes_calendar = True

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
        assert chosen.time_dim != "dim" and chosen.heads is not None  # resolved
        self.dim, self.layers, self.heads = dim, layers, heads = chosen.dim, chosen.layers, chosen.heads
        self.time_dim = chosen.time_dim
        edges: Any = chosen.edges  # resolved: pairs
        self.structure = make_structure(self.vocabulary, heads=heads, coarse=chosen.coarse, edges=edges)

        self.head_size = dim // heads if chosen.head_size == "split" else dim
        self.runs = len(self.structure.heads) * self.head_size // dim  # runs: groups of heads with concatenated outputs

        self.time = TimeEmbedding(self.time_dim)
        self.elapsed = ElapsedFeatures(chosen.elapsed or 0, chosen.periods or 0)
        self.background: Tensor | None = None  # the background rates of a fitted Hawkes process: float64 [K]
        self.own = 1 + self.time_dim + self.elapsed.width  # columns of a matrix before those for the embedding
        own = [group for group in self.structure.groups if group.base is None]
        self.fine = nn.Parameter(torch.empty(self.types, dim))
        self.coarse_base = nn.Parameter(torch.empty(len(own), dim))
        self.bos_base = nn.Parameter(torch.empty(1, dim)) if chosen.bos else None
        self.attention = nn.ModuleList(
            AttentionLayer(len(self.structure.heads), self.head_size, self.own + dim, chosen, dim)
            for _ in range(layers)
        )
        self.make_head(chosen.intensity_scales or 0, chosen.hawkes)
        if self.elapsed.count or self.scales.count:
            self.unit_names = (*self.unit_names, "short", "long")
            periods = {name: name for name in self._periods()}
            self.shown_units = {**self.shown_units, "short": "short", "long": "long", "unit": "time_scale", **periods}
        start(self, seed)
        self.to(dtype)

    def layer_list(self) -> list[AttentionLayer]:
        return [layer for layer in self.attention if isinstance(layer, AttentionLayer)]

    def prepare(self, data: EventData) -> None:
        m, longest = wave_range(data, self.options.shortest_wave)
        self.time.set_range(m, longest)
        for scales in (self.elapsed, self.scales):
            scales.set_range(*gap_range(data))
        self.elapsed.set_periods(gap_periods(data, self.elapsed.most))
        self.start_rates(data)
        if self.options.head_decay:
            start_decay(self, data)
        else:
            fade(self, self.time_scale)
        self.fitted = True

    @property
    def short_time(self) -> float | None:
        return self.short if self.scales.count else None

    @property
    def short(self) -> float:
        """The shortest of the scales for the time since the last event; `long` is the longest."""
        return self.scales.short

    @property
    def long(self) -> float:
        return self.scales.long

    def _periods(self) -> dict[str, float]:
        return {f"period{number}": period for number, period in enumerate(self.elapsed.periods, start=1)}

    def units(self) -> dict[str, float]:
        return {**super().units(), **self._periods()}

    def set_units(self, units: dict[str, float]) -> None:
        self.time.set_range(units["m"], units["M"])
        self.time_scale = units["time_scale"]
        if "short" in self.unit_names:
            for scales in (self.elapsed, self.scales):
                scales.set_range(units["short"], units["long"])
        self.elapsed.set_periods([units[name] for name in self._periods()])

    def start_hawkes(self, fitted: Hawkes) -> None:
        """Use a fitted Hawkes process in the model; `prepare` then starts from its background rates."""
        assert self.hawkes is not None
        self.hawkes.take(fitted)
        self.background = fitted.mu.detach().double().cpu()

    def start_rates(self, data: EventData) -> None:
        """Set the unit of time, and constants with which intensities without visible events are the rates of the data."""
        self.time_scale = mean_gap(data)
        with torch.no_grad():
            each = torch.as_tensor(starting_rates(data)) if self.background is None else self.background
            rates = torch.as_tensor(each * self.time_scale, dtype=torch.float64)
            base = (self.w * self.bases()[self.group_of_type]).sum(-1)
            self.w_constant.copy_(inverse_softplus(rates).to(base) - base)

    # Events

    def encode(self, batch: Batch) -> AttentionHistory:
        return self._encode(batch, self.layers - 1)

    def embeddings(self, batch: Batch) -> list[Tensor]:
        """Return the embeddings of the events of a batch at layers 0 … L: [B, N, D] each."""
        first = 2 if self.options.bos else 1
        return [layer[:, first:] for layer in self._encode(batch, self.layers).embeddings]

    def _encode(self, batch: Batch, top: int) -> AttentionHistory:
        """Encode events up to layer `top`. A null event of zeros comes first; its weight is the 1 in the attention's denominator."""
        bases = [self.fine] if self.bos_base is None else [self.fine, self.bos_base]
        table = torch.cat([*bases, self.fine.new_zeros(1, self.dim)])
        types = F.pad(batch.types, (len(bases) - 1, 0), value=self.types)
        types = F.pad(types, (1, 0), value=len(table) - 1)
        times = F.pad(batch.times, (len(bases), 0))
        time = self._features(times, F.pad(times[:, :-1], (1, 0)))
        time[:, 0] = 0.0
        embedding, added = lookup(table, types), self.event_inputs(batch, before=len(bases) - 1)
        if added is not None:
            embedding = embedding + with_null(added)
        visible = Visible(None, 1, extra=-1)  # the null event sees nothing, the next nothing, then each one more
        matrices = self._matrices()
        timely = self._time_shares(time, matrices)
        embeddings, tables = [embedding], []
        for number, layer in enumerate(self.layer_list()):
            known = table if number == 0 and len(table) < types.numel() and added is None else None
            tables.append(self._tables(matrices[number], timely[number], embedding, types, known, fold=number == 0))
            if number < top:
                attended = self._attend_history(layer, tables[-1], times, time, embedding, types, visible)
                embedding = layer.combine(embedding, attended, self._drop())
                if not layer.is_plain:  # sublayers add constants, which the null event must not get
                    embedding = with_null(embedding[:, 1:])
                embeddings.append(embedding)
        past = None if self.hawkes is None else self.hawkes.follow(times, types)
        return AttentionHistory(times, tables, embeddings, past, self.query_inputs(batch))

    def _features(self, times: Tensor, since: Tensor) -> Tensor:
        """Return `[1; time]` and the features of the time since the last event, [..., features], from float64 [...] each."""
        time = self.time.with_one(times, self.dtype)
        if not self.elapsed.count:
            return time
        return torch.cat([time, self.elapsed.features(times - since, self.dtype)], dim=-1)

    def _matrices(self) -> list[LayerMatrices]:
        """Return K (divided by the root of its size), V and Q of all layers and runs, each split into its time and embedding columns."""
        layers = self.layer_list()
        scale = 1.0 / math.sqrt(self.head_size)
        whole = torch.stack([matrix for layer in layers for matrix in (layer.K * scale, layer.V, layer.Q)])
        whole = whole.view(len(whole), self.runs, self.dim, self.own + self.dim)
        by_time, by_embedding = self._parts(whole)
        parts = [Parts(t, e) for t, e in zip(by_time, by_embedding, strict=True)]
        return [LayerMatrices(*parts[3 * number : 3 * number + 3]) for number in range(len(layers))]

    def _time_shares(self, time: Tensor, matrices: list[LayerMatrices]) -> list[list[Tensor]]:
        """Return the time terms of keys and values of events: for every layer [keys, values of run 1, keys, values of run 2, …]."""
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
        """Return keys and values of all events. `known` are the types' vectors if these are the embeddings; they are projected per type.

        Keys of layer 1 are always multiplied by Q: there the embedding of a query is constant in time, so this costs nothing more.
        """

        def project(share: Tensor, matrix: Tensor) -> Tensor:
            if known is not None:
                return share + lookup(F.linear(known, matrix), types)
            return torch.addmm(share.flatten(0, 1), embedding.flatten(0, 1), matrix.T).view_as(share)

        fold = self.is_plain and (fold or types.shape[1] < FOLD_BELOW * self.dim)
        tables = []
        for index, head in enumerate(self.run_heads()):
            keys = project(timely[2 * index], matrices.K.by_embedding[index])
            values = project(timely[2 * index + 1], matrices.V.by_embedding[index])
            hidden = None
            if head.source is not None:
                hidden = (types != head.source) & (types < self.types)
            folded = (
                FoldedKeys(keys @ matrices.Q.by_time[index], keys @ matrices.Q.by_embedding[index]) if fold else None
            )
            if not self._by_kernels(keys):
                keys, values = self._by_head(keys), self._by_head(values)
            tables.append(KeyTable(keys, values, folded, hidden))
        return tables

    @property
    def is_plain(self) -> bool:
        """Whether heads have the size of the embeddings and do not decay."""
        return self.head_size == self.dim and not self.options.head_decay

    def _by_kernels(self, x: Tensor) -> bool:
        """Whether fused kernels compute heads that decay or are smaller than the embeddings. They need tables with heads side by side."""
        return not self.is_plain and heads_fit_kernels(x, self.head_size)

    def run_heads(self) -> list[AttentionHead]:
        """Return the first head of every run. All heads of a run have the same readers and sources."""
        return list(self.structure.heads[:: self.dim // self.head_size])

    def _by_head(self, x: Tensor) -> Tensor:
        """Reshape [B, N, D] to [B, heads, N, D / heads]. Return `x` unchanged if heads have size D or `x` is already split."""
        if self.head_size == self.dim or x.dim() == 4:
            return x
        return x.unflatten(-1, (-1, self.head_size)).transpose(1, 2).contiguous()

    def _parts(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Split matrices [..., 1 + T + E + D] into the columns for `_features` and those for the embedding."""
        by_time = self.time.widen(matrix)
        if self.elapsed.count:
            by_time = torch.cat([by_time, matrix[..., 1 + self.time_dim : self.own]], dim=-1)
        return by_time, matrix[..., self.own :]

    def _attend_history(
        self,
        layer: AttentionLayer,
        tables: list[KeyTable],
        times: Tensor,
        time: Tensor,
        embedding: Tensor,
        types: Tensor,
        visible: Visible,
    ) -> Tensor:
        attended = torch.zeros_like(embedding)
        ages = Ages(times, times)
        for index, (head, table) in enumerate(zip(self.run_heads(), tables, strict=True)):
            if not head.serves_history():
                continue
            out = self._attend(layer, index, table, QueryRows(time, embedding, None, visible, ages))
            attended = attended + (out if head.reader is None else out * (types == head.reader).unsqueeze(-1))
        return attended

    def _attend(self, layer: AttentionLayer, run: int, table: KeyTable, rows: QueryRows) -> Tensor:
        """Return the concatenated outputs of one run of heads: [B, Q, D]."""
        time, embedding, base, visible = rows.time, rows.embedding, rows.base, rows.visible
        folded = table.folded
        if folded is not None:
            by_time = folded.by_time if base is None else folded.based_on(base)
            if embedding is None:
                return attention_with_null([time], [by_time], table.values, visible, table.hidden)
            keys = [by_time, folded.by_embedding]
            return attention_with_null([time, embedding], keys, table.values, visible, table.hidden)
        by_time, by_embedding = self._parts(layer.Q.view(self.runs, self.dim, self.own + self.dim)[run])
        if base is not None:
            by_time = by_time + F.pad((by_embedding @ base).unsqueeze(-1), (0, by_time.shape[-1] - 1))
        query = F.linear(time, by_time)
        if embedding is not None:
            query = query + F.linear(embedding, by_embedding)
        if self.is_plain:
            return attention_with_null([query], [table.keys], table.values, visible, table.hidden)
        decay = layer.decay(run, self.dim // self.head_size, self.time_scale)
        if visible.per_gap is not None and table.hidden is None and self._by_kernels(query):
            rates = query.new_zeros(self.dim // self.head_size) if decay is None else decay
            times, prefix = (rows.ages.queries, rows.ages.keys), (visible.per_gap, visible.extra)
            return heads_by_kernels(query, table.keys, table.values, times, rates, prefix)
        ages = None if decay is None else rows.ages
        split = [self._by_head(part) for part in (query, table.keys, table.values)]
        x, keys, values = (part.flatten(0, -3) for part in split)
        out = head_attention(x, keys, values, visible, table.hidden, ages, decay)
        if self.head_size == self.dim:
            return out
        return out.unflatten(0, (len(query), -1)).transpose(1, 2).flatten(2)

    # Queries

    def state(self, history: AttentionHistory, queries: Queries) -> Tensor:
        """Return [B, Q, groups·D + scales (+ K)]: the top layer's embedding of each coarse type minus its base vector, the densities on the
        time scales, and the term of a Hawkes part in each intensity.
        """
        since = self._since(history, queries)
        time = self._features(queries.times, since)
        visible = replace(queries.visible, extra=1) if self.options.bos else queries.visible
        layers, ages = self.layer_list(), Ages(queries.times, history.times)

        def attend(number: int, run: int, moved: Tensor | None, base: Tensor) -> Tensor:
            rows = QueryRows(time, moved, base, visible, ages)
            return self._attend(layers[number], run, history.tables[number][run], rows)

        def nothing() -> Tensor:
            return torch.zeros(*time.shape[:2], self.dim, dtype=self.dtype, device=time.device)

        added = self.at_queries(history.query, queries.times)
        top = [plus(one, added) for one in self.query_embeddings(attend, nothing)]
        if self.scales.count:
            top.append(self.scales.densities(queries.times - since, self.time_scale, self.dtype))
        if self.hawkes is not None and history.excitation is not None:
            top.append(self.hawkes.at(history.excitation, queries.times, self._place(history, queries)))
        return top[0] if len(top) == 1 else torch.cat(top, dim=-1)

    def _since(self, history: AttentionHistory, queries: Queries) -> Tensor:
        """Return the time of the last event that each query sees, or 0: float64 [B, Q]."""
        if not (self.elapsed.count or self.scales.count):
            return queries.times
        return history.times.gather(1, self._place(history, queries))

    def _place(self, history: AttentionHistory, queries: Queries) -> Tensor:
        """Return the position in the history of the last event that each query sees: int64 [B, Q]."""
        place = queries.seen() + (1 if self.options.bos else 0)
        return place.expand(len(history.times), -1)

    def query_embeddings(
        self, attend: Callable[[int, int, Value | None, Tensor], Value], nothing: Callable[[], Value]
    ) -> list[Value]:
        """Return the top layer's embedding of each coarse type (paper, equation 1) minus its base vector, as tensors or bounds.

        `attend(layer, run, moved, base)` returns the output of a run of heads for queries with embedding `base + moved`; `moved` is None
        while it is 0. `nothing()` returns zeros, for a type that no head serves. Without sublayers, no tensor of queries contains the base
        vector.
        """
        found: list[Value] = []
        for index, base in enumerate(self.bases()):
            runs = [i for i, head in enumerate(self.run_heads()) if head.serves_group(index)]
            moved: Value | None = None
            for number, layer in enumerate(self.layer_list()):
                attended = None
                for i in runs:
                    out = attend(number, i, moved, base)
                    attended = out if attended is None else attended + out
                moved = layer.step(base, moved, nothing() if attended is None else attended, self._drop())
            assert moved is not None, "there is a layer"
            found.append(moved)
        return found

    def _drop(self) -> Dropout:
        return Dropout(self.dropout if self.training else 0.0, self.noise)

    def is_fused(self) -> bool:
        return is_fused(self)

    @property
    def fused_queries(self) -> int:
        return fused_queries(self)

    def fused_losses(self, batch: Batch, inside: Tensor, weights: Tensor, pseudo_rate: float) -> tuple[Tensor, Tensor]:
        return fused_losses(self, batch, inside, weights, pseudo_rate)

    # Files and public names

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
                if layer.log_decay is not None:
                    found[f"attend.{head.name}.{number}.decay"] = layer.log_decay[index].exp() / self.time_scale
            for name, parameter in layer.named_parameters():
                if name not in ("V", "K", "Q", "log_decay"):
                    found[f"layer.{number}.{name}"] = parameter
        w = torch.cat([self.w_constant[:, None], self.w], dim=1) / self.time_scale
        tau = self.log_tau.exp() / self.time_scale
        for index, name in enumerate(names):
            found[f"intensity.{name}.w"] = w[index]
            found[f"intensity.{name}.tau"] = tau[index]
        if self.hawkes is not None:
            found |= {"hawkes.beta": self.hawkes.rates(), "hawkes.alpha": self.hawkes.alpha}
            found["hawkes.gain"] = torch.cat([self.hawkes.gain_constant[:, None], self.hawkes.gain], dim=1)
        if self.mixture is not None and self.mixture_constant is not None:
            found["mixture.w"] = torch.cat([self.mixture_constant[:, None], self.mixture], dim=1)
        found |= self.input_arrays()
        return {name: array.detach() for name, array in found.items()}

    @torch.no_grad()
    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        names = self.vocabulary.names
        rates = [name for name in arrays if name.startswith("attend.") and name.endswith(".decay")]
        for name in [*(f"intensity.{name}.tau" for name in names), *rates]:
            if not bool((arrays[name] > 0).all()):
                raise ForetellError(f"{name} = {float(arrays[name])}: expected a number above 0")
        if self.hawkes is not None and not (
            bool((arrays["hawkes.beta"] > 0).all()) and bool((arrays["hawkes.alpha"] >= 0).all())
        ):
            raise ForetellError("hawkes.beta, hawkes.alpha: expected numbers above 0, and none below 0")
        for name, target in self.named_arrays().items():
            if not name.startswith(("intensity.", "mixture.", "hawkes.")) and name not in rates:
                target.copy_(arrays[name])  # a view of the parameter itself
        for number, layer in enumerate(self.layer_list(), start=1):
            if layer.log_decay is not None:
                found = [arrays[f"attend.{head.name}.{number}.decay"] for head in self.structure.heads]
                layer.log_decay.copy_((torch.stack(found) * self.time_scale).log())
        for index, name in enumerate(names):
            w = arrays[f"intensity.{name}.w"] * self.time_scale
            self.w_constant[index], self.w[index] = w[0], w[1:]
            self.log_tau[index] = (arrays[f"intensity.{name}.tau"] * self.time_scale).log()
        if self.hawkes is not None:
            self.hawkes.alpha.copy_(arrays["hawkes.alpha"])
            self.hawkes.log_beta.copy_(arrays["hawkes.beta"].log())
            self.hawkes.gain.copy_(arrays["hawkes.gain"][:, 1:])
            self.hawkes.gain_constant.copy_(arrays["hawkes.gain"][:, 0])
        if self.mixture is not None and self.mixture_constant is not None:
            self.mixture.copy_(arrays["mixture.w"][:, 1:])
            self.mixture_constant.copy_(arrays["mixture.w"][:, 0])
