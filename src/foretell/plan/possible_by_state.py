"""The possible events of each state, numbered from 0, and random draws among them."""

from __future__ import annotations

import numpy as np

from foretell.errors import ForetellError
from foretell.plan.int_arrays import Ints


class PossibleByState:
    """Stores which facts are possible: those in `always` in every state, the others while `start <= state < stop`."""

    def __init__(self, always: Ints, fact: Ints, start: Ints, stop: Ints, states: int) -> None:
        some = stop > start
        fact, start, stop = fact[some], start[some], stop[some]
        self.always, self.width = always, states + 1  # a write at the end of the last state is never read
        self.count = possible_counts(always, start, stop, states)
        cell, since, row = _writes(start, stop)
        key = cell * self.width + since
        order = np.argsort(key, kind="stable")  # of two writes to a cell in one state, the later one counts
        self.key, self.written = key[order], fact[row[order]]

    def events(self, cell: Ints, state: Ints) -> Ints:
        """Return the fact in each cell; a cell's number is below the count of its state."""
        found = np.empty(len(cell), dtype=np.int64)
        steady = cell < len(self.always)
        found[steady] = self.always[cell[steady]]
        if not steady.all():
            changing = ~steady
            asked = (cell[changing] - len(self.always)) * self.width + state[changing]
            found[changing] = self.written[np.searchsorted(self.key, asked, side="right") - 1]
        return found


def possible_counts(always: Ints, start: Ints, stop: Ints, states: int) -> Ints:
    """Return the number of possible events in each state."""
    change = np.bincount(start, minlength=states + 1) - np.bincount(stop, minlength=states + 1)
    return len(always) + np.cumsum(change)[:states]


def _writes(start: Ints, stop: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the writes (cell, state, row of the interval), sorted by state. Within a state, ends come before starts."""
    rows = np.concatenate([np.arange(len(stop)), np.arange(len(start))])
    begins = np.concatenate([np.zeros(len(stop), dtype=bool), np.ones(len(start), dtype=bool)])
    when = np.concatenate([stop, start])
    order = np.lexsort((begins, when))
    content: list[int] = []
    cell_of: dict[int, int] = {}
    writes = []
    for row, begin, state in zip(rows[order].tolist(), begins[order].tolist(), when[order].tolist(), strict=True):
        if begin:
            cell = len(content)
            content.append(row)
        else:
            cell, last = cell_of.pop(row), content.pop()
            if last == row:
                continue
            content[cell] = row = last
        cell_of[row] = cell
        writes.append((cell, state, row))
    found = np.asarray(writes, dtype=np.int64).reshape(-1, 3)
    return found[:, 0], found[:, 1], found[:, 2]


def numbers_below(counts: Ints, keep: int, rng: np.random.Generator) -> Ints:
    """Draw `keep` distinct numbers below each count, uniformly over all subsets: [keep, len(counts)]. Counts are above `keep`.

    Floyd's algorithm: the i-th draw is from 0 … count − keep + i. If this number was drawn before, take count − keep + i, which cannot have
    been drawn yet. It runs for all counts at once, with `keep²/2` comparisons per count.
    """
    largest = counts - keep + np.arange(keep)[:, None]
    drawn = rng.integers(0, largest, endpoint=True)
    for place in range(1, keep):
        taken = (drawn[:place] == drawn[place]).any(axis=0)
        drawn[place, taken] = largest[place, taken]
    return drawn


def checked(keep: int | None, rng: np.random.Generator | None) -> None:
    """Check that `keep` is valid and comes with `rng`."""
    if keep is not None and (type(keep) is not int or keep < 1):
        raise ForetellError(f"keep = {keep!r}: expected how many possible events to keep at a time, 1 or more, or None")
    if keep is not None and rng is None:
        raise ForetellError(f"keep = {keep}: which events are kept is drawn at random; give rng, a numpy Generator")
