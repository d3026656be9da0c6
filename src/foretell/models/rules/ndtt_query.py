"""The embeddings of an NDTT at times after the last event of some walks, or on windows of time: `tanh(deduced + cell)`, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from torch import Tensor

from foretell.models.rules.bounded_deduction import Level, height, levels_of, packed, unpacked, whole_numbers
from foretell.models.rules.ndtt_cells import Cells, Parameters, Table, joined
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, decay, tanh
from foretell.sampling.rules.local_plan import LocalPlan


@dataclass(frozen=True, eq=False)
class Deduced:
    levels: tuple[Level, ...]
    slots: int


@dataclass(frozen=True, eq=False)
class Prepared:
    """Some walks side by side."""

    deduced: Deduced
    slot: Tensor  # int64 [C]: of each cell, in the order of slots
    walk: Tensor  # int64 [C]
    table: Table  # [C]
    by_level: tuple[slice, ...]  # cells of the slots of each level


class Query:
    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.device, self.dim = parameters.device, parameters.dim

    # Once for each event

    def deduced(self, sketch: LocalPlan) -> Deduced:
        return Deduced(levels_of(sketch, self.parameters), len(sketch.fact))

    def prepared(
        self, deduced: Deduced, facts: Sequence[np.ndarray], rows: Sequence[np.ndarray], pasts: Sequence[Cells]
    ) -> Prepared:
        """Sampler with these facts, whose slots are these `rows`."""
        slot: list[int] = []
        walk: list[int] = []
        place: list[int] = []
        first = 0
        for number, (own, where, past) in enumerate(zip(facts, rows, pasts, strict=True)):
            for fact, row in zip(own.tolist(), where.tolist(), strict=True):
                found = past.place.get(fact)
                if found is not None:
                    slot.append(row)
                    walk.append(number)
                    place.append(first + found)
            first += len(past.table)
        of_slot = np.asarray(slot, dtype=np.int64)
        order = np.argsort(of_slot, kind="stable")
        of_slot = of_slot[order]
        numbers = (of_slot, *(np.asarray(one, dtype=np.int64)[order] for one in (walk, place)))
        of_slot_there, of_walk, of_place = (whole_numbers(one, self.device) for one in numbers)
        edges = np.searchsorted(of_slot, [one.start for one in deduced.levels] + [deduced.slots]).tolist()
        by_level = tuple(slice(low, high) for low, high in pairwise(edges))
        return Prepared(deduced, of_slot_there, of_walk, joined(one.table for one in pasts).rows(of_place), by_level)

    def size(self, prepared: Prepared) -> int:
        """Numbers that are worked on for each piece of time."""
        return prepared.deduced.slots * self.dim

    # At times

    def embeddings(self, prepared: Prepared, middle: Tensor, half: Tensor, degree: int) -> list[Tensor]:
        """Of all slots on windows [walks, P]: one table, since there are no layers, with a row of zeros behind."""
        deduced = prepared.deduced
        done = middle.new_zeros(deduced.slots + 1, height(degree), middle.shape[1], self.dim)
        cells = packed(self._cells(prepared, middle, half, degree))
        for level, some in zip(deduced.levels, prepared.by_level, strict=True):
            inside = level.inside(done, degree)
            if some.stop > some.start:
                inside = inside.index_add(0, prepared.slot[some] - level.start, cells[some])
            done[level.start : level.stop] = packed(tanh(unpacked(inside, degree)))
        return [done]

    def _cells(self, prepared: Prepared, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """`c̄ + (c − c̄)·exp(−δ(t−s))`: [C, P, D]."""
        table, walk = prepared.table, prepared.walk
        c, target, rate = (one.unsqueeze(1) for one in (table.c, table.target, table.rate))
        fallen = decay(middle[walk], half[walk], table.since.unsqueeze(1), rate, degree)
        return fallen.times(c - target).plus(target)
