"""The embeddings of a plan's slots, layer by layer (paper, section 5), in a number of tensor operations that depends on rules and layers.

`emb^ℓ(h,t) = emb^(ℓ-1)(h,t) + tanh(deduced^ℓ(h,t) + Σ_r attended_r^ℓ(h,t))`. What is attended looks at the layer below only, so it is
computed for all slots at once; what is deduced looks at the same layer, so it is computed level by level.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.errors import ForetellError
from foretell.models.anhp_layers import Sublayers
from foretell.nn.pool import at_least_one, pool
from foretell.nn.range_attention import range_attention
from foretell.nn.time import TimeEmbedding
from foretell.plan.book import Family, ParameterBook
from foretell.plan.deduction import Deduced, Level
from foretell.plan.plan import Keys, Plan, Table

Embeddings = dict[int, Tensor]  # by dimension: [slots, dim]


@dataclass(frozen=True)
class Attended:
    """What one layer's attention of one table looked at: slot `s` gives addition `a` of one of its ranges the weight `exp(x_s·k_a)`."""

    layer: int
    table: Table
    x: Tensor  # [slots, width]
    k: Tensor  # [keys, width]
    v: Tensor  # [keys, dim]


@dataclass(frozen=True)
class _Applied:
    """What one pass over a plan needs in every layer, found once."""

    vectors: Embeddings  # summed to the targets of all levels
    first: Embeddings  # the same for the classes of the first layer
    blocks: dict[int, Tensor]  # by projection: the block of each tile, transposed
    keys: dict[int, _KeyParts]  # by the additions they belong to
    time: Embeddings  # `[1; time]` of all slots of a table that attend


@dataclass(frozen=True)
class _KeyParts:
    time: Tensor  # `[1; time]` of additions
    k: tuple[Tensor, ...]  # by layer: the matrices of each tile, K and V transposed
    v: tuple[Tensor, ...]
    q: tuple[Tensor, ...]


class Network(nn.Module):
    """All parameters of the rules: those of one shape are one tensor."""

    def __init__(
        self,
        book: ParameterBook,
        layers: int,
        time: TimeEmbedding,
        seed: int,
        layer_norm: bool = False,
        feed_forward: int = 0,
    ) -> None:
        super().__init__()
        self.book, self.layers, self.time, self.seed = book, layers, time, seed
        self.sublayers = nn.ModuleDict()  # of every dimension, by layer
        if layer_norm or feed_forward:
            generator = torch.Generator().manual_seed(_mixed(seed, "sublayers"))
            for dim in book.layout.dims:
                of_dim = [Sublayers(dim, layer_norm, feed_forward) for _ in range(layers)]
                self.sublayers[str(dim)] = nn.ModuleList(of_dim)
                for one in of_dim:
                    one.start(generator)
        self.stacks = nn.ParameterDict()
        self._met = 0  # names that have parameters
        self.grow(torch.float32, torch.device("cpu"))

    def grow(self, dtype: torch.dtype, device: torch.device) -> None:
        """Parameters for names that the book has met since; those there are keep their values."""
        fresh: dict[str, list[Tensor]] = {}
        for family, name in self.book.order[self._met :]:
            for letter in family.shapes:
                for key, values in self._cut(family, letter, self._start(family, letter, name)):
                    fresh.setdefault(key, []).append(values)
        self._met = len(self.book.order)
        for key, values in fresh.items():
            whole = torch.stack(values).to(dtype).to(device)
            if key in self.stacks:
                whole = torch.cat([self.stacks[key].data, whole])
            self.stacks[key] = nn.Parameter(whole)

    def _start(self, family: Family, letter: str, name: str) -> Tensor:
        """Drawn from the seed and the name, so that it does not matter when a name is met."""
        if family.stem == "beta":
            return torch.zeros(())
        shape = family.shapes[letter]
        generator = torch.Generator().manual_seed(_mixed(self.seed, f"{family.stem}.{name}.{letter}"))
        layers = (self.layers,) if family.stem == "add" else ()
        spread = 1.0 / math.sqrt(max(shape[1], 1)) if family.stem != "own" else 1.0
        return torch.randn(*layers, *shape, generator=generator, dtype=torch.float64) * spread

    def _cut(self, family: Family, letter: str, whole: Tensor) -> list[tuple[str, Tensor]]:
        """What each stack has of one parameter."""
        keys = [f"{stack.key}_{letter}" for stack in family.stacks]
        if letter != "W":
            return [(keys[0], whole)]
        blocks = (whole[:, low:high] for low, high in family.columns)
        return list(zip(keys, (whole[:, 0], *blocks), strict=True))

    def _whole(self, family: Family, letter: str, place: int) -> Tensor:
        """One parameter, put together again."""
        parts = [
            self.stacks[f"{stack.key}_{letter}"][row]
            for stack, row in zip(family.stacks, family.rows[place], strict=True)
        ]
        return parts[0] if letter != "W" else torch.cat([parts[0].unsqueeze(-1), *parts[1:]], dim=-1)

    def named_arrays(self) -> dict[str, Tensor]:
        """Every parameter under its canonical name."""
        found: dict[str, Tensor] = {}
        for family in self.book.families.values():
            for letter in family.shapes:
                for place, name in enumerate(family.names):
                    whole = self._whole(family, letter, place)
                    if family.stem == "beta":
                        found[f"deduce.{name}.beta"] = 1.0 + whole.clamp(min=0.0)
                    elif family.stem == "add":
                        found |= {f"add.{name}.{layer + 1}.{letter}": whole[layer] for layer in range(self.layers)}
                    else:
                        found[f"deduce.{name}.{letter}"] = whole
        return found | dict(self._of_sublayers())

    def _of_sublayers(self) -> Iterator[tuple[str, Tensor]]:
        for dim, layers in self.sublayers.items():
            assert isinstance(layers, nn.ModuleList)
            for number, layer in enumerate(layers):
                for name, parameter in layer.named_parameters():
                    yield f"layer.{number + 1}.{dim}.{name}", parameter

    def load_named_arrays(self, arrays: Mapping[str, Tensor]) -> None:
        for name, value in arrays.items():
            if name.endswith(".beta") and not bool((value >= 1.0).all()):
                raise ForetellError(f"{name}: found {float(value):g}, expected a pool exponent of 1 or more")
        with torch.no_grad():
            for name, parameter in self._of_sublayers():
                parameter.copy_(arrays[name])
            for family in self.book.families.values():
                for letter in family.shapes:
                    for place, name in enumerate(family.names):
                        if family.stem == "beta":
                            whole = arrays[f"deduce.{name}.beta"] - 1.0
                        elif family.stem == "add":
                            layers = range(1, self.layers + 1)
                            whole = torch.stack([arrays[f"add.{name}.{layer}.{letter}"] for layer in layers])
                        else:
                            whole = arrays[f"deduce.{name}.{letter}"]
                        parts = self._cut(family, letter, whole)
                        for (key, values), row in zip(parts, family.rows[place], strict=True):
                            self.stacks[key][row] = values

    # Layers

    def forward(self, plan: Plan, times: Tensor, seen: list[Attended] | None = None) -> Embeddings:
        """The top layer; `times` are those of the plan's points, float64. `seen` is given what was attended to."""
        dtype = next(self.parameters(), torch.empty(0)).dtype  # no parameters, no embeddings: then it is of no account
        time = self.time.with_one(times, dtype)
        applied = self._applied(plan, time)
        first = {dim: table.first for dim, table in plan.tables.items()}
        deduced = {dim: table.deduced for dim, table in plan.tables.items()}
        alike = self._deduced(0, first, applied, applied.first, None, {})
        below = {dim: alike[dim].index_select(0, table.of_class) for dim, table in plan.tables.items()}
        for layer in range(1, self.layers + 1):
            attended = self._attended(plan, applied, below, layer, seen)
            below = self._deduced(layer, deduced, applied, applied.vectors, below, attended)
        return below

    def _applied(self, plan: Plan, time: Tensor) -> _Applied:
        vectors, first, times = {}, {}, {}
        blocks: dict[int, Tensor] = {}
        keys: dict[int, _KeyParts] = {}
        widened: dict[tuple[str, str], Tensor] = {}
        for dim, table in plan.tables.items():
            own = f"vectors_{dim}_W"
            stack = self.stacks[own] if own in self.stacks else time.new_zeros(0, dim)
            vectors[dim], first[dim] = table.deduced.vectors(stack), table.first.vectors(stack)
            for level in (*table.deduced.levels, *table.first.levels):
                for one in level.projections:
                    found = self.stacks[f"{one.stack}_W"].index_select(0, one.matrix)
                    blocks[id(one)] = found.transpose(1, 2)
            if len(table.asked.slot):
                times[dim] = time.index_select(0, table.point)
                for one in table.keys:
                    keys[id(one)] = self._key_parts(one, time, widened)
        return _Applied(vectors, first, blocks, keys, times)

    def _key_parts(self, keys: Keys, time: Tensor, widened: dict[tuple[str, str], Tensor]) -> _KeyParts:
        found: dict[str, tuple[Tensor, ...]] = {}
        for letter in "KVQ":
            whole = widened.get((keys.stack, letter))
            if whole is None:
                whole = self.stacks[f"{keys.stack}_{letter}"]
                if letter == "K":
                    whole = whole * (1.0 / math.sqrt(max(whole.shape[-2], 1)))
                # Columns for `[1; time; 0 …]` and then for what follows.
                whole = torch.cat([self.time.widen(whole), whole[..., 1 + self.time.dim :]], dim=-1)
                widened[keys.stack, letter] = whole
            of_tiles = whole.index_select(0, keys.matrix)
            found[letter] = (of_tiles if letter == "Q" else of_tiles.transpose(-1, -2)).unbind(1)
        return _KeyParts(time.index_select(0, keys.point), found["K"], found["V"], found["Q"])

    def _attended(
        self, plan: Plan, applied: _Applied, below: Embeddings, layer: int, seen: list[Attended] | None
    ) -> Embeddings:
        padded = below
        if plan.outside:  # behind each table a row of zeros: an event that was no fact
            padded = {dim: F.pad(table, (0, 0, 0, 1)) for dim, table in below.items()}
        found = {}
        for dim, table in plan.tables.items():
            if not len(table.asked.slot):
                continue
            parts = [self._additions(keys, applied.keys[id(keys)], padded, layer) for keys in table.keys]
            k, v = (parts[0][i] if len(parts) == 1 else torch.cat([part[i] for part in parts]) for i in range(2))
            x = torch.cat([applied.time[dim], below[dim]], dim=-1)
            if seen is not None:
                seen.append(Attended(layer, table, x, k, v))
            found[dim] = range_attention(x, k, v, table.tiles)
        return found

    def _additions(self, keys: Keys, parts: _KeyParts, padded: Embeddings, layer: int) -> tuple[Tensor, Tensor]:
        """Keys [A, width + head], with `Q` folded into them since there are many more queries, and values [A, head]."""
        inputs = torch.cat([parts.time, *(part.of(padded) for part in keys.body)], dim=-1)
        inputs = inputs.view(len(keys.matrix), -1, inputs.shape[1])
        folded = torch.bmm(torch.bmm(inputs, parts.k[layer - 1]), parts.q[layer - 1])
        return folded.flatten(0, 1), torch.bmm(inputs, parts.v[layer - 1]).flatten(0, 1)

    def _deduced(
        self,
        layer: int,
        tables: Mapping[int, Deduced],
        applied: _Applied,
        vectors: Embeddings,
        below: Embeddings | None,
        attended: Embeddings,
    ) -> Embeddings:
        done: Embeddings = {
            dim: vectors[dim].new_zeros(0 if table.levels else table.slots, dim) for dim, table in tables.items()
        }
        lower, seen = _by_level(tables, below or {}), _by_level(tables, attended)
        known = {dim: vectors[dim].split(_targets(table)) for dim, table in tables.items() if table.levels}
        for number in range(max((len(table.levels) for table in tables.values()), default=0)):
            made: Embeddings = {}
            for dim, table in tables.items():
                if number < len(table.levels):
                    summed = self._level(table.levels[number], applied, known[dim][number], done)
                    if dim in seen:
                        summed = summed + seen[dim][number]
                    moved = torch.tanh(summed)
                    made[dim] = (
                        moved if dim not in lower else after(self.sublayers, dim, layer, lower[dim][number] + moved)
                    )
            for dim, rows in made.items():
                done[dim] = torch.cat([done[dim], rows]) if len(done[dim]) else rows
        return done

    def _level(self, level: Level, applied: _Applied, vectors: Tensor, done: Embeddings) -> Tensor:
        """What is deduced for the slots of a level, before `tanh`."""
        summed = vectors
        if level.sums is not None:
            found = []
            for one in level.projections:
                inputs = one.inputs.of(done)
                inputs = inputs.view(len(one.matrix), -1, inputs.shape[1])
                found.append(torch.bmm(inputs, applied.blocks[id(one)]).flatten(0, 1))
            summed = summed + level.sums(found[0] if len(found) == 1 else torch.cat(found))
        if level.pools is None:
            return summed
        slots = level.stop - level.start
        beta = at_least_one(self.stacks["beta_beta"]).index_select(0, level.pools.beta)
        pooled = pool(summed[slots:], level.pools.segment, level.pools.count, beta)
        return summed[:slots].index_add(0, level.pools.head, pooled)


def after(sublayers: nn.ModuleDict, dim: int, layer: int, x: Tensor) -> Tensor:
    """The optional sublayers, which all facts of one dimension share; there are none at layer 0."""
    if not layer or str(dim) not in sublayers:
        return x
    layers = sublayers[str(dim)]
    assert isinstance(layers, nn.ModuleList)
    one = layers[layer - 1]
    assert isinstance(one, Sublayers)
    return one.after(x)


def _targets(table: Deduced) -> list[int]:
    return [level.targets[1] - level.targets[0] for level in table.levels]


def _by_level(tables: Mapping[int, Deduced], values: Embeddings) -> dict[int, tuple[Tensor, ...]]:
    return {
        dim: found.split([level.stop - level.start for level in tables[dim].levels])
        for dim, found in values.items()
        if tables[dim].levels
    }


def _mixed(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "big")
