"""Proofs and proposals sorted by wave: the names of the parameters that they use, and the products and pools of each step."""

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
    """The matrices of one family, split for conditions with these dimensions."""

    family: ParameterFamily
    dims: tuple[int, ...]


@dataclass(frozen=True)
class RowsByName:
    """Rows that refer to parameters by name. The parameters' positions depend on the number of names, so they are looked up later."""

    kinds: tuple[Kind, ...]
    kind: Tensor  # int64
    name: Tensor  # int64: the name's place in its family
    condition: Tensor  # int64: the condition's place; 0 for the constant part


@dataclass(frozen=True, eq=False)
class WaveRows:
    """Proofs or proposals: their parameters, and the heads and pools to which they contribute."""

    head: Ints  # [R], ascending
    kinds: tuple[Kind, ...]
    kind: Ints
    name: Ints
    beta: Ints
    alone: np.ndarray  # bool: whether the row is the only one of its head by its `r`
    pool: Ints  # ascending; rows with the same head and `r` have the same pool
    event: Ints  # the functor of the proposing event, as its place among functors with features; -1: none


@dataclass(frozen=True, eq=False)
class WaveConditions:
    """Pairs of a row's matrix and the slot whose embedding it multiplies."""

    row: Ints
    condition: Ints
    slot: Ints

    def where(self, kept: np.ndarray) -> WaveConditions:
        return WaveConditions(self.row[kept], self.condition[kept], self.slot[kept])


def in_wave_order(rows: WaveRows, pairs: WaveConditions, number: Ints) -> tuple[WaveRows, WaveConditions]:
    """Renumber heads by `number` and sort the rows by their new heads. Rows whose head has no number (-1) are left out."""
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

    row: Tensor  # int64: the position among all proposals, sorted by functor
    counts: tuple[tuple[int, int], ...]  # (place among functors with features, number of rows)
    block: RowsByName  # the matrices that multiply the events' embeddings
    head: Tensor  # int64: the version that each proposal helps to make


class WaveSteps:
    """Proofs of embeddings, or proposals of versions, step by step: step `i` has the rows `[edge[i], edge[i + 1])`."""

    def __init__(self, merger: Merger, found: tuple[WaveRows, WaveConditions], heads: Ints) -> None:
        self.merger, (self.rows, self.pairs), self.heads = merger, found, heads
        self.edge = np.searchsorted(self.rows.head, heads)
        self.step = np.repeat(np.arange(len(heads) - 1), np.diff(self.edge))
        self.beyond = 0

    def targets(self, heads: int) -> Ints:
        """Return the target of each row: its head, or a place of its own behind all heads if it is pooled with other rows."""
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
        """Return the products of each step, the matrix of each tile, and the tiles per step. Tiles are as high as an average run."""
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
        size = tiles * height[run_step]  # the number of places of each run
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
        """Return the rows of each step that are not pooled with other rows; None if these are all rows of the step."""
        alone = np.flatnonzero(self.rows.alone)
        counts = np.bincount(self.step[alone], minlength=len(self.heads) - 1)
        parts = self.merger.tensor(alone - self.edge[self.step[alone]]).split(counts.tolist())
        every = counts == np.diff(self.edge)
        return [None if whole else part for part, whole in zip(parts, every.tolist(), strict=True)]

    def pools(self, target: Ints | None) -> list[PoolRows | None]:
        """Return the pools of each step. Rows are given by `target`, or numbered within the step if `target` is None."""
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
