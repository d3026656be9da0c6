"""The cells of one sequence, where facts have one: each event that adds a fact makes a new version of its cell.

Versions are numbered from 1 on, by fact and then by event; 0 is no cell at all. A removal destroys a cell: what comes after begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.plan.int_arrays import Ints


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
