"""The part of a sequence's slots that only depends on its timeline: sorted additions, the facts that they read, possible events.

Every training step makes a plan with fresh draws; this part is computed once per sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretell.ground.database import NO_GROUP
from foretell.ground.products import EventProduct
from foretell.ground.timeline import Grounding, Timeline
from foretell.plan.int_arrays import ByKey, Ints, changes, joined, running_most, spread
from foretell.plan.local_rows import KnownEvents
from foretell.plan.parameters import DimensionLayout
from foretell.plan.possible_by_state import PossibleByState, possible_counts
from foretell.plan.products import ProductHistory

NO_INTS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class FactArrays:
    functor: Ints
    dim: Ints
    changing: np.ndarray  # bool: whether the fact's embedding can change with time
    is_event: np.ndarray  # bool
    always_proofs: ByKey  # rule instances that always hold, by their head (only heads with embeddings)


@dataclass(frozen=True, eq=False)
class InstanceArrays:
    head: Ints
    rule: Ints
    group: Ints
    r: Ints  # the `r` of the equations, given as the first group that belongs to it
    body_start: Ints  # [instantiations + 1]
    body_fact: Ints  # the embedded conditions of all rule instances

    def bodies(self, instances: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the embedded conditions of rule instances: fact, row of the instance, and place among its embedded conditions."""
        start = self.body_start[instances]
        row, where = spread(start, self.body_start[instances + 1] - start)
        return self.body_fact[where], row, where - start[row]


class GroundingArrays:
    """A grounding's facts and rule instances as arrays, updated by `refresh`. Existing numbers never change."""

    def __init__(self, grounding: Grounding, layout: DimensionLayout) -> None:
        self.grounding, self.layout = grounding, layout
        nowhere = NO_INTS.astype(bool)
        self.facts = FactArrays(NO_INTS, NO_INTS, nowhere, nowhere, ByKey(NO_INTS, NO_INTS, 0))
        self.instances = InstanceArrays(NO_INTS, NO_INTS, NO_INTS, NO_INTS, np.zeros(1, dtype=np.int64), NO_INTS)
        self._r_of_group: list[int] = []
        self._first: dict[tuple[int, ...], int] = {}
        embedded = {place: () if one is None else one.embedded for place, one in enumerate(layout.rules)}
        for one in grounding.products:
            for part in one.parts:
                embedded[part.rule] = tuple(
                    part.atoms.index(place) for place in embedded[one.rule] if place in part.atoms
                )
            embedded |= {part.rule: () for part in one.blockers}
        self._embedded: dict[int, tuple[int, ...]] = embedded
        # Each embedded condition of a product: (part, place among the part's embedded conditions).
        self.conditions = {one.rule: _conditions(one, embedded) for one in grounding.products}
        self.known = {one.functor: KnownEvents(one.functor, one.arity) for one in grounding.products}
        self.refresh()

    def refresh(self) -> None:
        """Append what was added to the grounding since the last call."""
        if len(self.grounding.rule) > len(self.instances.head):
            self._more_instances()
        if len(self.grounding.keys) > len(self.facts.dim):
            self._more_facts()
            for one in self.known.values():
                one.refresh(self.grounding)

    def _more_instances(self) -> None:
        grounding, old = self.grounding, self.instances
        new = range(len(old.head), len(grounding.rule))
        for number in range(len(self._r_of_group), len(grounding.groups)):
            self._r_of_group.append(self._r(number))
        bodies = [[grounding.body[one][place] for place in self._embedded[grounding.rule[one]]] for one in new]
        counts = np.asarray([len(one) for one in bodies], dtype=np.int64)
        self.instances = InstanceArrays(
            _continued(old.head, [grounding.head[one] for one in new]),
            _continued(old.rule, [grounding.rule[one] for one in new]),
            _continued(old.group, [grounding.group[one] for one in new]),
            _continued(old.r, [self.r_of_group(grounding.group[one]) for one in new]),
            np.concatenate([old.body_start, old.body_start[-1] + np.cumsum(counts)]),
            _continued(old.body_fact, [fact for one in bodies for fact in one]),
        )

    def r_of_group(self, group: int) -> int:
        return group if group == NO_GROUP else self._r_of_group[group]

    def _r(self, number: int) -> int:
        """Return the `r` of a group: the first group that differs from it at most in variables that only occur in `: b(X)`."""
        rule, *values = self.grounding.groups[number]
        count = self.layout.values_of_heads.get(rule)
        return number if count is None else self._first.setdefault((rule, *values[:count]), number)

    def _more_facts(self) -> None:
        grounding = self.grounding
        keys = grounding.keys
        old = self.facts.functor
        functor = _continued(old, [keys[fact][0] for fact in range(len(old), len(keys))])
        dims, changing = self.layout.of_facts(grounding)
        known = [grounding.program.functors.get(name) for name in grounding.functors]
        is_event = [one is not None and one.kind == "event" for one in known]
        dim = np.asarray(dims, dtype=np.int64)[functor]
        always = grounding.always_proofs.astype(np.int64)
        head = self.instances.head[always]
        shown = dim[head] > 0
        self.facts = FactArrays(
            functor,
            dim,
            np.asarray(changing, dtype=bool)[functor],
            np.asarray(is_event, dtype=bool)[functor],
            ByKey(head[shown], always[shown], len(functor)),
        )


def _conditions(one: EventProduct, embedded: dict[int, tuple[int, ...]]) -> list[tuple[int, int]]:
    found = []
    for place in embedded[one.rule]:
        number = next(number for number, part in enumerate(one.parts) if place in part.atoms)
        part = one.parts[number]
        found.append((number, embedded[part.rule].index(part.atoms.index(place))))
    return found


def _continued(values: Ints, more: Sequence[int]) -> Ints:
    return np.concatenate([values, np.asarray(more, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class Intervals:
    """Rows sorted by (item, start): an item holds in states with `start <= state < stop`."""

    item: Ints
    start: Ints
    stop: Ints

    @classmethod
    def of(cls, rows: np.ndarray) -> Intervals:
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))].astype(np.int64)
        return cls(rows[:, 0], rows[:, 1], rows[:, 2])

    def hold(self, item: Ints, state: Ints, states: int) -> np.ndarray:
        if not len(self.item):
            return np.zeros(len(item), dtype=bool)
        place = np.searchsorted(self.item * states + self.start, item * states + state, side="right") - 1
        found = np.maximum(place, 0)
        return (place >= 0) & (self.item[found] == item) & (self.stop[found] > state)


@dataclass(frozen=True, eq=False)
class Additions:
    """The additions of a sequence, sorted by (r, head, event). A segment has all additions by one `r` to one head."""

    instance: Ints  # [A]
    event: Ints  # [A]
    r: Ints  # [A]
    body_start: Ints  # [A + 1]
    segment_head: Ints  # [segments]
    segment_start: Ints  # [segments]
    added: Ints  # [A]: segment · width + event
    erased: Ints | None  # [A]: segment · width + the event that erases the addition; None if no addition is erased
    until: Ints  # [A]: the event that erases the addition; at least `width` if it is never erased
    width: int


@dataclass(frozen=True, eq=False)
class LookUps:
    """The facts that additions and events read, whatever the queries are: distinct pairs (fact, event), sorted. Facts that never
    change have event 0."""

    fact: Ints
    event: Ints
    body: Ints  # the row in `fact` of each condition of each addition; -1: an event that is no true fact
    happened: Ints  # the row in `fact` of each event; -1: an event that is no true fact
    own: Ints  # [versions]: the row in `fact` of the cell's fact just before the update; -1: not read


class SlotHistory:
    def __init__(self, grounded: GroundingArrays, timeline: Timeline) -> None:
        grounded.refresh()
        self.grounded, self.timeline = grounded, timeline
        self.grounding = timeline.grounding
        self.events = len(timeline.events)
        self.states = timeline.states
        facts, instances = grounded.facts, grounded.instances
        proofs = timeline.proofs[facts.dim[instances.head[timeline.proofs[:, 0]]] > 0]
        by_head = np.column_stack([instances.head[proofs[:, 0]], proofs[:, 1:], proofs[:, 0]])
        by_head = by_head[np.lexsort((by_head[:, 1], by_head[:, 0]))]
        self.proofs = Intervals(by_head[:, 0], by_head[:, 1], by_head[:, 2])  # facts with embeddings, sorted by head
        self.proof_instance = by_head[:, 3]
        self.products = ProductHistory(timeline) if self.grounding.products else None
        self.additions = self._additions()
        self.looked = self._looked()
        self.scored = timeline.possible_events
        is_event = facts.is_event
        always = self.grounding.always.astype(np.int64)
        self.always = always[is_event[always]]
        self.possible = Intervals.of(timeline.holds[is_event[timeline.holds[:, 0]]])

    @cached_property
    def cells(self) -> PossibleByState:
        return PossibleByState(self.always, self.possible.item, self.possible.start, self.possible.stop, self.states)

    @cached_property
    def versions(self) -> Versions:
        additions = self.additions
        head = self.grounded.instances.head[additions.instance]
        return versions_of(head, additions.event, additions.until, self.grounded.facts.dim[head] > 0)

    @cached_property
    def totals(self) -> Ints:
        """Return an upper limit for the number of possible events in each state: [states]. It counts all candidates of products."""
        listed = possible_counts(self.always, self.possible.start, self.possible.stop, self.states)
        return listed if self.products is None else listed + self.products.total

    @cached_property
    def most(self) -> int:
        """Return the largest number of possible events in any state."""
        return int(self.totals.max(initial=len(self.always)))

    def _additions(self) -> Additions:
        """Sort the timeline's additions by `r`. The timeline has them by group, and several groups may belong to one `r`."""
        instances = self.grounded.instances
        rows = self.timeline.additions.astype(np.int64)
        head, r = instances.head[rows[:, 0]], instances.r[rows[:, 0]]
        if self.grounded.layout.values_of_heads:
            order = np.lexsort((rows[:, 1], head, r))
            rows, head, r = rows[order], head[order], r[order]
        new = changes(r, head)
        segment = np.cumsum(new) - 1
        first = np.flatnonzero(new)
        width = self.states + 2
        counts = instances.body_start[rows[:, 0] + 1] - instances.body_start[rows[:, 0]]
        is_erased = rows[:, 2] < width - 1
        return Additions(
            rows[:, 0],
            rows[:, 1],
            r,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            head[first],
            first,
            segment * width + rows[:, 1],
            segment * width + np.minimum(rows[:, 2], width - 1) if is_erased.any() else None,
            rows[:, 2],
            width,
        )

    def _looked(self) -> LookUps:
        facts, additions = self.grounded.facts, self.additions
        body, row, _ = self.grounded.instances.bodies(additions.instance)
        events = self.timeline.events.astype(np.int64)
        versions, moved = self.versions, np.zeros(0, dtype=np.int64)
        if self.grounded.layout.cells_take_deduced:
            moved = np.flatnonzero(versions.before)
        fact = np.concatenate([body, events, versions.fact[moved]])
        event = np.concatenate([additions.event[row], np.arange(1, len(events) + 1), versions.event[moved]])
        true = self._true(fact, event)
        code = fact * (self.events + 1) + np.where(facts.changing[fact], event, 0)
        distinct, which = np.unique(code[true], return_inverse=True)
        place = np.full(len(fact), -1, dtype=np.int64)
        place[true] = which
        of_body, happened, of_moved = np.split(place, [len(body), len(body) + len(events)])
        own = np.full(len(versions), -1, dtype=np.int64)
        own[moved] = of_moved
        return LookUps(distinct // (self.events + 1), distinct % (self.events + 1), of_body, happened, own)

    def _true(self, fact: Ints, state: Ints) -> np.ndarray:
        """Whether each fact is true in a state; the state just before event k is state k."""
        always = np.zeros(len(self.grounded.facts.dim), dtype=bool)
        always[self.grounding.always] = True
        holds = Intervals.of(self.timeline.holds)
        true = always[fact] | holds.hold(fact, state, self.states + 1)
        for one in self.products.functors if self.products is not None else ():
            mine = np.flatnonzero(self.grounded.facts.functor[fact] == one.functor)
            args = self.grounded.known[one.functor].args_of(fact[mine])
            true[mine] |= one.times(args, state[mine]) > 0
        return true


@dataclass(frozen=True, eq=False)
class Versions:
    fact: Ints  # [V + 1]
    event: Ints  # [V + 1]: the event that made the version
    until: Ints  # [V + 1]: the event that ended it
    before: Ints  # [V + 1]: the version from which it was made
    addition: Ints  # [A]: additions with embeddings, sorted by the version that they help to make
    made: Ints  # [A]: that version

    def __len__(self) -> int:
        """The number of versions, with version 0, which means "none"."""
        return len(self.fact)

    def at(self, fact: Ints, state: Ints) -> Ints:
        """Return the version of each fact's cell in a state, that is, just before the event with the state's number; 0: no cell."""
        if len(self) == 1:
            return np.zeros(len(fact), dtype=np.int64)
        width = 1 + max(int(self.event.max()), int(state.max(initial=0)))
        found = np.searchsorted(self.fact[1:] * width + self.event[1:], fact * width + state)
        return np.where((self.fact[found] == fact) & (self.until[found] >= state), found, 0)


def versions_of(head: Ints, event: Ints, until: Ints, shown: np.ndarray) -> Versions:
    """Compute versions from additions [A]. `shown` is True for additions whose head has an embedding."""
    rows = np.flatnonzero(shown)
    rows = rows[np.lexsort((event[rows], head[rows]))]
    head, event, until = head[rows], event[rows], until[rows]
    new = changes(head, event)
    first = np.flatnonzero(new)
    last = joined([first[1:], [len(rows)]])[: len(first)] - 1
    fact, when = (joined([[-1], column[first]]) for column in (head, event))  # version 0 means "none"
    gone = joined([[-1], running_most(head, until)[last]])  # a cell lives as long as any of its additions
    before = np.arange(-1, len(first))
    before[0] = 0
    # If an event both removes and adds the fact, the removal comes first.
    from_nothing = (fact[before] != fact) | (gone[before] <= when)
    return Versions(fact, when, gone, np.where(from_nothing, 0, before), rows, np.cumsum(new))
