"""Sampler of an NDTT. Embeddings are the network's own `tanh(deduced + cell)` (`ndtt_network.py`), at times or on windows of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from foretell.lang.program import GATES
from foretell.models.rules.cell_sampler import CellParameters, CellQuery, CellRows, CellSampler, Proposals
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.sampled_sequences import SampledSequence
from foretell.models.rules.slot_tables import BoundedRows, SlotTables, packed
from foretell.nn.intensity import softplus
from foretell.nn.pool import pool
from foretell.sampling.bounds.chebyshev import decay
from foretell.sampling.rules.states import LocalPlan

if TYPE_CHECKING:
    from foretell.models.rules.ndtt import NDTT

SLOWEST = 1e-300  # replaces a decay of 0, which would be divided by


@dataclass(frozen=True, eq=False)
class CellTable(CellRows):
    """`cell(t) = target + (c − target)·exp(−rate·(t − since))`. All cells are padded with 0 to the same size."""

    c: Tensor  # float64 [n, D]
    target: Tensor  # float64 [n, D]
    rate: Tensor  # float64 [n, D]: per unit of the data's time
    since: Tensor  # float64 [n]

    def narrow(self, dim: int) -> CellTable:
        """Return the cells with their first `dim` components."""
        return CellTable(self.c[:, :dim], self.target[:, :dim], self.rate[:, :dim], self.since)

    def now(self, times: Tensor) -> Tensor:
        """Return the cells' values, each at its own time, [n]."""
        return self.target + (self.c - self.target) * torch.exp(-self.rate * (times - self.since).unsqueeze(-1))


@dataclass(frozen=True, eq=False)
class SampledCellRows:
    """Slots of one dimension that have cells."""

    target: Tensor  # int64 [C]: rows of the sums of vectors
    sequence: Tensor  # int64 [C]
    table: CellTable  # [C], with that dimension


@dataclass(frozen=True, eq=False)
class NDTTTables:
    """The precomputed tables of some sequences, evaluated together."""

    slots: SlotTables
    reads: dict[int, SampledCellRows]


class NDTTQuery(CellQuery[CellTable]):
    def prepare(
        self, tables: SlotTables, slots: Sequence[tuple[LocalPlan, int]], sequences: Sequence[SampledSequence]
    ) -> NDTTTables:
        found = self.slots_with_cells(slots, sequences)
        dims = tables.dim[found.slot]
        reads = {}
        for dim in np.unique(dims).tolist():
            mine = np.flatnonzero(dims == dim)
            target = tables.deduced[dim].targets()[tables.row[found.slot[mine]]]
            to, of, which = self.on_device(target, found.sequence[mine], found.cell[mine])
            reads[dim] = SampledCellRows(to, of, found.table.rows(which).narrow(dim))
        return NDTTTables(tables, reads)

    def answer(self, prepared: NDTTTables, middle: Tensor, half: Tensor, degree: int) -> tuple[Embeddings, None]:
        tables = prepared.slots
        vectors = tables.constant_parts(degree, middle.shape[1])
        for dim, reads in prepared.reads.items():
            # `c̄ + (c − c̄)·exp(−δ(t−s))`: [C, P, D]
            table, of = reads.table, reads.sequence
            c, target, rate = (one.unsqueeze(1) for one in (table.c, table.target, table.rate))
            faded = decay(middle[of], half[of], table.since.unsqueeze(1), rate, degree)
            cells = packed(faded.times(c - target).plus(target))
            vectors[dim] = vectors[dim].index_add(0, reads.target, cells)
        on = BoundedRows(degree, tables.sizes)
        return self.parameters.network.deduced(tables.deduced, tables.blocks, vectors, {}, on=on), None


class NDTTSampler(CellSampler):
    query = NDTTQuery

    @classmethod
    def _parameters(cls, model: NDTT) -> CellParameters:
        return CellParameters(model, GATES, max(model.layout.dims, default=1))

    @classmethod
    def _table(cls, cells: Tensor, since: Tensor, parameters: CellParameters) -> CellTable:
        c, target, rate = cells.unbind(1)
        return CellTable(c, target, rate / parameters.time_scale, since)

    def _moved(self, old: CellTable, times: Tensor, fired: Proposals) -> CellTable:
        return moved_cells(old, times, fired, self.context.parameters.time_scale)


def moved_cells(old: CellTable, times: Tensor, fired: Proposals, time_scale: float) -> CellTable:
    """Return cells after one event each, at its time [n]. New cells are passed as zeros."""
    now = old.now(times)
    c, target = now[fired.cell], old.target[fired.cell]
    i, f, z, i_target, f_target, decay = fired.sums.unflatten(1, (GATES, -1)).unbind(1)
    z = torch.tanh(z)
    by_c = torch.sigmoid(f) * c + torch.sigmoid(i) * z - c
    by_target = torch.sigmoid(f_target) * target + torch.sigmoid(i_target) * z - target
    pools = len(fired.pool_cell)
    both = pool(torch.cat([by_c, by_target], 1), fired.pool, pools, fired.pool_beta)
    whole = torch.cat([now, old.target], 1).index_add(0, fired.pool_cell, both)
    weight = (c - target).abs() + by_c.abs() + by_target.abs()
    summed = torch.zeros_like(now).index_add(0, fired.cell, weight)
    weight = torch.where(summed[fired.cell] == 0.0, 1.0, weight)
    upper = torch.zeros_like(now).index_add(0, fired.cell, weight)
    lower = torch.zeros_like(now).index_add(0, fired.cell, weight / softplus(decay).clamp(min=SLOWEST))
    new_c, new_target = whole.chunk(2, 1)
    return CellTable(new_c, new_target, upper / lower / time_scale, times)
