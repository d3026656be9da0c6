"""Slots of sequences at their events, with the versions of cells that they read and make → waves.

A slot depends on the version of its cell and on the slots in its proofs. A version depends on the version before it and on the slots of
its additions. A wave number is the length of the longest chain of versions, computed event by event for all sequences in parallel.
Embeddings, targets, proposals and versions are numbered in the order of their computation, so each step has slices of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from foretell.nn.cells import CellUpdate, DeductionStage, PoolRows, Products, Waves
from foretell.plan.history import SlotHistory
from foretell.plan.int_arrays import Ints, joined, offsets, runs
from foretell.plan.plan import Merger
from foretell.plan.wave_rows import Kind, MarkedRows, RowsByName, WaveConditions, WaveRows, WaveSteps, in_wave_order


@dataclass(frozen=True)
class Recurrence:
    waves: Waves
    vectors: RowsByName  # the constant parts of deductions
    target: Tensor  # int64: the targets to which they are added
    blocks: RowsByName  # the blocks of the tiles of all stages, in order
    block_tiles: tuple[int, ...]  # the number of tiles of each step
    gates: RowsByName  # the constant parts of proposals
    gate_blocks: RowsByName  # the blocks of the tiles of all updates
    gate_tiles: tuple[int, ...]
    marked: MarkedRows | None  # proposals by events that have features
    point: Tensor  # int64 [embeddings]: the `bos` or event just before which the embedding is computed, numbered over all sequences
    since: Tensor  # int64 [embeddings]: the event that made the version that it reads
    made: Tensor  # int64 [versions]: the event that made the version
    made_before: Tensor  # int64 [versions]: the event that made the version before
    place: Tensor  # int64 [sequences, most]: the number in the waves of each sequence's versions
    rows: dict[tuple[int, ...], Any] = field(default_factory=dict)  # cached parameter rows, by number of names


def make_recurrence(merger: Merger, histories: Sequence[SlotHistory]) -> Recurrence:
    """Return the waves of a batch. The slots of `merger` have no queries: their points are `bos` and the events."""
    return _Builder(merger, histories).build()


@dataclass(frozen=True, eq=False)
class _Order:
    """The order in which slots and versions are computed, with the edges of the steps."""

    slots: Ints  # [needed]
    versions: Ints  # [V - 1]: all versions except 0, "none"
    slot_row: Ints  # [S]: the slot's place in `slots`; -1: not needed
    version_row: Ints  # [V]: the version's number in this order
    slot_edge: Ints  # [steps + 1]
    version_edge: Ints  # [steps + 1]
    is_update: np.ndarray  # bool [steps]


class _Builder:
    def __init__(self, merger: Merger, histories: Sequence[SlotHistory]) -> None:
        self.merger, self.parts = merger, merger.parts
        self.own = [one.versions for one in histories]
        self.first = offsets([len(one) - 1 for one in self.own])  # the number of versions of earlier sequences
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
        # The slots whose deduced embeddings are read by updates.
        slots = zip(self.parts, merger.slot_offset[:-1].tolist(), strict=True)
        self.version_slot = self._of_versions(
            [np.where(part.version_slot >= 0, part.version_slot + first, -1) for part, first in slots]
        )

    def _of_versions(self, parts: Sequence[Ints]) -> Ints:
        return joined([[0], *(part[1:] for part in parts)])

    def _global(self, version: Ints, sequence: int) -> Ints:
        return np.where(version > 0, version + self.first[sequence], 0)

    def build(self) -> Recurrence:
        proposals, body = self._proposals()
        proofs, conditions = self._proofs()
        fed = np.flatnonzero(self.version_slot[1:] >= 0) + 1
        looked = joined([body.slot, self.version_slot[fed]])
        needed = self._needed(looked, proofs.head[conditions.row], conditions.slot)
        conditions = conditions.where(needed[conditions.slot] & needed[proofs.head[conditions.row]])
        reader = joined([proposals.head[body.row], fed])
        order = self._order(needed, proofs.head[conditions.row], conditions.slot, reader, looked)
        deductions = WaveSteps(self.merger, in_wave_order(proofs, conditions, order.slot_row), order.slot_edge)
        moves = WaveSteps(self.merger, in_wave_order(proposals, body, order.version_row), order.version_edge)
        target = deductions.targets(len(order.slots))
        products, blocks, block_tiles = deductions.products(order.slot_row, target, deductions.beyond)
        rows = len(moves.rows.head)
        gate_products, gate_blocks, gate_tiles = moves.products(order.slot_row, np.arange(rows), rows)
        stages = self._stages(order, products, deductions.pools(target))
        made = {**stages, **self._updates(order, moves, gate_products)}
        tensor = self.merger.tensor
        steps = tuple(made[number] for number in range(len(made)))
        functors = tensor(self.merger.added[order.slots]), tensor(self._made_functor()[joined([[0], order.versions])])
        waves = Waves(
            steps, len(order.slots), deductions.beyond, rows, self.versions, tensor(moves.rows.head), *functors
        )
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
            moves.marked(),
            point,
            since,
            made_at,
            made_before,
            tensor(self._places(order)),
        )

    def _order(self, needed: np.ndarray, *pairs: Ints) -> _Order:
        """Return the order of the steps: each wave has one step per level of its slots, then one update."""
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
        """Return the embeddings of each deducing step, by the step's number."""
        version = self.slot_version[order.slots]
        has_cell = np.add.reduceat(joined([version, [0]]), order.slot_edge[:-1]) > 0
        split = self._split(order.version_row[version], order.slot_edge)
        cells = [one if some and len(one) else None for one, some in zip(split, has_cell.tolist(), strict=True)]
        return {
            number: DeductionStage(len(split[number]), cells[number], products[number], pools[number])
            for number in np.flatnonzero(~order.is_update).tolist()
        }

    def _updates(self, order: _Order, moves: WaveSteps, products: list[Products | None]) -> dict[int, CellUpdate]:
        """Return the new versions of each updating step, by the step's number."""
        before = self._split(order.version_row[self.version_before[order.versions]], order.version_edge - 1)
        version = self._split(moves.rows.head - order.version_edge[:-1][moves.step], moves.edge)
        rows = np.append(order.slot_row, 0)[
            self.version_slot[order.versions]
        ]  # versions that read no slot have an arbitrary row
        own, fed = self._split(rows, order.version_edge - 1), self.merger.layout.cells_take_deduced
        single, pools = moves.single(), moves.pools(None)
        made, proposed = np.diff(order.version_edge).tolist(), np.diff(moves.edge).tolist()
        return {
            number: CellUpdate(
                made[number],
                proposed[number],
                before[number],
                own[number] if fed else None,
                None if made[number] == proposed[number] else version[number],
                products[number],
                single[number],
                pools[number],
            )
            for number in np.flatnonzero(order.is_update).tolist()
        }

    def _points(self, order: _Order) -> tuple[Ints, Ints, Ints, Ints]:
        """Return four arrays of points: of the slots, of the versions that they read, of the new versions, of the versions before these."""
        point, read = self.merger.point[order.slots], self.slot_version[order.slots]
        own = joined([[0], order.versions])
        earlier, made = self.version_before[own], self.version_point[own]
        since = np.where(read > 0, self.version_point[read], point)
        return point, since, made, np.where(earlier > 0, self.version_point[earlier], made)

    def _made_functor(self) -> Ints:
        """Return the functor of each version's fact, as its place among the functors whose facts are added."""
        functor = self.merger.layout.added_numbers(self.merger.grounding)
        fact = self._of_versions([one.fact for one in self.own])
        return functor[self.parts[0].grounded.facts.functor[fact]]

    def _places(self, order: _Order) -> Ints:
        place = np.zeros((len(self.own), max(len(one) for one in self.own)), dtype=np.int64)
        for number, one in enumerate(self.own):
            first = self.first[number] + 1
            place[number, 1 : len(one)] = order.version_row[first : first + len(one) - 1]
        return place

    def _split(self, values: Ints, edge: Ints) -> tuple[Tensor, ...]:
        return self.merger.tensor(values).split(np.diff(edge).tolist())

    # Slots and versions, independent of order

    def _proposals(self) -> tuple[WaveRows, WaveConditions]:
        """Return the proposals with the versions that they make, and the slots that they read. Events that were no facts have no slot."""
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
        features = {name: number for number, name in enumerate(merger.layout.program.features)}
        rules = np.unique(merger.rule[instance])
        of_rule = np.full(int(rules.max(initial=-1)) + 1, -1, dtype=np.int64)
        for rule in rules.tolist() if features else ():
            event = merger.layout.event_with_features(rule)
            of_rule[rule] = -1 if event is None else features[event]
        rows = replace(self._rows(made, instance), event=of_rule[merger.rule[instance]])
        return rows, WaveConditions(row, condition, slot).where(slot >= 0)

    def _proofs(self) -> tuple[WaveRows, WaveConditions]:
        proofs = self.merger.proofs()
        row, condition = np.nonzero(proofs.body >= 0)
        rows = self._rows(proofs.head, self.merger.proof_instance)
        return rows, WaveConditions(row, condition, proofs.body[row, condition])

    def _rows(self, head: Ints, instance: Ints) -> WaveRows:
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
        some = tuple(one for _, one in kinds.values())
        return WaveRows(head, some, kind, name, beta, np.ones(len(head), bool), group, np.full(len(head), -1))

    # Order of computation

    def _needed(self, looked: Ints, head: Ints, body: Ints) -> np.ndarray:
        """Return bool [S]: whether a slot is read by an addition, directly or through proofs."""
        needed = np.zeros(len(self.merger.level), dtype=bool)
        needed[looked] = True
        order = np.argsort(-self.merger.level[head], kind="stable")
        for low, high in runs(self.merger.level[head][order]):
            rows = order[low:high]
            needed[body[rows[needed[head[rows]]]]] = True
        return needed

    def _waves(self, needed: np.ndarray, head: Ints, body: Ints, made: Ints, looked: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the wave of every slot, its level within the wave, and the wave of every version."""
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
