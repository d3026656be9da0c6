"""Walks of an A-NDTT: the database moves with every event, and one more event costs a key and a value for each of its additions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.models.andtt import ANDTT
from foretell.plan.runs import joined, offsets
from foretell.sampling.andtt_parameters import Parameters
from foretell.sampling.andtt_past import Memory, Past, recall
from foretell.sampling.andtt_query import Deduced, Prepared, Query
from foretell.sampling.andtt_situations import Situation, Situations, Step
from foretell.sampling.andtt_sketch import Sketch, side_by_side, sketch
from foretell.sampling.nodes import DEGREE, Nodes, point, softplus
from foretell.sampling.walk import Bounds, Walks

NO_ROWS = np.zeros(0, dtype=np.int64)
ROWS_AT_A_TIME = 16_384  # additions of walks that are looked at side by side
NUMBERS_AT_A_TIME = 32_768  # rows times pieces of time, so that what is worked on stays in the cache


@dataclass(frozen=True, eq=False)
class Walk:
    """Never changes: copies of a walk are the same object until one of them goes on."""

    situation: Situation
    past: Past


@dataclass(frozen=True, eq=False)
class Shared:
    """What all walks of one model have in common."""

    situations: Situations
    parameters: Parameters
    memory: Memory
    query: Query
    deduced: WeakKeyDictionary[Sketch, Deduced]


@dataclass(frozen=True, eq=False)
class Copies:
    """Walks that are the same so far are looked at together, as if they were one with more times."""

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
    sketches: list[Sketch]
    rows: list[np.ndarray]  # where the slots of each are
    prepared: Prepared

    def slots(self, kind: int, facts: Iterable[int]) -> list[int]:
        """Of facts; that of no fact is the row of zeros behind the table."""
        own, row = self.rows[kind], self.sketches[kind].row
        return [int(own[row[fact]]) if fact >= 0 else self.prepared.deduced.slots for fact in facts]


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


class ANDTTWalks(Walks):
    def __init__(self, shared: Shared, walks: Sequence[Walk]) -> None:
        self.shared, self.walks = shared, list(walks)
        self._asked: list[Asked] = []  # of walks about which something was asked

    @classmethod
    @torch.inference_mode()
    def start(cls, model: ANDTT, histories: Sequence[EventSequence], seen: Sequence[int]) -> ANDTTWalks:
        """Walks that begin with the first `seen` events of each history. The model stays as it is."""
        parameters = Parameters(model)
        memory = Memory.empty(parameters)
        situations = Situations(model.histories)
        timelines = []
        for one, n in zip(histories, seen, strict=True):
            unscored = None if one.unscored is None else one.unscored[:n]
            _, timeline = model.histories.timeline(model.vocabulary, one.types[:n], one.times[:n], unscored)
            timelines.append((timeline, one.times[:n]))
        pasts = recall(model, parameters, memory, timelines)
        made = [
            Walk(situations.of(situations.added_at_end(timeline)), past)
            for (timeline, _), past in zip(timelines, pasts, strict=True)
        ]
        return cls(Shared(situations, parameters, memory, Query(parameters, memory), WeakKeyDictionary()), made)

    @property
    def count(self) -> int:
        return len(self.walks)

    @property
    def width(self) -> float:
        return 2.0 * self.shared.parameters.network.time.m

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
            total = Nodes(*(asked.sums @ part for part in (rates.v, rates.remainder)))
            shape = total.shape()
            for whole, one in (
                (found.upper, shape.upper(total.remainder).nan_to_num(nan=math.inf)),
                (found.middle, shape.c[0]),
            ):
                whole[asked.walks] = asked.copies.back(one.unsqueeze(-1)).squeeze(-1)
        return found

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        situations = self.shared.situations
        events: dict[int, int] = {}
        steps: dict[int, Step] = {}
        for number, (walk, choice) in enumerate(zip(self.walks, choices.tolist(), strict=True)):
            if choice >= 0:
                events[number] = walk.situation.possible[choice]
                steps[number] = situations.after(walk.situation, events[number])
        made: dict[int, range] = {}
        for group in self._groups(events, steps):
            made |= self._remembered(group, steps, times[group.members])
        for number, step in steps.items():
            walk = self.walks[number]
            past = {fact: by_r for fact, by_r in walk.past.items() if fact not in step.erased}
            for row, one in zip(made.get(number, ()), step.additions, strict=True):
                by_r = past[one.head] = dict(past.get(one.head, {}))
                by_r[one.r] = np.append(by_r.get(one.r, NO_ROWS), row)
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

    def _remembered(self, group: Group, steps: Mapping[int, Step], times: Tensor) -> dict[int, range]:
        """Keys and values of what is added, as rows of the memory: by walk."""
        query, parameters, memory = self.shared.query, self.shared.parameters, self.shared.memory
        size, cut = parameters.conditions, 1 + parameters.time_dim + parameters.dim
        body, matrix, kinds, counts = [], [], [], {}
        for kind, number in enumerate(group.members):
            additions = steps[number].additions if number in steps else ()
            counts[number] = len(additions)
            for one in additions:
                body.append(group.slots(kind, (*one.body, *[-1] * (size - len(one.body)))))
                matrix.append(parameters.addition(one.group))
                kinds.append(kind)
        if not body:
            return {}
        when, still = times.unsqueeze(1), torch.zeros_like(times).unsqueeze(1)
        layers = query.embeddings(group.prepared, when, still, 0)
        time = query.features(when, still, 0).v[0, :, 0][kinds]
        place = torch.tensor(body, dtype=torch.int64, device=times.device).view(len(body), size)
        taken = range(0)
        for layer, (embedding, bank) in enumerate(zip(layers, parameters.additions, strict=False), start=1):
            inputs = torch.cat([time, embedding[:, 0, 0][place].flatten(1)], 1)
            made = (bank.rows[matrix] @ inputs.unsqueeze(-1)).squeeze(-1)
            taken = memory.take(layer, made[:, :cut], made[:, cut:])
        edges = (taken.start + offsets(list(counts.values()))).tolist()
        return {number: range(low, high) for number, (low, high) in zip(counts, pairwise(edges), strict=True)}

    def _sketch(self, situation: Situation, event: int | None, roots: Iterable[int]) -> Sketch:
        """Of what is looked at when an event happens, or of all possible events."""
        found = situation.sketches.get(event)
        if found is None:
            found = situation.sketches[event] = sketch(self.shared.situations, self.shared.parameters, situation, roots)
        return found

    def _group(self, members: list[int], sketches: list[Sketch]) -> Group:
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
        attention = query.attention(deduced, [one.fact for one in sketches], rows, pasts)
        return Group(members, sketches, rows, Prepared(deduced, attention))

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
            rows += sum(len(one) for by_r in self.walks[members[0]].past.values() for one in by_r.values())
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
        attention, slots = group.prepared.attention, group.prepared.deduced.slots
        size = max(slots * parameters.dim, 1, 0 if attention is None else attention.rows)
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

    def _rates(self, asked: Asked, middle: Tensor, half: Tensor, degree: int) -> Nodes:
        """Intensities of possible events [E, P], where `P` goes over the pieces of all copies of a walk."""
        middle, half = asked.copies.spread(middle), asked.copies.spread(half)
        found = []
        for low in range(0, middle.shape[1], asked.pieces):
            some = slice(low, low + asked.pieces)
            *_, top = self.shared.query.embeddings(asked.group.prepared, middle[:, some], half[:, some], degree)
            found.append(self._softened(asked, top, degree))
        if len(found) == 1:
            return found[0]
        return Nodes(torch.cat([one.v for one in found], -1), torch.cat([one.remainder for one in found], -1))

    def _softened(self, asked: Asked, top: Tensor, degree: int) -> Nodes:
        """`τ softplus(w·[1; emb]/τ)`: [E, P]."""
        rows, w = top[asked.slot], asked.w[:, 1:].unsqueeze(-1)
        shape = len(rows), degree + 1, top.shape[2]
        v = (rows[:, : degree + 1].flatten(1, 2) @ w).view(shape).transpose(0, 1)
        score = Nodes(v, (rows[:, -1] @ w.abs()).squeeze(-1)) if degree else point(v[0])
        return softplus(score.plus(asked.w[:, :1])).times(asked.scale.unsqueeze(-1))


def _on(device: torch.device, values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).to(device)
