"""Sampler of an S2-NDTT: deductions for a fact pass through the layers of its state (`s2ndtt_network.py`), on windows of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from foretell.models.rules.cell_sampler import CellParameters, CellQuery, CellRows, CellSampler, Proposals
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.s2ndtt_network import PARTS, FactSystem, StateNetwork, stream
from foretell.models.rules.sampled_sequences import SampledSequence
from foretell.models.rules.slot_tables import BoundedRows, SlotTables, packed, unpacked
from foretell.models.state_space.layer import Rotation
from foretell.nn.intensity import softplus
from foretell.nn.pool import pool
from foretell.plan.int_arrays import changes, joined
from foretell.sampling.bounds.curves import spiral
from foretell.sampling.rules.states import LocalPlan

if TYPE_CHECKING:
    from foretell.models.rules.s2ndtt import S2NDTT


@dataclass(frozen=True, eq=False)
class StateTable(CellRows):
    """The states of facts right after their last additions."""

    state: Tensor  # float64 [n, L, 2P]: real parts before imaginary ones
    step: Tensor  # float64 [n, L, P]: Δ per unit of the data's time
    since: Tensor  # float64 [n]


@dataclass(frozen=True, eq=False)
class StateGroup:
    """Slots of one dimension and level whose facts have the same functor."""

    functor: int  # its number among those whose facts are added
    row: Tensor  # int64 [C]: positions among the slots of the level
    sequence: Tensor  # int64 [C]
    table: StateTable  # [C]


@dataclass(frozen=True, eq=False)
class S2NDTTTables:
    """The precomputed tables of some sequences, evaluated together."""

    slots: SlotTables
    groups: dict[tuple[int, int], list[StateGroup]]  # by dimension and level


class S2NDTTParameters(CellParameters):
    network: StateNetwork

    def systems(self, functor: int) -> list[FactSystem]:
        return self.network.of_functor(functor)

    def added(self, facts: np.ndarray) -> np.ndarray:
        """Return the functor of each fact, as its number among those whose facts are added."""
        keys = self.grounding.keys
        numbers = self.layout.added_numbers(self.grounding)
        return numbers[np.asarray([keys[fact][0] for fact in facts.tolist()], dtype=np.int64)]


class S2NDTTQuery(CellQuery[StateTable]):
    parameters: S2NDTTParameters

    def prepare(
        self, tables: SlotTables, slots: Sequence[tuple[LocalPlan, int]], sequences: Sequence[SampledSequence]
    ) -> S2NDTTTables:
        found = self.slots_with_cells(slots, sequences)
        fact = joined([plan.slots.slot_fact for plan, _ in slots])[found.slot]
        level = joined([plan.slots.slot_level for plan, _ in slots])[found.slot]
        dim, functor = tables.dim[found.slot], self.parameters.added(fact)
        order = np.lexsort((functor, level, dim))
        groups: dict[tuple[int, int], list[StateGroup]] = {}
        edges = np.append(np.flatnonzero(changes(dim[order], level[order], functor[order])), len(order))
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            mine = order[low:high]
            size, height = int(dim[mine[0]]), int(level[mine[0]])
            row = tables.row[found.slot[mine]] - tables.deduced[size].levels[height].start
            rows, of, which = self.on_device(row, found.sequence[mine], found.cell[mine])
            group = StateGroup(int(functor[mine[0]]), rows, of, found.table.rows(which))
            groups.setdefault((size, height), []).append(group)
        return S2NDTTTables(tables, groups)

    def answer(
        self, prepared: S2NDTTTables, middle: Tensor, half: Tensor, degree: int
    ) -> tuple[Embeddings, Embeddings]:
        tables = prepared.slots
        deduced: dict[int, list[Tensor]] = {}

        def inside(dim: int, level: int, rows: Tensor) -> Tensor:
            deduced.setdefault(dim, []).append(rows)
            for group in prepared.groups.get((dim, level), ()):
                systems, table, of = self.parameters.systems(group.functor), group.table, group.sequence
                turns = []
                for system, step in zip(systems, table.step.unbind(1), strict=True):
                    steps = step.unsqueeze(1).expand(-1, middle.shape[1], -1)
                    rates = system.log_decay.exp() * steps, system.frequency * steps
                    real, imaginary = spiral(middle[of], half[of], table.since.unsqueeze(1), *rates, degree)
                    turns.append(Rotation(real, imaginary, real.plus(real.v.new_tensor(-1.0))))
                states = [one.unsqueeze(1) for one in table.state.unbind(1)]
                _, above = stream(systems, turns, states, unpacked(rows.index_select(0, group.row), degree))
                rows = rows.index_copy(0, group.row, packed(above))
            return rows

        vectors = tables.constant_parts(degree, middle.shape[1])
        on = BoundedRows(degree, tables.sizes)
        top = self.parameters.network.deduced(tables.deduced, tables.blocks, vectors, {}, on=on, inside=inside)
        return top, {dim: torch.cat(deduced[dim]) if dim in deduced else top[dim] for dim in top}


class S2NDTTSampler(CellSampler):
    query = S2NDTTQuery

    @classmethod
    def _parameters(cls, model: S2NDTT) -> S2NDTTParameters:
        return S2NDTTParameters(model, 1, model.network.gate_rows)

    @classmethod
    def _table(cls, cells: Tensor, since: Tensor, parameters: CellParameters) -> StateTable:
        by_layer = cells.unflatten(1, (-1, PARTS))
        return StateTable(by_layer[:, :, :2].flatten(2), by_layer[:, :, 2] / parameters.time_scale, since)

    def _moved(self, old: StateTable, times: Tensor, fired: Proposals) -> StateTable:
        """Return states after an event, `x(s+) = x(s) + jump`, with new steps."""
        parameters = self.context.parameters
        assert isinstance(parameters, S2NDTTParameters) and fired.deduced is not None
        pooled = pool(fired.sums, fired.pool, len(fired.pool_cell), fired.pool_beta)
        whole = pooled.new_zeros(len(times), pooled.shape[1]).index_add(0, fired.pool_cell, pooled)
        jump = whole.unflatten(1, (old.step.shape[1], PARTS, -1))
        state, step = jump[:, :, :2].flatten(2), jump[:, :, 2].clone()
        functor, elapsed = parameters.added(fired.fact), (times - old.since).unsqueeze(-1)
        for number in np.unique(functor).tolist():
            mine = torch.from_numpy(np.flatnonzero(functor == number)).to(times.device)
            systems = parameters.systems(number)
            pairs = zip(systems, old.step[mine].unbind(1), strict=True)
            turns = [system.rotation(steps, elapsed[mine]) for system, steps in pairs]
            below = fired.deduced[mine, : len(systems[0].C)]
            now, _ = stream(systems, turns, old.state[mine].unbind(1), below)
            state[mine] += torch.stack(now, 1)
            step[mine] += torch.stack([system.step_bias for system in systems])
        return StateTable(state, softplus(step) / parameters.time_scale, times)
