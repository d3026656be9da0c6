"""Slots of sequences → one plan: index tensors by dimension and level, which a model applies. A plan does not contain times.

Embeddings of one dimension are rows of one table, sorted by level. A level is a slice, computed from earlier slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from foretell.ground.database import FactKey
from foretell.ground.timeline import Grounding
from foretell.nn.range_attention import RangeTiles, range_tiles
from foretell.nn.sparse_sum import sparse_sum
from foretell.plan.deduction import DeductionPlan, Proofs, TableRows, classes_of, deduce, pack, rows_by_level
from foretell.plan.int_arrays import distinct, joined, offsets, runs
from foretell.plan.local_rows import LocalNumbering
from foretell.plan.parameters import DimensionLayout, ParameterBook, ParameterFamily, events_of
from foretell.plan.slots import SequenceSlots

Ints = np.ndarray


@dataclass(frozen=True)
class Keys:
    """A part of the key table: additions to heads of one dimension, with matrices of one shape. Each tile has one set of matrices."""

    stack: str
    matrix: Tensor  # int64 [T]: rows of the stack
    point: Tensor  # int64 [T·height]: the point of each addition
    body: tuple[TableRows, ...]  # [T·height] each; events that were no facts read the row of zeros behind the table
    event: str | None  # the functor of the events if they have features; then their embeddings come first in `body`


@dataclass(frozen=True)
class AttentionRanges:
    """For each query to attention: a slot, and the range `[low, high)` of rows of the key table for one `r`. Kept on the host."""

    slot: Ints  # [X]: rows of the table
    low: Ints  # [X]
    high: Ints  # [X]
    addition: Ints  # [keys]: the addition of each row of the key table, numbered through all sequences; -1: none


NOTHING_ASKED = AttentionRanges(*(np.zeros(0, dtype=np.int64) for _ in range(4)))


@dataclass(frozen=True)
class SlotTable:
    """All slots of one dimension. The first layer is computed once per class of equal slots, then copied to all slots of the class."""

    dim: int
    point: Tensor  # int64 [S]: the point of each slot
    deduced: DeductionPlan
    first: DeductionPlan
    of_class: Tensor  # int64 [S]: the slot's row in the table of the first layer
    keys: tuple[Keys, ...]
    asked: AttentionRanges
    tiles: RangeTiles  # its queries are the slots


@dataclass(frozen=True)
class Intensities:
    """Slots of events of one dimension: first the possible events at queries, then the events that happened."""

    rows: TableRows
    column: Tensor  # int64: the functor's place among the event functors of this dimension
    functor: Tensor  # int64: the functor's place among all event functors of the program
    place: Tensor  # int64: the position of the result
    order: Tensor  # int64: the permutation that sorts by `column`
    counts: tuple[int, ...]  # the number of rows of each functor


@dataclass(frozen=True)
class Frame:
    """The common part of all plans: points of time, and the slots of events."""

    points: int
    event_point: Tensor  # int64: the points of `bos` and the events, sequence after sequence
    query_point: Tensor  # int64: the points of the queries, sequence after sequence
    intensities: tuple[Intensities, ...]  # `place` counts all possible events first, then all events that happened
    possible_query: Tensor  # int64 [E]: the query of each possible event
    possible_weight: Tensor | None  # float64 [E]: the weights of drawn events; None: all are 1
    possible_fact: Ints  # [E]: the fact of each possible event
    events: int
    levels: int
    grounding: Grounding
    slots: int
    own: LocalNumbering

    def parts(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(Frame)}

    def text(self, fact: int) -> str:
        """Return the name of a possible event."""
        return self.grounding.text_of(self._own_keys.get(fact) or self.grounding.keys[fact])

    @cached_property
    def _own_keys(self) -> dict[int, FactKey]:
        return self.own.keys()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self  # immutable, so a copy can share it


@dataclass(frozen=True)
class Plan(Frame):
    tables: dict[int, SlotTable]
    additions: tuple[tuple[int, int], ...]  # (rule, number of its additions)
    outside: bool  # whether some additions are by events that were no facts

    def sizes(self) -> dict[str, int]:
        return {
            "points": self.points,
            "slots": self.slots,
            "levels": self.levels,
            "proofs": sum(count for table in self.tables.values() for _, count in table.deduced.rules),
            "additions": sum(count for _, count in self.additions),
            "ranges attended to": sum(len(table.asked.slot) for table in self.tables.values()),
            "possible events": len(self.possible_query),
        }


def make_plan(
    parts: Sequence[SequenceSlots], layout: DimensionLayout, book: ParameterBook, device: torch.device
) -> Plan:
    return Merger(parts, layout, book, device).merge()


class Merger:
    def __init__(
        self, parts: Sequence[SequenceSlots], layout: DimensionLayout, book: ParameterBook, device: torch.device
    ) -> None:
        self.parts, self.layout, self.book, self.device = parts, layout, book, device
        self.grounding = parts[0].grounding
        assert all(part.grounding is self.grounding for part in parts), "sequences of one plan share a numbering"
        self.point_offset = offsets([len(part.point_state) for part in parts])
        self.slot_offset = offsets([len(part.slot_fact) for part in parts])
        grounded = parts[0].grounded
        grounded.refresh()
        self.own = LocalNumbering(grounded, [part.local for part in parts])
        self.fact = joined([self.own.facts(place, part.slot_fact) for place, part in enumerate(parts)])
        self.dim = joined([part.slot_dim for part in parts])
        self.level = joined([part.slot_level for part in parts])
        self.point = self.shifted([part.slot_point for part in parts], self.point_offset)
        self.row = rows_by_level(self.dim, self.level)
        self.instances = grounded.instances
        self.rule, self.group, self._functor = self.own.rule, self.own.group, self.own.functor
        self.sizes = dict(zip(*(one.tolist() for one in np.unique(self.dim, return_counts=True)), strict=True))
        self._known: dict[int, tuple[ParameterFamily, int, ParameterFamily | None, int]] = {}

    def merge(self) -> Plan:
        parts = self.parts
        proofs = self.proofs()
        number, representative = classes_of(self.fact, self.level, self.proof_instance, proofs.head, proofs.body)
        alike = proofs.of_classes(number, representative)
        deduced, first = (deduce(one, self.layout, self.numbers, self.vectors, self.device) for one in (proofs, alike))
        keys, asked, counts = self._additions()
        tables = {}
        # A dimension may have no slots: its only facts may be exogenous events that are never true. They read zeros.
        looked_at = [part.dim for found in keys.values() for one in found for part in one.body]
        for dim in distinct(joined([self.dim, np.asarray(looked_at, dtype=np.int64)])):
            mine = np.flatnonzero(self.dim == dim)
            mine = mine[np.argsort(self.row[mine], kind="stable")]
            ranges, tiles = asked.get(dim, (NOTHING_ASKED, range_tiles(mine[:0], mine[:0], 0, queries=len(mine))))
            tables[dim] = SlotTable(
                dim,
                self.tensor(self.point[mine]),
                deduced.get(dim, self.nothing(len(mine))),
                first.get(dim, self.nothing(len(mine))),
                self.tensor(alike.row[number[mine]]),
                tuple(keys.get(dim, ())),
                ranges,
                tiles,
            )
        outside = any(bool((part.addition_body < 0).any()) for part in parts)
        return Plan(**self.frame().parts(), tables=tables, additions=counts, outside=outside)

    def frame(self) -> Frame:
        parts = self.parts
        queries = offsets([len(part.query_point) for part in parts])
        possible = self.shifted([part.possible_slot for part in parts], self.slot_offset)
        happened = self.shifted([part.happened_slot for part in parts], self.slot_offset)
        return Frame(
            int(self.point_offset[-1]),
            self.tensor(self.shifted([part.event_point for part in parts], self.point_offset)),
            self.tensor(self.shifted([part.query_point for part in parts], self.point_offset)),
            self._intensities(possible, happened),
            self.tensor(self.shifted([part.possible_query for part in parts], queries)),
            self._weights(),
            self.fact[possible],
            len(happened),
            int(self.level.max(initial=0)) + 1,
            self.grounding,
            len(self.fact),
            self.own,
        )

    def _weights(self) -> Tensor | None:
        whole = np.concatenate([part.possible_weight for part in self.parts])
        return None if (whole == 1.0).all() else torch.from_numpy(whole).to(self.device)

    def nothing(self, slots: int) -> DeductionPlan:
        """Return an empty deduction plan, for slots without components or for no slots."""
        empty = np.zeros(0, dtype=np.int64)
        return DeductionPlan(slots, sparse_sum(empty, empty, 0, 0, self.device), (), ())

    def shifted(self, parts: Sequence[Ints], shifts: Ints) -> Ints:
        """Add each part's shift to its numbers and join the parts; -1 stays -1."""
        return joined([np.where(part >= 0, part + shift, -1) for part, shift in zip(parts, shifts[:-1], strict=True)])

    def tensor(self, values: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self.device)

    def _gathered(self, dim: int, slots: Ints) -> TableRows:
        """Return the table rows of slots. Slot -1 is the row of zeros behind the table."""
        zero = self.sizes.get(dim, 0)
        rows = (
            np.where(slots >= 0, self.row[np.maximum(slots, 0)], zero) if len(self.row) else np.full(len(slots), zero)
        )
        return TableRows(dim, (0, dim), self.tensor(rows))

    def vectors(self, dim: int) -> int:
        stack = self.book.stacks.get(f"vectors_{dim}")
        return 0 if stack is None else stack.count  # facts that are only added have no vectors

    def numbers(self, groups: Ints) -> tuple[ParameterFamily, Ints, Ints]:
        """Return the family of some groups of one rule, the place of each group's name in it, and the row of each group's exponent."""
        some, inverse = np.unique(groups, return_inverse=True)
        found = []
        for group in some.tolist():
            known = self._known.get(group)
            if known is None:
                known = self._known[group] = self.book.of_group(self.grounding, group)
            found.append(known)
        family = found[0][0]
        assert all(one[0] is family for one in found)
        beta = [0 if one[2] is None else one[2].rows[one[3]][0] for one in found]
        return family, np.asarray([one[1] for one in found])[inverse], np.asarray(beta)[inverse]

    def _intensities(self, possible: Ints, happened: Ints) -> tuple[Intensities, ...]:
        scored = np.flatnonzero(happened >= 0)
        slots = joined([possible, happened[scored]])
        place = joined([np.arange(len(possible)), len(possible) + scored])
        functor = self._functor[self.fact[slots]]
        by_name = {name: number for number, name in enumerate(self.grounding.functors)}
        found = []
        for dim, numbers in events_by_dim(self.layout).items():
            column, number = np.full((2, len(self.grounding.functors)), -1, dtype=np.int64)
            for place_of, (one, name) in enumerate(numbers.items()):
                if name in by_name:
                    column[by_name[name]], number[by_name[name]] = place_of, one
            mine = np.flatnonzero(column[functor] >= 0)
            if len(mine):
                own = functor[mine]
                order = np.argsort(column[own], kind="stable")
                counts = np.bincount(column[own], minlength=len(numbers))
                parts = [self.tensor(values) for values in (column[own], number[own], place[mine], order)]
                found.append(Intensities(self._gathered(dim, slots[mine]), *parts, counts=tuple(counts.tolist())))
        return tuple(found)

    @cached_property
    def added(self) -> Ints:
        """For every slot, the place of its functor among the functors whose facts are added; 0 for other functors."""
        return self.layout.added_numbers(self.grounding)[self._functor[self.fact]]

    @cached_property
    def proof_instance(self) -> Ints:
        return joined([self.own.instances(place, part.proof_instance) for place, part in enumerate(self.parts)])

    def proofs(self) -> Proofs:
        parts = self.parts
        instance = self.proof_instance
        before = offsets([len(part.proof_instance) for part in parts])
        head = self.shifted([part.proof_slot for part in parts], self.slot_offset)
        body_row = self.shifted([part.proof_body[0] for part in parts], before)
        body_place = joined([part.proof_body[1] for part in parts])
        body_slot = self.shifted([part.proof_body[2] for part in parts], self.slot_offset)
        body = np.full((len(instance), int(body_place.max(initial=-1)) + 1), -1, dtype=np.int64)
        body[body_row, body_place] = body_slot
        return Proofs(self.dim, self.level, self.row, self.rule[instance], self.group[instance], head, body)

    def _additions(
        self,
    ) -> tuple[dict[int, list[Keys]], dict[int, tuple[AttentionRanges, RangeTiles]], tuple[tuple[int, int], ...]]:
        parts = self.parts
        instance = joined([part.addition_instance for part in parts])
        before = offsets([len(part.addition_instance) for part in parts])
        point = self.shifted([part.event_point[part.addition_event] for part in parts], self.point_offset)
        rule, group = self.rule[instance], self.group[instance]
        body = self.shifted([part.addition_body for part in parts], self.slot_offset)
        start = self.shifted(
            [part.addition_start[:-1] for part in parts], offsets([len(p.addition_body) for p in parts])
        )
        r = joined([part.addition_r for part in parts])
        keys: dict[int, list[Keys]] = {}
        members: dict[tuple[int, str, tuple[int, ...], str | None], list[tuple[Ints, Ints]]] = {}
        order = np.lexsort((np.arange(len(rule)), r, rule))  # rows with the same matrices become neighbours
        counts = []
        for low, high in runs(rule[order]):
            rows = order[low:high]
            written = self.layout.rules[int(rule[rows[0]])]
            assert written is not None
            counts.append((written.index, len(rows)))
            dim = self.layout.dimension(written.head)
            if dim == 0:
                continue
            family, number, _ = self.numbers(group[rows])
            matrix = np.asarray(family.rows, dtype=np.int64)[number, 0]
            key_of = dim, family.stacks[0].key, written.dims, self.layout.event_with_features(written.index)
            members.setdefault(key_of, []).append((rows, matrix))
        key = np.full(len(rule), -1, dtype=np.int64)
        addition: dict[int, list[Ints]] = {}
        for (dim, stack, dims, event), found in members.items():
            rows, matrix = (joined([one[k] for one in found]) for k in range(2))
            packed = pack(matrix, self.device.type)
            key[rows] = sum(len(one) for one in addition.get(dim, ())) + packed.place
            there = np.full(packed.size, -1, dtype=np.int64)
            there[packed.place] = rows
            addition.setdefault(dim, []).append(there)
            for tiling in packed.tilings:
                own = rows[tiling.row]
                conditions = tuple(self._gathered(size, body[start[own] + j]) for j, size in enumerate(dims))
                made = Keys(stack, self.tensor(tiling.matrix), self.tensor(point[own]), conditions, event)
                keys.setdefault(dim, []).append(made)
        return keys, self._asked(key, before, {dim: joined(one) for dim, one in addition.items()}), tuple(counts)

    def _asked(
        self, key: Ints, before: Ints, addition: dict[int, Ints]
    ) -> dict[int, tuple[AttentionRanges, RangeTiles]]:
        parts = self.parts
        slot = self.shifted([part.ask_slot for part in parts], self.slot_offset)
        low = self.shifted([part.ask_low for part in parts], before)
        high = self.shifted([part.ask_high for part in parts], before)
        segment = self.shifted([part.ask_segment for part in parts], before)  # at most one range per addition
        found = {}
        for dim in distinct(self.dim[slot]):
            mine = np.flatnonzero(self.dim[slot] == dim)
            rows, first, last = self.row[slot[mine]], key[low[mine]], key[high[mine] - 1] + 1
            made = range_tiles(
                first,
                last,
                len(addition[dim]),
                device=self.device,
                segment=segment[mine],
                rows=rows,
                queries=self.sizes[dim],
            )
            found[dim] = AttentionRanges(rows, first, last, addition[dim]), made
        return found


def events_by_dim(layout: DimensionLayout) -> dict[int, dict[int, str]]:
    """Return the event functors of each dimension, as {place among all event functors: name}."""
    found: dict[int, dict[int, str]] = {}
    for number, name in enumerate(events_of(layout.program)):
        found.setdefault(layout.dimension(name), {})[number] = name
    return found
