"""What a timeline fixes about its slots, whatever is asked: its additions in order, what they look at, and what is possible when.

A plan with fresh draws is made for every training step; all this is computed once for a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretell.ground.timeline import Timeline
from foretell.plan.grounded import GroundingArrays
from foretell.plan.int_arrays import Ints
from foretell.plan.sample import PossibleByState


@dataclass(frozen=True, eq=False)
class Intervals:
    """Rows sorted by (item, start): an item holds while `start <= state < stop`."""

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
    """Sorted by (r, head, event). A segment is what one `r` added to one head."""

    instance: Ints  # [A]
    event: Ints  # [A]
    r: Ints  # [A]
    body_start: Ints  # [A + 1]
    segment_head: Ints  # [segments]
    segment_start: Ints  # [segments]
    added: Ints  # [A]: segment · width + event
    erased: Ints | None  # [A]: segment · width + the event that erases it; None where nothing is ever erased
    until: Ints  # [A]: the event that erases it; `width` at the least where none does
    width: int


@dataclass(frozen=True, eq=False)
class LookUps:
    """Facts that additions and events look at, whatever is asked: each (fact, event) once, sorted; event 0 for what never changes."""

    fact: Ints
    event: Ints
    body: Ints  # which of them each condition of each addition is, -1 for an event that is no true fact
    happened: Ints  # which of them each event is, -1 likewise


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
        self.proofs = Intervals(by_head[:, 0], by_head[:, 1], by_head[:, 2])  # of facts with embeddings, by head
        self.proof_instance = by_head[:, 3]
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
        """How many events are possible in each state: [states]."""
        changes = np.bincount(self.possible.start, minlength=self.states + 1)
        changes = changes - np.bincount(self.possible.stop, minlength=self.states + 1)
        return len(self.always) + np.cumsum(changes)[: self.states]

    @cached_property
    def most(self) -> int:
        """Events that are possible at one time, at most."""
        return int(self.totals.max(initial=len(self.always)))

    def _additions(self) -> Additions:
        """A timeline has them by group; several groups may be one `r`."""
        instances = self.grounded.instances
        rows = self.timeline.additions.astype(np.int64)
        head, r = instances.head[rows[:, 0]], instances.r[rows[:, 0]]
        if self.grounded.layout.values_of_heads:
            order = np.lexsort((rows[:, 1], head, r))
            rows, head, r = rows[order], head[order], r[order]
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (r[1:] != r[:-1]) | (head[1:] != head[:-1])
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
        fact = np.concatenate([body, events])
        event = np.concatenate([additions.event[row], np.arange(1, len(events) + 1)])
        true = self._true(fact, event)
        code = fact * (self.events + 1) + np.where(facts.changing[fact], event, 0)
        distinct, which = np.unique(code[true], return_inverse=True)
        place = np.full(len(fact), -1, dtype=np.int64)
        place[true] = which
        return LookUps(
            distinct // (self.events + 1), distinct % (self.events + 1), place[: len(body)], place[len(body) :]
        )

    def _true(self, fact: Ints, state: Ints) -> np.ndarray:
        """Just before event k the state is k."""
        always = np.zeros(len(self.grounded.facts.dim), dtype=bool)
        always[self.grounding.always] = True
        holds = Intervals.of(self.timeline.holds)
        return always[fact] | holds.hold(fact, state, self.states + 1)


@dataclass(frozen=True, eq=False)
class Versions:
    fact: Ints  # [V + 1]
    event: Ints  # [V + 1]: that made it
    until: Ints  # [V + 1]: that destroyed it
    before: Ints  # [V + 1]: the version that it was made from
    addition: Ints  # [A]: additions that propose something, by version
    made: Ints  # [A]: and the version that each helps to make

    def __len__(self) -> int:
        """Those that there are, and the one that is none."""
        return len(self.fact)

    def at(self, fact: Ints, state: Ints) -> Ints:
        """The version of a fact's cell in a state, just before the event of that number."""
        if len(self) == 1:
            return np.zeros(len(fact), dtype=np.int64)
        width = 1 + max(int(self.event.max()), int(state.max(initial=0)))
        found = np.searchsorted(self.fact[1:] * width + self.event[1:], fact * width + state)
        return np.where((self.fact[found] == fact) & (self.until[found] >= state), found, 0)


def versions_of(head: Ints, event: Ints, until: Ints, shown: np.ndarray) -> Versions:
    """From additions [A]; those of heads without embeddings are not `shown`."""
    rows = np.flatnonzero(shown)
    rows = rows[np.lexsort((event[rows], head[rows]))]
    head, event, until = head[rows], event[rows], until[rows]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (head[1:] != head[:-1]) | (event[1:] != event[:-1])
    first = np.flatnonzero(new)
    fact, when, gone = (_after_none(column[first]) for column in (head, event, until))
    before = np.arange(-1, len(first))
    before[0] = 0
    # A removal by the very event that adds comes first.
    from_nothing = (fact[before] != fact) | (gone[before] <= when)
    return Versions(fact, when, gone, np.where(from_nothing, 0, before), rows, np.cumsum(new))


def _after_none(values: Ints) -> Ints:
    """Facts and events are 0 or more."""
    return np.concatenate([[-1], values]).astype(np.int64)


class PossibleByFunctor:
    """Numbers of facts are those of the timeline's grounding; `functors` are named in the order of the columns of `count`."""

    def __init__(self, history: SlotHistory, functors: list[str]) -> None:
        column = {name: number for number, name in enumerate(functors)}
        of_name = np.asarray([column.get(str(name), -1) for name in history.grounding.functors], dtype=np.int64)
        of_fact = of_name[history.grounded.facts.functor]
        always, possible = history.always, history.possible
        self.cells: list[PossibleByState] = []
        for number in range(len(functors)):
            mine = of_fact[possible.item] == number
            self.cells.append(
                PossibleByState(
                    always[of_fact[always] == number],
                    possible.item[mine],
                    possible.start[mine],
                    possible.stop[mine],
                    history.states,
                )
            )
        counts = [one.count for one in self.cells]
        self.count = np.stack(counts, axis=1) if counts else np.zeros((history.states, 0), dtype=np.int64)

    def facts(self, functor: Ints, number: Ints, state: Ints) -> Ints:
        """The fact with each number, below its functor's count in that state."""
        found = np.empty(len(functor), dtype=np.int64)
        for which in np.unique(functor).tolist():
            mine = functor == which
            found[mine] = self.cells[which].events(number[mine], state[mine])
        return found
