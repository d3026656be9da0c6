"""Slots of sequences → one plan for facts with cells: the deductions, and the version of a cell that each slot reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.plan.deduction import DeductionPlan, deduce
from foretell.plan.history import SlotHistory
from foretell.plan.int_arrays import changes, distinct, joined
from foretell.plan.parameters import DimensionLayout, ParameterBook
from foretell.plan.plan import Frame, Merger
from foretell.plan.slots import SequenceSlots


@dataclass(frozen=True)
class CellReads:
    """The slots of one dimension that read a cell: R rows, sorted by `groups`."""

    target: Tensor  # int64 [R]: rows of the sum of vectors
    sequence: Tensor  # int64 [R]
    version: Tensor  # int64 [R]: the version's number within its sequence
    point: Tensor  # int64 [R]
    since: Tensor  # int64 [R]: the point of the event that made the version
    row: Tensor  # int64 [R]: the row among the slots of its level
    groups: tuple[CellGroup, ...]  # one group after the other, in the order of the rows

    def versions(self, cells: Tensor) -> Tensor:
        """Select the versions that are read, [R, parts, size], from cells [sequences, most, parts, size]."""
        return cells.flatten(0, 1).index_select(0, self.sequence * cells.shape[1] + self.version)

    def elapsed(self, times: Tensor, scale: float) -> Tensor:
        """Return the time since each version was made in units of `scale`, float64 [R], from the times of points."""
        return (times.index_select(0, self.point) - times.index_select(0, self.since)) / scale


@dataclass(frozen=True)
class CellGroup:
    """The slots of one level whose facts have one functor."""

    level: int
    functor: int  # its number among the functors whose facts are added
    count: int


@dataclass(frozen=True)
class CellPlan(Frame):
    deduced: dict[int, DeductionPlan]
    read: dict[int, CellReads]


def make_cell_plan(
    parts: Sequence[SequenceSlots],
    histories: Sequence[SlotHistory],
    layout: DimensionLayout,
    book: ParameterBook,
    device: torch.device,
) -> CellPlan:
    merger = Merger(parts, layout, book, device)
    deduced = deduce(merger.proofs(), layout, merger.numbers, merger.vectors, device)
    for dim, count in merger.sizes.items():
        deduced.setdefault(dim, merger.nothing(count))
    version, since, sequence = [], [], []
    for number, (part, history) in enumerate(zip(parts, histories, strict=True)):
        found = history.versions.at(part.slot_fact, part.point_state[part.slot_point])
        version.append(found)
        since.append(part.event_point[history.versions.event[found].clip(min=0)] + merger.point_offset[number])
        sequence.append(np.full(len(found), number))
    whole = joined(version)
    columns = [joined(sequence), whole, merger.point, joined(since)]
    functor = merger.added
    read = {}
    for dim in distinct(merger.dim[whole > 0]):
        mine = np.flatnonzero((whole > 0) & (merger.dim == dim))
        mine = mine[np.lexsort((merger.row[mine], functor[mine], merger.level[mine]))]
        level, start = merger.level[mine], np.asarray([one.start for one in deduced[dim].levels], dtype=np.int64)
        first = np.flatnonzero(changes(level, functor[mine]))
        counts = np.diff(joined([first, [len(mine)]]))
        groups = zip(level[first].tolist(), functor[mine][first].tolist(), counts.tolist(), strict=True)
        read[dim] = CellReads(
            merger.tensor(deduced[dim].targets()[merger.row[mine]]),
            *(merger.tensor(column[mine]) for column in columns),
            row=merger.tensor(merger.row[mine] - start[level]),
            groups=tuple(CellGroup(*one) for one in groups),
        )
    return CellPlan(**merger.frame().parts(), deduced=deduced, read=read)
