"""Additions that end by themselves: how long those of each rule live, and a queue of the living ones.

An addition at `s` with duration `d` lives up to `s + d`: an event at that very time comes first. A fact that was added holds while any of
its additions lives. The cost of an event is proportional to its additions, and that of an expiry to the additions that end, times
the logarithm of the queue's length.
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

EXPIRY = "(expiry)"  # stands among events where additions end; no functor of a program is spelled so


def lifetimes_of(program: Program, clock: Clock) -> dict[int, float]:
    """How long additions live, in the unit of the data, by the place of their rule; of rules that have a duration."""
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
    additions: list[int]  # by their numbers
    facts: tuple[int, ...]  # of which no addition is left


@dataclass(slots=True)
class _Living:
    """Living additions of one fact since it was last removed."""

    count: int = 0
    removed: bool = False


@dataclass(eq=False)
class ExpiryQueue:
    """Living additions of one sequence."""

    lifetimes: Mapping[int, float]  # by rule
    rule: Sequence[int]  # of instantiations
    head: Sequence[int]
    waiting: list[tuple[float, int, int, _Living]] = field(default_factory=list)  # end, addition, fact
    living: dict[int, _Living] = field(default_factory=dict)  # by fact

    def happened(self, time: float, effect: EventEffect, first: int) -> None:
        """An event, whose additions are numbered from `first` on."""
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
        """The next expiry, if it is before a time; it is over then."""
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
