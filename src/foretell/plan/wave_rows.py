"""Proofs and proposals in the order of the waves: which parameters they use, by name, and their products and pools step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from foretell.nn.cells import PoolRows, Products
from foretell.plan.int_arrays import Ints, changes, joined
from foretell.plan.parameters import ParameterFamily
from foretell.plan.plan import Merger


@dataclass(frozen=True)
class Kind:
    """Matrices of one family, cut up for conditions of these dimensions."""

    family: ParameterFamily
    dims: tuple[int, ...]


@dataclass(frozen=True)
class RowsByName:
    """Rows that use parameters by name: where these lie depends on how many names there are."""

    kinds: tuple[Kind, ...]
    kind: Tensor  # int64
    name: Tensor  # int64: place in its family
    condition: Tensor  # int64; 0 for the constant part


@dataclass(frozen=True, eq=False)
class WaveRows:
    """Proofs or proposals: parameters, and what they pool into."""

    head: Ints  # [R], ascending
    kinds: tuple[Kind, ...]
    kind: Ints
    name: Ints
    beta: Ints
    alone: np.ndarray  # bool: no other row of the same head by the same `r`
    pool: Ints  # ascending: equal for such rows
    event: Ints  # the functor of the event that proposes it, among those with features; -1: it has none


@dataclass(frozen=True, eq=False)
class WaveConditions:
    """A matrix and an embedding that it is applied to."""

    row: Ints
    condition: Ints
    slot: Ints

    def where(self, kept: np.ndarray) -> WaveConditions:
        return WaveConditions(self.row[kept], self.condition[kept], self.slot[kept])


def in_wave_order(rows: WaveRows, pairs: WaveConditions, number: Ints) -> tuple[WaveRows, WaveConditions]:
    """With heads numbered anew, in the order of these numbers; those without are left out."""
    head = number[rows.head]
    order = np.lexsort((rows.pool, head))
    order = order[head[order] >= 0]
    head, group = head[order], rows.pool[order]
    pool = np.cumsum(changes(head, group)) - 1
    alone = (np.bincount(pool)[pool] if len(pool) else pool) == 1
    place = np.full(len(rows.head), -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    row = place[pairs.row]
    kind, name, beta, event = (column[order] for column in (rows.kind, rows.name, rows.beta, rows.event))
    made = WaveRows(head, rows.kinds, kind, name, beta, alone, pool, event)
    return made, WaveConditions(row, pairs.condition, pairs.slot).where(row >= 0)


@dataclass(frozen=True)
class MarkedRows:
    """Proposals by events that have features."""

    row: Tensor  # int64: among all proposals, functor after functor
    counts: tuple[tuple[int, int], ...]  # functors by their place among those with features, and how many each has
    block: RowsByName  # of what meets the event's embedding
    head: Tensor  # int64: the version that each helps to make


class WaveSteps:
    """Proofs of embeddings, or proposals of versions, step by step: `edge` says which heads belong to a step."""

    def __init__(self, merger: Merger, found: tuple[WaveRows, WaveConditions], heads: Ints) -> None:
        self.merger, (self.rows, self.pairs), self.heads = merger, found, heads
        self.edge = np.searchsorted(self.rows.head, heads)
        self.step = np.repeat(np.arange(len(heads) - 1), np.diff(self.edge))
        self.beyond = 0

    def targets(self, heads: int) -> Ints:
        """Rows go to their heads, and those that are pooled to places behind all heads."""
        target, many = self.rows.head.copy(), ~self.rows.alone
        target[many] = heads + np.arange(int(many.sum()))
        self.beyond = heads + int(many.sum())
        return target

    def constants(self) -> RowsByName:
        rows, tensor = self.rows, self.merger.tensor
        return RowsByName(rows.kinds, tensor(rows.kind), tensor(rows.name), tensor(np.zeros_like(rows.name)))

    def marked(self) -> MarkedRows | None:
        rows, tensor = self.rows, self.merger.tensor
        found = np.flatnonzero(rows.event >= 0)
        if not len(found):
            return None
        found = found[np.argsort(rows.event[found], kind="stable")]
        functor, many = np.unique(rows.event[found], return_counts=True)
        first = tensor(np.zeros_like(found))
        block = RowsByName(rows.kinds, tensor(rows.kind[found]), tensor(rows.name[found]), first)
        counts = tuple(zip(functor.tolist(), many.tolist(), strict=True))
        return MarkedRows(tensor(found), counts, block, tensor(rows.head[found]))

    def products(
        self, slot_row: Ints, target: Ints, beyond: int
    ) -> tuple[list[Products | None], RowsByName, tuple[int, ...]]:
        """For each step its tiles, of rows with one matrix: about as high as such rows are many."""
        rows, pairs, tensor = self.rows, self.pairs, self.merger.tensor
        step, kind, name = self.step[pairs.row], rows.kind[pairs.row], rows.name[pairs.row]
        order = np.lexsort((pairs.condition, name, kind, step))
        columns = [column[order] for column in (step, kind, name, pairs.condition)]
        start = np.flatnonzero(changes(*columns))
        length = np.diff(joined([start, [len(order)]]))
        steps = len(self.heads) - 1
        run_step = columns[0][start]
        mean = np.bincount(run_step, length, steps) / np.maximum(np.bincount(run_step, minlength=steps), 1)
        height = 2 ** np.ceil(np.log2(np.maximum(mean, 1.0))).astype(np.int64)
        tiles = -(-length // height[run_step])
        size = tiles * height[run_step]  # places of each run
        there = np.repeat(np.cumsum(size) - size, length) + np.arange(len(order)) - np.repeat(start, length)
        source = np.repeat(slot_row[pairs.slot[order[start]]], size)
        goal = np.full(int(size.sum()), beyond, dtype=np.int64)
        source[there], goal[there] = slot_row[pairs.slot[order]], target[pairs.row[order]]
        of_step = np.bincount(run_step, tiles, steps).astype(np.int64)
        places = (of_step * height).tolist()
        made = [
            Products(one, other) if len(one) else None
            for one, other in zip(tensor(source).split(places), tensor(goal).split(places), strict=True)
        ]
        named = (tensor(np.repeat(column[start], tiles)) for column in columns[1:])
        return made, RowsByName(rows.kinds, *named), tuple(of_step.tolist())

    def single(self) -> list[Tensor | None]:
        """Rows of each step that are pooled with no other; None: all."""
        alone = np.flatnonzero(self.rows.alone)
        counts = np.bincount(self.step[alone], minlength=len(self.heads) - 1)
        parts = self.merger.tensor(alone - self.edge[self.step[alone]]).split(counts.tolist())
        every = counts == np.diff(self.edge)
        return [None if whole else part for part, whole in zip(parts, every.tolist(), strict=True)]

    def pools(self, target: Ints | None) -> list[PoolRows | None]:
        """The pools of each step; rows are targets, or counted within the step."""
        rows, steps, tensor = self.rows, len(self.heads) - 1, self.merger.tensor
        many = np.flatnonzero(~rows.alone)
        kept, segment = np.unique(rows.pool[many], return_inverse=True)
        at = np.searchsorted(rows.pool, kept)
        row_counts = np.bincount(self.step[many], minlength=steps)
        pool_counts = np.bincount(self.step[at], minlength=steps)
        before = np.cumsum(pool_counts) - pool_counts
        row = many - self.edge[self.step[many]] if target is None else target[many]
        by_row = [row, segment - before[self.step[many]]]
        by_pool = [rows.beta[at], rows.head[at] - self.heads[self.step[at]]]
        parts = [tensor(one).split(row_counts.tolist()) for one in by_row]
        parts += [tensor(one).split(pool_counts.tolist()) for one in by_pool]
        return [PoolRows(*one) if len(one[0]) else None for one in zip(*parts, strict=True)]
