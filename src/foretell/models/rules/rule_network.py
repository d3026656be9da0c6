"""What the networks of rules share: parameters of one shape as one tensor, under their names, and what is deduced, level by level.

Parameters are drawn from the seed and their name, so that it does not matter when a name is met.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from foretell.errors import ForetellError
from foretell.models.attention.layers import Sublayers
from foretell.nn.pool import at_least_one, pool
from foretell.nn.sparse_sum import SparseSum
from foretell.plan.deduction import DeductionLevel, DeductionPlan
from foretell.plan.parameters import ParameterBook, ParameterFamily

Embeddings = dict[int, Tensor]  # by dimension: [slots, dim]
Blocks = dict[int, Tensor]  # by projection: the block of each tile, transposed
Levels = dict[int, tuple[Tensor, ...]]  # by dimension: rows of each level
Onto = Callable[[int, int, Tensor], Tensor]


class Arithmetic:
    """What deductions do to rows of a table of slots; here rows [rows, D] are numbers at one time each.

    `BoundedRows` is the same for windows of time, so that the equations of a query are written once.
    """

    def product(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """Tiles of rows, each times its block [tiles, in, out]."""
        return torch.bmm(rows.view(len(blocks), -1, rows.shape[1]), blocks).flatten(0, 1)

    def total(self, sums: SparseSum, rows: Tensor) -> Tensor:
        return sums(rows)

    def tanh(self, rows: Tensor) -> Tensor:
        return torch.tanh(rows)

    def pool(self, rows: Tensor, segment: Tensor, count: int, beta: Tensor) -> Tensor:
        return pool(rows, segment, count, beta)

    def after(self, sublayers: Sublayers, rows: Tensor) -> Tensor:
        return sublayers.after(rows)


NUMBERS = Arithmetic()


class RuleNetwork(nn.Module):
    """All parameters of the rules: those of one shape are one tensor."""

    layers = 0  # of what an addition has one of for each layer

    def __init__(self, book: ParameterBook, seed: int) -> None:
        super().__init__()
        self.book, self.seed = book, seed
        self.stacks = nn.ParameterDict()
        self._met = 0  # names that have parameters

    @property
    def is_behind(self) -> bool:
        """Whether the book has met names that have no parameters here."""
        return self._met < len(self.book.order)

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

    def _start(self, family: ParameterFamily, letter: str, name: str) -> Tensor:
        """Drawn from the seed and the name, so that it does not matter when a name is met."""
        if family.stem == "beta":
            return torch.zeros(())
        shape = family.shapes[letter]
        generator = torch.Generator().manual_seed(seed_of(self.seed, f"{family.stem}.{name}.{letter}"))
        layers = (self.layers,) if family.stacks[0].layered else ()
        spread = 1.0 / math.sqrt(max(shape[1], 1)) if family.stem != "own" else 1.0
        return torch.randn(*layers, *shape, generator=generator, dtype=torch.float64) * spread

    def _cut(self, family: ParameterFamily, letter: str, whole: Tensor) -> list[tuple[str, Tensor]]:
        """What each stack has of one parameter."""
        keys = [f"{stack.key}_{letter}" for stack in family.stacks]
        if letter != "W":
            return [(keys[0], whole)]
        blocks = (whole[:, low:high] for low, high in family.columns)
        return list(zip(keys, (whole[:, 0], *blocks), strict=True))

    def _whole(self, family: ParameterFamily, letter: str, place: int) -> Tensor:
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
                        found[f"{family.prefix}.{name}.beta"] = 1.0 + whole.clamp(min=0.0)
                    elif family.stacks[0].layered:
                        found |= {f"add.{name}.{layer + 1}.{letter}": whole[layer] for layer in range(self.layers)}
                    else:
                        found[f"{family.prefix}.{name}.{letter}"] = whole
        return found

    def load_named_arrays(self, arrays: Mapping[str, Tensor]) -> None:
        for name, value in arrays.items():
            if name.endswith(".beta") and not bool((value >= 1.0).all()):
                raise ForetellError(f"{name}: found {float(value):g}, expected a pool exponent of 1 or more")
        with torch.no_grad():
            for family in self.book.families.values():
                for letter in family.shapes:
                    for place, name in enumerate(family.names):
                        if family.stem == "beta":
                            whole = arrays[f"{family.prefix}.{name}.beta"] - 1.0
                        elif family.stacks[0].layered:
                            layers = range(1, self.layers + 1)
                            whole = torch.stack([arrays[f"add.{name}.{layer}.{letter}"] for layer in layers])
                        else:
                            whole = arrays[f"{family.prefix}.{name}.{letter}"]
                        parts = self._cut(family, letter, whole)
                        for (key, values), row in zip(parts, family.rows[place], strict=True):
                            self.stacks[key][row] = values

    # Deductions

    def vectors_of(self, dim: int, like: Tensor) -> Tensor:
        """The stack of vectors; facts that are only ever added have none."""
        key = f"vectors_{dim}_W"
        return self.stacks[key] if key in self.stacks else like.new_zeros(0, dim)

    def blocks_of(self, tables: Iterable[DeductionPlan]) -> Blocks:
        """The blocks of all projections, found once for all layers."""
        found: Blocks = {}
        for table in tables:
            for level in table.levels:
                for one in level.projections:
                    found[id(one)] = self.stacks[f"{one.stack}_W"].index_select(0, one.matrix).transpose(1, 2)
        return found

    def deduced(
        self,
        tables: Mapping[int, DeductionPlan],
        blocks: Blocks,
        vectors: Embeddings,
        attended: Embeddings,
        onto: Onto | None = None,
        on: Arithmetic = NUMBERS,
        inside: Onto | None = None,
    ) -> Embeddings:
        """`tanh` of what is deduced and attended to; by dimension and level, `inside` changes that and `onto` its `tanh`."""
        done: Embeddings = {
            dim: vectors[dim].new_zeros(0 if table.levels else table.slots, *vectors[dim].shape[1:])
            for dim, table in tables.items()
        }
        seen = by_level(tables, attended)
        known = {dim: vectors[dim].split(_targets(table)) for dim, table in tables.items() if table.levels}
        for number in range(max((len(table.levels) for table in tables.values()), default=0)):
            made: Embeddings = {}
            for dim, table in tables.items():
                if number < len(table.levels):
                    summed = self._level(table.levels[number], blocks, known[dim][number], done, on)
                    if dim in seen:
                        summed = summed + seen[dim][number]
                    moved = on.tanh(summed if inside is None else inside(dim, number, summed))
                    made[dim] = moved if onto is None else onto(dim, number, moved)
            for dim, rows in made.items():
                done[dim] = torch.cat([done[dim], rows]) if len(done[dim]) else rows
        return done

    def _level(
        self, level: DeductionLevel, blocks: Blocks, vectors: Tensor, done: Embeddings, on: Arithmetic
    ) -> Tensor:
        """What is deduced for the slots of a level, before `tanh`."""
        summed = vectors
        if level.sums is not None:
            found = [on.product(one.inputs.of(done), blocks[id(one)]) for one in level.projections]
            summed = summed + on.total(level.sums, found[0] if len(found) == 1 else torch.cat(found))
        if level.pools is None:
            return summed
        slots = level.stop - level.start
        beta = at_least_one(self.stacks["beta_beta"]).index_select(0, level.pools.beta)
        pooled = on.pool(summed[slots:], level.pools.segment, level.pools.count, beta)
        return summed[:slots].index_add(0, level.pools.head, pooled)


def _targets(table: DeductionPlan) -> list[int]:
    return [level.targets[1] - level.targets[0] for level in table.levels]


def by_level(tables: Mapping[int, DeductionPlan], values: Embeddings) -> Levels:
    return {
        dim: found.split([level.stop - level.start for level in tables[dim].levels])
        for dim, found in values.items()
        if tables[dim].levels
    }


def seed_of(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "big")
