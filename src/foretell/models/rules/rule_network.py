"""The base class of networks of rules: parameters by name, stacked by shape, and deductions, level by level.

The initial value of a parameter depends on the seed and its name, not on the order of names. Parameters of an untrained name are the
mean of the trained ones of its kind: `w(u9)` is the mean of `w(u1)`, `w(u2)`, …
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from foretell.errors import ForetellError
from foretell.models.attention.layers import Sublayers
from foretell.models.rules.event_features import EventFeatures
from foretell.nn.pool import at_least_one, pool
from foretell.nn.sparse_sum import SparseSum
from foretell.plan.deduction import DeductionLevel, DeductionPlan
from foretell.plan.feature_rows import FeatureRows
from foretell.plan.parameters import ParameterBook, ParameterFamily
from foretell.terms import split

Embeddings = dict[int, Tensor]  # by dimension: [slots, dim]
Blocks = dict[int, Tensor]  # by projection: the block of each tile, transposed
Levels = dict[int, tuple[Tensor, ...]]  # by dimension: the rows of each level
Onto = Callable[[int, int, Tensor], Tensor]


class Arithmetic:
    """The operations that deductions use on rows of a table of slots. Here rows [rows, D] are numbers, each at one time.

    `BoundedRows` has the same operations for windows of time, so that the equations of a query are written once.
    """

    def product(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """Return each tile of rows times its block, [tiles, in, out]."""
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
BETA = "beta_beta"  # the stack of pool exponents


class RuleNetwork(nn.Module):
    """All parameters of the rules. Those of one shape are stacked in one tensor."""

    layers = 0  # the number of layers for which each addition has its own parameters

    def __init__(self, book: ParameterBook, seed: int) -> None:
        super().__init__()
        self.book, self.seed = book, seed
        self.stacks = nn.ParameterDict()
        self.features = EventFeatures(book.layout)
        self._met = 0  # the number of names that have parameters
        self._inputs: dict[tuple[str, torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}
        self._means: tuple[tuple[int | None, int], list[tuple[str, Tensor, Tensor]]] = (None, 0), []

    @property
    def is_behind(self) -> bool:
        """Whether the book contains names that have no parameters here yet."""
        return self._met < len(self.book.order)

    def grow(self, dtype: torch.dtype, device: torch.device) -> None:
        """Create parameters for new names of the book. Existing parameters keep their values."""
        fresh: dict[str, list[Tensor]] = {}
        for family, name in self.book.order[self._met :]:
            for letter in family.shapes:
                start = self._start(family, letter, name) if family.is_learned else torch.zeros(family.shapes[letter])
                for key, values in self._cut(family, letter, start):
                    fresh.setdefault(key, []).append(values)
        self._met = len(self.book.order)
        for key, values in fresh.items():
            whole = torch.stack(values).to(dtype).to(device)
            if key in self.stacks:
                whole = torch.cat([self.stacks[key].data, whole])
            self.stacks[key] = nn.Parameter(whole)
        self.settle_unseen()

    @torch.no_grad()
    def settle_unseen(self) -> None:
        """Set the parameters of untrained names to the mean of the present trained ones, or to 0 if there are none."""
        known = self.book.trained, self._met
        if known[0] is None or known[0] >= known[1]:
            return
        if self._means[0] != known:
            self._means = known, self._unseen_rows(known[0])
        for key, trained, unseen in self._means[1]:
            stack = self.stacks[key].data
            rows = stack.index_select(0, trained.to(stack.device)).double()
            rows = rows.clamp(min=0.0) if key == BETA else rows
            stack[unseen.to(stack.device)] = (rows.mean(0) if len(rows) else rows.sum(0)).to(stack.dtype)

    def _unseen_rows(self, trained: int) -> list[tuple[str, Tensor, Tensor]]:
        """Return, for every stack and kind of names, the rows of trained names and the rows of untrained names."""
        kinds: dict[tuple[int, str, int], tuple[list[int], list[int]]] = {}
        for place, (family, name) in enumerate(self.book.order[: self._met]):
            functor, args = split(name)
            kinds.setdefault((family.place, functor, len(args)), ([], []))[place >= trained].append(family.index[name])
        families = list(self.book.families.values())
        found = []
        for (family, _, _), parts in kinds.items():
            if parts[1] and families[family].is_learned:
                rows = families[family].rows
                for number, stack in enumerate(families[family].stacks):
                    of_stack = [torch.tensor([rows[one][number] for one in part], dtype=torch.int64) for part in parts]
                    found += [(f"{stack.key}_{letter}", *of_stack) for letter in stack.shapes]
        return found

    def merge_on_loading(self, rows: Mapping[str, list[int]]) -> None:
        """Load states that have several rows where this network has one. `rows` maps each of their rows to a row here, per stack.

        A row here is the mean of those rows. It is used as often as there were rows, so the result is the same.
        """

        def merge(_: nn.Module, state: dict[str, Tensor], prefix: str, *others: object) -> None:
            for key, mine in self.stacks.items():
                name, goes_to = f"{prefix}stacks.{key}", torch.tensor(rows.get(key.rpartition("_")[0], []))
                theirs = state.get(name)
                if theirs is not None and len(theirs) == len(goes_to) != len(mine):
                    count = torch.bincount(goes_to, minlength=len(mine)).to(theirs.dtype)
                    summed = theirs.new_zeros(mine.shape).index_add(0, goes_to, theirs)
                    state[name] = summed / count.view(-1, *[1] * (theirs.dim() - 1))

        self.register_load_state_dict_pre_hook(merge)

    def _start(self, family: ParameterFamily, letter: str, name: str) -> Tensor:
        """Return initial values drawn from the seed and the name, so that the order of names does not matter."""
        if family.stem == "beta":
            return torch.zeros(())
        shape = family.shapes[letter]
        drawn_as = f"{family.stem}.{self.book.drawn_as.get(name, name)}.{letter}"
        generator = torch.Generator().manual_seed(seed_of(self.seed, drawn_as))
        layers = (self.layers,) if family.stacks[0].layered else ()
        spread = 1.0 / math.sqrt(max(shape[1], 1)) if family.stem != "own" else 1.0
        return torch.randn(*layers, *shape, generator=generator, dtype=torch.float64) * spread

    def _cut(self, family: ParameterFamily, letter: str, whole: Tensor) -> list[tuple[str, Tensor]]:
        """Split one parameter into its parts in the stacks."""
        keys = [f"{stack.key}_{letter}" for stack in family.stacks]
        if letter != "W" or family.stem == "features":
            return [(keys[0], whole)]
        blocks = (whole[:, low:high] for low, high in family.columns)
        return list(zip(keys, (whole[:, 0], *blocks), strict=True))

    def _whole(self, family: ParameterFamily, letter: str, place: int) -> Tensor:
        """Return one parameter, assembled from its parts in the stacks."""
        parts = [
            self.stacks[f"{stack.key}_{letter}"][row]
            for stack, row in zip(family.stacks, family.rows[place], strict=True)
        ]
        return (
            parts[0]
            if letter != "W" or family.stem == "features"
            else torch.cat([parts[0].unsqueeze(-1), *parts[1:]], dim=-1)
        )

    def named_arrays(self) -> dict[str, Tensor]:
        """Return every parameter under its canonical name."""
        found = self.features.named_arrays()
        for family in self._learned():
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
        self.features.load_named_arrays(arrays)
        with torch.no_grad():
            for family in self._learned():
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

    def _learned(self) -> list[ParameterFamily]:
        return [family for family in self.book.families.values() if family.is_learned]

    # Deductions

    def stack(self, key: str) -> Tensor:
        """Return the stacked parameters of one shape. In a stack of vectors, those of facts with features are computed from numbers."""
        found = self.stacks[key]
        for dim, of_functors in self.book.feature_rows.items():
            for functor, one in of_functors.items() if key == f"vectors_{dim}_W" else ():
                W = self.stacks[f"{one.stack}_W"][one.matrix]
                rows, inputs = self._feature_inputs(functor, one, W)
                found = found.index_copy(0, rows, inputs @ W.T)
        return found

    @torch.no_grad()
    def vector_of_numbers(self, family: ParameterFamily, place: int) -> Tensor:
        """Return the vector of a fact with features: [dim, 1]."""
        return self.stack(f"{family.stacks[0].key}_W")[family.rows[place][0]].unsqueeze(1)

    def forget_inputs(self) -> None:
        """Clear the cached inputs of facts with features; called when scales or numbers change."""
        self._inputs.clear()

    def _feature_inputs(self, functor: str, one: FeatureRows, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows of the stack of vectors, and `[1; x; missing]` for each. Cached until there are further rows."""
        key = functor, like.dtype, like.device
        found = self._inputs.get(key)
        if found is None or len(found[0]) != len(one.rows):
            inputs = torch.from_numpy(np.stack(one.inputs)).to(like.dtype).to(like.device)
            found = self._inputs[key] = torch.tensor(one.rows, device=like.device), inputs
        return found

    def vectors_of(self, dim: int, like: Tensor) -> Tensor:
        """Return the stack of vectors of one dimension, without rows if there is none: facts that are only added have no vector."""
        key = f"vectors_{dim}_W"
        return self.stack(key) if key in self.stacks else like.new_zeros(0, dim)

    def blocks_of(self, tables: Iterable[DeductionPlan]) -> Blocks:
        """Return the blocks of all projections. They are equal in all layers."""
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
        """Return `tanh` of deductions plus attention. Per dimension and level, `inside` maps its argument and `onto` its result."""
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
        """Return the deductions for the slots of a level, before `tanh`."""
        summed = vectors
        if level.sums is not None:
            found = [on.product(one.inputs.of(done), blocks[id(one)]) for one in level.projections]
            summed = summed + on.total(level.sums, found[0] if len(found) == 1 else torch.cat(found))
        if level.pools is None:
            return summed
        slots = level.stop - level.start
        beta = at_least_one(self.stacks[BETA]).index_select(0, level.pools.beta)
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
