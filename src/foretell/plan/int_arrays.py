"""Vectorised operations on integer arrays: join and number them, split them into runs, slice them by key, compare sorted arrays."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

Ints = np.ndarray  # int64


def spread(start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Enumerate the rows `start, start + 1, …` of every slice. Returns two arrays: the slice's position, and the row."""
    place = np.repeat(np.arange(len(count)), count)
    shift = start - (np.cumsum(count) - count)
    return place, np.arange(len(place)) + shift[place]


class ByKey:
    """Values grouped by key: each key has a slice of one array."""

    def __init__(self, keys: Ints, values: Ints, size: int) -> None:
        order = np.argsort(keys, kind="stable")
        self.values = values[order]
        self.start = np.searchsorted(keys[order], np.arange(size + 1))

    def for_keys_below(self, size: int) -> ByKey:
        """Return the same values for keys `0 … size - 1`; new keys have no values."""
        found = copy(self)
        found.start = np.concatenate([self.start, np.full(size + 1 - len(self.start), self.start[-1])])
        return found

    def expand(self, keys: Ints) -> tuple[Ints, Ints]:
        """Return all values of the keys, as two arrays: the key's position, and the value."""
        start = self.start[keys]
        place, row = spread(start, self.start[keys + 1] - start)
        return place, self.values[row]


def sorted_once(values: Ints) -> Ints:
    """Return the distinct values, sorted. For large arrays this is several times as fast as `np.unique`."""
    ordered = np.sort(values)
    return ordered[changes(ordered)]


def without(values: Ints, known: Ints) -> Ints:
    """Return the values that are not in `known`. Both arrays are sorted."""
    if not len(known):
        return values
    place = np.searchsorted(known, values)
    return values[known[np.minimum(place, len(known) - 1)] != values]


def below(keys: Ints, limits: Ints) -> Ints:
    """Return the number of keys below each limit. Both arrays are sorted."""
    if len(limits) <= len(keys):
        return np.searchsorted(keys, limits)
    # With few keys it is faster to search the limits for each key: a key counts for all limits above it.
    first = np.searchsorted(limits, keys, side="right")
    return np.cumsum(np.bincount(first, minlength=len(limits) + 1)[: len(limits)])


def offsets(sizes: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def joined(parts: Sequence[Ints | Sequence[int]]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def changes(*columns: Ints) -> np.ndarray:
    """Return a bool array: True for the first row, and for rows that differ from the row before in any column."""
    new = np.ones(len(columns[0]), dtype=bool)
    np.not_equal(columns[0][1:], columns[0][:-1], out=new[1:])
    for column in columns[1:]:
        new[1:] |= column[1:] != column[:-1]
    return new


def runs(*columns: Ints) -> list[tuple[int, int]]:
    """Return the start and end of each run of equal rows."""
    starts = np.flatnonzero(changes(*columns)).tolist()
    return list(zip(starts, [*starts[1:], len(columns[0])], strict=True)) if starts else []


def distinct(values: Ints) -> list[int]:
    return [int(value) for value in np.unique(values)]


def running_most(keys: Ints, values: Ints) -> Ints:
    """Return the running maximum of the values per key. Keys are sorted, and values are at least 0."""
    stride = 1 + int(values.max(initial=0))
    number = np.cumsum(changes(keys)) if len(keys) else keys
    return np.maximum.accumulate(values + number * stride) - number * stride
