"""Rows that use different matrices, packed into tiles of equal height, so that one batched product serves them all.

Rows come sorted by matrix. Each run of rows with one matrix is cut into tiles; what fills up a run's last tile repeats its first row and
is never looked at. There are two heights, a small one for matrices with few rows: the number of products does not grow with the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

HEIGHTS = {"cpu": (16, 128), "cuda": (32, 512)}


@dataclass(frozen=True)
class TilesOfOneHeight:
    """Tiles of one height."""

    matrix: np.ndarray  # int64 [T]
    row: np.ndarray  # int64 [T·height]: which of the rows that were packed stands there


@dataclass(frozen=True)
class Packing:
    tilings: tuple[TilesOfOneHeight, ...]  # one after the other: at most two
    place: np.ndarray  # int64 [rows]: where each row stands
    size: int  # places in all


def pack(matrix: np.ndarray, device: str, heights: tuple[int, int] | None = None) -> Packing:
    """`matrix` [rows], ascending in runs: rows of one matrix stay together, in their order. `heights` are else those of the device."""
    if heights is None:
        heights = HEIGHTS.get(device, HEIGHTS["cuda"])
    count = len(matrix)
    new = np.ones(count, dtype=bool)
    new[1:] = matrix[1:] != matrix[:-1]
    start = np.flatnonzero(new)
    length = np.diff(np.concatenate([start, [count]]))
    tall = length > heights[1] // 2
    place = np.empty(count, dtype=np.int64)
    tilings = []
    size = 0
    for height, chosen in zip(heights, (~tall, tall), strict=True):
        first, own = start[chosen], length[chosen]
        if not len(first):
            continue
        tiles = -(-own // height)
        before = (np.cumsum(tiles) - tiles) * height  # places of the runs before
        row = np.repeat(first, tiles * height)
        run = np.repeat(np.arange(len(first)), own)
        within = np.arange(len(run)) - np.repeat(np.cumsum(own) - own, own)
        there = before[run] + within
        row[there] = first[run] + within
        place[first[run] + within] = size + there
        tilings.append(TilesOfOneHeight(np.repeat(matrix[first], tiles).astype(np.int64), row))
        size += len(row)
    return Packing(tuple(tilings), place, size)
