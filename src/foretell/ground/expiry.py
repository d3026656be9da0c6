"""Additions that expire: the lifetime of each rule's additions, and a queue of the living additions.

An addition at `s` with duration `d` lives until `s + d`; an event at that same time comes before the expiry. An added fact holds while
any of its additions lives. With m additions in the queue, an event costs O(log m) per addition that it makes, and an expiry O(log m)
per addition that ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from foretell.data.clock import Clock
from foretell.errors import ForetellError
from foretell.lang.program import Program

if TYPE_CHECKING:
    from foretell.ground.engine import EventEffect

EXPIRY = "(expiry)"  # the name of expiries in lists of events; no functor of a program can have this name


def lifetimes_of(program: Program, clock: Clock) -> dict[int, float]:
    """Return the lifetimes of additions in the unit of the data, by the position of their rule. Rules without a duration have no entry."""
    found: dict[int, float] = {}
    for place, one in enumerate(program.rules):
        duration = one.rule.duration
        if duration is None:
            continue
        seconds = clock.seconds_per_unit if duration.in_seconds else 1.0
        if seconds is None:
            unit = f"their unit is {clock.unit!r}" if clock.unit else "their unit is not known"
            raise ForetellError(
                f"{duration.span.place}: `for {duration}` has a unit, and the data's times are plain numbers ({unit}); write a number "
                "in the data's own unit, or say what it is (time_unit in dataset.toml)"
            )
        found[place] = duration.number / seconds
        if not 0.0 < found[place] < math.inf:
            raise ForetellError(f"{duration.span.place}: `for {duration}` is {found[place]:g} in the unit of the data")
    return found


@dataclass(frozen=True, slots=True)
class Expiry:
    """The additions that end at one time."""

    time: float
    additions: list[int]  # numbers of the additions
    facts: tuple[int, ...]  # facts without any living addition left


@dataclass(slots=True)
class _Living:
    """The number of living additions of one fact since it was last removed."""

    count: int = 0
    removed: bool = False


@dataclass(eq=False)
class ExpiryQueue:
    """The living additions of one sequence that will expire."""

    lifetimes: Mapping[int, float]  # by rule
    rule: Sequence[int]  # the rule of each rule instance
    head: Sequence[int]
    waiting: list[tuple[float, int, int, _Living]] = field(default_factory=list)  # a heap: end, addition, fact
    living: dict[int, _Living] = field(default_factory=dict)  # by fact

    def happened(self, time: float, effect: EventEffect, first: int) -> None:
        """Add an event's additions to the queue, numbered from `first`, and apply its removals."""
        for fact in effect.removed:
            gone = self.living.pop(fact, None)
            if gone is not None:
                gone.removed = True
        for number, instance in enumerate(effect.additions, first):
            self.add(time + self.lifetimes.get(self.rule[instance], math.inf), number, self.head[instance])

    def add(self, end: float, number: int, fact: int) -> None:
        one = self.living.get(fact)
        if one is None:
            one = self.living[fact] = _Living()
        one.count += 1
        if end < math.inf:
            heappush(self.waiting, (end, number, fact, one))

    def due(self, before: float) -> Expiry | None:
        """Remove and return the next expiry if it is before this time, else None."""
        waiting = self.waiting
        while waiting and waiting[0][3].removed:
            heappop(waiting)
        if not waiting or not waiting[0][0] < before:
            return None
        time = waiting[0][0]
        ended: list[int] = []
        facts: list[int] = []
        while waiting and waiting[0][0] == time:
            _, number, fact, one = heappop(waiting)
            if one.removed:
                continue
            ended.append(number)
            one.count -= 1
            if not one.count:
                facts.append(fact)
                del self.living[fact]
                one.removed = True
        return Expiry(time, ended, tuple(facts))
