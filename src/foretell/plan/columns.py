"""Arrays of integers, one after the other: joined, numbered through, cut where they change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Ints = np.ndarray  # int64


def offsets(sizes: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def runs(*columns: Ints) -> list[tuple[int, int]]:
    """Where rows that are equal in all columns start and stop."""
    count = len(columns[0])
    if not count:
        return []
    new = np.zeros(count, dtype=bool)
    new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(new)
    return list(zip(starts.tolist(), [*starts[1:].tolist(), count], strict=True))


def distinct(values: Ints) -> list[int]:
    return [int(value) for value in np.unique(values)]
