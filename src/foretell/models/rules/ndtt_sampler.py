"""Sampler of an NDTT: one more event moves the cells of the facts that it adds, and in between every cell drifts to its target.

Embeddings are the network's own `tanh(deduced + cell)` (`ndtt_network.py`), at times or on windows of time. The cells that histories leave
behind come from the network, too, all events of many histories at once.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventData, EventSequence
from foretell.ground.timeline import Timeline
from foretell.models.rules.ndtt_cells import CellTable, FactCells, GateSums, NDTTParameters, joined_cells, moved_cells
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.rule_sampler import RuleContext, RuleSampler, SampledSequence, SequenceGroup, last_time
from foretell.models.rules.slot_tables import BoundedRows, SlotTables, packed
from foretell.plan.int_arrays import offsets
from foretell.sampling.bounds.chebyshev import decay
from foretell.sampling.rules.states import DatabaseStates, LocalPlan, Transition

if TYPE_CHECKING:
    from foretell.models.rules.ndtt import NDTT

EVENTS_AT_A_TIME = 50_000  # of histories that are read together


@dataclass(frozen=True, eq=False)
class SampledCellRows:
    """Slots of one dimension that have cells."""

    target: Tensor  # int64 [C]: rows of the sum of vectors
    sequence: Tensor  # int64 [C]
    table: CellTable  # [C], of that dimension


@dataclass(frozen=True, eq=False)
class NDTTTables:
    """Some sequences side by side."""

    slots: SlotTables
    reads: dict[int, SampledCellRows]


class NDTTQuery:
    def __init__(self, parameters: NDTTParameters) -> None:
        self.parameters, self.device = parameters, parameters.device

    def prepare(
        self, tables: SlotTables, slots: Sequence[tuple[LocalPlan, int]], pasts: Sequence[FactCells]
    ) -> NDTTTables:
        found: list[tuple[int, int, int]] = []  # slot, sequence, cell
        first = 0
        for number, ((plan, start), past) in enumerate(zip(slots, pasts, strict=True)):
            for fact, slot in plan.slot.items():
                place = past.place.get(fact)
                if place is not None:
                    found.append((start + slot, number, first + place))
            first += len(past.table)
        slot, sequence, cell = np.asarray(found, dtype=np.int64).reshape(-1, 3).T
        whole, dims = joined_cells(one.table for one in pasts), tables.dim[slot]
        reads = {}
        for dim in np.unique(dims).tolist():
            mine = np.flatnonzero(dims == dim)
            target = tables.deduced[dim].targets()[tables.row[slot[mine]]]
            parts = (torch.from_numpy(one).to(self.device) for one in (target, sequence[mine], cell[mine]))
            to, of, which = parts
            reads[dim] = SampledCellRows(to, of, whole.rows(which).narrow(dim))
        return NDTTTables(tables, reads)

    def size(self, prepared: NDTTTables) -> int:
        """Numbers that are worked on for each piece of time."""
        return sum(table.slots * dim for dim, table in prepared.slots.deduced.items())

    def embeddings(self, prepared: NDTTTables, middle: Tensor, half: Tensor, degree: int) -> list[Embeddings]:
        """Of all slots on windows [sequences, P]; there is one layer."""
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
        return [self.parameters.network.deduced(tables.deduced, tables.blocks, vectors, {}, on=on)]


@dataclass(frozen=True, eq=False)
class NDTTContext(RuleContext):
    parameters: NDTTParameters
    query: NDTTQuery


@dataclass(frozen=True, eq=False)
class HistoryCells:
    """One history, and its cells after as many events as asked for."""

    timeline: Timeline
    cells: dict[int, FactCells]


class NDTTSampler(RuleSampler):
    has_waves = False
    context: NDTTContext

    @classmethod
    @torch.inference_mode()
    def start(cls, model: NDTT, histories: Sequence[EventSequence], seen: Sequence[int]) -> NDTTSampler:
        """Sequences that start with the first `seen` events of each history. The model stays as it is."""
        parameters = NDTTParameters(model)
        states = DatabaseStates(model.histories)
        # A history that is given more than once is read once, and left at several places.
        distinct = {id(one): one for one in histories}
        places: dict[int, list[int]] = {key: [] for key in distinct}
        for one, n in zip(histories, seen, strict=True):
            places[id(one)].append(n)
        recalled = recall(model, parameters, [(one, places[key]) for key, one in distinct.items()])
        of = dict(zip(distinct, recalled, strict=True))
        made = [
            SampledSequence(
                states.of(states.added_at(of[id(one)].timeline, n + 1)), of[id(one)].cells[n], last_time(one.times[:n])
            )
            for one, n in zip(histories, seen, strict=True)
        ]
        return cls(NDTTContext(states, parameters, NDTTQuery(parameters), WeakKeyDictionary()), made)

    @property
    def _steady_width(self) -> float:
        return 0.5 * self.context.parameters.time_scale

    def _length(self, past: FactCells) -> int:
        return len(past.place)

    def _without(self, past: FactCells, facts: Sequence[int]) -> FactCells:
        return past.without(facts)

    def _after(self, group: SequenceGroup, changes: Mapping[int, Transition], times: Tensor) -> dict[int, FactCells]:
        pasts = {
            kind: self.sequences[number].past.without(changes[number].erased)
            for kind, number in enumerate(group.members)
            if number in changes and changes[number].additions
        }
        if not pasts:
            return {}
        sums, heads = self._gate_sums(group, changes, times)
        # In the first row are zeros: a cell that is new.
        dim, device = self.context.parameters.dim, times.device
        place, first = [], 1
        for kind, past in pasts.items():
            place += [first + past.place[fact] if fact in past.place else 0 for fact in heads[kind]]
            first += len(past.table)
        there = joined_cells([CellTable.zeros(1, dim, device), *(past.table for past in pasts.values())])
        kinds = [kind for kind, facts in heads.items() for _ in facts]
        new = moved_cells(
            there.rows(torch.tensor(place, device=device)), times[kinds], sums, self.context.parameters.time_scale
        )
        edges = offsets([len(heads[kind]) for kind in pasts]).tolist()
        return {
            group.members[kind]: past.updated(heads[kind], new.rows(slice(low, high)))
            for (kind, past), (low, high) in zip(pasts.items(), pairwise(edges), strict=True)
        }

    def _gate_sums(
        self, group: SequenceGroup, changes: Mapping[int, Transition], times: Tensor
    ) -> tuple[GateSums, dict[int, list[int]]]:
        """What all instantiations say, and the facts whose cells they are about: by kind of sequence, in the order of cells."""
        parameters, device = self.context.parameters, times.device
        size = parameters.conditions
        cells: dict[tuple[int, int], int] = {}  # by kind of sequence and fact
        pools: dict[tuple[int, int, int], int] = {}  # … and group
        body, matrix, cell_of, pool_of, betas = [], [], [], [], []
        heads: dict[int, list[int]] = {}
        for kind, number in enumerate(group.members):
            for one in changes[number].additions if number in changes else ():
                gates = parameters.addition(one.group)
                body += group.slots(kind, (*one.body, *[-1] * (size - len(one.body))))
                matrix.append(gates.matrix)
                if (kind, one.head) not in cells:
                    cells[kind, one.head] = len(cells)
                    heads.setdefault(kind, []).append(one.head)
                if (kind, one.head, one.group) not in pools:
                    pools[kind, one.head, one.group] = len(pools)
                    betas.append(gates.beta)
                cell_of.append(cells[kind, one.head])
                pool_of.append(pools[kind, one.head, one.group])
        when = times.unsqueeze(1)
        (top,) = self.context.query.embeddings(group.prepared, when, torch.zeros_like(when), 0)
        places = torch.from_numpy(group.tables.places(body)).to(device).view(len(matrix), size)
        inputs = torch.cat([when.new_ones(len(matrix), 1), group.tables.stacked(top)[places].flatten(1)], 1)
        sums = (parameters.gates.rows[matrix] @ inputs.unsqueeze(-1)).squeeze(-1)
        pools_of = [cells[kind, head] for kind, head, _ in pools]
        numbers = (torch.tensor(one, dtype=torch.int64, device=device) for one in (cell_of, pool_of, pools_of))
        cell, pool, pool_cell = numbers
        return GateSums(sums, cell, pool, pool_cell, torch.tensor(betas, dtype=torch.float64, device=device)), heads


@torch.inference_mode()
def recall(
    model: NDTT, parameters: NDTTParameters, histories: Sequence[tuple[EventSequence, Sequence[int]]]
) -> list[HistoryCells]:
    """Histories, each with the numbers of events after which it is left. The model stays as it is."""
    found: list[HistoryCells] = []
    some: list[tuple[EventSequence, Sequence[int]]] = []
    events = 0
    for place, (history, seen) in enumerate(histories):
        n = max(seen)
        unscored = None if history.unscored is None else history.unscored[:n]
        cut = EventSequence(history.times[:n], history.types[:n], history.t_end, str(place), unscored=unscored)
        some.append((cut, seen))
        events += n
        if events > EVENTS_AT_A_TIME or place + 1 == len(histories):
            found += _recall(model, parameters, some)
            some, events = [], 0
    return found


def _recall(
    model: NDTT, parameters: NDTTParameters, histories: Sequence[tuple[EventSequence, Sequence[int]]]
) -> list[HistoryCells]:
    data = EventData([one for one, _ in histories], model.vocabulary)
    own = copy.deepcopy(model)
    own.ground(data)  # names that training never met start in the model's own precision
    own.double().eval()
    cells = own.encode(own.collator.batch(data, range(len(data)), device=model.device)).cells
    found = []
    for row, (one, seen) in enumerate(histories):
        key, timeline = model.histories.timeline(model.vocabulary, one.types, one.times, one.unscored)
        versions = model.histories.history(key, timeline).versions
        facts = np.unique(versions.fact[1:])
        when = np.concatenate([[0.0], one.times])
        left: dict[int, FactCells] = {}
        for n in seen:
            which = versions.at(facts, np.full(len(facts), n + 1))
            there = np.flatnonzero(which)
            chosen = torch.from_numpy(which[there]).to(model.device)
            c, target, decay = cells[row, chosen].unbind(1)
            since = torch.from_numpy(when[versions.event[which[there]]]).to(model.device)
            table = CellTable(c, target, decay / parameters.time_scale, since)
            left[n] = FactCells({fact: place for place, fact in enumerate(facts[there].tolist())}, table)
        found.append(HistoryCells(timeline, left))
    return found
