"""The embeddings of a plan's slots, layer by layer (paper, section 5), in a number of tensor operations that depends on rules and layers.

`emb^ℓ(h,t) = emb^(ℓ-1)(h,t) + tanh(deduced^ℓ(h,t) + Σ_r attended_r^ℓ(h,t))`. What is attended looks at the layer below only, so it is
computed for all slots at once; what is deduced looks at the same layer, so it is computed level by level.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.errors import ForetellError
from foretell.nn.pool import at_least_one, pool
from foretell.nn.range_attention import range_attention
from foretell.nn.time import TimeEmbedding
from foretell.plan.book import Family, ParameterBook
from foretell.plan.plan import Add, Deduce, Gathered, Level, Plan, Slices, Table

Embeddings = dict[int, Tensor]  # by dimension: [slots, dim]


@dataclass(frozen=True)
class Attended:
    """What one layer's attention of one table looked at: slot `s` gives addition `a` of one of its ranges the weight `exp(x_s·k_a)`."""

    layer: int
    table: Table
    x: Tensor  # [slots, width]
    k: Tensor  # [keys, width]
    v: Tensor  # [keys, dim]


class Network(nn.Module):
    """All parameters of the rules: each family of a book is one tensor, or three for an addition."""

    def __init__(self, book: ParameterBook, layers: int, time: TimeEmbedding, seed: int) -> None:
        super().__init__()
        self.book, self.layers, self.time, self.seed = book, layers, time, seed
        self.stacks = nn.ParameterDict()
        self.grow(torch.float32, torch.device("cpu"))

    def grow(self, dtype: torch.dtype, device: torch.device) -> None:
        """Parameters for names that the book has met since; those there are keep their values."""
        for family in self.book.families.values():
            for letter, shape in family.shapes.items():
                key = f"{family.place}_{letter}"
                have = len(self.stacks[key]) if key in self.stacks else 0
                if have == len(family.names):
                    continue
                fresh = torch.stack([self._start(family, letter, shape, name) for name in family.names[have:]])
                fresh = fresh.to(dtype).to(device)
                whole = torch.cat([self.stacks[key].data, fresh]) if have else fresh
                self.stacks[key] = nn.Parameter(whole)

    def _start(self, family: Family, letter: str, shape: tuple[int, ...], name: str) -> Tensor:
        """Drawn from the seed and the name, so that it does not matter when a name is met."""
        if family.stem == "beta":
            return torch.zeros(())
        generator = torch.Generator().manual_seed(_mixed(self.seed, f"{family.stem}.{name}.{letter}"))
        layers = (self.layers,) if family.stem == "add" else ()
        spread = 1.0 / math.sqrt(max(shape[1], 1)) if family.stem != "own" else 1.0
        return torch.randn(*layers, *shape, generator=generator, dtype=torch.float64) * spread

    def stack(self, family: Family, letter: str) -> Tensor:
        return self.stacks[f"{family.place}_{letter}"]

    def named_arrays(self) -> dict[str, Tensor]:
        """Every parameter under its canonical name."""
        found: dict[str, Tensor] = {}
        for family in self.book.families.values():
            for letter in family.shapes if family.names else ():
                stack = self.stack(family, letter)
                for place, name in enumerate(family.names):
                    if family.stem == "beta":
                        found[f"deduce.{name}.beta"] = 1.0 + stack[place].clamp(min=0.0)
                    elif family.stem == "add":
                        found |= {
                            f"add.{name}.{layer + 1}.{letter}": stack[place, layer] for layer in range(self.layers)
                        }
                    else:
                        found[f"deduce.{name}.{letter}"] = stack[place]
        return found

    def load_named_arrays(self, arrays: Mapping[str, Tensor]) -> None:
        for name, value in arrays.items():
            if name.endswith(".beta") and not bool((value >= 1.0).all()):
                raise ForetellError(f"{name}: found {float(value):g}, expected a pool exponent of 1 or more")
        with torch.no_grad():
            for family in self.book.families.values():
                for letter in family.shapes if family.names else ():
                    stack = self.stack(family, letter)
                    for place, name in enumerate(family.names):
                        if family.stem == "beta":
                            stack[place] = arrays[f"deduce.{name}.beta"] - 1.0
                        elif family.stem == "add":
                            for layer in range(self.layers):
                                stack[place, layer] = arrays[f"add.{name}.{layer + 1}.{letter}"]
                        else:
                            stack[place] = arrays[f"deduce.{name}.{letter}"]

    # Layers

    def forward(self, plan: Plan, times: Tensor, seen: list[Attended] | None = None) -> Embeddings:
        """The top layer; `times` are those of the plan's points, float64. `seen` is given what was attended to."""
        dtype = next(self.parameters(), torch.empty(0)).dtype  # no parameters, no embeddings: then it is of no account
        time = self.time.with_one(times, dtype)
        below: Embeddings | None = None
        for layer in range(self.layers + 1):
            attended = self._attended(plan, time, below, layer, seen) if below is not None else {}
            below = self._deduced(plan, below, attended, dtype)
        assert below is not None
        return below

    def _attended(
        self, plan: Plan, time: Tensor, below: Embeddings, layer: int, seen: list[Attended] | None
    ) -> Embeddings:
        padded = {dim: F.pad(table, (0, 0, 0, 1)) for dim, table in below.items()}  # behind: an event that was no fact
        return {
            dim: self._attend(table, time, below[dim], padded, layer, seen)
            for dim, table in plan.tables.items()
            if len(table.asked.slot)
        }

    def _attend(
        self,
        table: Table,
        time: Tensor,
        own: Tensor,
        padded: Embeddings,
        layer: int,
        seen: list[Attended] | None,
    ) -> Tensor:
        """`Q` is folded into the keys: there are many more queries than additions."""
        shares = _Shares(table.gathered, (part for add in table.adds for part in add.body), padded)
        keys, values = [], []
        for add in table.adds:
            key, value = self._additions(add, time, shares, layer)
            keys.append(key)
            values.append(value)
        x = torch.cat([time.index_select(0, table.point), own], dim=-1)
        k, v = torch.cat(keys), torch.cat(values)
        if seen is not None:
            seen.append(Attended(layer, table, x, k, v))
        return range_attention(x, k, v, table.tiles)

    def _additions(self, add: Add, time: Tensor, shares: _Shares, layer: int) -> tuple[Tensor, Tensor]:
        """Folded keys [A, width + head] and values [A, head] of one rule's additions."""
        inputs = torch.cat([time.index_select(0, add.point), *(shares.next(part) for part in add.body)], dim=-1)
        k, v, q = (self.stack(add.family, letter)[:, layer - 1] for letter in "KVQ")
        scale = 1.0 / math.sqrt(max(k.shape[1], 1))
        keys = _apply(self._widened(k) * scale, inputs, add.slices)
        values = _apply(self._widened(v), inputs, add.slices)
        return _apply(self._widened(q).transpose(1, 2), keys, add.slices), values

    def _widened(self, matrices: Tensor) -> Tensor:
        """Columns for `[1; time; 0 …]` and then for what follows."""
        return torch.cat([self.time.widen(matrices), matrices[..., 1 + self.time.dim :]], dim=-1)

    def _deduced(self, plan: Plan, below: Embeddings | None, attended: Embeddings, dtype: torch.dtype) -> Embeddings:
        device = plan.event_point.device
        done: Embeddings = {dim: torch.zeros(0, dim, dtype=dtype, device=device) for dim in plan.tables}
        depth = max((len(table.levels) for table in plan.tables.values()), default=0)
        lower, seen = _by_level(plan, below or {}), _by_level(plan, attended)
        for number in range(depth):
            made: Embeddings = {}
            for dim, table in plan.tables.items():
                if number < len(table.levels):
                    summed = self._level(table.levels[number], dim, done, dtype, device)
                    if dim in seen:
                        summed = summed + seen[dim][number]
                    moved = torch.tanh(summed)
                    made[dim] = moved if dim not in lower else lower[dim][number] + moved
            done = {dim: torch.cat([done[dim], made[dim]]) if dim in made else done[dim] for dim in done}
        return done

    def _level(self, level: Level, dim: int, done: Embeddings, dtype: torch.dtype, device: torch.device) -> Tensor:
        summed = torch.zeros(level.stop - level.start, dim, dtype=dtype, device=device)
        if level.own is not None:
            family = self.book.families["own", dim]
            vectors = self.stack(family, "W").squeeze(-1)
            summed = summed.index_add(0, level.own.head, vectors.index_select(0, level.own.index))
        if level.deduce:
            shares = _Shares(level.gathered, (part for one in level.deduce for part in one.body), done)
            found = torch.cat([self._proofs(deduce, shares) for deduce in level.deduce])
            summed = summed.index_add(0, torch.cat([deduce.head for deduce in level.deduce]), found)
        return summed

    def _proofs(self, deduce: Deduce, shares: _Shares) -> Tensor:
        w = self.stack(deduce.family, "W")
        if deduce.body:
            inputs = torch.cat([shares.next(part) for part in deduce.body], dim=-1)
            found = _apply(w[:, :, 1:], inputs, deduce.slices) + _rows(w[:, :, 0], deduce.slices)
        else:
            count = deduce.pools if deduce.segment is None else len(deduce.segment)
            found = _rows(w[:, :, 0], deduce.slices).expand(count, -1)
        if deduce.segment is None:
            return found
        beta = at_least_one(self.stack(self.book.families["beta",], "beta"))
        return pool(found, deduce.segment, deduce.pools, beta.index_select(0, deduce.beta))


def _by_level(plan: Plan, tables: Embeddings) -> dict[int, tuple[Tensor, ...]]:
    return {
        dim: table.split([level.stop - level.start for level in plan.tables[dim].levels])
        for dim, table in tables.items()
    }


class _Shares:
    """What was gathered at once, handed out part by part in the order in which it was put together."""

    def __init__(self, gathered: tuple[Gathered, ...], parts: Iterable[Gathered], tables: Mapping[int, Tensor]) -> None:
        sizes: dict[int, list[int]] = {}
        for part in parts:
            sizes.setdefault(part.dim, []).append(len(part.rows))
        # One split: taking slices one by one would fill a whole tensor with zeros for each, on the way back.
        self.found = {
            part.dim: iter(tables[part.dim].index_select(0, part.rows).split(sizes[part.dim])) for part in gathered
        }

    def next(self, part: Gathered) -> Tensor:
        return next(self.found[part.dim])


def _apply(matrices: Tensor, inputs: Tensor, slices: Slices) -> Tensor:
    """`matrix @ input` for every row, with the row's own matrix of a stack [G, out, in]."""
    if len(slices.place) == 1:
        return inputs @ matrices[slices.place[0]].T
    each = matrices.unbind()
    parts = zip(slices.place, inputs.split(slices.count), strict=True)
    return torch.cat([part @ each[place].T for place, part in parts])


def _rows(table: Tensor, slices: Slices) -> Tensor:
    """One for every row, or one for all."""
    return table[slices.place[0]] if slices.index is None else table.index_select(0, slices.index)


def _mixed(seed: int, name: str) -> int:
    import hashlib

    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "big")
