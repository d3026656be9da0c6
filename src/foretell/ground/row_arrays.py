"""Rows of integers as plain arrays: concatenated rows of different lengths, or rows with an event each."""

from __future__ import annotations

from array import array

import numpy as np


def ragged(rows: list[tuple[int, ...]]) -> np.ndarray:
    return np.asarray([value for row in rows for value in (len(row), *row)], dtype=np.int32)


def unravel(stored: np.ndarray) -> list[tuple[int, ...]]:
    flat, rows, place = stored.tolist(), [], 0
    while place < len(flat):
        rows.append(tuple(flat[place + 1 : place + 1 + flat[place]]))
        place += 1 + flat[place]
    return rows


def with_events(instances: array[int], counts: array[int]) -> np.ndarray:
    events = np.repeat(np.arange(len(counts), dtype=np.int32), np.asarray(counts, dtype=np.int64))
    return np.column_stack([np.asarray(instances, dtype=np.int32), events]).reshape(-1, 2)
