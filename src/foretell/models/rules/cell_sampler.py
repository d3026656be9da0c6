"""Samplers of models in which facts have cells. An event updates the cells of the facts that it adds; cells change between events, too.

The cells of a sequence are immutable: those after an event are a new table. The cells after a history are computed by the network, for
all events of many histories at once. Each model defines its cell: `ndtt_sampler.py`, `s2ndtt_sampler.py`.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar, Generic, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.data import EventData, EventSequence
from foretell.ground.timeline import Timeline
from foretell.models.rules.cell_model import CellModel
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.rule_sampler import RuleSampler, SequenceGroup, last_time
from foretell.models.rules.sampled_sequences import RuleContext, SampledSequence
from foretell.models.rules.sampler_parameters import GateRows, RowBank, RuleParameters
from foretell.models.rules.slot_tables import BoundedRows, SlotTables
from foretell.plan.int_arrays import Ints, offsets
from foretell.sampling.rules.living import NewEnd
from foretell.sampling.rules.states import DatabaseStates, LocalPlan, Transition

EVENTS_AT_A_TIME = 50_000  # in histories that are read together

CellsT = TypeVar("CellsT", bound="CellRows")


class CellParameters(RuleParameters):
    """Parameters with matrices `G` in padded blocks of rows, and one block of columns per condition."""

    def __init__(self, model: CellModel[Any], blocks: int, size: int) -> None:
        super().__init__(model)
        self.blocks, self.size = blocks, size
        self.gates = RowBank((blocks * size, 1 + self.conditions * self.dim), self.device)
        self._added: dict[int, GateRows] = {}

    def addition(self, group: int) -> GateRows:
        found = self._added.get(group)
        if found is None:
            family, number, of_beta, which = self.book.of_group(self.grounding, group)
            assert of_beta is not None
            beta = float(self.array(f"add.{of_beta.names[which]}.beta"))
            found = self._added[group] = GateRows(self._gates(group, family.names[number]), beta)
        return found

    def by_clock(self, facts: Sequence[int], starts: Tensor, times: Tensor) -> Tensor:
        """Return the calendar's terms in the proposals of events at these times for the cells of facts: [n, gates]."""
        assert self.clock is not None
        waves, keys = self.clock.waves(starts, times), self.grounding.keys
        functors = self.layout.added_numbers(self.grounding)[[keys[fact][0] for fact in facts]]
        found = waves.new_zeros(len(facts), self.blocks * self.size)
        for number in np.unique(functors).tolist():
            mine = torch.from_numpy(np.flatnonzero(functors == number)).to(self.device)
            rows = (waves[mine] @ self.clock.cells[number]).unflatten(1, (self.blocks, -1))
            found[mine] = F.pad(rows, (0, self.size - rows.shape[2])).flatten(1)
        return found

    def _gates(self, group: int, name: str) -> int:
        written = self.layout.rules[self.grounding.groups[group][0]]
        assert written is not None
        whole = self.array(f"add.{name}.G").unflatten(0, (self.blocks, -1))
        dim, size = self.dim, whole.shape[1]
        made = whole.new_zeros(self.blocks, self.size, 1 + self.conditions * dim)
        made[:, :size, 0] = whole[:, :, 0]
        column = 1
        for place, width in enumerate(written.dims):
            into = 1 + place * dim
            made[:, :size, into : into + width] = whole[:, :, column : column + width]
            column += width
        return self.gates.append(made.flatten(0, 1)[None])[0]


@dataclass(frozen=True, eq=False)
class CellRows:
    """Cells, one per row. The fields are tensors [n, …] of float64; the last is the time of each cell's last update."""

    def columns(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, one.name) for one in fields(self))

    def __len__(self) -> int:
        return len(self.columns()[-1])

    def rows(self, chosen: Tensor | slice) -> Self:
        return type(self)(*(one[chosen] for one in self.columns()))

    def zero(self) -> Self:
        """Return one new cell, all zeros."""
        return type(self)(*(one.new_zeros(1, *one.shape[1:]) for one in self.columns()))

    def put(self, places: Tensor, other: Self, length: int) -> Self:
        """Return a table of `length` rows in which `other` is written at `places`."""
        more = length - len(self)
        padded = (F.pad(one, (0, 0) * (one.dim() - 1) + (0, more)) for one in self.columns())
        pairs = zip(padded, other.columns(), strict=True)
        return type(self)(*(one.index_copy(0, places, new) for one, new in pairs))


def joined_cells(tables: Sequence[CellsT]) -> CellsT:
    return type(tables[0])(*(torch.cat(columns) for columns in zip(*(one.columns() for one in tables), strict=True)))


@dataclass(frozen=True, eq=False)
class FactCells(Generic[CellsT]):
    """The past of a sequence. A fact without an entry has no cell yet, which counts as 0."""

    place: dict[int, int]  # each fact's row in the table
    table: CellsT

    def without(self, facts: Iterable[int]) -> FactCells[CellsT]:
        gone = self.place.keys() & set(facts)
        if not gone:
            return self
        kept = {fact: row for fact, row in self.place.items() if fact not in gone}
        chosen = torch.tensor(list(kept.values()), dtype=torch.int64, device=self.table.columns()[0].device)
        return FactCells({fact: row for row, fact in enumerate(kept)}, self.table.rows(chosen))

    def updated(self, facts: Iterable[int], rows: CellsT) -> FactCells[CellsT]:
        """Return a copy with new cells of these facts, which must be distinct."""
        place = dict(self.place)
        places = [place.setdefault(fact, len(place)) for fact in facts]
        there = torch.tensor(places, dtype=torch.int64, device=rows.columns()[0].device)
        return FactCells(place, self.table.put(there, rows, len(place)))


@dataclass(frozen=True, eq=False)
class Proposals:
    """The proposals of all rule instances that fire, and the cells that they update."""

    sums: Tensor  # float64 [A, gates]
    cell: Tensor  # int64 [A]
    pool: Tensor  # int64 [A]
    pool_cell: Tensor  # int64 [pools]
    pool_beta: Tensor  # float64 [pools]
    fact: Ints  # [cells]: the facts of the cells
    deduced: Tensor | None  # float64 [cells, D]: deductions for these facts just before, if cells use them


@dataclass(frozen=True, eq=False)
class CellSlots(Generic[CellsT]):
    """Slots with cells, of some sequences that are evaluated together."""

    slot: Ints
    sequence: Ints
    cell: Ints  # row of `table`
    table: CellsT


class CellQuery(Generic[CellsT]):
    """Computes embeddings from cells."""

    def __init__(self, parameters: CellParameters) -> None:
        self.parameters, self.device = parameters, parameters.device

    def slots_with_cells(
        self, slots: Sequence[tuple[LocalPlan, int]], sequences: Sequence[SampledSequence]
    ) -> CellSlots[CellsT]:
        pasts: list[FactCells[CellsT]] = [one.past for one in sequences]
        found: list[tuple[int, int, int]] = []  # slot, sequence, cell
        first = 0
        for number, ((plan, start), past) in enumerate(zip(slots, pasts, strict=True)):
            for fact, slot in plan.slot.items():
                place = past.place.get(fact)
                if place is not None:
                    found.append((start + slot, number, first + place))
            first += len(past.table)
        slot, sequence, cell = np.asarray(found, dtype=np.int64).reshape(-1, 3).T
        return CellSlots(slot, sequence, cell, joined_cells([one.table for one in pasts]))

    def on_device(self, *values: Ints) -> list[Tensor]:
        return [torch.from_numpy(np.ascontiguousarray(one)).to(self.device) for one in values]

    @abstractmethod
    def prepare(
        self, tables: SlotTables, slots: Sequence[tuple[LocalPlan, int]], sequences: Sequence[SampledSequence]
    ) -> Any: ...

    @abstractmethod
    def answer(self, prepared: Any, middle: Tensor, half: Tensor, degree: int) -> tuple[Embeddings, Embeddings | None]:
        """Return embeddings of all slots on windows [sequences, P], and deductions for them if cells use these."""

    def size(self, prepared: Any) -> int:
        return sum(table.slots * dim for dim, table in prepared.slots.deduced.items())

    def embeddings(self, prepared: Any, middle: Tensor, half: Tensor, degree: int) -> list[Embeddings]:
        """Return the only layer."""
        return [self.answer(prepared, middle, half, degree)[0]]

    def head(self, dim: int, deduced: Sequence[Tensor], on: BoundedRows) -> Tensor:
        """Return embeddings of events without cells."""
        return on.tanh(deduced[0])


@dataclass(frozen=True, eq=False)
class CellContext(RuleContext):
    parameters: CellParameters
    query: CellQuery[Any]


@dataclass(frozen=True, eq=False)
class HistoryCells:
    """One history, and its cells after given numbers of events."""

    timeline: Timeline
    cells: dict[int, FactCells[Any]]


class CellSampler(RuleSampler):
    has_waves = False
    context: CellContext
    query: ClassVar[type[CellQuery[Any]]]

    @classmethod
    @abstractmethod
    def _parameters(cls, model: Any) -> CellParameters: ...

    @classmethod
    @abstractmethod
    def _table(cls, cells: Tensor, since: Tensor, parameters: CellParameters) -> CellRows:
        """Return a table with versions of the network's cells [n, parts, size]."""

    @abstractmethod
    def _moved(self, old: Any, times: Tensor, fired: Proposals) -> Any:
        """Return cells after one event each, at its time [n]. New cells are passed as zeros."""

    @classmethod
    @torch.inference_mode()
    def start(cls, model: CellModel[Any], histories: Sequence[EventSequence], seen: Sequence[int]) -> Self:
        """Return a sampler of sequences that start with the first `seen` events of each history. The model does not change."""
        parameters = cls._parameters(model)
        states = DatabaseStates(model.histories)
        # A history that occurs several times is read once; its cells are taken at several positions.
        distinct = {id(one): one for one in histories}
        places: dict[int, list[int]] = {key: [] for key in distinct}
        for one, n in zip(histories, seen, strict=True):
            places[id(one)].append(n)
        recalled = cls._recall_all(model, parameters, [(one, places[key]) for key, one in distinct.items()])
        of = dict(zip(distinct, recalled, strict=True))
        made = []
        for one, n in zip(histories, seen, strict=True):
            timeline = of[id(one)].timeline
            state, last = timeline.state_after(n), last_time(one.times[:n])
            added, living = states.added_at(timeline, state), states.living_at(timeline, state)
            began = parameters.start_of(one)
            made.append(SampledSequence(states.of(added), of[id(one)].cells[n], last, living, began))
        return cls(CellContext(states, parameters, cls.query(parameters), WeakKeyDictionary()), made)

    @property
    def _steady_width(self) -> float:
        return 0.5 * self.context.parameters.time_scale

    def _remembered(self, past: FactCells[Any]) -> Iterable[int]:
        return past.place.keys()

    def _length(self, past: FactCells[Any]) -> int:
        return len(past.place)

    def _expired(self, past: FactCells[Any], ended: Sequence[NewEnd], facts: frozenset[int]) -> FactCells[Any]:
        return past.without(facts)

    def _without(self, past: FactCells[Any], facts: Sequence[int]) -> FactCells[Any]:
        return past.without(facts)

    def _after(
        self, group: SequenceGroup, changes: Mapping[int, Transition], times: Tensor
    ) -> dict[int, FactCells[Any]]:
        pasts: dict[int, FactCells[Any]] = {
            kind: self.sequences[number].past.without(changes[number].erased)
            for kind, number in enumerate(group.members)
            if number in changes and changes[number].additions
        }
        if not pasts:
            return {}
        fired, heads = self._proposals(group, changes, times)
        # The first row is zeros, for new cells.
        place, first = [], 1
        for kind, past in pasts.items():
            place += [first + past.place[fact] if fact in past.place else 0 for fact in heads[kind]]
            first += len(past.table)
        tables = [past.table for past in pasts.values()]
        there = joined_cells([tables[0].zero(), *tables])
        kinds = [kind for kind, facts in heads.items() for _ in facts]
        new = self._moved(there.rows(torch.tensor(place, device=times.device)), times[kinds], fired)
        edges = offsets([len(heads[kind]) for kind in pasts]).tolist()
        return {
            group.members[kind]: past.updated(heads[kind], new.rows(slice(low, high)))
            for (kind, past), (low, high) in zip(pasts.items(), pairwise(edges), strict=True)
        }

    def _proposals(
        self, group: SequenceGroup, changes: Mapping[int, Transition], times: Tensor
    ) -> tuple[Proposals, dict[int, list[int]]]:
        """Return the proposals of all rule instances, and by kind of sequence the facts whose cells they update, in the order of cells."""
        parameters, device = self.context.parameters, times.device
        size = parameters.conditions
        cells: dict[tuple[int, int], int] = {}  # by kind of sequence and fact
        pools: dict[tuple[int, int, int], int] = {}  # by kind, fact and group
        body, matrix, cell_of, pool_of, betas, marked = [], [], [], [], [], []
        heads: dict[int, list[int]] = {}
        for kind, number in enumerate(group.members):
            for one in changes[number].additions if number in changes else ():
                gates = parameters.addition(one.group)
                body += group.slots(kind, (*one.body, *[-1] * (size - len(one.body))))
                matrix.append(gates.matrix)
                marked.append((number, one.event))
                if (kind, one.head) not in cells:
                    cells[kind, one.head] = len(cells)
                    heads.setdefault(kind, []).append(one.head)
                if (kind, one.head, one.group) not in pools:
                    pools[kind, one.head, one.group] = len(pools)
                    betas.append(gates.beta)
                cell_of.append(cells[kind, one.head])
                pool_of.append(pools[kind, one.head, one.group])
        when = times.unsqueeze(1)
        top, deduced = self.context.query.answer(group.prepared, when, torch.zeros_like(when), 0)
        places = torch.from_numpy(group.tables.places(body)).to(device).view(len(matrix), size)
        bodies = self.by_numbers(group.tables.stacked(top)[places], marked)
        inputs = torch.cat([when.new_ones(len(matrix), 1), bodies.flatten(1)], 1)
        sums = (parameters.gates.rows[matrix] @ inputs.unsqueeze(-1)).squeeze(-1)
        pools_of = [cells[kind, head] for kind, head, _ in pools]
        numbers = (torch.tensor(one, dtype=torch.int64, device=device) for one in (cell_of, pool_of, pools_of))
        cell, pool, pool_cell = numbers
        if parameters.clock is not None:
            owners = [group.members[kind] for kind, _ in cells]
            moved = parameters.by_clock([fact for _, fact in cells], self._starts(owners), times[[k for k, _ in cells]])
            sums = sums + moved[cell]
        beta = torch.tensor(betas, dtype=torch.float64, device=device)
        facts = np.asarray([fact for _, fact in cells], dtype=np.int64)
        own = None if deduced is None else self._of_cells(group, list(cells), deduced)
        return Proposals(sums, cell, pool, pool_cell, beta, facts, own), heads

    def _of_cells(self, group: SequenceGroup, cells: Sequence[tuple[int, int]], deduced: Embeddings) -> Tensor:
        """Return the deductions for facts whose cells are updated, 0 for facts that are not true yet."""
        known = [(kind, fact if fact in group.plans[kind].slot else -1) for kind, fact in cells]
        slots = [slot for kind, fact in known for slot in group.slots(kind, [fact])]
        stacked = group.tables.stacked(deduced)
        return stacked[torch.from_numpy(group.tables.places(slots)).to(stacked.device)]

    # Cells of histories

    @classmethod
    @torch.inference_mode()
    def _recall_all(
        cls,
        model: CellModel[Any],
        parameters: CellParameters,
        histories: Sequence[tuple[EventSequence, Sequence[int]]],
    ) -> list[HistoryCells]:
        """Read histories, each with the numbers of events after which its cells are needed. The model does not change."""
        found: list[HistoryCells] = []
        some: list[tuple[EventSequence, Sequence[int]]] = []
        events = 0
        for place, (history, seen) in enumerate(histories):
            n = max(seen)
            some.append((replace(history.first(n, history.t_end), id=str(place)), seen))
            events += n
            if events > EVENTS_AT_A_TIME or place + 1 == len(histories):
                found += cls._recall(model, parameters, some)
                some, events = [], 0
        return found

    @classmethod
    def _recall(
        cls,
        model: CellModel[Any],
        parameters: CellParameters,
        histories: Sequence[tuple[EventSequence, Sequence[int]]],
    ) -> list[HistoryCells]:
        data = EventData([one for one, _ in histories], model.vocabulary)
        own = copy.deepcopy(model)
        own.ground(data)  # names that are new to it, in its own precision
        own.double().eval()
        cells = own.encode(own.collator.batch(data, range(len(data)), device=model.device)).cells
        found = []
        for row, (one, seen) in enumerate(histories):
            key, timeline = model.histories.timeline(model.vocabulary, one)
            versions = model.histories.history(key, timeline).versions
            facts = np.unique(versions.fact[1:])
            when = np.concatenate([[0.0], timeline.times if timeline.is_expiry.any() else one.times])
            left: dict[int, FactCells[Any]] = {}
            for n in seen:
                which = versions.at(facts, np.full(len(facts), timeline.state_after(n)))
                there = np.flatnonzero(which)
                chosen = torch.from_numpy(which[there]).to(model.device)
                since = torch.from_numpy(when[versions.event[which[there]]]).to(model.device)
                table = cls._table(cells[row, chosen], since, parameters)
                left[n] = FactCells({fact: place for place, fact in enumerate(facts[there].tolist())}, table)
            found.append(HistoryCells(timeline, left))
        return found
