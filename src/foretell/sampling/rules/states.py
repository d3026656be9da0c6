"""The database between two events as a walk sees it, and how an event moves it: integers only.

What is true depends on the facts that events have added, and on nothing else of the past. So a walk need only remember these, and walks
with the same ones are in the same situation, which is worked out once. One engine serves all: it is moved from one set of added facts to
another, which costs what differs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretell.batches.timelines import Histories
from foretell.errors import ForetellError
from foretell.ground.engine import EndedRows, EventEffect
from foretell.ground.timeline import Timeline
from foretell.plan.history import SlotHistory
from foretell.plan.slots import slots_of_history

KEPT_SITUATIONS = 20_000  # of a model's walks, with the events that were seen to leave them


@dataclass(frozen=True, eq=False)
class Addition:
    """One more row for what `r` added to a fact."""

    group: int  # whose matrices
    r: int
    head: int
    body: tuple[int, ...]  # facts of its embedded conditions; -1 for an event that is no true fact


@dataclass(frozen=True, eq=False)
class Step:
    """What an event does in a situation. Past additions to the facts in `erased` are gone before the new ones come."""

    erased: tuple[int, ...]
    additions: tuple[Addition, ...]  # to facts with embeddings
    looked: frozenset[int]  # facts whose embeddings are looked at
    added: frozenset[int]  # of the next situation


@dataclass(eq=False)
class DatabaseState:
    added: frozenset[int]
    possible: tuple[int, ...]  # events, in the order of their names
    names: tuple[str, ...]
    true: frozenset[int]  # without what is true for ever
    proofs: dict[int, list[int]]  # of facts with embeddings, without those that hold for ever
    steps: dict[int, Step] = field(default_factory=dict)
    sketches: dict[int | None, Any] = field(default_factory=dict)  # by event; None: of all that is possible


class DatabaseStates:
    def __init__(self, histories: Histories) -> None:
        self.histories = histories
        self.engine, self.grounding, self.grounded = histories.engine, histories.grounding, histories.grounded
        self.layout = histories.layout
        self._lock = histories._lock  # the engine is one for all who ask about the model's histories
        self._known: OrderedDict[frozenset[int], DatabaseState] = OrderedDict()
        self._always = frozenset(self.grounding.always.tolist())
        self._always_events = tuple(fact for fact in self._always if self.grounding.is_event(fact))
        self.always_proofs: dict[int, list[int]] = {}
        for one in self.grounding.always_proofs.tolist():
            self.always_proofs.setdefault(self.grounding.head[one], []).append(one)

    def of(self, added: frozenset[int]) -> DatabaseState:
        found = self._known.get(added)
        if found is None:
            with self._lock:
                found = self._known[added] = self._read(added)
            if len(self._known) > KEPT_SITUATIONS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(added)
        return found

    def after(self, situation: DatabaseState, event: int) -> Step:
        found = situation.steps.get(event)
        if found is None:
            with self._lock:
                found = situation.steps[event] = self._fire(situation, event)
        return found

    def added_at(self, timeline: Timeline, state: int) -> frozenset[int]:
        """Facts that were added and not removed."""
        head = self.grounding.head
        return frozenset(head[one] for one in timeline.additions_at(state)[:, 0].tolist()) - self._always

    def is_true(self, situation: DatabaseState, fact: int) -> bool:
        return fact in situation.true or fact in self._always

    def dimension(self, fact: int) -> int:
        grounding = self.grounding
        return self.layout.dimension(grounding.functors[grounding.keys[fact][0]])

    def body(self, instance: int) -> tuple[int, ...]:
        """Facts of the embedded conditions of an instantiation."""
        written = self.layout.rules[self.grounding.rule[instance]]
        assert written is not None
        facts = self.grounding.body[instance]
        return tuple(facts[place] for place in written.embedded)

    def refuse_cycle(self, situation: DatabaseState) -> None:
        """Embeddings that need one another: the message that the same database gets anywhere else."""
        proofs = [one for some in situation.proofs.values() for one in some]
        timeline = Timeline(
            self.grounding,
            "walk",
            np.zeros(0),
            np.zeros(0, dtype=np.int32),
            np.zeros(0, dtype=bool),
            _whole(sorted(situation.true)),
            _whole(proofs),
            np.zeros((0, 3), dtype=np.int32),
            np.zeros((0, 2), dtype=np.int32),
        )
        with self._lock:
            slots_of_history(SlotHistory(self.grounded, timeline), np.asarray([1]))
        raise ForetellError("the proofs of some facts' embeddings need one another")

    # With the engine

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
        proofs: dict[int, list[int]] = {}
        for one in sorted(engine.open_proofs):
            head = grounding.head[one]
            if self.dimension(head):
                proofs.setdefault(head, []).append(one)
        return DatabaseState(added, tuple(fact for _, fact in named), tuple(name for name, _ in named), true, proofs)

    def _fire(self, situation: DatabaseState, event: int) -> Step:
        self._move(situation.added)
        fired = self.engine.fire(event)
        self.grounded.refresh()
        grounding, r = self.grounding, self.grounded.instances.r
        additions = []
        for one in fired.additions:
            head = grounding.head[one]
            if self.dimension(head):
                body = tuple(fact if self.is_true(situation, fact) else -1 for fact in self.body(one))
                additions.append(Addition(grounding.group[one], int(r[one]), head, body))
        looked = frozenset(fact for one in additions for fact in one.body if fact >= 0)
        added = (situation.added - frozenset(fired.removed)) | frozenset(fired.added)
        return Step(fired.removed, tuple(additions), looked, added)


def _whole(items: Iterable[int] | Sequence[int]) -> np.ndarray:
    """Each through both states of a sequence without events."""
    return np.asarray([(item, 0, 2) for item in items], dtype=np.int32).reshape(-1, 3)
