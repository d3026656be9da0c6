"""The embeddings of a plan's slots, layer by layer (paper, section 5), in a number of tensor operations that depends on rules and layers.

`emb^ℓ(h,t) = emb^(ℓ-1)(h,t) + tanh(deduced^ℓ(h,t) + Σ_r attended_r^ℓ(h,t))`. What is attended looks at the layer below only, so it is
computed for all slots at once; what is deduced looks at the same layer, so it is computed level by level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.nn.pool import at_least_one, pool
from foretell.nn.range_attention import range_attention
from foretell.nn.time import TimeEmbedding
from foretell.plan.book import Family, ParameterBook
from foretell.plan.plan import Add, Deduce, Gathered, Level, Plan, Table

Embeddings = dict[int, Tensor]  # by dimension: [slots, dim]


class Network(nn.Module):
    """All parameters of the rules: each family of a book is one tensor, or three for an addition."""

    def __init__(self, book: ParameterBook, layers: int, time: TimeEmbedding, seed: int) -> None:
        super().__init__()
        self.book, self.layers, self.time, self.seed = book, layers, time, seed
        self.stacks = nn.ParameterDict()
        self._keys: dict[int, str] = {}
        self.grow(torch.float32, torch.device("cpu"))

    def grow(self, dtype: torch.dtype, device: torch.device) -> None:
        """Parameters for names that the book has met since; those there are keep their values."""
        for number, family in enumerate(self.book.families.values()):
            self._keys[id(family)] = str(number)
            for letter, shape in family.shapes.items():
                key = f"{number}_{letter}"
                have = len(self.stacks[key]) if key in self.stacks else 0
                if have == len(family.names) and have:
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
        return self.stacks[f"{self._keys[id(family)]}_{letter}"]

    def named_arrays(self) -> dict[str, Tensor]:
        """Every parameter under its canonical name."""
        found: dict[str, Tensor] = {}
        for family in self.book.families.values():
            for letter in family.shapes:
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
        with torch.no_grad():
            for family in self.book.families.values():
                for letter in family.shapes:
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

    def forward(self, plan: Plan, times: Tensor) -> Embeddings:
        """The top layer; `times` are those of the plan's points, float64."""
        dtype = next(iter(self.parameters())).dtype
        time = self.time.with_one(times, dtype)
        below: Embeddings | None = None
        for layer in range(self.layers + 1):
            attended = self._attended(plan, time, below, layer) if below is not None else {}
            below = self._deduced(plan, below, attended, dtype)
        assert below is not None
        return below

    def _attended(self, plan: Plan, time: Tensor, below: Embeddings, layer: int) -> Embeddings:
        padded = {dim: F.pad(table, (0, 0, 0, 1)) for dim, table in below.items()}  # behind: an event that was no fact
        return {
            dim: self._attend(table, time, below[dim], padded, layer)
            for dim, table in plan.tables.items()
            if table.asking
        }

    def _attend(self, table: Table, time: Tensor, own: Tensor, padded: Embeddings, layer: int) -> Tensor:
        """`Q` is folded into the keys: there are many more queries than additions."""
        shares = _Shares(table.gathered, padded)
        keys, values = [], []
        for add in table.adds:
            key, value = self._additions(add, time, shares, layer)
            keys.append(key)
            values.append(value)
        x = torch.cat([time.index_select(0, table.point), own], dim=-1)
        return range_attention(x, torch.cat(keys), torch.cat(values), table.tiles)

    def _additions(self, add: Add, time: Tensor, shares: _Shares, layer: int) -> tuple[Tensor, Tensor]:
        """Folded keys [A, width + head] and values [A, head] of one rule's additions."""
        inputs = torch.cat([time.index_select(0, add.point), *(shares.next(part) for part in add.body)], dim=-1)
        k, v, q = (self.stack(add.family, letter)[:, layer - 1] for letter in "KVQ")
        scale = 1.0 / math.sqrt(max(k.shape[1], 1))
        keys = _apply(self._widened(k) * scale, inputs, add.index)
        values = _apply(self._widened(v), inputs, add.index)
        return _apply(self._widened(q).transpose(1, 2), keys, add.index), values

    def _widened(self, matrices: Tensor) -> Tensor:
        """Columns for `[1; time; 0 …]` and then for what follows."""
        return torch.cat([self.time.widen(matrices), matrices[..., 1 + self.time.dim :]], dim=-1)

    def _deduced(self, plan: Plan, below: Embeddings | None, attended: Embeddings, dtype: torch.dtype) -> Embeddings:
        device = plan.event_point.device
        done: Embeddings = {dim: torch.zeros(0, dim, dtype=dtype, device=device) for dim in plan.tables}
        depth = max((len(table.levels) for table in plan.tables.values()), default=0)
        for number in range(depth):
            made: Embeddings = {}
            for dim, table in plan.tables.items():
                if number < len(table.levels):
                    level = table.levels[number]
                    summed = self._level(level, dim, done, dtype, device)
                    rows = slice(level.start, level.stop)
                    if dim in attended:
                        summed = summed + attended[dim][rows]
                    moved = torch.tanh(summed)
                    made[dim] = moved if below is None else below[dim][rows] + moved
            done = {dim: torch.cat([done[dim], made[dim]]) if dim in made else done[dim] for dim in done}
        return done

    def _level(self, level: Level, dim: int, done: Embeddings, dtype: torch.dtype, device: torch.device) -> Tensor:
        summed = torch.zeros(level.stop - level.start, dim, dtype=dtype, device=device)
        if level.own is not None:
            family = self.book.families["own", dim]
            vectors = self.stack(family, "W").squeeze(-1)
            summed = summed.index_add(0, level.own.head, vectors.index_select(0, level.own.index))
        if level.deduce:
            shares = _Shares(level.gathered, done)
            found = torch.cat([self._proofs(deduce, shares) for deduce in level.deduce])
            summed = summed.index_add(0, torch.cat([deduce.head for deduce in level.deduce]), found)
        return summed

    def _proofs(self, deduce: Deduce, shares: _Shares) -> Tensor:
        w = self.stack(deduce.family, "W")
        if deduce.body:
            inputs = torch.cat([shares.next(part) for part in deduce.body], dim=-1)
            constant = w[:, :, 0]
            found = _apply(w[:, :, 1:], inputs, deduce.index)
            found = found + (constant.index_select(0, deduce.index) if deduce.index is not None else constant[0])
        else:
            count = deduce.pools if deduce.segment is None else len(deduce.segment)
            found = (
                w[:, :, 0].index_select(0, deduce.index) if deduce.index is not None else w[0, :, 0].expand(count, -1)
            )
        if deduce.segment is None:
            return found
        beta = at_least_one(self.stack(self.book.families["beta",], "beta"))
        return pool(found, deduce.segment, deduce.pools, beta.index_select(0, deduce.beta))


class _Shares:
    """What was gathered at once, handed out part by part in the order in which it was put together."""

    def __init__(self, gathered: tuple[Gathered, ...], tables: Mapping[int, Tensor]) -> None:
        self.found = {part.dim: tables[part.dim].index_select(0, part.rows) for part in gathered}
        self.place = dict.fromkeys(self.found, 0)

    def next(self, part: Gathered) -> Tensor:
        start = self.place[part.dim]
        self.place[part.dim] = start + len(part.rows)
        return self.found[part.dim][start : start + len(part.rows)]


def _apply(matrices: Tensor, inputs: Tensor, index: Tensor | None) -> Tensor:
    """`matrix @ input` for every row, with the row's own matrix of a stack [G, out, in] where there are several."""
    if index is None:
        return inputs @ matrices[0].T
    if len(matrices) == 1:
        return inputs @ matrices[0].T
    out = inputs.new_zeros(len(inputs), matrices.shape[1])
    for place in torch.unique(index).tolist():
        mine = (index == place).nonzero().squeeze(-1)
        out = out.index_copy(0, mine, inputs[mine] @ matrices[place].T)
    return out


def _mixed(seed: int, name: str) -> int:
    import hashlib

    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "big")
