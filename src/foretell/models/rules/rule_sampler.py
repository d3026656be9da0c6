"""Samplers of models of rules: the database changes with every event, and only possible events are evaluated.

Each model has its own representation of the past: its query computes embeddings from a past, and its sampler updates the past after an
event.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from foretell.models.rules.event_scores import Copies, EventScoreTable, ScoredEvents, joined_pieces, on_device
from foretell.models.rules.product_blocks import StateProducts
from foretell.models.rules.product_proposals import SequenceEvents
from foretell.models.rules.product_sampler import (
    moving_parts,
    product_bounds,
    product_intensities,
    state_products,
    with_products,
)
from foretell.models.rules.sampled_sequences import NOTHING_LIVES, RuleContext, SampledSequence
from foretell.models.rules.slot_tables import SlotTables, make_tables
from foretell.plan.int_arrays import Ints, joined
from foretell.sampling.bounds.chebyshev import DEGREE, ChebyshevPiece, constant, unless_known
from foretell.sampling.core.sampler import Bounds, FutureCovariates, Sampler, WindowGrowth
from foretell.sampling.rules.living import NewEnd
from foretell.sampling.rules.states import LocalPlan, Transition

ROWS_AT_A_TIME = 16_384  # rows of the pasts of sequences that are evaluated together
SHARE_OF_SHORTEST = 0.6  # the initial window as a share of the shortest time scale
PIECES, TOGETHER, WIDER = 48, 48, 4.0  # for products of events, whose proposals are often rejected
NUMBERS_AT_A_TIME = 32_768  # rows times time pieces, so that the data of a block stay in the cache


@dataclass(frozen=True, eq=False)
class SequenceGroup:
    """Some distinct sequences, evaluated together."""

    members: list[int]  # one sequence of each kind
    plans: list[LocalPlan]
    tables: SlotTables
    prepared: Any

    def slots(self, kind: int, facts: Iterable[int]) -> list[int]:
        """Return the slots of facts; the slot of fact -1 is -1."""
        first, slot = int(self.tables.first[kind]), self.plans[kind].slot
        return [first + slot[fact] if fact >= 0 else -1 for fact in facts]


@dataclass(frozen=True, eq=False)
class EventChoices:
    """Some sequences, and the events that are possible next in each of them."""

    members: list[int]  # sequence numbers
    sequences: Tensor  # int64 [w]: the same numbers
    copies: Copies
    group: SequenceGroup
    scored: ScoredEvents  # the E possible events
    column: Tensor  # int64 [E]
    sums: Tensor  # float64 [kinds, E]: 1 for the events of each kind
    pieces: int  # the number of time pieces per call
    products: SequenceEvents | None = None  # for one sequence, if its possible events are products


class RuleSampler(Sampler):
    has_waves: ClassVar[bool]  # whether there are waves of absolute time

    def __init__(self, context: RuleContext, sequences: Sequence[SampledSequence]) -> None:
        self.context, self.sequences = context, list(sequences)
        self._known: list[EventChoices] = []  # one entry per group of evaluated sequences
        self._random = torch.Generator().manual_seed(0)
        self._how: FutureCovariates = "drawn"
        self._numbers: dict[int, Tensor] = {}  # numbers of the present events with features

    # Methods that each model defines

    @abstractmethod
    def _after(self, group: SequenceGroup, changes: Mapping[int, Transition], times: Tensor) -> dict[int, Any]:
        """Return the new pasts of the group's sequences that have an event; times are [members]."""

    @abstractmethod
    def _without(self, past: Any, facts: Sequence[int]) -> Any:
        """Return a past in which these facts were never added."""

    @abstractmethod
    def _remembered(self, past: Any) -> Iterable[int]:
        """Return the facts that the past contains. The embeddings of all others stay as they are."""

    @abstractmethod
    def _length(self, past: Any) -> int:
        """Return the number of rows of a past."""

    @abstractmethod
    def _expired(self, past: Any, ended: Sequence[NewEnd], facts: frozenset[int]) -> Any:
        """Return a past without the additions in `ended`, the oldest ones of their `r`. `facts` have no additions left."""

    @property
    @abstractmethod
    def _steady_width(self) -> float:
        """The initial width of windows if intensities do not depend on the time since the last event."""

    # Methods that all models share

    @property
    def width(self) -> float:
        short = self.context.parameters.short
        return self._longest_width if short is None else min(self._longest_width, SHARE_OF_SHORTEST * short)

    @property
    def _longest_width(self) -> float:
        steady = self._steady_width * (WIDER if self.context.has_products else 1.0)
        return min(steady, SHARE_OF_SHORTEST * self.context.parameters.shortest_wave)

    def growth(self) -> WindowGrowth | None:
        parameters = self.context.parameters
        if parameters.short is None:
            return None
        last = torch.tensor([one.last for one in self.sequences], dtype=torch.float64, device=parameters.device)
        # Waves of absolute time do not slow down after the last event, so windows never get longer than without the mixture.
        has_waves = self.has_waves or parameters.clock is not None
        limit = parameters.short * (self._longest_width / self.width - 1.0) if has_waves else math.inf
        return WindowGrowth(last, parameters.short, limit)

    @property
    def count(self) -> int:
        return len(self.sequences)

    def select(self, rows: Tensor) -> Self:
        found = type(self)(self.context, [self.sequences[one] for one in rows.tolist()])
        found._random, found._how = self._random, self._how
        return found

    def draw_covariates(self, random: torch.Generator, how: FutureCovariates) -> None:
        self._random, self._how = random, how

    def name(self, row: int, choice: int) -> str:
        context = self.context
        return context.parameters.grounding.text(context.event(self.sequences[row].state, choice))

    def changes(self) -> Tensor | None:
        if not self.context.expires:
            return None
        ends = [one.living.next for one in self.sequences]
        return torch.tensor(ends, dtype=torch.float64, device=self.context.parameters.device)

    def passed(self, now: Tensor) -> Self:
        return self._advanced(now, at_now=True) if self.context.expires else self

    def _advanced(self, now: Tensor, at_now: bool) -> Self:
        """Return a sampler in which all additions that expire up to times [W] have ended. Copies of a sequence stay copies."""
        made: dict[tuple[int, int], SampledSequence] = {}
        sequences = []
        for one, time in zip(self.sequences, now.tolist(), strict=True):
            count = one.living.count(time, at_now)
            if count and (id(one), count) not in made:
                living, ended, facts = one.living.due(count)
                state = self.context.states.of(one.state.added - facts) if facts else one.state
                made[id(one), count] = replace(
                    one, state=state, past=self._expired(one.past, ended, facts), living=living
                )
            sequences.append(made[id(one), count] if count else one)
        return type(self)(self.context, sequences) if made else self

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        known = self._possible()
        if self.context.has_products:
            return product_intensities(known, times)
        columns = max((len(one.state.possible) for one in self.sequences), default=0)
        columns = len(self.context.columns) if self.context.expires else columns
        out = times.new_zeros(self.count, times.shape[1], columns)
        for events in known:
            when = times[events.sequences]
            rates = self._rates(events, when, torch.zeros_like(when), 0).v[0]
            of_kinds = rates.new_zeros(len(events.copies.first), columns, rates.shape[1])
            of_kinds[events.scored.kind, events.column] = rates
            out[events.sequences] = events.copies.back(of_kinds.mT)
        return out

    @torch.inference_mode()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        found = Bounds(torch.zeros_like(start), torch.zeros_like(start))
        known = self._possible()
        if self.context.has_products:
            found = product_bounds(known, start, end)
        for events in () if self.context.has_products else known:
            low, high = start[events.sequences], end[events.sequences]
            rates = self._rates(events, (low + high) / 2.0, (high - low) / 2.0, DEGREE)
            total = ChebyshevPiece(*(events.sums @ part for part in (rates.v, rates.remainder)))
            shape = total.shape()
            for whole, one in (
                (found.upper, unless_known(shape.upper(total.remainder))),
                (found.middle, shape.centre),
            ):
                whole[events.sequences] = events.copies.back(one.unsqueeze(-1)).squeeze(-1)
        if self.context.parameters.clock is None:
            return found
        # No bound is tight where clocks are put forward or back: there a bound is compared with itself.
        loose = self.context.parameters.clock_changes(self._starts(range(self.count)), start, end)
        return replace(found, middle=torch.where(loose, found.upper, found.middle))

    # Products of possible events

    @property
    def pieces(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return PIECES if self.context.has_products else 0

    @property
    def together(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return TOGETHER if self.context.has_products else Sampler.together

    def _moving(self, number: int) -> tuple[StateProducts, tuple[Ints, ...], Ints]:
        """Return the products of a sequence's state, and which of their parts change with time (see `moving_parts`)."""
        one = self.sequences[number]
        remembered = list(self._remembered(one.past))
        found = state_products(self.context, one, self._without(one.past, remembered))
        return found, *moving_parts(self.context, one, remembered, found)

    def _plan(self, number: int) -> LocalPlan:
        """Return the plan of slots for listed events, and for the parts of products that change with time."""
        needed = frozenset(self._moving(number)[2].tolist()) if self.context.has_products else None
        return self.context.states.plan(self.sequences[number].state, needed)

    def _starts(self, sequences: Iterable[int]) -> Tensor:
        starts = [self.sequences[one].start for one in sequences]
        return torch.tensor(starts, dtype=torch.float64, device=self.context.parameters.device)

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        if self.context.expires:
            happens = torch.where(choices >= 0, times, -math.inf)
            advanced = self._advanced(happens, at_now=False)
            if advanced is not self:
                self.sequences, self._known = advanced.sequences, []
        event, pairs = self.context.event, enumerate(zip(self.sequences, choices.tolist(), strict=True))
        self._happen(times, {number: event(one.state, choice) for number, (one, choice) in pairs if choice >= 0})

    def _happen(self, times: Tensor, events: Mapping[int, int]) -> None:
        """Apply events, possible or exogenous ones, to some sequences. `times` are those of all sequences."""
        states = self.context.states
        changes = {number: states.after(self.sequences[number].state, event) for number, event in events.items()}
        pasts: dict[int, Any] = {}
        self._draw_numbers(events)
        for group in self._groups(events, changes):
            pasts |= self._after(group, changes, times[group.members])
        when = times.tolist()
        for number, change in changes.items():
            past = pasts[number] if number in pasts else self._without(self.sequences[number].past, change.erased)
            living, before = NOTHING_LIVES, self.sequences[number].living
            if self.context.expires:
                living = before.after(change.erased, change.ends(when[number], states.histories.lifetimes))
            self.sequences[number] = replace(
                self.sequences[number], state=states.of(change.added), past=past, last=when[number], living=living
            )
        # Results for unchanged sequences stay valid.
        self._known = [one for one in self._known if changes.keys().isdisjoint(one.members)]

    def _draw_numbers(self, events: Mapping[int, int]) -> None:
        features = self.context.parameters.network.features
        if features.functors:
            names, known = self.context.parameters.grounding, self.context.parameters.vocabulary
            types = [known.find(names.text(event)) for event in events.values()]
            self._numbers = dict(zip(events, features.drawn(types, self._random, self._how), strict=True))

    def by_numbers(self, bodies: Tensor, additions: Sequence[tuple[int, int]]) -> Tensor:
        """Return bodies [A, conditions, D] with the terms of numbers added to their events.

        `additions` are pairs: a sequence, and a functor with features or -1.
        """
        features = self.context.parameters.network.features
        marked = sorted({event for _, event in additions} - {-1})
        for event in marked:
            rows = [row for row, (_, one) in enumerate(additions) if one == event]
            more = features(event, torch.stack([self._numbers[additions[row][0]] for row in rows]))
            bodies = bodies.clone()
            bodies[rows, 0, : more.shape[1]] += more
        return bodies

    def _groups(self, events: Mapping[int, int], changes: Mapping[int, Transition]) -> list[SequenceGroup]:
        """Return groups whose tables contain all embeddings that the additions of these events read."""
        busy = [number for number, change in changes.items() if change.additions]
        if not busy:
            return []
        if all(one.copies.most == 1 for one in self._known):
            # Groups from the last evaluation usually contain all of them.
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
        prepared = context.query.prepare(tables, slots, [self.sequences[one] for one in members])
        return SequenceGroup(members, plans, tables, prepared)

    # Possible next events

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
            if rows > ROWS_AT_A_TIME or place + 1 == len(kinds) or self.context.has_products:
                self._known.append(self._events(some))
                some, rows = [], 0
        return self._known

    def _events(self, kinds: Sequence[Sequence[int]]) -> EventChoices:
        parameters = self.context.parameters
        device, grounding = parameters.device, parameters.grounding
        states = [self.sequences[members[0]].state for members in kinds]
        group = self._group([members[0] for members in kinds], [self._plan(members[0]) for members in kinds])
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
        tau = parameters.tau[on_device(device, functor[order])]
        scales = len(parameters.scales) + len(parameters.shape_scales)
        size = max(self.context.query.size(group.prepared) + len(slot) * scales, 1)
        members = [one for some in kinds for one in some]
        found = EventChoices(
            members,
            torch.tensor(members, dtype=torch.int64, device=device),
            Copies.of(kinds, device),
            group,
            ScoredEvents(
                self._scores(group.tables, slot[order], functor[order], kind),
                on_device(device, kind),
                tau / parameters.time_scale,
                torch.tensor([self.sequences[one[0]].last for one in kinds], dtype=torch.float64, device=device),
                self._starts(one[0] for one in kinds),
            ),
            on_device(device, joined([self.context.column(one.possible) for one in states])[order]),
            on_device(device, (kind == np.arange(len(kinds))[:, None]).astype(np.float64)),
            max(1, NUMBERS_AT_A_TIME // size),
        )
        if not self.context.has_products:
            return found
        products, moving, _ = self._moving(group.members[0])
        return with_products(self.context, found, counts[0], products, moving)

    def _scores(self, tables: SlotTables, slot: Ints, functor: Ints, kind: Ints) -> tuple[EventScoreTable, ...]:
        """Return score tables, ordered by dimension, and by functor if functors have factors of their own."""
        parameters, dims = self.context.parameters, tables.dim[slot]
        apart = functor if parameters.by_functor else np.zeros_like(functor)
        found = []
        for dim, one in dict.fromkeys(zip(dims.tolist(), apart.tolist(), strict=True)):
            mine = np.flatnonzero((dims == dim) & (apart == one))
            which = on_device(parameters.device, functor[mine])
            w = parameters.w[which, : 1 + dim] / parameters.tau[which].unsqueeze(-1)
            mixture, shape = (of[one] if of else None for of in (parameters.mixture, parameters.shape))
            clock = None if parameters.clock is None else parameters.clock.heads[one].detach() / parameters.tau[one]
            rows, kinds = (on_device(parameters.device, of) for of in (tables.row[slot[mine]], kind[mine]))
            found.append(EventScoreTable(dim, rows, w, mixture, shape, clock, kinds))
        return tuple(found)

    def _rates(self, events: EventChoices, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """Return the intensities of possible events, [E, P]; `P` are the time pieces of all copies of a sequence."""
        parameters = self.context.parameters
        middle, half = events.copies.spread(middle), events.copies.spread(half)
        if not events.scored.by_dim:  # nothing is possible
            return constant(middle.new_zeros(0, middle.shape[1]), degree)
        found = []
        for low in range(0, middle.shape[1], events.pieces):
            some = slice(low, low + events.pieces)
            *_, top = self.context.query.embeddings(events.group.prepared, middle[:, some], half[:, some], degree)
            found.append(events.scored.rates(parameters, top, middle[:, some], half[:, some], degree))
        return joined_pieces(found, -1)


def last_time(times: np.ndarray) -> float:
    """Return the time of the last event; 0 if there is none."""
    return float(times[-1]) if len(times) else 0.0
