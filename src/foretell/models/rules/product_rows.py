"""Possible events of products in one state of a sampled sequence: deductions for single events, and their ranges for groups of events.

The deduction for an event of a product is `W [1; emb; …]`, pooled over its proofs: a sum over the parts of the product. So for all events
that take one fact from a group for each part, the range of the deductions is the sum of the ranges of these groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.models.rules.event_scores import on_device
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.sampler_parameters import DeducedRule
from foretell.models.rules.slot_tables import SlotTables, unpacked
from foretell.plan.history import GroundingArrays
from foretell.plan.int_arrays import Ints, joined
from foretell.plan.products import PartArrays, ProductArrays
from foretell.sampling.bounds import values
from foretell.sampling.bounds.chebyshev import ChebyshevPiece
from foretell.sampling.rules.states import LocalPlan


@dataclass(frozen=True, eq=False)
class FactTables:
    """Embeddings of facts, as rows of the tables of their dimensions, at times or on windows."""

    plan: LocalPlan
    tables: SlotTables
    layers: Sequence[Embeddings]
    degree: int

    def pieces(self, facts: Ints, block: Tensor) -> list[ChebyshevPiece]:
        """Return embeddings of every layer times a block [dim, D]: [n, P, D]."""
        rows = self._rows(facts, block.device)
        return [unpacked(one[block.shape[0]][rows], self.degree).through(block) for one in self.layers]

    def values(self, facts: Ints, when: Tensor, dim: int) -> list[Tensor]:
        """Return embeddings of every layer, [n, dim]; `when` [n] has the index of each one's time."""
        if not len(facts):
            return [torch.zeros(0, dim, dtype=torch.float64, device=when.device) for _ in self.layers]
        rows = self._rows(facts, when.device)
        return [one[dim][rows, 0, when] for one in self.layers]

    def _rows(self, facts: Ints, device: torch.device) -> Tensor:
        slot = self.plan.slot
        return on_device(device, self.tables.row[[slot[fact] for fact in facts.tolist()]])


@dataclass(frozen=True, eq=False)
class TwoTables:
    """Embeddings at times, of facts that change with time and of the others."""

    moving: FactTables
    still: FactTables

    def values(self, facts: Ints, when: Tensor, dim: int) -> list[Tensor]:
        known = np.asarray([fact in self.moving.plan.slot for fact in facts.tolist()], dtype=bool)
        of_still, of_moving = np.flatnonzero(~known), np.flatnonzero(known)
        zero = torch.zeros(len(of_still), dtype=torch.int64, device=when.device)
        first = self.still.values(facts[of_still], zero, dim)
        second = self.moving.values(facts[of_moving], when[on_device(when.device, of_moving)], dim)
        order = on_device(when.device, np.argsort(np.concatenate([of_still, of_moving])))
        return [torch.cat(pair)[order] for pair in zip(first, second, strict=True)]


def moving_facts(plan: LocalPlan, remembered: Iterable[int]) -> np.ndarray:
    """Return bool [slots]: True where embeddings change with time, for facts with a past and everything deduced from them."""
    slots = plan.slots
    found = np.zeros(len(slots.slot_fact), dtype=bool)
    found[[plan.slot[fact] for fact in remembered if fact in plan.slot]] = True
    row, _, body = slots.proof_body
    while True:
        more = found.copy()
        more[slots.proof_slot[row[found[body]]]] = True
        if (more == found).all():
            return found
        found = more


@dataclass(frozen=True, eq=False)
class Ranges:
    """The smallest and largest values of some quantities, in every layer: [layers, n, P, D] each."""

    low: Tensor
    high: Tensor

    def of_groups(self, group: Tensor, count: int) -> Ranges:
        """Return the ranges of groups of rows; no group may be empty."""
        found = []
        for one, how in ((self.low, "amin"), (self.high, "amax")):
            whose = group.view(1, -1, 1, 1).expand_as(one)
            empty = one.new_zeros(one.shape[0], count, *one.shape[2:])
            found.append(empty.scatter_reduce_(1, whose, one, how, include_self=False))
        return Ranges(*found)

    def rows(self, which: Tensor) -> Ranges:
        return Ranges(self.low[:, which], self.high[:, which])

    def plus(self, value: Ranges | Tensor) -> Ranges:
        low, high = (value.low, value.high) if isinstance(value, Ranges) else (value, value)
        return Ranges(self.low + low, self.high + high)

    def over_time(self, windows: int) -> Ranges:
        """Return ranges over all windows together, followed by those in the middle of the first window (input: windows, then middles)."""
        first = self.low[:, :, windows : windows + 1], self.high[:, :, windows : windows + 1]
        low = self.low[:, :, :windows].amin(2, keepdim=True), first[0]
        return Ranges(torch.cat(low, 2), torch.cat([self.high[:, :, :windows].amax(2, keepdim=True), first[1]], 2))

    def or_nothing(self) -> Ranges:
        """Return the range of all rows and 0: [layers, 1, P, D]."""
        return Ranges(self.low.amin(1, keepdim=True).clamp(max=0.0), self.high.amax(1, keepdim=True).clamp(min=0.0))


@dataclass(frozen=True, eq=False)
class PartRows:
    """One part of a product: the terms of its facts in the deduction for an event."""

    cell: Ints  # [R]: the fact of each proof, ascending
    cells: int
    bodies: tuple[Ints, ...]  # for each condition with an embedding: its facts [R]
    blocks: tuple[Tensor, ...]  # and its block [dim, D]

    @classmethod
    def of(cls, part: PartArrays, blocks: Sequence[tuple[int, Tensor]], grounded: GroundingArrays) -> PartRows:
        """Build the part. `blocks` belong to its conditions with embeddings, with their positions among these."""
        now = np.ones(int(part.count[1]), dtype=np.int64)
        cell, proof = part.proofs.at(part.cells.events(np.arange(len(now)), now), now)
        order = np.argsort(cell, kind="stable")
        start = grounded.instances.body_start[part.proofs.value[proof[order]]]
        bodies = tuple(grounded.instances.body_fact[start + place] for place, _ in blocks)
        return cls(cell[order], len(now), bodies, tuple(block for _, block in blocks))

    @property
    def proofs(self) -> Ints:
        """The number of proofs of each fact."""
        return np.bincount(self.cell, minlength=self.cells)

    def some(self, cells: Ints) -> PartRows:
        """Return the proofs of some of the facts, in ascending order."""
        rows = np.flatnonzero(np.isin(self.cell, cells))
        whose = np.searchsorted(cells, self.cell[rows])
        return PartRows(whose, len(cells), tuple(one[rows] for one in self.bodies), self.blocks)

    def moving(self, facts: Ints) -> Ints:
        """Return the facts with a proof that uses one of `facts`, in ascending order."""
        return np.unique(np.concatenate([self.cell[np.isin(one, facts)] for one in self.bodies] or [self.cell[:0]]))

    def ranges(self, tables: FactTables) -> Ranges | None:
        """Return ranges of every fact over its proofs, on windows and then in their middles; None: the part has no terms."""
        if not self.blocks or not self.cells:
            return None
        found = [tables.pieces(facts, block) for facts, block in zip(self.bodies, self.blocks, strict=True)]
        low, high = [], []
        for pieces in zip(*found, strict=True):
            whole = pieces[0]
            for one in pieces[1:]:
                whole = whole + one
            if tables.degree:
                shape = whole.shape()
                low.append(torch.cat([shape.lower(whole.remainder), shape.centre], 1))
                high.append(torch.cat([shape.upper(whole.remainder), shape.centre], 1))
            else:
                low.append(whole.v[0])
                high.append(whole.v[0])
        ranges = Ranges(torch.stack(low), torch.stack(high))
        if len(self.cell) == self.cells:
            return ranges
        return ranges.of_groups(on_device(self.blocks[0].device, self.cell), self.cells)


@dataclass(frozen=True, eq=False)
class PartTree:
    """A binary tree of the facts of one part. Facts of a node are similar; the children of node n are nodes 2n + 1 and 2n + 2."""

    members: Tensor  # int64 [cells]: members of a node are adjacent
    start: Tensor  # int64 [nodes]: the first member of each node
    size: Tensor  # int64 [nodes]: the number of members; may be 0 at the last level
    leaf: Tensor  # int64 [leaves]: one fact for each node at the last level
    width: Tensor  # float64 [nodes]: the width of the range of the terms of its facts
    proofs: Ranges  # [1, nodes, 1, 1]: the range of the number of proofs of its facts

    @classmethod
    def of(cls, part: PartRows, found: Ranges | None, weights: Tensor) -> PartTree:
        """Build the tree from the terms of facts at some time, whose components are scaled by `weights` [D]."""
        points, device = np.zeros((part.cells, 1)), weights.device
        if found is not None:
            middles = (found.low + found.high)[:, :, 0] / 2.0 * weights.abs()
            points = middles.permute(1, 0, 2).flatten(1).cpu().numpy()
        depth = max(part.cells - 1, 0).bit_length()
        edges = np.arange((1 << depth) + 1) * part.cells >> depth
        members = in_halves(points, edges, depth)
        starts, sizes = [], []
        for level in range(depth + 1):
            own = edges[:: 1 << (depth - level)]
            starts.append(own[:-1])
            sizes.append(np.diff(own))
        place = np.arange(1 << depth)
        above = edges[:: 2 if depth else 1]
        pair = place // 2 if depth else place
        leaf = members[np.clip(edges[:-1], above[pair], above[pair + 1] - 1)]
        start, size, leaves = (on_device(device, one) for one in (joined(starts), joined(sizes), leaf))
        counts = on_device(device, part.proofs[leaf].astype(np.float64)).view(1, -1, 1, 1)
        width = torch.zeros(len(start), dtype=torch.float64, device=device)
        if found is not None:
            hulls = hulls_of(found.rows(leaves))
            width = ((hulls.high - hulls.low)[:, :, 0] * weights.abs()).sum((0, 2))
        return cls(on_device(device, members), start, size, leaves, width, hulls_of(Ranges(counts, counts)))


def hulls_of(leaves: Ranges) -> Ranges:
    """Return the ranges of all nodes of a tree from those of its leaves."""
    levels = [leaves]
    while levels[0].low.shape[1] > 1:
        low, high = levels[0].low, levels[0].high
        levels.insert(0, Ranges(torch.minimum(low[:, ::2], low[:, 1::2]), torch.maximum(high[:, ::2], high[:, 1::2])))
    return Ranges(torch.cat([one.low for one in levels], 1), torch.cat([one.high for one in levels], 1))


def in_halves(points: np.ndarray, edges: Ints, depth: int) -> Ints:
    """Return an order of points [n, d] in which points of a node are adjacent. Nodes are split along their widest component."""
    order = np.arange(len(points))
    for level in range(depth):
        start = edges[:: 1 << (depth - level)][:-1]
        some = points[order]
        wide = np.maximum.reduceat(some, start) - np.minimum.reduceat(some, start)
        node = np.repeat(np.arange(len(start)), np.diff(np.append(start, len(points))))
        order = order[np.lexsort((some[np.arange(len(some)), wide.argmax(1)[node]], node))]
    return order


@dataclass(frozen=True, eq=False)
class ProductRows:
    """One product with possible events, and the rule that deduces its events."""

    arrays: ProductArrays
    rule: DeducedRule
    parts: tuple[PartRows, ...]
    conditions: tuple[tuple[int, int], ...]  # for each condition with an embedding: the part, and the position in it
    grounded: GroundingArrays

    @classmethod
    def of(cls, arrays: ProductArrays, rule: DeducedRule, grounded: GroundingArrays) -> ProductRows:
        conditions = tuple(grounded.conditions[arrays.one.rule]) if rule.blocks else ()
        parts = []
        for number, part in enumerate(arrays.parts):
            pairs = zip(conditions, rule.blocks, strict=True)
            blocks = [(place, block) for (whose, place), block in pairs if whose == number]
            parts.append(PartRows.of(part, blocks, grounded))
        return cls(arrays, rule, tuple(parts), conditions, grounded)

    @property
    def count(self) -> int:
        """The number of candidates."""
        return int(self.arrays.count[1])

    def block_ranges(
        self, hulls: Sequence[Ranges | None], trees: Sequence[PartTree], blocks: Tensor, like: Tensor
    ) -> Ranges:
        """Return ranges of the deductions for events of blocks, nodes `blocks` [n, parts]; `like` [layers, 1, P, D] has the shape."""
        start = (like + self.rule.bias).expand(-1, len(blocks), -1, -1)
        sums, few, many = (
            Ranges(start, start),
            torch.ones_like(like[:1, :, :1, :1]),
            torch.ones_like(like[:1, :, :1, :1]),
        )
        for place, (one, tree) in enumerate(zip(hulls, trees, strict=True)):
            node = blocks[:, place]
            proofs = tree.proofs.rows(node)
            few, many = few * proofs.low, many * proofs.high
            if one is not None:
                sums = sums.plus(one.rows(node))
        return self._pooled(sums, few, many)

    def _pooled(self, sums: Ranges, fewest: Tensor, most: Tensor) -> Ranges:
        """Return the range of a pool of `fewest` to `most` proofs in ranges `sums`. The pool of n equal proofs `x` is `n^(1/β) x`."""
        if float(most.max()) == 1.0:
            return sums
        few, many = (one ** (1.0 / self.rule.beta) for one in (fewest, most))
        low = torch.where(sums.low < 0.0, many, few) * sums.low
        return Ranges(low, torch.where(sums.high > 0.0, many, few) * sums.high)

    def deduced(self, tables: TwoTables, args: Ints, when: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return which events the rule deduces, and the deduction for each in every layer [·, D], at the times with index `when`."""
        row, chosen = self.arrays.proofs(args, np.ones(len(args), dtype=np.int64))
        has, segment = np.unique(row, return_inverse=True)
        order = np.argsort(segment, kind="stable")
        row, chosen, pools = row[order], chosen[order], on_device(when.device, segment[order])
        beta = torch.full((len(has),), self.rule.beta, dtype=torch.float64, device=when.device)
        found = [self.rule.bias.expand(len(row), -1) for _ in tables.still.layers]
        known, at = self.grounded.instances, when[on_device(when.device, row)]
        for (part, place), block in zip(self.conditions, self.rule.blocks, strict=True):
            facts = known.body_fact[known.body_start[chosen[:, part]] + place]
            more = tables.values(facts, at, block.shape[0])
            found = [one + own @ block for one, own in zip(found, more, strict=True)]
        if len(has) < len(row):
            found = [values.pool(one, pools, len(has), beta) for one in found]
        return on_device(when.device, has), found
