"""The proofs of slots → sums to compute level by level: rows of the stack of vectors, and blocks applied to the slots of conditions.

If several proofs apply the same block to the same slot, they share the product. The slots of one level are a slice of the table of
their dimension. Pooled proofs (several proofs of one slot by one `r`) have their own target rows behind the slots of the level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.nn.sparse_sum import SparseSum, sparse_sum
from foretell.plan.int_arrays import Ints, changes, distinct, joined, runs
from foretell.plan.parameters import DimensionLayout, ParameterFamily

HEIGHTS = {"cpu": (16, 128), "cuda": (32, 512)}


@dataclass(frozen=True)
class TilesOfOneHeight:
    """Tiles of one height: each has one matrix."""

    matrix: np.ndarray  # int64 [T]
    row: np.ndarray  # int64 [T·height]: the packed row at each place of a tile


@dataclass(frozen=True)
class Packing:
    tilings: tuple[TilesOfOneHeight, ...]  # at most two, one after the other: low tiles, then high ones
    place: np.ndarray  # int64 [rows]: the place of each row in the tiles
    size: int  # the number of places of all tiles


def pack(matrix: np.ndarray, device: str, heights: tuple[int, int] | None = None) -> Packing:
    """Pack rows into tiles of one matrix each. `matrix` [rows] has the matrix of each row, sorted; `heights` default to the device's."""
    if heights is None:
        heights = HEIGHTS.get(device, HEIGHTS["cuda"])
    count = len(matrix)
    start = np.flatnonzero(changes(matrix))
    length = np.diff(np.concatenate([start, [count]]))
    tall = length > heights[1] // 2
    place = np.empty(count, dtype=np.int64)
    tilings = []
    size = 0
    for height, chosen in zip(heights, (~tall, tall), strict=True):
        first, own = start[chosen], length[chosen]
        if not len(first):
            continue
        tiles = -(-own // height)
        before = (np.cumsum(tiles) - tiles) * height  # the number of places in earlier runs
        row = np.repeat(first, tiles * height)
        run = np.repeat(np.arange(len(first)), own)
        within = np.arange(len(run)) - np.repeat(np.cumsum(own) - own, own)
        there = before[run] + within
        row[there] = first[run] + within
        place[first[run] + within] = size + there
        tilings.append(TilesOfOneHeight(np.repeat(matrix[first], tiles).astype(np.int64), row))
        size += len(row)
    return Packing(tuple(tilings), place, size)


_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def classes_of(fact: Ints, level: Ints, instance: Ints, head: Ints, body: Ints) -> tuple[Ints, Ints]:
    """Group slots [S] that have equal facts and equal proofs [R]: return the class of each slot [S], and one slot of each class."""
    first, second = (_sums(fact, level, instance, head, body, factor) for factor in _FACTORS)
    _, representative, number = np.unique(first, return_index=True, return_inverse=True)
    if not (second[representative][number] == second).all():
        number = representative = np.arange(len(fact))
    return number, representative


def _sums(fact: Ints, level: Ints, instance: Ints, head: Ints, body: Ints, factor: np.uint64) -> np.ndarray:
    known = _mixed(fact.astype(np.uint64), factor)
    by_instance = _mixed(instance.astype(np.uint64) + np.uint64(1 << 40), factor)
    order = np.argsort(level[head], kind="stable")
    edges = np.searchsorted(level[head][order], np.arange(int(level.max(initial=0)) + 2))
    for number in range(len(edges) - 1):
        rows = order[edges[number] : edges[number + 1]]
        if not len(rows):
            continue
        proof = by_instance[rows]
        for place in range(body.shape[1]):
            slot = body[rows, place]
            seen = np.where(slot >= 0, known[slot], np.uint64(0))
            proof = _mixed(proof + seen * np.uint64(2 * place + 3), factor)
        rows_by_head = np.argsort(head[rows], kind="stable")
        heads = head[rows][rows_by_head]
        start = np.flatnonzero(changes(heads))
        known[heads[start]] = _mixed(known[heads[start]] + np.add.reduceat(proof[rows_by_head], start), factor)
    return known


def _mixed(values: np.ndarray, factor: np.uint64) -> np.ndarray:
    values = (values ^ (values >> np.uint64(31))) * factor
    values = (values ^ (values >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return values ^ (values >> np.uint64(32))


DENSE = 8  # a lookup table is used if it has at most 8 entries per code; otherwise codes are sorted


@dataclass(frozen=True)
class TableRows:
    """Rows of the table of one dimension, restricted to a range of columns."""

    dim: int
    columns: tuple[int, int]
    rows: Tensor  # int64

    def of(self, tables: dict[int, Tensor]) -> Tensor:
        table = tables[self.dim]
        if self.columns != (0, self.dim):
            table = table[..., slice(*self.columns)]
        return table.index_select(0, self.rows)


@dataclass(frozen=True)
class Projection:
    """Tiles of slots; each tile is multiplied by one block."""

    stack: str
    matrix: Tensor  # int64 [T]: rows of the stack
    inputs: TableRows  # [T·height]


@dataclass(frozen=True)
class Pools:
    segment: Tensor  # int64 [proofs]: the pool that each pooled proof belongs to
    count: int
    beta: Tensor  # int64 [pools]: rows of the stack of pool exponents
    head: Tensor  # int64 [pools]: the head's place in the level


@dataclass(frozen=True)
class DeductionLevel:
    """One level of a dimension: the slots `[start, stop)` of its table."""

    start: int
    stop: int
    targets: tuple[int, int]  # rows of the sum of vectors: the slots of the level, then its pooled proofs
    projections: tuple[Projection, ...]
    sums: SparseSum | None  # adds products of projections to targets; None: there are none
    pools: Pools | None


@dataclass(frozen=True)
class DeductionPlan:
    """The deductions of all slots of one dimension."""

    slots: int
    vectors: SparseSum  # adds rows of the stack of vectors to the targets of all levels
    levels: tuple[DeductionLevel, ...]
    rules: tuple[tuple[int, int], ...]  # (rule, number of its proofs); facts of the program are not counted

    def targets(self) -> Ints:
        """Return the row of each slot in the sum of vectors: [slots]."""
        return joined([level.targets[0] + np.arange(level.stop - level.start) for level in self.levels])


@dataclass(frozen=True)
class Proofs:
    """The proofs [R] of slots [S], with the dimension and level of each slot."""

    dim: Ints  # [S]
    level: Ints  # [S]
    row: Ints  # [S]: the slot's row in the table of its dimension, which is sorted by level
    rule: Ints  # [R]
    group: Ints  # [R]
    head: Ints  # [R]: the slot that is proved
    body: Ints  # [R, widest]: the slots of the embedded conditions; -1: none

    def of_classes(self, number: Ints, representative: Ints) -> Proofs:
        """Return the proofs of one slot per class. `number` [S] is the class of each slot, `representative` the slot of each class."""
        kept = np.zeros(len(self.dim), dtype=bool)
        kept[representative] = True
        chosen = np.flatnonzero(kept[self.head])
        dim, level = self.dim[representative], self.level[representative]
        body = np.where(self.body[chosen] >= 0, number[self.body[chosen]], -1) if len(number) else self.body[chosen]
        return Proofs(
            dim,
            level,
            rows_by_level(dim, level),
            self.rule[chosen],
            self.group[chosen],
            number[self.head[chosen]],
            body,
        )


def rows_by_level(dim: Ints, level: Ints) -> Ints:
    """Return the row of each slot in the table of its dimension, sorted by level."""
    order = np.lexsort((level, dim))
    row = np.empty_like(order)
    row[order] = np.arange(len(order)) - np.searchsorted(dim[order], dim[order])
    return row


Numbers = Callable[
    [Ints], tuple[ParameterFamily, Ints, Ints]
]  # groups of one rule → family, each group's place in the family, row of its pool exponent


def deduce(
    proofs: Proofs,
    layout: DimensionLayout,
    numbers: Numbers,
    vectors: Callable[[int], int],
    device: torch.device,
    heights: tuple[int, int] | None = None,
) -> dict[int, DeductionPlan]:
    """Return the deductions by dimension. `vectors` gives the size of a dimension's stack of vectors; `heights` default to the device's."""
    return {
        dim: _Table(proofs, layout, numbers, device, dim, heights).build(vectors)
        for dim in distinct(proofs.dim)
        if dim > 0
    }


class _Table:
    def __init__(
        self,
        proofs: Proofs,
        layout: DimensionLayout,
        numbers: Numbers,
        device: torch.device,
        dim: int,
        heights: tuple[int, int] | None,
    ) -> None:
        self.proofs, self.layout, self.numbers, self.device, self.dim = proofs, layout, numbers, device, dim
        self.heights = heights
        self.vector_target: list[Ints] = []
        self.vector_row: list[Ints] = []
        self.counts: dict[int, int] = {}

    def build(self, vectors: Callable[[int], int]) -> DeductionPlan:
        proofs = self.proofs
        own = np.sort(proofs.level[proofs.dim == self.dim])
        depth = int(own[-1]) + 1
        starts = np.searchsorted(own, np.arange(depth + 1))
        mine = np.flatnonzero(proofs.dim[proofs.head] == self.dim)
        order = mine[
            np.lexsort((proofs.head[mine], proofs.group[mine], proofs.rule[mine], proofs.level[proofs.head[mine]]))
        ]
        edges = np.searchsorted(proofs.level[proofs.head[order]], np.arange(depth + 1))
        levels, first = [], 0
        for number in range(depth):
            level = self._level(
                order[edges[number] : edges[number + 1]], int(starts[number]), int(starts[number + 1]), first
            )
            levels.append(level)
            first = level.targets[1]
        targets, rows = joined(self.vector_target), joined(self.vector_row)
        summed = sparse_sum(targets, rows, first, vectors(self.dim), self.device)
        return DeductionPlan(len(own), summed, tuple(levels), tuple(sorted(self.counts.items())))

    def _level(self, rows: Ints, start: int, stop: int, first: int) -> DeductionLevel:
        proofs = self.proofs
        head, group = proofs.head[rows], proofs.group[rows]
        place = proofs.row[head] - start
        pool = np.cumsum(changes(group, head)) - 1
        many = (np.bincount(pool)[pool] if len(pool) else pool) > 1
        target = place.copy()
        target[many] = stop - start + np.arange(int(many.sum()))
        beta = np.zeros(len(rows), dtype=np.int64)
        parts: dict[tuple[str, int, tuple[int, int]], list[tuple[Ints, Ints, Ints]]] = {}
        for low, high in runs(proofs.rule[rows]):
            own = rows[low:high]
            rule = int(proofs.rule[own[0]])
            written = self.layout.rules[rule]
            assert written is not None
            if written.kind == "deduce":
                self.counts[rule] = self.counts.get(rule, 0) + len(own)
            family, number, beta[low:high] = self.numbers(group[low:high])
            table = np.asarray(family.rows, dtype=np.int64).reshape(len(family.names), -1)[number]
            self.vector_target.append(first + target[low:high])
            self.vector_row.append(table[:, 0])
            for block, condition, columns in family.blocks_of(written.dims):
                key = family.stacks[1 + block].key, written.dims[condition], columns
                parts.setdefault(key, []).append(
                    (table[:, 1 + block], proofs.row[proofs.body[own, condition]], target[low:high])
                )
        last = stop - start + int(many.sum())
        projections, sums = self._projected(parts, last)
        return DeductionLevel(
            start, stop, (first, first + last), projections, sums, self._pools(many, pool, place, beta)
        )

    def _pools(self, many: Ints, pool: Ints, place: Ints, beta: Ints) -> Pools | None:
        if not many.any():
            return None
        kept, segment = np.unique(pool[many], return_inverse=True)
        at = np.searchsorted(pool, kept)
        return Pools(self._tensor(segment), len(kept), self._tensor(beta[at]), self._tensor(place[at]))

    def _projected(
        self, parts: dict[tuple[str, int, tuple[int, int]], list[tuple[Ints, Ints, Ints]]], targets: int
    ) -> tuple[tuple[Projection, ...], SparseSum | None]:
        if not parts:
            return (), None
        projections, sources, summed, size = [], [], [], 0
        for (stack, dim, columns), found in parts.items():
            matrix, row, target = (joined([one[k] for one in found]) for k in range(3))
            rows = int((self.proofs.dim == dim).sum())
            codes, inverse = _sorted_out(matrix * rows + row, (int(matrix.max()) + 1) * rows)
            packed = pack(codes // rows, self.device.type, self.heights)
            for tiling in packed.tilings:
                inputs = TableRows(dim, columns, self._tensor((codes % rows)[tiling.row]))
                projections.append(Projection(stack, self._tensor(tiling.matrix), inputs))
            sources.append(size + packed.place[inverse])
            summed.append(target)
            size += packed.size
        return tuple(projections), sparse_sum(joined(summed), joined(sources), targets, size, self.device)

    def _tensor(self, values: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self.device)


def _sorted_out(codes: Ints, most: int) -> tuple[Ints, Ints]:
    """Return the distinct codes in ascending order, and the position of each code among them."""
    if most > DENSE * len(codes) + 4096:
        return np.unique(codes, return_inverse=True)
    met = np.zeros(most, dtype=bool)
    met[codes] = True
    number = np.cumsum(met) - 1
    return np.flatnonzero(met), number[codes]
