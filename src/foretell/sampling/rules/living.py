"""Living additions of a sampled sequence: those that will expire, and which facts have others besides. Never changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NewEnd = tuple[float, int, int]  # when an addition ends (infinity: never), the fact that it was made to, and its `r`


@dataclass(frozen=True, eq=False)
class LivingAdditions:
    ends: tuple[
        NewEnd, ...
    ] = ()  # finite, in order of time; those of one fact and `r` in the order in which they were made
    steady: frozenset[int] = frozenset()  # facts with an addition that never ends

    @property
    def next(self) -> float:
        """When something expires; infinity: never."""
        return self.ends[0][0] if self.ends else math.inf

    def after(self, removed: Iterable[int], added: Sequence[NewEnd]) -> LivingAdditions:
        """Removals of an event take effect before its additions."""
        gone = set(removed)
        kept = [one for one in self.ends if one[1] not in gone]
        ends = sorted([*kept, *(one for one in added if one[0] < math.inf)], key=lambda one: one[0])
        steady = {fact for fact in self.steady if fact not in gone}
        return LivingAdditions(tuple(ends), frozenset(steady.union(one[1] for one in added if one[0] == math.inf)))

    def due(self, count: int) -> tuple[LivingAdditions, tuple[NewEnd, ...], frozenset[int]]:
        """Without the first so many: what is left, what ended, and the facts that have no addition any more."""
        ended, left = self.ends[:count], self.ends[count:]
        alive = self.steady.union(one[1] for one in left)
        return LivingAdditions(left, self.steady), ended, frozenset(one[1] for one in ended) - alive

    def count(self, now: float, at_now: bool) -> int:
        """The number of additions that end before a time or, with `at_now`, at it."""
        return sum(one[0] < now or (at_now and one[0] == now) for one in self.ends)
