"""The embeddings of a plan's slots, layer by layer (paper, section 5). The number of tensor operations depends on rules and layers only.

`emb^ℓ(h,t) = emb^(ℓ-1)(h,t) + tanh(deduced^ℓ(h,t) + Σ_r attended_r^ℓ(h,t))`. Attention reads the layer below, so it is computed for all
slots at once. Deductions read their own layer, so they are computed level by level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.models.attention.layers import Sublayers
from foretell.models.rules.rule_network import (
    NUMBERS,
    Arithmetic,
    Blocks,
    Embeddings,
    Levels,
    RuleNetwork,
    by_level,
    seed_of,
)
from foretell.nn.range_attention import range_attention
from foretell.nn.time import TimeEmbedding
from foretell.plan.deduction import DeductionPlan
from foretell.plan.parameters import ParameterBook
from foretell.plan.plan import Keys, Plan, SlotTable


@dataclass(frozen=True)
class AttentionRecord:
    """The attention of one table in one layer: slot `s` gives addition `a` in one of its ranges the weight `exp(x_s·k_a)`."""

    layer: int
    table: SlotTable
    x: Tensor  # [slots, width]
    k: Tensor  # [keys, width]
    v: Tensor  # [keys, dim]


@dataclass(frozen=True)
class _Applied:
    """Tensors that every layer needs, computed once per pass over a plan."""

    vectors: Embeddings  # per dimension, summed over the targets of all levels
    first: Embeddings  # the same sums for the classes of the first layer
    blocks: Blocks
    keys: dict[int, _KeyParts]  # by the additions they belong to
    time: Embeddings  # `[1; time]` of the slots with attention, per table


@dataclass(frozen=True)
class _KeyParts:
    time: Tensor  # `[1; time]` of additions
    k: tuple[Tensor, ...]  # per layer: the matrices of each tile, K and V transposed
    v: tuple[Tensor, ...]
    q: tuple[Tensor, ...]
    event: Tensor | None  # the terms of numbers in event embeddings, equal in every layer


class Network(RuleNetwork):
    def __init__(
        self,
        book: ParameterBook,
        layers: int,
        time: TimeEmbedding,
        seed: int,
        layer_norm: bool = False,
        feed_forward: int = 0,
    ) -> None:
        super().__init__(book, seed)
        self.layers, self.time = layers, time
        self.sublayers = nn.ModuleDict()  # per dimension and layer
        if layer_norm or feed_forward:
            generator = torch.Generator().manual_seed(seed_of(seed, "sublayers"))
            for dim in book.layout.dims:
                of_dim = [Sublayers(dim, layer_norm, feed_forward) for _ in range(layers)]
                self.sublayers[str(dim)] = nn.ModuleList(of_dim)
                for one in of_dim:
                    one.start(generator)
        self.grow(torch.float32, torch.device("cpu"))

    def named_arrays(self) -> dict[str, Tensor]:
        return super().named_arrays() | dict(self._of_sublayers())

    def _of_sublayers(self) -> Iterator[tuple[str, Tensor]]:
        for dim, layers in self.sublayers.items():
            assert isinstance(layers, nn.ModuleList)
            for number, layer in enumerate(layers):
                for name, parameter in layer.named_parameters():
                    yield f"layer.{number + 1}.{dim}.{name}", parameter

    def load_named_arrays(self, arrays: Mapping[str, Tensor]) -> None:
        super().load_named_arrays(arrays)
        with torch.no_grad():
            for name, parameter in self._of_sublayers():
                parameter.copy_(arrays[name])

    # Layers

    def forward(
        self,
        plan: Plan,
        times: Tensor,
        seen: list[AttentionRecord] | None = None,
        numbers: Tensor | None = None,
        clock: Tensor | None = None,
    ) -> Embeddings:
        """Return the top layer. `times` of the plan's points are float64; `numbers` [points, columns] are those of events with features.

        Attention weights are appended to `seen`; `clock` [points, T] is the calendar's term in the time embedding.
        """
        dtype = next(self.parameters(), torch.empty(0)).dtype  # any dtype will do without parameters
        time = self.time.with_one(times, dtype)
        if clock is not None:
            time = time + F.pad(clock, (1, self.time.width - 1 - self.time.dim))
        applied = self._applied(plan, time, numbers)
        first = {dim: table.first for dim, table in plan.tables.items()}
        deduced = {dim: table.deduced for dim, table in plan.tables.items()}
        alike = self.deduced(first, applied.blocks, applied.first, {})
        below = {dim: alike[dim].index_select(0, table.of_class) for dim, table in plan.tables.items()}

        def attend(layer: int, below: Embeddings) -> Embeddings:
            return self._attended(plan, applied, below, layer, seen)

        for layer in self.layers_above(below, deduced, applied.blocks, applied.vectors, attend):
            below = layer
        return below

    def layers_above(
        self,
        below: Embeddings,
        tables: Mapping[int, DeductionPlan],
        blocks: Blocks,
        vectors: Embeddings,
        attend: Callable[[int, Embeddings], Embeddings],
        on: Arithmetic = NUMBERS,
    ) -> Iterator[Embeddings]:
        """Return layers 1 … L, `emb^ℓ = emb^(ℓ-1) + tanh(deduced + attended)`; `attend(ℓ, below)` returns the attended vectors."""
        for layer in range(1, self.layers + 1):
            attended = attend(layer, below)
            lower = by_level(tables, below)

            def onto(dim: int, number: int, moved: Tensor, layer: int = layer, lower: Levels = lower) -> Tensor:
                return after(self.sublayers, dim, layer, lower[dim][number] + moved, on)

            below = self.deduced(tables, blocks, vectors, attended, onto, on)
            yield below

    def _applied(self, plan: Plan, time: Tensor, numbers: Tensor | None) -> _Applied:
        vectors, first, times = {}, {}, {}
        blocks: Blocks = {}
        keys: dict[int, _KeyParts] = {}
        widened: dict[tuple[str, str], Tensor] = {}
        for dim, table in plan.tables.items():
            stack = self.vectors_of(dim, time)
            vectors[dim], first[dim] = table.deduced.vectors(stack), table.first.vectors(stack)
            blocks |= self.blocks_of((table.deduced, table.first))
            if len(table.asked.slot):
                times[dim] = time.index_select(0, table.point)
                for one in table.keys:
                    keys[id(one)] = self._key_parts(one, time, widened, numbers)
        return _Applied(vectors, first, blocks, keys, times)

    def _key_parts(
        self, keys: Keys, time: Tensor, widened: dict[tuple[str, str], Tensor], numbers: Tensor | None
    ) -> _KeyParts:
        found: dict[str, tuple[Tensor, ...]] = {}
        for letter in "KVQ":
            whole = widened.get((keys.stack, letter))
            if whole is None:
                whole = self.stacks[f"{keys.stack}_{letter}"]
                if letter == "K":
                    whole = whole * (1.0 / math.sqrt(max(whole.shape[-2], 1)))
                # Columns for `[1; time; 0 …]`, then for the rest.
                whole = torch.cat([self.time.widen(whole), whole[..., 1 + self.time.dim :]], dim=-1)
                widened[keys.stack, letter] = whole
            of_tiles = whole.index_select(0, keys.matrix)
            found[letter] = (of_tiles if letter == "Q" else of_tiles.transpose(-1, -2)).unbind(1)
        event = None
        if keys.event is not None:
            assert numbers is not None, "a batch has the features of its events"
            event = self.features(self.features.number(keys.event), numbers.index_select(0, keys.point))
        return _KeyParts(time.index_select(0, keys.point), found["K"], found["V"], found["Q"], event)

    def _attended(
        self, plan: Plan, applied: _Applied, below: Embeddings, layer: int, seen: list[AttentionRecord] | None
    ) -> Embeddings:
        padded = below
        if plan.outside:  # a row of zeros behind each table, for events that are no fact
            padded = {dim: F.pad(table, (0, 0, 0, 1)) for dim, table in below.items()}
        found = {}
        for dim, table in plan.tables.items():
            if not len(table.asked.slot):
                continue
            parts = [self._additions(keys, applied.keys[id(keys)], padded, layer) for keys in table.keys]
            k, v = (parts[0][i] if len(parts) == 1 else torch.cat([part[i] for part in parts]) for i in range(2))
            x = torch.cat([applied.time[dim], below[dim]], dim=-1)
            if seen is not None:
                seen.append(AttentionRecord(layer, table, x, k, v))
            found[dim] = range_attention(x, k, v, table.tiles)
        return found

    def _additions(self, keys: Keys, parts: _KeyParts, padded: Embeddings, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys [A, width + head], multiplied by `Q` since there are many more queries than keys, and values [A, head]."""
        body = [part.of(padded) for part in keys.body]
        if parts.event is not None:
            body[0] = body[0] + parts.event
        inputs = torch.cat([parts.time, *body], dim=-1)
        inputs = inputs.view(len(keys.matrix), -1, inputs.shape[1])
        folded = torch.bmm(torch.bmm(inputs, parts.k[layer - 1]), parts.q[layer - 1])
        return folded.flatten(0, 1), torch.bmm(inputs, parts.v[layer - 1]).flatten(0, 1)


def after(sublayers: nn.ModuleDict, dim: int, layer: int, x: Tensor, on: Arithmetic = NUMBERS) -> Tensor:
    """Apply the optional sublayers, which all facts of one dimension share. Layer 0 has none."""
    if not layer or str(dim) not in sublayers:
        return x
    layers = sublayers[str(dim)]
    assert isinstance(layers, nn.ModuleList)
    one = layers[layer - 1]
    assert isinstance(one, Sublayers)
    return on.after(one, x)
