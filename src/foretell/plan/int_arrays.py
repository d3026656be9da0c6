"""Arrays of integers, many at a time: joined, numbered through, cut where they change; slices by key; sorted arrays beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

Ints = np.ndarray  # int64


def spread(start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """The rows `start, start + 1, …` of every slice: (place of the slice, row)."""
    place = np.repeat(np.arange(len(count)), count)
    shift = start - (np.cumsum(count) - count)
    return place, np.arange(len(place)) + shift[place]


class ByKey:
    """Values by key, as slices of one array."""

    def __init__(self, keys: Ints, values: Ints, size: int) -> None:
        order = np.argsort(keys, kind="stable")
        self.values = values[order]
        self.start = np.searchsorted(keys[order], np.arange(size + 1))

    def for_keys_below(self, size: int) -> ByKey:
        """These values, with nothing for further keys."""
        found = copy(self)
        found.start = np.concatenate([self.start, np.full(size + 1 - len(self.start), self.start[-1])])
        return found

    def expand(self, keys: Ints) -> tuple[Ints, Ints]:
        """All values of every key, as pairs (position of the key, value)."""
        start = self.start[keys]
        place, row = spread(start, self.start[keys + 1] - start)
        return place, self.values[row]


def sorted_once(values: Ints) -> Ints:
    """Sorted, each once; on large arrays this is several times as fast as numpy's own."""
    ordered = np.sort(values)
    return ordered[changes(ordered)]


def without(values: Ints, known: Ints) -> Ints:
    """The values that are not among the known ones; both are sorted."""
    if not len(known):
        return values
    place = np.searchsorted(known, values)
    return values[known[np.minimum(place, len(known) - 1)] != values]


def below(keys: Ints, limits: Ints) -> Ints:
    """How many keys are below each limit; both are sorted."""
    if len(limits) <= len(keys):
        return np.searchsorted(keys, limits)
    # The other way round there is less to search: a key counts from the first limit above it on.
    first = np.searchsorted(limits, keys, side="right")
    return np.cumsum(np.bincount(first, minlength=len(limits) + 1)[: len(limits)])


def offsets(sizes: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def joined(parts: Sequence[Ints | Sequence[int]]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def changes(*columns: Ints) -> np.ndarray:
    """bool: whether a row differs from the one before in some column; the first does."""
    new = np.ones(len(columns[0]), dtype=bool)
    np.not_equal(columns[0][1:], columns[0][:-1], out=new[1:])
    for column in columns[1:]:
        new[1:] |= column[1:] != column[:-1]
    return new


def runs(*columns: Ints) -> list[tuple[int, int]]:
    """The start and end of each run of equal rows."""
    starts = np.flatnonzero(changes(*columns)).tolist()
    return list(zip(starts, [*starts[1:], len(columns[0])], strict=True)) if starts else []


def distinct(values: Ints) -> list[int]:
    return [int(value) for value in np.unique(values)]


def running_most(keys: Ints, values: Ints) -> Ints:
    """The running maximum of the values of each key; keys are sorted, and values are at least 0."""
    stride = 1 + int(values.max(initial=0))
    number = np.cumsum(changes(keys)) if len(keys) else keys
    return np.maximum.accumulate(values + number * stride) - number * stride
