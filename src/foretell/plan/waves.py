"""Slots of some sequences at their events, with the versions of cells that they read and make → waves.

A slot can be computed after the versions in its closure under proofs, and a version after the version before it and after the slots of its
additions. The wave of each is the length of the longest such way: found event by event, for all sequences of a batch side by side.
Embeddings, targets, proposals and versions are numbered in the order in which they are computed, so that a step has slices of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from foretell.nn.cells import CellUpdate, DeductionStage, PoolRows, Products, Waves
from foretell.plan.history import SlotHistory
from foretell.plan.int_arrays import Ints, changes, joined, offsets, runs
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


@dataclass(frozen=True)
class Recurrence:
    waves: Waves
    vectors: RowsByName  # constant parts of deductions …
    target: Tensor  # int64: … and where they go
    blocks: RowsByName  # of all stages' tiles, one after the other
    block_tiles: tuple[int, ...]  # of each step
    gates: RowsByName  # constant parts of proposals
    gate_blocks: RowsByName  # of all updates' tiles
    gate_tiles: tuple[int, ...]
    point: Tensor  # int64 [embeddings]: `bos` or event that each stands before, among those of all sequences
    since: Tensor  # int64 [embeddings]: the one that made the version that it reads
    made: Tensor  # int64 [versions]
    made_before: Tensor  # int64 [versions]: the one that made the version before
    place: Tensor  # int64 [sequences, most]: by a sequence and a version's number in it, its number in the waves
    rows: dict[tuple[int, ...], Any] = field(default_factory=dict)  # of parameters, by how many names there were


def make_recurrence(merger: Merger, histories: Sequence[SlotHistory]) -> Recurrence:
    """`merger` has slots without queries: their points are `bos` and the events."""
    return _Builder(merger, histories).build()


@dataclass(frozen=True, eq=False)
class _Rows:
    """Proofs or proposals: parameters, and what they pool into."""

    head: Ints  # [R], ascending
    kinds: tuple[Kind, ...]
    kind: Ints
    name: Ints
    beta: Ints
    alone: np.ndarray  # bool: no other row of the same head by the same `r`
    pool: Ints  # ascending: equal for such rows


@dataclass(frozen=True, eq=False)
class _Pairs:
    """A matrix and an embedding that it is applied to."""

    row: Ints
    condition: Ints
    slot: Ints

    def where(self, kept: np.ndarray) -> _Pairs:
        return _Pairs(self.row[kept], self.condition[kept], self.slot[kept])


@dataclass(frozen=True, eq=False)
class _Order:
    """In which order slots and versions are computed, and which of them each step has."""

    slots: Ints  # [needed]
    versions: Ints  # [V - 1]: all but the one that is none
    slot_row: Ints  # [S]: its place among `slots`; -1: not needed
    version_row: Ints  # [V]: its number in this order
    slot_edge: Ints  # [steps + 1]
    version_edge: Ints  # [steps + 1]
    is_update: np.ndarray  # bool [steps]


class _Builder:
    def __init__(self, merger: Merger, histories: Sequence[SlotHistory]) -> None:
        self.merger, self.parts = merger, merger.parts
        self.own = [one.versions for one in histories]
        self.first = offsets([len(one) - 1 for one in self.own])  # versions of earlier sequences
        self.versions = int(self.first[-1]) + 1
        self.version_event = self._of_versions([one.event for one in self.own])
        points = zip(self.own, merger.point_offset[:-1].tolist(), strict=True)
        self.version_point = self._of_versions([one.event + point for one, point in points])
        self.version_before = self._of_versions([self._global(one.before, place) for place, one in enumerate(self.own)])
        at = [
            self._global(one.at(part.slot_fact, part.point_state[part.slot_point]), place)
            for place, (one, part) in enumerate(zip(self.own, self.parts, strict=True))
        ]
        self.slot_version, self.slot_event = joined(at), joined([part.slot_point for part in self.parts])

    def _of_versions(self, parts: Sequence[Ints]) -> Ints:
        return joined([[0], *(part[1:] for part in parts)])

    def _global(self, version: Ints, sequence: int) -> Ints:
        return np.where(version > 0, version + self.first[sequence], 0)

    def build(self) -> Recurrence:
        proposals, body = self._proposals()
        proofs, conditions = self._proofs()
        needed = self._needed(body.slot, proofs.head[conditions.row], conditions.slot)
        conditions = conditions.where(needed[conditions.slot] & needed[proofs.head[conditions.row]])
        order = self._order(needed, proofs.head[conditions.row], conditions.slot, proposals.head[body.row], body.slot)
        deductions = _Assembled(self.merger, _in_order(proofs, conditions, order.slot_row), order.slot_edge)
        moves = _Assembled(self.merger, _in_order(proposals, body, order.version_row), order.version_edge)
        target = deductions.targets(len(order.slots))
        products, blocks, block_tiles = deductions.products(order.slot_row, target, deductions.beyond)
        rows = len(moves.rows.head)
        gate_products, gate_blocks, gate_tiles = moves.products(order.slot_row, np.arange(rows), rows)
        stages = self._stages(order, products, deductions.pools(target))
        made = {**stages, **self._updates(order, moves, gate_products)}
        tensor = self.merger.tensor
        steps = tuple(made[number] for number in range(len(made)))
        waves = Waves(steps, len(order.slots), deductions.beyond, rows, self.versions, tensor(moves.rows.head))
        point, since, made_at, made_before = map(tensor, self._points(order))
        return Recurrence(
            waves,
            deductions.constants(),
            tensor(target),
            blocks,
            block_tiles,
            moves.constants(),
            gate_blocks,
            gate_tiles,
            point,
            since,
            made_at,
            made_before,
            tensor(self._places(order)),
        )

    def _order(self, needed: np.ndarray, *pairs: Ints) -> _Order:
        """Of every wave first the levels of its slots, and then its update."""
        wave, level, version_wave = self._waves(needed, *pairs)
        width = int(level.max(initial=0)) + 2
        slot_code, version_code = wave * width + level, version_wave * width - 1
        slots = np.flatnonzero(needed)
        slots = slots[np.argsort(slot_code[slots], kind="stable")]
        versions = np.argsort(version_code[1:], kind="stable") + 1
        steps = np.unique(joined([slot_code[slots], version_code[versions]]))
        slot_row = np.full(len(needed), -1, dtype=np.int64)
        slot_row[slots] = np.arange(len(slots))
        version_row = np.zeros(self.versions, dtype=np.int64)
        version_row[versions] = np.arange(1, self.versions)
        edges = joined([steps, steps[-1:] + 1])
        slot_edge = np.searchsorted(slot_code[slots], edges)
        version_edge = 1 + np.searchsorted(version_code[versions], edges)
        return _Order(slots, versions, slot_row, version_row, slot_edge, version_edge, steps % width == width - 1)

    def _stages(
        self, order: _Order, products: list[Products | None], pools: list[PoolRows | None]
    ) -> dict[int, DeductionStage]:
        """Embeddings of each step that has some."""
        version = self.slot_version[order.slots]
        has_cell = np.add.reduceat(joined([version, [0]]), order.slot_edge[:-1]) > 0
        split = self._split(order.version_row[version], order.slot_edge)
        cells = [one if some and len(one) else None for one, some in zip(split, has_cell.tolist(), strict=True)]
        return {
            number: DeductionStage(len(split[number]), cells[number], products[number], pools[number])
            for number in np.flatnonzero(~order.is_update).tolist()
        }

    def _updates(self, order: _Order, moves: _Assembled, products: list[Products | None]) -> dict[int, CellUpdate]:
        """Versions of each step that has some."""
        before = self._split(order.version_row[self.version_before[order.versions]], order.version_edge - 1)
        version = self._split(moves.rows.head - order.version_edge[:-1][moves.step], moves.edge)
        single, pools = moves.single(), moves.pools(None)
        made, proposed = np.diff(order.version_edge).tolist(), np.diff(moves.edge).tolist()
        return {
            number: CellUpdate(
                made[number],
                proposed[number],
                before[number],
                None if made[number] == proposed[number] else version[number],
                products[number],
                single[number],
                pools[number],
            )
            for number in np.flatnonzero(order.is_update).tolist()
        }

    def _points(self, order: _Order) -> tuple[Ints, Ints, Ints, Ints]:
        """Where slots stand and since when their versions are, when versions are made and those before them were."""
        point, read = self.merger.point[order.slots], self.slot_version[order.slots]
        own = joined([[0], order.versions])
        earlier, made = self.version_before[own], self.version_point[own]
        since = np.where(read > 0, self.version_point[read], point)
        return point, since, made, np.where(earlier > 0, self.version_point[earlier], made)

    def _places(self, order: _Order) -> Ints:
        place = np.zeros((len(self.own), max(len(one) for one in self.own)), dtype=np.int64)
        for number, one in enumerate(self.own):
            first = self.first[number] + 1
            place[number, 1 : len(one)] = order.version_row[first : first + len(one) - 1]
        return place

    def _split(self, values: Ints, edge: Ints) -> tuple[Tensor, ...]:
        return self.merger.tensor(values).split(np.diff(edge).tolist())

    # What there is

    def _proposals(self) -> tuple[_Rows, _Pairs]:
        """Additions by the versions that they make, and the slots that they look at; an event that was no fact gives nothing."""
        merger, parts = self.merger, self.parts
        starts = offsets([len(part.addition_instance) for part in parts])
        addition = joined([one.addition + start for one, start in zip(self.own, starts[:-1], strict=True)])
        made = joined([one.made + start for one, start in zip(self.own, self.first[:-1], strict=True)])
        instance = joined([part.addition_instance for part in parts])[addition]
        slots = merger.shifted([part.addition_body for part in parts], merger.slot_offset)
        before = offsets([len(part.addition_body) for part in parts])
        start = joined([part.addition_start[:-1] + first for part, first in zip(parts, before[:-1], strict=True)])
        _, row, condition = merger.instances.bodies(instance)
        slot = slots[start[addition][row] + condition]
        return self._rows(made, instance), _Pairs(row, condition, slot).where(slot >= 0)

    def _proofs(self) -> tuple[_Rows, _Pairs]:
        proofs = self.merger.proofs()
        row, condition = np.nonzero(proofs.body >= 0)
        rows = self._rows(proofs.head, joined([part.proof_instance for part in self.parts]))
        return rows, _Pairs(row, condition, proofs.body[row, condition])

    def _rows(self, head: Ints, instance: Ints) -> _Rows:
        merger = self.merger
        rule, group = merger.rule[instance], merger.group[instance]
        kinds: dict[tuple[int, tuple[int, ...]], tuple[int, Kind]] = {}
        kind, name, beta = np.zeros((3, len(head)), dtype=np.int64)
        order = np.argsort(rule, kind="stable")
        for low, high in runs(rule[order]):
            rows = order[low:high]
            written = merger.layout.rules[int(rule[rows[0]])]
            assert written is not None
            family, name[rows], beta[rows] = merger.numbers(group[rows])
            key = family.place, written.dims
            kind[rows] = kinds.setdefault(key, (len(kinds), Kind(family, written.dims)))[0]
        return _Rows(head, tuple(one for _, one in kinds.values()), kind, name, beta, np.ones(len(head), bool), group)

    # When

    def _needed(self, looked: Ints, head: Ints, body: Ints) -> np.ndarray:
        """bool [S]: slots that additions look at, and what is in their proofs."""
        needed = np.zeros(len(self.merger.level), dtype=bool)
        needed[looked] = True
        order = np.argsort(-self.merger.level[head], kind="stable")
        for low, high in runs(self.merger.level[head][order]):
            rows = order[low:high]
            needed[body[rows[needed[head[rows]]]]] = True
        return needed

    def _waves(self, needed: np.ndarray, head: Ints, body: Ints, made: Ints, looked: Ints) -> tuple[Ints, Ints, Ints]:
        """Of slots their wave and their level in it, of versions their wave."""
        levels = int(self.merger.level.max(initial=0)) + 1
        code = self.slot_event * levels + self.merger.level
        slots = np.flatnonzero(needed)
        slots = slots[np.argsort(code[slots], kind="stable")]
        pairs = np.argsort(code[head], kind="stable")
        head, body = head[pairs], body[pairs]
        versions = 1 + np.argsort(self.version_event[1:], kind="stable")
        reads = np.argsort(self.version_event[made], kind="stable")
        made, looked = made[reads], looked[reads]
        events = int(joined([self.slot_event[slots], self.version_event]).max(initial=-1)) + 1
        numbers = np.arange(events * levels + 1)
        slot_edge = np.searchsorted(code[slots], numbers).tolist()
        pair_edge = np.searchsorted(code[head], numbers).tolist()
        version_edge = np.searchsorted(self.version_event[versions], np.arange(events + 1)).tolist()
        read_edge = np.searchsorted(self.version_event[made], np.arange(events + 1)).tolist()
        wave, level = np.zeros((2, len(needed)), dtype=np.int64)
        version_wave = np.zeros(self.versions, dtype=np.int64)
        for event in range(events):
            for number in range(event * levels, (event + 1) * levels):
                if slot_edge[number] == slot_edge[number + 1]:
                    continue
                rows = slots[slot_edge[number] : slot_edge[number + 1]]
                wave[rows] = version_wave[self.slot_version[rows]]
                if pair_edge[number] < pair_edge[number + 1]:
                    some = slice(pair_edge[number], pair_edge[number + 1])
                    np.maximum.at(wave, head[some], wave[body[some]])
                    same = wave[head[some]] == wave[body[some]]
                    np.maximum.at(level, head[some][same], level[body[some][same]] + 1)
            some = slice(read_edge[event], read_edge[event + 1])
            rows = versions[version_edge[event] : version_edge[event + 1]]
            version_wave[rows] = version_wave[self.version_before[rows]]
            np.maximum.at(version_wave, made[some], wave[looked[some]])
            version_wave[rows] += 1
        return wave, level, version_wave


def _in_order(rows: _Rows, pairs: _Pairs, number: Ints) -> tuple[_Rows, _Pairs]:
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
    made = _Rows(head, rows.kinds, rows.kind[order], rows.name[order], rows.beta[order], alone, pool)
    return made, _Pairs(row, pairs.condition, pairs.slot).where(row >= 0)


class _Assembled:
    """Proofs of embeddings, or proposals of versions, step by step: `edge` says which heads belong to a step."""

    def __init__(self, merger: Merger, found: tuple[_Rows, _Pairs], heads: Ints) -> None:
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
        """Of each step; rows are targets, or counted within the step."""
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
