"""Timelines: which facts the rules make true, when, and why, as tables of intervals over integers.

States count the changes so far: state 0 is before `bos`, state 1 is after it, and state i + 1 is after the i-th change. A change is an
event or an expiry; without expiries, the i-th change is the i-th event. `[from, to)` are states. An addition's `event` is 0 for `bos` and
i for the i-th change; `erased` is the change that removed or ended it (NEVER if none did).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from foretell.errors import ForetellError
from foretell.ground.database import FactKey
from foretell.ground.products import EventProduct
from foretell.lang.program import Program
from foretell.terms import fact as fact_text

NEVER = np.iinfo(np.int32).max
NOTHING, NO_ROWS = np.zeros(0, dtype=np.int32), np.zeros((0, 3), dtype=np.int32)


@dataclass(frozen=True, eq=False, repr=False)
class Grounding:
    """The data that all timelines of one program share: names, rule instances, and facts that always hold."""

    program: Program
    functors: Sequence[str]
    constants: Sequence[str]
    keys: Sequence[FactKey]  # the key of each fact: (functor, *constants)
    rule: Sequence[int]  # of each rule instance: position among the program's rules, then tables
    group: Sequence[int]
    head: Sequence[int]
    body: Sequence[tuple[int, ...]]
    groups: Sequence[tuple[int, ...]]  # (rule, *values of the variables in its parameter names)
    always: np.ndarray  # int32: facts that hold in every state of every sequence
    always_proofs: np.ndarray  # int32: rule instances that hold in every state of every sequence
    products: tuple[EventProduct, ...] = ()  # possible events that are not listed as facts
    part_always: np.ndarray = field(
        default_factory=lambda: NOTHING
    )  # int32: facts of parts that hold in every state of every sequence
    part_always_proofs: np.ndarray = field(default_factory=lambda: NOTHING)  # int32: their proofs

    def text(self, fact: int) -> str:
        return self.text_of(self.keys[fact])

    def text_of(self, key: FactKey) -> str:
        functor, *args = key
        name = self.functors[functor]
        return fact_text(name, [self.constants[arg] for arg in args])

    def products_of(self, functor: str) -> list[EventProduct]:
        return [one for one in self.products if self.functors[one.functor] == functor]

    def is_event(self, fact: int) -> bool:
        known = self.program.functors.get(self.functors[self.keys[fact][0]])
        return known is not None and known.kind == "event"

    @cached_property
    def fact_ids(self) -> dict[FactKey, int]:
        return {key: number for number, key in enumerate(self.keys)}

    def find(self, functor: str, args: Sequence[str]) -> int | None:
        """Return the number of a fact, or None if it never occurred."""
        try:
            key = (self._functor_ids[functor], *(self._constant_ids[arg] for arg in args))
        except KeyError:
            return None
        return self.fact_ids.get(key)

    @cached_property
    def _functor_ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.functors)}

    @cached_property
    def _constant_ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.constants)}

    def rule_name(self, rule: int) -> str:
        """Return `rule7`, or the name of the table that a row comes from."""
        rules = self.program.rules
        return rules[rule].name if rule < len(rules) else f"table {self.program.tables[rule - len(rules)].functor}"

    @cached_property
    def brought(self) -> frozenset[str]:
        """The internal functors of facts that come with sequences, before any rule is applied."""
        return frozenset(self.program.brought)

    def is_brought(self, fact: int) -> bool:
        return bool(self.brought) and self.functors[self.keys[fact][0]] in self.brought

    def group_name(self, group: int) -> str:
        """Return the `r` of the equations as text: the rule, and the values of the variables in its parameter names."""
        rule, *numbers = self.groups[group]
        values = [self.constants[number] for number in numbers]
        if rule >= len(self.program.rules):
            name = self.program.tables[rule - len(self.program.rules)].functor
            return fact_text(name, values)
        names = self.program.rules[rule].rule.parameter_variables
        if len(names) == len(values):
            values = [f"{name}={value}" for name, value in zip(names, values, strict=True)]
        return f"{self.rule_name(rule)}[{', '.join(values)}]" if values else self.rule_name(rule)


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """The database of one sequence, state by state."""

    grounding: Grounding
    sequence: str
    times: np.ndarray  # float64 [n]: the times of the changes
    events: np.ndarray  # int32 [n]: the fact of each change
    possible_events: np.ndarray  # bool [n]: True for declared events that were possible; the others are only history
    holds: np.ndarray  # int32 [·, 3]: fact, from, to; without facts that always hold
    proofs: np.ndarray  # int32 [·, 3]: rule instance, from, to; without those that always hold
    additions: np.ndarray  # int32 [·, 3]: rule instance, event, erased; sorted by (r, head, event)
    removals: np.ndarray  # int32 [·, 2]: rule instance, event; in order of time
    is_expiry: np.ndarray  # bool [n]: True for expiries, at which additions end and nothing happens
    lifetimes: Mapping[int, float] = field(default_factory=dict)  # of additions that expire, by rule
    part_holds: np.ndarray = field(
        default_factory=lambda: NO_ROWS
    )  # int32 [·, 3]: as `holds`, but for the parts of products
    part_proofs: np.ndarray = field(default_factory=lambda: NO_ROWS)  # int32 [·, 3]: as `proofs`, for parts of products

    def __repr__(self) -> str:
        return f"Timeline({self.sequence!r}, {int((~self.is_expiry).sum())} events, {self.states} states)"

    @property
    def states(self) -> int:
        return len(self.events) + 2

    @property
    def possible(self) -> np.ndarray:
        """int32 [·, 3]: possible event, from, to. Includes events that are always possible, but no events of products."""
        always = self.grounding.always
        whole = np.column_stack([always, np.zeros_like(always), np.full_like(always, self.states)])
        rows = np.concatenate([whole, self.holds])
        chosen = np.asarray([self.grounding.is_event(fact) for fact in rows[:, 0].tolist()], dtype=bool)
        return rows[chosen]

    def state_at(self, time: float) -> int:
        """Return the state at a time. Changes before it are applied, but no change at this very time."""
        if not 0.0 <= time < math.inf:
            raise ForetellError(f"time {time}: expected a number from 0 on")
        return 1 + int(np.searchsorted(self.times, time, side="left"))

    def state_after(self, events: int) -> int:
        """Return the state right after this many events."""
        return 1 if not events else 2 + int(np.flatnonzero(~self.is_expiry)[events - 1])

    def check_state(self, state: int) -> None:
        if type(state) is not int or not 0 <= state < self.states:
            raise ForetellError(f"state {state!r}: there are {self.states}, 0 to {self.states - 1}")

    def time_of(self, state: int) -> float:
        return 0.0 if state < 2 else float(self.times[state - 2])

    def after(self, state: int) -> str | None:
        """Return the event that led to a state, or None."""
        if state == 0:
            return None
        if state == 1:
            return "bos"
        return "an expiry" if self.is_expiry[state - 2] else self.grounding.text(int(self.events[state - 2]))

    def change_in_words(self, state: int) -> str:
        """Return the change that led to a state as text: `event 3 (buy(u))`, or an expiry."""
        if state < 2 or self.is_expiry[state - 2]:
            return str(self.after(state))
        return f"event {self.event_number(state - 1)} ({self.after(state)})"

    def end_of(self, instance: int, event: int) -> float | None:
        """Return the time at which an addition expires; None: it does not expire."""
        lives = self.lifetimes.get(self.grounding.rule[instance])
        return None if lives is None else self.time_of(event + 1) + lives

    def last_event(self, state: int) -> float:
        """Return the time of the last event before a state; 0 for `bos`."""
        events = np.flatnonzero(~self.is_expiry[: max(state - 1, 0)])
        return float(self.times[events[-1]]) if len(events) else 0.0

    @property
    def last_name(self) -> str:
        """The name of the sequence's last event."""
        return self.grounding.text(int(self.events[~self.is_expiry][-1]))

    def event_number(self, change: int) -> int:
        """Return the number of the event that a change is, counted from 1; 0 for `bos`."""
        return change - int(self.is_expiry[:change].sum())

    def facts_at(self, state: int) -> list[int]:
        """Return all true facts in a state, with the possible events."""
        self.check_state(state)
        return [*self.grounding.always.tolist(), *_during(self.shown_holds, state)]

    @cached_property
    def shown_holds(self) -> np.ndarray:
        """`holds` without the internal facts that came with the sequence."""
        return self.holds[~np.isin(self.holds[:, 0], self.given)] if self.given else self.holds

    @cached_property
    def given(self) -> tuple[int, ...]:
        """The internal facts that came with the sequence, before any rule is applied."""
        if not self.grounding.brought:
            return ()
        return tuple(fact for fact in self.holds[:, 0].tolist() if self.grounding.is_brought(fact))

    def proofs_at(self, state: int) -> list[int]:
        return [*self.grounding.always_proofs.tolist(), *_during(self.proofs, state)]

    def additions_at(self, state: int) -> np.ndarray:
        """Return the additions that are in force in a state, as rows of `additions`."""
        rows = self.additions
        return rows[(rows[:, 1] < state) & (rows[:, 2] >= state)]

    def walk(self) -> Iterator[tuple[int, list[int]]]:
        """Yield (state, facts) for all states in order, applying each change once."""
        begins: dict[int, list[int]] = {}
        ends: dict[int, list[int]] = {}
        for fact, start, stop in self.shown_holds.tolist():
            begins.setdefault(start, []).append(fact)
            ends.setdefault(stop, []).append(fact)
        now = dict.fromkeys(self.grounding.always.tolist())
        for state in range(self.states):
            for fact in ends.get(state, ()):
                now.pop(fact, None)
            for fact in begins.get(state, ()):
                now[fact] = None
            yield state, list(now)


def _during(rows: np.ndarray, state: int) -> list[int]:
    """Return the first values of the rows whose interval contains the state."""
    return rows[(rows[:, 1] <= state) & (state < rows[:, 2]), 0].tolist()


def with_erasures(grounding: Grounding, additions: np.ndarray, removals: np.ndarray, expired: np.ndarray) -> np.ndarray:
    """Convert rows (rule instance, event) to (rule instance, event, erased), sorted by (r, head, event).

    An addition ends at the next removal of its head, or earlier if it expires. `expired` has the expiring additions with their expiries.
    """
    head_of = np.asarray(grounding.head, dtype=np.int64)
    groups = np.asarray(grounding.group, dtype=np.int64)[additions[:, 0]]
    heads = head_of[additions[:, 0]]
    stride = 1 + max(int(additions[:, 1].max(initial=0)), int(removals[:, 1].max(initial=0)))
    when = heads * stride + additions[:, 1]
    erased = np.full(len(additions), NEVER, dtype=np.int32)
    if len(removals):
        ends = np.unique(head_of[removals[:, 0]] * stride + removals[:, 1])
        place = np.searchsorted(ends, when, side="right")
        found = ends[np.minimum(place, len(ends) - 1)]
        matches = (place < len(ends)) & (found // stride == heads)
        erased[matches] = (found % stride)[matches]
    erased[expired[:, 0]] = np.minimum(erased[expired[:, 0]], expired[:, 1])
    order = np.lexsort((additions[:, 0], when, groups))
    return np.column_stack([additions, erased])[order].astype(np.int32)
