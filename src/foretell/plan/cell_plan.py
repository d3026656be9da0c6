"""Slots of some sequences → one plan for a model with cells: deductions by level, and which version of which cell each slot reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.plan.deduction import DeductionPlan, deduce
from foretell.plan.history import SlotHistory
from foretell.plan.int_arrays import distinct, joined
from foretell.plan.layout import DimensionLayout
from foretell.plan.parameters import ParameterBook
from foretell.plan.plan import Frame, Merger
from foretell.plan.slots import SequenceSlots


@dataclass(frozen=True)
class CellReads:
    """Slots of one dimension that have cells."""

    target: Tensor  # int64 [R]: rows of the sum of vectors
    sequence: Tensor  # int64 [R]
    version: Tensor  # int64 [R]: by its number in the sequence
    point: Tensor  # int64 [R]
    since: Tensor  # int64 [R]: the point of the event that made the version


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
    read = {}
    for dim in distinct(merger.dim[whole > 0]):
        mine = np.flatnonzero((whole > 0) & (merger.dim == dim))
        mine = mine[np.argsort(merger.row[mine])]
        read[dim] = CellReads(
            merger.tensor(deduced[dim].targets()[merger.row[mine]]),
            *(merger.tensor(column[mine]) for column in columns),
        )
    return CellPlan(**vars(merger.frame()), deduced=deduced, read=read)
