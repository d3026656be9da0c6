"""Samplers of models of rules: the database changes with every event, and only what is possible then is ever asked about.

What facts keep of the past is the model's own business: each has a query, which knows how embeddings follow from a past, and a sampler,
which knows what an event leaves behind.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.sampler_parameters import RuleParameters
from foretell.models.rules.slot_tables import SlotTables, make_tables
from foretell.plan.int_arrays import joined, offsets
from foretell.sampling.bounds.chebyshev import DEGREE, ChebyshevPiece, constant, point, softplus, unless_known
from foretell.sampling.bounds.curves import exp
from foretell.sampling.bounds.values import summed
from foretell.sampling.core.sampler import Bounds, Sampler, WindowGrowth
from foretell.sampling.rules.states import DatabaseState, DatabaseStates, LocalPlan, Transition

ROWS_AT_A_TIME = 16_384  # of what sequences that are evaluated together keep of the past
SHARE_OF_SHORTEST = 0.6  # of the shortest time scale: how long a first window is
NUMBERS_AT_A_TIME = 32_768  # rows times pieces of time, so that what is worked on stays in the cache


@dataclass(frozen=True, eq=False)
class SampledSequence:
    """Never changes: copies of a sequence are the same object until one of them goes on."""

    state: DatabaseState
    past: Any  # what the model keeps of it
    last: float  # when its last event was; 0: there is none


class RuleQuery(Protocol):
    """How embeddings follow from pasts."""

    def prepare(self, tables: SlotTables, slots: Sequence[tuple[LocalPlan, int]], pasts: Sequence[Any]) -> Any:
        """Sequences side by side: of each its plan, the number of its first slot, and its past."""

    def size(self, prepared: Any) -> int:
        """Numbers that are worked on for each piece of time."""
        ...

    def embeddings(self, prepared: Any, middle: Tensor, half: Tensor, degree: int) -> list[Embeddings]:
        """Of all slots on windows [sequences, P], layer by layer: rows of tables (`slot_tables.py`)."""
        ...


@dataclass(frozen=True, eq=False)
class RuleContext:
    """What all sequences of one sampler have in common."""

    states: DatabaseStates
    parameters: RuleParameters
    query: RuleQuery
    tables: WeakKeyDictionary[LocalPlan, SlotTables]


@dataclass(frozen=True, eq=False)
class Copies:
    """Sequences that are the same so far are evaluated together, as if they were one with more times."""

    first: Tensor  # int64 [kinds]: a sequence of each
    kind: Tensor  # int64 [W]
    number: Tensor  # int64 [W]: which of its kind
    most: int

    @classmethod
    def of(cls, kinds: Sequence[Sequence[int]], device: torch.device) -> Copies:
        counts = [len(members) for members in kinds]
        kind = np.repeat(np.arange(len(kinds)), counts)
        number = joined([np.arange(one) for one in counts])
        first, of_kind, of_number = (_on(device, one) for one in (offsets(counts)[:-1], kind, number))
        return cls(first, of_kind, of_number, max(counts, default=0))

    def spread(self, times: Tensor) -> Tensor:
        """[W, P] to [kinds, most · P]; where a kind has fewer copies, times of no account."""
        if self.most == 1:
            return times
        out = times[self.first].unsqueeze(1).repeat(1, self.most, 1)
        out[self.kind, self.number] = times
        return out.flatten(1)

    def back(self, values: Tensor) -> Tensor:
        """[kinds, most · P, …] to [W, P, …]."""
        return values if self.most == 1 else values.unflatten(1, (self.most, -1))[self.kind, self.number]


@dataclass(frozen=True, eq=False)
class SequenceGroup:
    """Some distinct sequences side by side."""

    members: list[int]  # one sequence of each kind
    plans: list[LocalPlan]
    tables: SlotTables
    prepared: Any

    def slots(self, kind: int, facts: Iterable[int]) -> list[int]:
        """Of facts; that of no fact is -1."""
        first, slot = int(self.tables.first[kind]), self.plans[kind].slot
        return [first + slot[fact] if fact >= 0 else -1 for fact in facts]


@dataclass(frozen=True, eq=False)
class EventScoreTable:
    """Possible events whose embeddings have one dimension; where functors have factors of their own, those of one functor."""

    dim: int
    row: Tensor  # int64 [E]: in the table of that dimension
    w: Tensor  # float64 [E, 1 + dim], in units of tau
    mixture: Tensor | None  # float64 [scales, 1 + dim]
    shape: Tensor | None  # float64 [scales, 1 + dim]

    def scores(self, top: Embeddings, degree: int) -> ChebyshevPiece:
        """`w·[1; emb]/τ`: [E, P]."""
        table = top[self.dim]
        rows, w = table[self.row], self.w[:, 1:].unsqueeze(-1)
        shape = len(rows), degree + 1, table.shape[2]
        v = (rows[:, : degree + 1].flatten(1, 2) @ w).view(shape).transpose(0, 1)
        found = ChebyshevPiece(v, (rows[:, -1] @ w.abs()).squeeze(-1)) if degree else point(v[0])
        return found.plus(self.w[:, :1])

    def amplitudes(self, top: Embeddings, degree: int) -> ChebyshevPiece:
        """`softplus(v_j·[1; emb])`: [E, P, scales]."""
        assert self.mixture is not None
        return softplus(self._scores_of(self.mixture, top, degree))

    def exponents(self, top: Embeddings, degree: int) -> ChebyshevPiece:
        """`a_k·[1; emb]`: [E, P, scales]."""
        assert self.shape is not None
        return self._scores_of(self.shape, top, degree)

    def _scores_of(self, vectors: Tensor, top: Embeddings, degree: int) -> ChebyshevPiece:
        rows, weight = top[self.dim][self.row], vectors[:, 1:].T
        v = (rows[:, : degree + 1] @ weight).transpose(0, 1)
        found = ChebyshevPiece(v, rows[:, -1] @ weight.abs()) if degree else point(v[0])
        return found.plus(vectors[:, 0])


@dataclass(frozen=True, eq=False)
class EventChoices:
    """Some sequences, and what can happen next in them."""

    members: list[int]  # which sequences these are
    sequences: Tensor  # int64 [w]: the same
    copies: Copies
    group: SequenceGroup
    by_dim: tuple[EventScoreTable, ...]  # E in all
    last: Tensor  # float64 [kinds]: when the last event was
    kind: Tensor  # int64 [E]: of which kind of sequence
    column: Tensor  # int64 [E]
    scale: Tensor  # float64 [E]: tau in the data's unit of time
    sums: Tensor  # float64 [kinds, E]: 1 for the events of each
    pieces: int  # that are evaluated together


class RuleSampler(Sampler):
    has_waves: ClassVar[bool]  # of absolute time

    def __init__(self, context: RuleContext, sequences: Sequence[SampledSequence]) -> None:
        self.context, self.sequences = context, list(sequences)
        self._known: list[EventChoices] = []  # of sequences about which something was asked

    # What each model says for itself

    @abstractmethod
    def _after(self, group: SequenceGroup, changes: Mapping[int, Transition], times: Tensor) -> dict[int, Any]:
        """Pasts of the group's sequences to which something happens; times are [members]."""

    @abstractmethod
    def _without(self, past: Any, facts: Sequence[int]) -> Any:
        """A past in which these facts were never added."""

    @abstractmethod
    def _length(self, past: Any) -> int:
        """How many rows a past has."""

    @property
    @abstractmethod
    def _steady_width(self) -> float:
        """Of a first window, if intensities do not depend on the time since the last event."""

    # The same for all

    @property
    def width(self) -> float:
        short = self.context.parameters.short
        return self._steady_width if short is None else min(self._steady_width, SHARE_OF_SHORTEST * short)

    def growth(self) -> WindowGrowth | None:
        parameters = self.context.parameters
        if parameters.short is None:
            return None
        last = torch.tensor([one.last for one in self.sequences], dtype=torch.float64, device=parameters.device)
        # Waves of absolute time change as fast long after the last event: there windows are as long as without the mixture.
        limit = parameters.short * (self._steady_width / self.width - 1.0) if self.has_waves else math.inf
        return WindowGrowth(last, parameters.short, limit)

    @property
    def count(self) -> int:
        return len(self.sequences)

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.context, [self.sequences[one] for one in rows.tolist()])

    def name(self, row: int, choice: int) -> str:
        return self.sequences[row].state.names[choice]

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        columns = max((len(one.state.possible) for one in self.sequences), default=0)
        out = times.new_zeros(self.count, times.shape[1], columns)
        for events in self._possible():
            when = times[events.sequences]
            rates = self._rates(events, when, torch.zeros_like(when), 0).v[0]
            of_kinds = rates.new_zeros(len(events.copies.first), columns, rates.shape[1])
            of_kinds[events.kind, events.column] = rates
            out[events.sequences] = events.copies.back(of_kinds.mT)
        return out

    @torch.inference_mode()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        found = Bounds(torch.zeros_like(start), torch.zeros_like(start))
        for events in self._possible():
            low, high = start[events.sequences], end[events.sequences]
            rates = self._rates(events, (low + high) / 2.0, (high - low) / 2.0, DEGREE)
            total = ChebyshevPiece(*(events.sums @ part for part in (rates.v, rates.remainder)))
            shape = total.shape()
            for whole, one in (
                (found.upper, unless_known(shape.upper(total.remainder))),
                (found.middle, shape.centre),
            ):
                whole[events.sequences] = events.copies.back(one.unsqueeze(-1)).squeeze(-1)
        return found

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        possible = (one.state.possible for one in self.sequences)
        pairs = enumerate(zip(possible, choices.tolist(), strict=True))
        self._happen(times, {number: events[choice] for number, (events, choice) in pairs if choice >= 0})

    def _happen(self, times: Tensor, events: Mapping[int, int]) -> None:
        """Events of some sequences, possible or exogenous ones; `times` are of all sequences."""
        states = self.context.states
        changes = {number: states.after(self.sequences[number].state, event) for number, event in events.items()}
        pasts: dict[int, Any] = {}
        for group in self._groups(events, changes):
            pasts |= self._after(group, changes, times[group.members])
        when = times.tolist()
        for number, change in changes.items():
            past = pasts[number] if number in pasts else self._without(self.sequences[number].past, change.erased)
            self.sequences[number] = SampledSequence(states.of(change.added), past, when[number])
        # What stays as it is need not be worked out anew.
        self._known = [one for one in self._known if changes.keys().isdisjoint(one.members)]

    def _groups(self, events: Mapping[int, int], changes: Mapping[int, Transition]) -> list[SequenceGroup]:
        """In which the embeddings can be found that additions read when these events happen."""
        busy = [number for number, change in changes.items() if change.additions]
        if not busy:
            return []
        if all(one.copies.most == 1 for one in self._known):
            # What was asked about usually has them all.
            groups = [one.group for one in self._known]
            plan_of = {number: one for group in groups for number, one in zip(group.members, group.plans, strict=True)}
            if all(number in plan_of and changes[number].read <= plan_of[number].slot.keys() for number in busy):
                return [group for group in groups if not changes.keys().isdisjoint(group.members)]
        return [self._group(busy, [self.context.states.plan(self.sequences[one].state, events[one]) for one in busy])]

    def _group(self, members: list[int], plans: list[LocalPlan]) -> SequenceGroup:
        context = self.context
        tables = context.tables.get(plans[0]) if len(plans) == 1 else None
        if tables is None:
            tables = make_tables(plans, context.parameters)
            if len(plans) == 1:
                context.tables[plans[0]] = tables
        slots = list(zip(plans, tables.first.tolist(), strict=False))
        prepared = context.query.prepare(tables, slots, [self.sequences[one].past for one in members])
        return SequenceGroup(members, plans, tables, prepared)

    # What can happen next

    def _possible(self) -> list[EventChoices]:
        kinds: dict[int, list[int]] = {}
        known = {number for events in self._known for number in events.members}
        for number, sequence in enumerate(self.sequences):
            if number not in known:
                kinds.setdefault(id(sequence), []).append(number)
        some, rows = [], 0
        for place, members in enumerate(kinds.values()):
            some.append(members)
            rows += self._length(self.sequences[members[0]].past)
            if rows > ROWS_AT_A_TIME or place + 1 == len(kinds):
                self._known.append(self._events(some))
                some, rows = [], 0
        return self._known

    def _events(self, kinds: Sequence[Sequence[int]]) -> EventChoices:
        parameters = self.context.parameters
        device, grounding = parameters.device, parameters.grounding
        states = [self.sequences[members[0]].state for members in kinds]
        group = self._group([members[0] for members in kinds], [self.context.states.plan(one, None) for one in states])
        slots = [slot for kind, one in enumerate(states) for slot in group.slots(kind, one.possible)]
        slot = np.asarray(slots, dtype=np.int64)
        keys, functors = grounding.keys, grounding.functors
        functor = np.asarray(
            [parameters.functors[functors[keys[fact][0]]] for one in states for fact in one.possible], dtype=np.int64
        )
        counts = [len(one.possible) for one in states]
        dims = group.tables.dim[slot]
        order = np.lexsort((functor, dims)) if parameters.by_functor else np.argsort(dims, kind="stable")
        kind = np.repeat(np.arange(len(kinds)), counts)[order]
        tau = parameters.tau[_on(device, functor[order])]
        scales = len(parameters.scales) + len(parameters.shape_scales)
        size = max(self.context.query.size(group.prepared) + len(slot) * scales, 1)
        members = [one for some in kinds for one in some]
        return EventChoices(
            members,
            torch.tensor(members, dtype=torch.int64, device=device),
            Copies.of(kinds, device),
            group,
            self._scores(group.tables, slot[order], functor[order]),
            torch.tensor([self.sequences[one[0]].last for one in kinds], dtype=torch.float64, device=device),
            _on(device, kind),
            _on(device, joined([np.arange(one) for one in counts])[order]),
            tau / parameters.time_scale,
            _on(device, (kind == np.arange(len(kinds))[:, None]).astype(np.float64)),
            max(1, NUMBERS_AT_A_TIME // size),
        )

    def _scores(self, tables: SlotTables, slot: np.ndarray, functor: np.ndarray) -> tuple[EventScoreTable, ...]:
        """Events come in the order of their dimensions, and of their functors where these have factors of their own."""
        parameters, dims = self.context.parameters, tables.dim[slot]
        apart = functor if parameters.by_functor else np.zeros_like(functor)
        found = []
        for dim, one in dict.fromkeys(zip(dims.tolist(), apart.tolist(), strict=True)):
            mine = np.flatnonzero((dims == dim) & (apart == one))
            which = _on(parameters.device, functor[mine])
            w = parameters.w[which, : 1 + dim] / parameters.tau[which].unsqueeze(-1)
            factors = (of[one] if of else None for of in (parameters.mixture, parameters.shape))
            found.append(EventScoreTable(dim, _on(parameters.device, tables.row[slot[mine]]), w, *factors))
        return tuple(found)

    def _rates(self, events: EventChoices, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """Intensities of possible events [E, P], where `P` goes over the pieces of all copies of a sequence."""
        parameters = self.context.parameters
        middle, half = events.copies.spread(middle), events.copies.spread(half)
        if not events.by_dim:  # nothing is possible
            return constant(middle.new_zeros(0, middle.shape[1]), degree)
        found = []
        for low in range(0, middle.shape[1], events.pieces):
            some = slice(low, low + events.pieces)
            *_, top = self.context.query.embeddings(events.group.prepared, middle[:, some], half[:, some], degree)
            scores = _joined([one.scores(top, degree) for one in events.by_dim], -2)
            rates = softplus(scores).times(events.scale.unsqueeze(-1))
            if parameters.mixture:
                amplitudes = _joined([one.amplitudes(top, degree) for one in events.by_dim], -3)
                densities = parameters.densities(middle[:, some], half[:, some], events.last, degree)
                rates = rates + rates * _over_scales(amplitudes, densities, events.kind)
            if parameters.shape:
                exponents = _joined([one.exponents(top, degree) for one in events.by_dim], -3)
                shapes = parameters.shapes(middle[:, some], half[:, some], events.last, degree)
                rates = rates * exp(_over_scales(exponents, shapes, events.kind))
            found.append(rates)
        return _joined(found, -1)


def _over_scales(amplitudes: ChebyshevPiece, densities: ChebyshevPiece, kind: Tensor) -> ChebyshevPiece:
    """Of events [E, P, scales], of the sequences that they belong to: [E, P]."""
    whole = summed(amplitudes * densities.map(lambda part: part[..., kind, :, :]))
    return whole.map(lambda part: part.squeeze(-1))


def last_time(times: np.ndarray) -> float:
    """When the last event was; 0 where there is none."""
    return float(times[-1]) if len(times) else 0.0


def _joined(parts: Sequence[ChebyshevPiece], dim: int) -> ChebyshevPiece:
    if len(parts) == 1:
        return parts[0]
    return ChebyshevPiece(torch.cat([one.v for one in parts], dim), torch.cat([one.remainder for one in parts], dim))


def _on(device: torch.device, values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device)
