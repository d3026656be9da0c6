"""Sampler of a model of rules: the database moves with every event, and only what is possible then is ever asked about.

What facts keep of the past is the model's own business: each has a query, which knows how embeddings follow from a past, and a class of
walks, which knows what an event leaves behind.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from foretell.models.rules.sampler_parameters import RuleParameters
from foretell.plan.int_arrays import joined, offsets
from foretell.sampling.bounds.chebyshev import DEGREE, ChebyshevPiece, point, softplus, unless_known
from foretell.sampling.core.sampler import Bounds, Sampler
from foretell.sampling.rules.local_plan import LocalPlan, make_local_plan, side_by_side
from foretell.sampling.rules.states import DatabaseState, DatabaseStates, Step

ROWS_AT_A_TIME = 16_384  # of what walks that are looked at side by side keep of the past
NUMBERS_AT_A_TIME = 32_768  # rows times pieces of time, so that what is worked on stays in the cache


@dataclass(frozen=True, eq=False)
class Walk:
    """Never changes: copies of a walk are the same object until one of them goes on."""

    situation: DatabaseState
    past: Any  # what the model keeps of it


class Query(Protocol):
    """How embeddings follow from pasts."""

    def deduced(self, sketch: LocalPlan) -> Any:
        """What follows from a sketch alone."""

    def prepared(
        self, deduced: Any, facts: Sequence[np.ndarray], rows: Sequence[np.ndarray], pasts: Sequence[Any]
    ) -> Any:
        """Sampler with these facts, whose slots are these `rows`, and these pasts."""

    def size(self, prepared: Any) -> int:
        """Numbers that are worked on for each piece of time."""
        ...

    def embeddings(self, prepared: Any, middle: Tensor, half: Tensor, degree: int) -> list[Tensor]:
        """Of all slots on windows [walks, P], layer by layer: tables (`deduction.py`) with a row of zeros behind."""
        ...


@dataclass(frozen=True, eq=False)
class Shared:
    """What all walks of one model have in common."""

    situations: DatabaseStates
    parameters: RuleParameters
    query: Query
    deduced: WeakKeyDictionary[LocalPlan, Any]


@dataclass(frozen=True, eq=False)
class Copies:
    """Sampler that are the same so far are looked at together, as if they were one with more times."""

    first: Tensor  # int64 [kinds]: a walk of each
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
class Group:
    """Some distinct walks side by side."""

    members: list[int]  # one walk of each kind
    sketches: list[LocalPlan]
    rows: list[np.ndarray]  # where the slots of each are
    count: int  # of all slots
    prepared: Any

    def slots(self, kind: int, facts: Iterable[int]) -> list[int]:
        """Of facts; that of no fact is the row of zeros behind the table."""
        own, row = self.rows[kind], self.sketches[kind].row
        return [int(own[row[fact]]) if fact >= 0 else self.count for fact in facts]


@dataclass(frozen=True, eq=False)
class Asked:
    """Some walks, and what can happen next in them."""

    members: list[int]  # which walks these are
    walks: Tensor  # int64 [w]: the same
    copies: Copies
    group: Group
    slot: Tensor  # int64 [E]: slots of possible events
    walk: Tensor  # int64 [E]: of which kind of walk
    column: Tensor  # int64 [E]
    w: Tensor  # float64 [E, 1 + D], in units of tau
    scale: Tensor  # float64 [E]: tau in the data's unit of time
    sums: Tensor  # float64 [kinds, E]: 1 for the events of each
    pieces: int  # that are looked at together


class RuleSampler(Sampler):
    def __init__(self, shared: Shared, walks: Sequence[Walk]) -> None:
        self.shared, self.walks = shared, list(walks)
        self._asked: list[Asked] = []  # of walks about which something was asked

    # What each model says for itself

    @abstractmethod
    def _after(self, group: Group, steps: Mapping[int, Step], times: Tensor) -> dict[int, Any]:
        """Pasts of the group's walks that these steps lead on, whose times are [members]."""

    @abstractmethod
    def _without(self, past: Any, facts: Sequence[int]) -> Any:
        """A past in which these facts were never added."""

    @abstractmethod
    def _length(self, past: Any) -> int:
        """How many rows a past has."""

    # The same for all

    @property
    def count(self) -> int:
        return len(self.walks)

    def taken(self, walks: Tensor) -> Self:
        return type(self)(self.shared, [self.walks[one] for one in walks.tolist()])

    def name(self, walk: int, choice: int) -> str:
        return self.walks[walk].situation.names[choice]

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        columns = max((len(walk.situation.possible) for walk in self.walks), default=0)
        out = times.new_zeros(self.count, times.shape[1], columns)
        for asked in self._asked_now():
            when = times[asked.walks]
            rates = self._rates(asked, when, torch.zeros_like(when), 0).v[0]
            of_kinds = rates.new_zeros(len(asked.copies.first), columns, rates.shape[1])
            of_kinds[asked.walk, asked.column] = rates
            out[asked.walks] = asked.copies.back(of_kinds.mT)
        return out

    @torch.inference_mode()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        found = Bounds(torch.zeros_like(start), torch.zeros_like(start))
        for asked in self._asked_now():
            low, high = start[asked.walks], end[asked.walks]
            rates = self._rates(asked, (low + high) / 2.0, (high - low) / 2.0, DEGREE)
            total = ChebyshevPiece(*(asked.sums @ part for part in (rates.v, rates.remainder)))
            shape = total.shape()
            for whole, one in (
                (found.upper, unless_known(shape.upper(total.remainder))),
                (found.middle, shape.centre),
            ):
                whole[asked.walks] = asked.copies.back(one.unsqueeze(-1)).squeeze(-1)
        return found

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        possible = (walk.situation.possible for walk in self.walks)
        pairs = enumerate(zip(possible, choices.tolist(), strict=True))
        self._happen(times, {number: events[choice] for number, (events, choice) in pairs if choice >= 0})

    def _happen(self, times: Tensor, events: Mapping[int, int]) -> None:
        """Events of some walks, possible or exogenous ones; `times` are of all walks."""
        situations = self.shared.situations
        steps = {number: situations.after(self.walks[number].situation, event) for number, event in events.items()}
        pasts: dict[int, Any] = {}
        for group in self._groups(events, steps):
            pasts |= self._after(group, steps, times[group.members])
        for number, step in steps.items():
            past = pasts[number] if number in pasts else self._without(self.walks[number].past, step.erased)
            self.walks[number] = Walk(situations.of(step.added), past)
        # What stays as it is need not be worked out anew.
        self._asked = [asked for asked in self._asked if steps.keys().isdisjoint(asked.members)]

    def _groups(self, events: Mapping[int, int], steps: Mapping[int, Step]) -> list[Group]:
        """In which the embeddings can be found that are looked at when these events happen."""
        busy = [number for number, step in steps.items() if step.additions]
        if not busy:
            return []
        if all(asked.copies.most == 1 for asked in self._asked):
            # What was asked about usually has them all.
            groups = [asked.group for asked in self._asked]
            sketch_of = {
                number: one for group in groups for number, one in zip(group.members, group.sketches, strict=True)
            }
            if all(number in sketch_of and steps[number].looked <= sketch_of[number].row.keys() for number in busy):
                return [group for group in groups if not steps.keys().isdisjoint(group.members)]
        sketches = [self._sketch(self.walks[one].situation, events[one], steps[one].looked) for one in busy]
        return [self._group(busy, sketches)]

    def _sketch(self, situation: DatabaseState, event: int | None, roots: Iterable[int]) -> LocalPlan:
        """Of what is looked at when an event happens, or of all possible events."""
        found = situation.sketches.get(event)
        if found is None:
            found = situation.sketches[event] = make_local_plan(
                self.shared.situations, situation, roots, self.shared.parameters.deduction
            )
        return found

    def _group(self, members: list[int], sketches: list[LocalPlan]) -> Group:
        query, known = self.shared.query, self.shared.deduced
        if len(sketches) == 1:
            (one,) = sketches
            rows = [np.arange(len(one.fact))]
            deduced = known.get(one)
            if deduced is None:
                deduced = known[one] = query.deduced(one)
        else:
            whole, rows = side_by_side(sketches)
            deduced = query.deduced(whole)
        pasts = [self.walks[one].past for one in members]
        prepared = query.prepared(deduced, [one.fact for one in sketches], rows, pasts)
        return Group(members, sketches, rows, sum(map(len, rows)), prepared)

    # What can happen next

    def _asked_now(self) -> list[Asked]:
        kinds: dict[int, list[int]] = {}
        known = {number for asked in self._asked for number in asked.members}
        for number, walk in enumerate(self.walks):
            if number not in known:
                kinds.setdefault(id(walk), []).append(number)
        some, rows = [], 0
        for place, members in enumerate(kinds.values()):
            some.append(members)
            rows += self._length(self.walks[members[0]].past)
            if rows > ROWS_AT_A_TIME or place + 1 == len(kinds):
                self._asked.append(self._ask(some))
                some, rows = [], 0
        return self._asked

    def _ask(self, kinds: Sequence[Sequence[int]]) -> Asked:
        parameters = self.shared.parameters
        device, grounding = parameters.device, parameters.grounding
        situations = [self.walks[members[0]].situation for members in kinds]
        sketches = [self._sketch(one, None, one.possible) for one in situations]
        group = self._group([members[0] for members in kinds], sketches)
        slot = [slot for kind, one in enumerate(situations) for slot in group.slots(kind, one.possible)]
        keys, functors = grounding.keys, grounding.functors
        functor = [parameters.functors[functors[keys[fact][0]]] for one in situations for fact in one.possible]
        counts = [len(one.possible) for one in situations]
        of_kind = np.repeat(np.arange(len(kinds)), counts)
        tau = parameters.tau[functor]
        size = max(self.shared.query.size(group.prepared), 1)
        members = [one for some in kinds for one in some]
        return Asked(
            members,
            torch.tensor(members, dtype=torch.int64, device=device),
            Copies.of(kinds, device),
            group,
            torch.tensor(slot, dtype=torch.int64, device=device),
            _on(device, of_kind),
            _on(device, joined([np.arange(one) for one in counts])),
            parameters.w[functor] / tau.unsqueeze(-1),
            tau / parameters.time_scale,
            _on(device, (of_kind == np.arange(len(kinds))[:, None]).astype(np.float64)),
            max(1, NUMBERS_AT_A_TIME // size),
        )

    def _rates(self, asked: Asked, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """Intensities of possible events [E, P], where `P` goes over the pieces of all copies of a walk."""
        middle, half = asked.copies.spread(middle), asked.copies.spread(half)
        found = []
        for low in range(0, middle.shape[1], asked.pieces):
            some = slice(low, low + asked.pieces)
            *_, top = self.shared.query.embeddings(asked.group.prepared, middle[:, some], half[:, some], degree)
            found.append(self._softened(asked, top, degree))
        if len(found) == 1:
            return found[0]
        return ChebyshevPiece(torch.cat([one.v for one in found], -1), torch.cat([one.remainder for one in found], -1))

    def _softened(self, asked: Asked, top: Tensor, degree: int) -> ChebyshevPiece:
        """`τ softplus(w·[1; emb]/τ)`: [E, P]."""
        rows, w = top[asked.slot], asked.w[:, 1:].unsqueeze(-1)
        shape = len(rows), degree + 1, top.shape[2]
        v = (rows[:, : degree + 1].flatten(1, 2) @ w).view(shape).transpose(0, 1)
        score = ChebyshevPiece(v, (rows[:, -1] @ w.abs()).squeeze(-1)) if degree else point(v[0])
        return softplus(score.plus(asked.w[:, :1])).times(asked.scale.unsqueeze(-1))


def _on(device: torch.device, values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).to(device)
