"""The database between two events of a sampled sequence, and how an event changes it; only integers.

Which facts are true depends only on the facts that events have added. So a sequence stores these alone, and sequences with the same
added facts share a state, which is computed once. There is one engine: it moves from one set of added facts to another, at a cost
proportional to the difference. Embeddings in a state use slots, as in a plan (`plan/slots.py`).
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretell.batches.timelines import Histories
from foretell.ground.engine import EndedRows, EventEffect
from foretell.ground.timeline import Timeline
from foretell.plan.asked_events import facts_alone
from foretell.plan.history import Intervals, SlotHistory
from foretell.plan.int_arrays import joined
from foretell.plan.slots import SequenceSlots, slots_of_history
from foretell.sampling.rules.living import LivingAdditions, NewEnd

KEPT_STATES = 20_000  # limit of cached states per sampler; each has the transitions of its events
NOW = np.ones(1, dtype=np.int64)  # the state of a sequence without events
NOTHING_POSSIBLE = Intervals.of(np.zeros((0, 3), dtype=np.int64))


@dataclass(frozen=True, eq=False)
class NewAddition:
    """An addition by `r` to a fact."""

    group: int  # the group of matrices that it uses
    r: int
    head: int
    body: tuple[int, ...]  # facts of its embedded conditions; -1 for an event that is not a true fact
    event: int  # position of the event's functor among those with features; -1: it has none


@dataclass(frozen=True, eq=False)
class Transition:
    """The effect of an event in a state. Earlier additions to the facts in `erased` are removed before the new ones are made."""

    erased: tuple[int, ...]
    additions: tuple[NewAddition, ...]  # to facts with embeddings
    read: frozenset[int]  # facts whose embeddings, or deduced parts, are inputs of the additions
    added: frozenset[int]  # the added facts of the next state
    fired: tuple[tuple[int, int, int], ...] = ()  # if additions expire: fact, `r` and rule of every instantiation

    def ends(self, time: float, lifetimes: Mapping[int, float]) -> list[NewEnd]:
        """Return when the additions end, if the event happens at this time."""
        return [(time + lifetimes.get(rule, math.inf), fact, r) for fact, r, rule in self.fired]


@dataclass(frozen=True, eq=False)
class LocalPlan:
    """The slots that some facts need in one state."""

    slots: SequenceSlots
    slot: dict[int, int]  # slot by fact


@dataclass(eq=False)
class DatabaseState:
    added: frozenset[int]
    possible: tuple[int, ...]  # events, in the order of their names
    names: tuple[str, ...]
    true: frozenset[int]  # without facts that are always true
    proofs: tuple[int, ...]  # without proofs that always hold
    history: SlotHistory | None = None  # the state in the form that a plan reads
    transitions: dict[int, Transition] = field(default_factory=dict)
    plans: dict[int | frozenset[int] | None, LocalPlan] = field(
        default_factory=dict
    )  # by event; None: the plan of all possible events


class DatabaseStates:
    def __init__(self, histories: Histories) -> None:
        self.histories = histories
        self.engine, self.grounding, self.grounded = histories.engine, histories.grounding, histories.grounded
        self.layout = histories.layout
        self.lock = histories._lock  # one engine and one grounding serve all users of the model
        self._known: OrderedDict[frozenset[int], DatabaseState] = OrderedDict()
        self._always = frozenset(self.grounding.always.tolist())
        self._always_events = tuple(fact for fact in self._always if self.grounding.is_event(fact))

    def of(self, added: frozenset[int]) -> DatabaseState:
        found = self._known.get(added)
        if found is None:
            with self.lock:
                found = self._known[added] = self._read(added)
            if len(self._known) > KEPT_STATES:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(added)
        return found

    def after(self, state: DatabaseState, event: int) -> Transition:
        found = state.transitions.get(event)
        if found is None:
            with self.lock:
                found = state.transitions[event] = self._fire(state, event)
        return found

    def plan(self, state: DatabaseState, event: int | frozenset[int] | None) -> LocalPlan:
        """Return the plan for the inputs of an event's additions (int), for all possible events (None), or for these and further facts."""
        found = state.plans.get(event)
        if found is None:
            roots = self.after(state, event).read if isinstance(event, int) else (*state.possible, *(event or ()))
            history = self.history(state)
            with self.lock:
                if history.products is None:
                    history = copy.copy(history)
                    history.always = np.asarray(sorted(roots), dtype=np.int64)
                    slots = slots_of_history(history, NOW)
                else:
                    self.grounded.refresh()
                    of_parts = [one.conditions(self.grounded.instances) for one in history.products.parts]
                    asked = [np.asarray(sorted(roots), dtype=np.int64), *(of_parts if event is None else ())]
                    slots = slots_of_history(history, NOW, chosen=facts_alone(np.unique(joined(asked))))
            rows = {fact: number for number, fact in enumerate(slots.slot_fact.tolist())}
            found = state.plans[event] = LocalPlan(slots, rows)
        return found

    def event(self, state: DatabaseState, number: int) -> int:
        """Return a possible event of a state by number: first come the listed events, then the candidates of products."""
        if number < len(state.possible):
            return state.possible[number]
        products = self.history(state).products
        assert products is not None
        numbers = np.asarray([number - len(state.possible)], dtype=np.int64)
        found = [(one.functor, *args[0].tolist()) for one, _, mine, args in products.decoded(numbers, NOW) if len(mine)]
        with self.lock:
            return self.engine.fact(found[0])

    def history(self, state: DatabaseState) -> SlotHistory:
        """Return the state as plans read it, with the products of its possible events."""
        with self.lock:
            if state.history is None:
                state.history = self._history(state)
            return state.history

    def added_at(self, timeline: Timeline, state: int) -> frozenset[int]:
        """Return the facts that were added and not removed, and those that came with the sequence."""
        head = self.grounding.head
        added = [head[one] for one in timeline.additions_at(state)[:, 0].tolist()]
        return frozenset([*added, *timeline.given]) - self._always

    def living_at(self, timeline: Timeline, state: int) -> LivingAdditions:
        """Return the current additions with the times at which they end."""
        if not self.histories.expires:
            return LivingAdditions()
        with self.lock:
            self.grounded.refresh()
            instances = self.grounded.instances
        rows = timeline.additions_at(state)
        rows = rows[np.argsort(rows[:, 1], kind="stable")].tolist()
        ends = [
            (timeline.end_of(one, event), int(instances.head[one]), int(instances.r[one])) for one, event, _ in rows
        ]
        return LivingAdditions().after((), [(math.inf if end is None else end, fact, r) for end, fact, r in ends])

    # With the engine

    def _history(self, state: DatabaseState) -> SlotHistory:
        """Return a history without events in which the current facts are always true; possible events are passed with each plan."""
        nothing = np.zeros(0)
        true, of_parts = self._parted(sorted(state.true), lambda fact: fact)
        proofs, part_proofs = self._parted(state.proofs, lambda one: self.grounding.head[one])
        timeline = Timeline(
            self.grounding,
            "sampled",
            nothing,
            nothing.astype(np.int32),
            nothing.astype(bool),
            _throughout(true),
            _throughout(proofs),
            np.zeros((0, 3), dtype=np.int32),
            np.zeros((0, 2), dtype=np.int32),
            nothing.astype(bool),
            part_holds=_throughout(of_parts),
            part_proofs=_throughout(part_proofs),
        )
        found = SlotHistory(self.grounded, timeline)
        found.possible = NOTHING_POSSIBLE
        return found

    def _parted(self, items: Sequence[int], fact_of: Callable[[int], int]) -> tuple[list[int], list[int]]:
        """Split items in two lists: items whose fact belongs to no product, and items whose fact is in a part of a product."""
        parts, keys = self.engine.wiring.part_functors, self.grounding.keys
        of_parts = [one for one in items if keys[fact_of(one)][0] in parts] if parts else []
        known = set(of_parts)
        return [one for one in items if one not in known], of_parts

    def _move(self, added: frozenset[int]) -> None:
        engine = self.engine
        there = set(np.flatnonzero(np.frombuffer(bytes(engine.added), dtype=np.uint8)).tolist())
        if there != added:
            engine.apply(
                EventEffect([], [], [], tuple(sorted(added - there)), tuple(sorted(there - added))), 1, EndedRows()
            )

    def _read(self, added: frozenset[int]) -> DatabaseState:
        self._move(added)
        engine, grounding = self.engine, self.grounding
        true = frozenset(engine.open_facts)
        events = [fact for fact in engine.open_facts if engine.is_declared_event(fact)]
        named = sorted((grounding.text(fact), fact) for fact in (*self._always_events, *events))
        possible, names = tuple(fact for _, fact in named), tuple(name for name, _ in named)
        return DatabaseState(added, possible, names, true, tuple(sorted(engine.open_proofs)))

    def _fire(self, state: DatabaseState, event: int) -> Transition:
        self._move(state.added)
        fired = self.engine.fire(event)
        self.grounded.refresh()
        facts, instances = self.grounded.facts, self.grounded.instances
        name, features = self.grounding.functors[self.grounding.keys[event][0]], list(self.layout.program.features)
        marked = features.index(name) if name in features else -1
        additions = []
        for one in fired.additions:
            head = int(instances.head[one])
            if facts.dim[head]:
                body = instances.body_fact[instances.body_start[one] : instances.body_start[one + 1]].tolist()
                body = tuple(fact if self._is_true(state, fact) else -1 for fact in body)
                additions.append(NewAddition(int(instances.group[one]), int(instances.r[one]), head, body, marked))
        read = frozenset(fact for one in additions for fact in one.body if fact >= 0)
        if self.layout.cells_take_deduced:
            read |= {one.head for one in additions if self._is_true(state, one.head)}
        added = (state.added - frozenset(fired.removed)) | frozenset(fired.added)
        living: tuple[tuple[int, int, int], ...] = ()
        if self.histories.expires:
            living = tuple((instances.head[one], instances.r[one], instances.rule[one]) for one in fired.additions)
            living = tuple((int(fact), int(r), int(rule)) for fact, r, rule in living)
        return Transition(fired.removed, tuple(additions), read, added, living)

    def _is_true(self, state: DatabaseState, fact: int) -> bool:
        """Whether a fact is true in the engine's current state."""
        return fact in state.true or fact in self._always or self.engine.is_in_product(fact)


def _throughout(items: Iterable[int] | Sequence[int]) -> np.ndarray:
    """Return rows (item, 0, 2): each item holds in both states of a sequence without events."""
    return np.asarray([(item, 0, 2) for item in items], dtype=np.int32).reshape(-1, 3)
