"""Slots of some sequences → one plan: index tensors by dimension, level and rule, ready to be applied. Times are not in it.

Embeddings of one dimension are rows of one table, in the order of their levels: a level is a slice, computed from the slices before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.ground.timeline import Grounding
from foretell.nn.range_attention import RangeTiles, range_tiles
from foretell.plan.book import Family, ParameterBook
from foretell.plan.layout import Layout
from foretell.plan.slots import SequenceSlots

Ints = np.ndarray


@dataclass(frozen=True)
class Gathered:
    """Rows of the table of one dimension."""

    dim: int
    rows: Tensor  # int64


@dataclass(frozen=True)
class Own:
    """Facts' own vectors, added to the slots of a level."""

    head: Tensor  # int64: places in the level
    index: Tensor  # int64: rows of the table of own vectors


@dataclass(frozen=True)
class Slices:
    """Which slice of a family's stack each row uses: runs of rows that use one."""

    index: Tensor | None  # int64 [rows]; None where there is one run
    place: tuple[int, ...]  # of each run
    count: tuple[int, ...]


@dataclass(frozen=True)
class Deduce:
    """Proofs by one rule in one level, sorted by pool."""

    rule: int
    family: Family
    body: tuple[Gathered, ...]
    slices: Slices
    segment: Tensor | None  # int64 [proofs]: the pool of each; None where each proof has its own
    pools: int
    beta: Tensor  # int64 [pools]
    head: Tensor  # int64 [pools]: places in the level


@dataclass(frozen=True)
class Add:
    """Additions by one rule: rows of the key table of its head's dimension."""

    rule: int
    family: Family
    point: Tensor  # int64
    body: tuple[Gathered, ...]
    slices: Slices
    count: int


@dataclass(frozen=True)
class Level:
    """Slots `[start, stop)` of a table. All that its rules look at is gathered at once, by dimension, and shared out."""

    start: int
    stop: int
    own: Own | None
    deduce: tuple[Deduce, ...]
    gathered: tuple[Gathered, ...]  # of each dimension, the bodies of all rules one after the other


def together(parts: Sequence[Gathered]) -> tuple[Gathered, ...]:
    """One for each dimension, in the order of the parts."""
    dims = dict.fromkeys(part.dim for part in parts)
    return tuple(Gathered(dim, torch.cat([part.rows for part in parts if part.dim == dim])) for dim in dims)


@dataclass(frozen=True)
class Asked:
    """Which slots of a table attend to which rows of its key table, one range of one `r` in each row; on the host."""

    slot: Ints  # [X]: rows of the table
    low: Ints  # [X]
    high: Ints  # [X]
    addition: Ints  # [keys]: which addition each row of the key table is, counted through all sequences


NOTHING_ASKED = Asked(*(np.zeros(0, dtype=np.int64) for _ in range(4)))


@dataclass(frozen=True)
class Table:
    """All slots of one dimension."""

    dim: int
    point: Tensor  # int64 [S]
    levels: tuple[Level, ...]
    adds: tuple[Add, ...]
    gathered: tuple[Gathered, ...]  # the bodies of all additions
    asked: Asked
    tiles: RangeTiles  # their queries are the slots


@dataclass(frozen=True)
class Intensities:
    """Slots of one event functor."""

    functor: str
    rows: Gathered
    place: Tensor  # int64: where the result goes


@dataclass(frozen=True)
class Plan:
    points: int
    event_point: Tensor  # int64: `bos` and events of every sequence, one after the other
    query_point: Tensor  # int64: queries of every sequence, one after the other
    tables: dict[int, Table]
    possible: tuple[Intensities, ...]  # `place`: row of `possible_query`
    possible_query: Tensor  # int64 [E]
    possible_fact: Ints  # [E]
    happened: tuple[Intensities, ...]  # `place`: event, counted through all sequences
    levels: int
    grounding: Grounding

    def sizes(self) -> dict[str, int]:
        return {
            "points": self.points,
            "slots": sum(len(table.point) for table in self.tables.values()),
            "levels": self.levels,
            "proofs": sum(
                d.pools if d.segment is None else len(d.segment)
                for t in self.tables.values()
                for v in t.levels
                for d in v.deduce
            ),
            "additions": sum(add.count for table in self.tables.values() for add in table.adds),
            "ranges attended to": sum(len(table.asked.slot) for table in self.tables.values()),
            "possible events": len(self.possible_query),
        }


def make_plan(parts: Sequence[SequenceSlots], layout: Layout, book: ParameterBook, device: torch.device) -> Plan:
    return _Merger(parts, layout, book, device).merge()


class _Merger:
    def __init__(
        self, parts: Sequence[SequenceSlots], layout: Layout, book: ParameterBook, device: torch.device
    ) -> None:
        self.parts, self.layout, self.book, self.device = parts, layout, book, device
        self.grounding = parts[0].grounding
        assert all(part.grounding is self.grounding for part in parts), "sequences of one plan share a numbering"
        self.point_offset = _offsets([len(part.point_state) for part in parts])
        self.slot_offset = _offsets([len(part.slot_fact) for part in parts])
        self.fact = _joined([part.slot_fact for part in parts])
        self.dim = _joined([part.slot_dim for part in parts])
        self.level = _joined([part.slot_level for part in parts])
        self.point = _joined([part.slot_point + self.point_offset[i] for i, part in enumerate(parts)])
        order = np.lexsort((self.level, self.dim))
        self.row = np.empty_like(order)  # of each slot in the table of its dimension
        first = np.searchsorted(self.dim[order], self.dim[order])
        self.row[order] = np.arange(len(order)) - first
        self.order = order
        self.rule = np.asarray(self.grounding.rule, dtype=np.int64)
        self.group = np.asarray(self.grounding.group, dtype=np.int64)
        self._known: dict[int, tuple[Family, int, Family | None, int]] = {}

    def merge(self) -> Plan:
        parts = self.parts
        event_point = _joined([part.event_point + self.point_offset[i] for i, part in enumerate(parts)])
        query_point = _joined([part.query_point + self.point_offset[i] for i, part in enumerate(parts)])
        queries = _offsets([len(part.query_point) for part in parts])
        possible = _joined([part.possible_slot + self.slot_offset[i] for i, part in enumerate(parts)])
        query = _joined([part.possible_query + queries[i] for i, part in enumerate(parts)])
        happened = _joined(
            [
                np.where(part.happened_slot >= 0, part.happened_slot + self.slot_offset[i], -1)
                for i, part in enumerate(parts)
            ]
        )
        scored = np.flatnonzero(happened >= 0)
        deductions, owns = self._proofs()
        adds, tiles = self._additions()
        tables = {}
        # A dimension may have no slots: that of an exogenous event that is never a fact, and so never more than zeros.
        looked_at = [part.dim for found in adds.values() for one in found for part in one.body]
        for dim in _distinct(_joined([self.dim, np.asarray(looked_at, dtype=np.int64)])):
            mine = self.order[self.dim[self.order] == dim]
            levels = []
            for level in range(int(self.level[mine].max()) + 1 if len(mine) else 0):
                start, stop = np.searchsorted(self.level[mine], [level, level + 1]).tolist()
                found = tuple(deductions.get((dim, level), ()))
                parts = [part for one in found for part in one.body]
                levels.append(Level(start, stop, owns.get((dim, level)), found, together(parts)))
            asked, tile = tiles.get(dim, (NOTHING_ASKED, RangeTiles((), len(mine))))
            tables[dim] = Table(
                dim,
                self._tensor(self.point[mine]),
                tuple(levels),
                tuple(adds.get(dim, ())),
                together([part for one in adds.get(dim, ()) for part in one.body]),
                asked,
                tile.to(self.device),
            )
        return Plan(
            int(self.point_offset[-1]),
            self._tensor(event_point),
            self._tensor(query_point),
            tables,
            self._by_functor(possible, np.arange(len(possible))),
            self._tensor(query),
            self.fact[possible],
            self._by_functor(happened[scored], scored),
            int(self.level.max(initial=0)) + 1,
            self.grounding,
        )

    def _tensor(self, values: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self.device)

    def _gathered(self, dim: int, slots: Ints) -> Gathered:
        """Slot -1 is the row of zeros behind the table."""
        zero = int((self.dim == dim).sum())
        rows = (
            np.where(slots >= 0, self.row[np.maximum(slots, 0)], zero) if len(self.row) else np.full(len(slots), zero)
        )
        return Gathered(dim, self._tensor(rows))

    def _numbers(self, groups: Ints) -> tuple[Family, Ints, Ints]:
        """Family of some groups of one rule, and the places of their matrices and exponents."""
        distinct, inverse = np.unique(groups, return_inverse=True)
        found = []
        for group in distinct.tolist():
            known = self._known.get(group)
            if known is None:
                known = self._known[group] = self.book.of_group(self.grounding, group)
            found.append(known)
        family = found[0][0]
        assert all(one[0] is family for one in found)
        return family, np.asarray([one[1] for one in found])[inverse], np.asarray([one[3] for one in found])[inverse]

    def _slices(self, index: Ints) -> Slices:
        runs = _runs(index)
        return Slices(
            self._tensor(index) if len(runs) > 1 else None,
            tuple(int(index[start]) for start, _ in runs),
            tuple(stop - start for start, stop in runs),
        )

    def _by_functor(self, slots: Ints, place: Ints) -> tuple[Intensities, ...]:
        functor = np.asarray([key[0] for key in self.grounding.keys], dtype=np.int64)[self.fact[slots]]
        found = []
        for number in _distinct(functor):
            mine = np.flatnonzero(functor == number)
            name = self.grounding.functors[number]
            rows = self._gathered(self.layout.dimension(name), slots[mine])
            found.append(Intensities(name, rows, self._tensor(place[mine])))
        return tuple(found)

    def _proofs(self) -> tuple[dict[tuple[int, int], list[Deduce]], dict[tuple[int, int], Own]]:
        parts = self.parts
        offsets = _offsets([len(part.proof_instance) for part in parts])
        instance = _joined([part.proof_instance for part in parts])
        slot = _joined([part.proof_slot + self.slot_offset[i] for i, part in enumerate(parts)])
        body_row = _joined([part.proof_body[0] + offsets[i] for i, part in enumerate(parts)])
        body_place = _joined([part.proof_body[1] for part in parts])
        body_slot = _joined([part.proof_body[2] + self.slot_offset[i] for i, part in enumerate(parts)])
        widest = int(body_place.max(initial=-1)) + 1
        body = np.full((len(instance), widest), -1, dtype=np.int64)
        body[body_row, body_place] = body_slot
        rule, group = self.rule[instance], self.group[instance]
        level, dim = self.level[slot], self.dim[slot]
        order = np.lexsort((slot, group, rule, level, dim))
        deductions: dict[tuple[int, int], list[Deduce]] = {}
        owns: dict[tuple[int, int], list[tuple[Ints, Ints]]] = {}
        changes = _runs(dim[order], level[order], rule[order])
        for start, stop in changes:
            rows = order[start:stop]
            place = int(rule[rows[0]])
            key = int(dim[rows[0]]), int(level[rows[0]])
            if key[0] == 0:
                continue
            written = self.layout.rules[place]
            assert written is not None
            family, index, beta = self._numbers(group[rows])
            head = self.row[slot[rows]] - self._level_start(*key)
            if written.kind == "own":
                owns.setdefault(key, []).append((head, index))
                continue
            new = np.ones(len(rows), dtype=bool)
            new[1:] = (group[rows][1:] != group[rows][:-1]) | (slot[rows][1:] != slot[rows][:-1])
            single = bool(new.all())
            deductions.setdefault(key, []).append(
                Deduce(
                    place,
                    family,
                    tuple(self._gathered(size, body[rows, j]) for j, size in enumerate(written.dims)),
                    self._slices(index),
                    None if single else self._tensor(np.cumsum(new) - 1),
                    int(new.sum()),
                    self._tensor(beta[new]),
                    self._tensor(head[new]),
                )
            )
        joined = {
            key: Own(self._tensor(_joined([h for h, _ in found])), self._tensor(_joined([i for _, i in found])))
            for key, found in owns.items()
        }
        return deductions, joined

    def _level_start(self, dim: int, level: int) -> int:
        return int(((self.dim == dim) & (self.level < level)).sum())

    def _additions(self) -> tuple[dict[int, list[Add]], dict[int, tuple[Asked, RangeTiles]]]:
        parts = self.parts
        instance = _joined([part.addition_instance for part in parts])
        offsets = _offsets([len(part.addition_instance) for part in parts])
        point = _joined([part.event_point[part.addition_event] + self.point_offset[i] for i, part in enumerate(parts)])
        rule, group = self.rule[instance], self.group[instance]
        body = [
            np.where(part.addition_body >= 0, part.addition_body + self.slot_offset[i], -1)
            for i, part in enumerate(parts)
        ]
        flat = _joined(body)
        starts = _joined([part.addition_start[:-1] + sum(len(one) for one in body[:i]) for i, part in enumerate(parts)])
        head_dim = np.asarray(
            [self.layout.dimension(one.head) if one is not None else 0 for one in self.layout.rules], dtype=np.int64
        )[rule]
        r = _joined([part.addition_r for part in parts])
        order = np.lexsort((np.arange(len(rule)), r, rule, head_dim))  # rows with one matrix stand together
        key = np.empty_like(order)
        key[order] = np.arange(len(order)) - np.searchsorted(head_dim[order], head_dim[order])
        adds: dict[int, list[Add]] = {}
        for start, stop in _runs(head_dim[order], rule[order]):
            rows = order[start:stop]
            place, dim = int(rule[rows[0]]), int(head_dim[rows[0]])
            if dim == 0:
                continue
            written = self.layout.rules[place]
            assert written is not None
            family, index, _ = self._numbers(group[rows])
            adds.setdefault(dim, []).append(
                Add(
                    place,
                    family,
                    self._tensor(point[rows]),
                    tuple(self._gathered(size, flat[starts[rows] + j]) for j, size in enumerate(written.dims)),
                    self._slices(index),
                    len(rows),
                )
            )
        slot = _joined([part.ask_slot + self.slot_offset[i] for i, part in enumerate(parts)])
        low = _joined([part.ask_low + offsets[i] for i, part in enumerate(parts)])
        high = _joined([part.ask_high + offsets[i] for i, part in enumerate(parts)])
        own = _joined([part.ask_segment + offsets[i] for i, part in enumerate(parts)])  # at most as many as additions
        tiles = {}
        for dim in _distinct(self.dim[slot]):
            mine = np.flatnonzero(self.dim[slot] == dim)
            first, last = key[low[mine]], key[high[mine] - 1] + 1
            total = int((head_dim == dim).sum())
            made = range_tiles(first, last, total, device=self.device.type, segment=own[mine])
            rows = self.row[slot[mine]]
            asked = Asked(rows, first, last, order[head_dim[order] == dim])
            tiles[dim] = asked, made.asked_by(rows, int((self.dim == dim).sum()))
        return adds, tiles


def _offsets(sizes: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _runs(*columns: Ints) -> list[tuple[int, int]]:
    """Where rows that are equal in all columns start and stop."""
    count = len(columns[0])
    if not count:
        return []
    new = np.zeros(count, dtype=bool)
    new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(new)
    return list(zip(starts.tolist(), [*starts[1:].tolist(), count], strict=True))


def _distinct(values: Ints) -> list[int]:
    return [int(value) for value in np.unique(values)]
