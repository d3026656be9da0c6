"""Living additions of a sampled sequence: when they expire, and which facts also have an addition that never does. Immutable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NewEnd = tuple[float, int, int]  # the end of an addition (infinity: never), its fact, and its `r`


@dataclass(frozen=True, eq=False)
class LivingAdditions:
    ends: tuple[NewEnd, ...] = ()  # finite ends in order of time; for one fact and `r`, in the order of the additions
    steady: frozenset[int] = frozenset()  # facts with an addition that never ends

    @property
    def next(self) -> float:
        """The next time at which an addition expires; infinity if there is none."""
        return self.ends[0][0] if self.ends else math.inf

    def after(self, removed: Iterable[int], added: Sequence[NewEnd]) -> LivingAdditions:
        """Return the additions after an event; its removals take effect before its additions."""
        gone = set(removed)
        kept = [one for one in self.ends if one[1] not in gone]
        ends = sorted([*kept, *(one for one in added if one[0] < math.inf)], key=lambda one: one[0])
        steady = {fact for fact in self.steady if fact not in gone}
        return LivingAdditions(tuple(ends), frozenset(steady.union(one[1] for one in added if one[0] == math.inf)))

    def due(self, count: int) -> tuple[LivingAdditions, tuple[NewEnd, ...], frozenset[int]]:
        """End the first `count` additions. Return the remaining ones, those that ended, and the facts without any addition now."""
        ended, left = self.ends[:count], self.ends[count:]
        alive = self.steady.union(one[1] for one in left)
        return LivingAdditions(left, self.steady), ended, frozenset(one[1] for one in ended) - alive

    def count(self, now: float, at_now: bool) -> int:
        """Return the number of additions that end before a time or, with `at_now`, at that time."""
        return sum(one[0] < now or (at_now and one[0] == now) for one in self.ends)
