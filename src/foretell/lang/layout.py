"""Boxes and links → places, in layers: long links get a place of their own in every layer they pass, so that none crosses a box.

Within a layer the order is by the mean place of neighbours, swept up and down; then each layer is moved to where its
neighbours are, as far as the gaps between boxes allow (isotonic regression, which is exact).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

SWEEPS = 12
STRAIGHT = 8.0  # long links want to be straight more than boxes want to be near


@dataclass
class Box:
    """Something with a width in a layer; `x` is its middle."""

    width: float
    layer: int
    x: float = 0.0
    weight: float = 1.0  # how much its wishes count beside those of its row
    near: list[int] = field(default_factory=list)  # the boxes it is linked with, in layers beside its own


@dataclass(frozen=True)
class GraphLayout:
    boxes: list[Box]
    ways: list[list[int]]  # for each link the boxes it passes, both ends included
    width: float


def arrange(
    widths: Sequence[float], layers: Sequence[int], links: Sequence[tuple[int, int]], gap: float
) -> GraphLayout:
    """`links` join boxes of different layers."""
    boxes = [Box(width, layer) for width, layer in zip(widths, layers, strict=True)]
    ways = [_way(boxes, start, end) for start, end in links]
    for way in ways:
        for one, other in pairwise(way):
            boxes[one].near.append(other)
            boxes[other].near.append(one)
    rows: dict[int, list[int]] = {}
    for number, box in enumerate(boxes):
        rows.setdefault(box.layer, []).append(number)
    order = [rows[layer] for layer in sorted(rows)]
    for row in order:
        _pack(boxes, row, gap)
    for sweep in range(SWEEPS):
        for row in order if sweep % 2 == 0 else reversed(order):
            row.sort(key=lambda number: _wanted(boxes, number, -1 if sweep % 2 == 0 else 1))
            _pack(boxes, row, gap)
    for sweep in range(2 * SWEEPS):
        for row in order if sweep % 2 == 0 else reversed(order):
            _settle(boxes, row, gap)
    left = min((box.x - box.width / 2 for box in boxes), default=0.0)
    for box in boxes:
        box.x -= left
    return GraphLayout(boxes, ways, max((box.x + box.width / 2 for box in boxes), default=0.0))


def _way(boxes: list[Box], start: int, end: int) -> list[int]:
    step = 1 if boxes[end].layer > boxes[start].layer else -1
    way = [start]
    for layer in range(boxes[start].layer + step, boxes[end].layer, step):
        boxes.append(Box(10.0, layer, weight=STRAIGHT))
        way.append(len(boxes) - 1)
    return [*way, end]


def _wanted(boxes: list[Box], number: int, side: int) -> float:
    """Where its neighbours on one side are; on both, where there are none."""
    box = boxes[number]
    near = [boxes[one].x for one in box.near if (boxes[one].layer - box.layer) * side > 0]
    near = near or [boxes[one].x for one in box.near]
    return sum(near) / len(near) if near else box.x


def _distance(boxes: list[Box], one: int, other: int, gap: float) -> float:
    return (boxes[one].width + boxes[other].width) / 2 + gap


def _pack(boxes: list[Box], row: list[int], gap: float) -> None:
    x = 0.0
    for place, number in enumerate(row):
        x += _distance(boxes, row[place - 1], number, gap) if place else 0.0
        boxes[number].x = x
    for number in row:
        boxes[number].x -= x / 2


def _settle(boxes: list[Box], row: list[int], gap: float) -> None:
    """The places nearest to the wanted ones, in order and with gaps: pool neighbours that would overlap."""
    offset, offsets = 0.0, []
    for place, number in enumerate(row):
        offset += _distance(boxes, row[place - 1], number, gap) if place else 0.0
        offsets.append(offset)
    pools: list[tuple[float, float, int]] = []  # weighted sum, weight and count of each pool
    for place, number in enumerate(row):
        near = boxes[number].near
        wanted = sum(boxes[one].x for one in near) / len(near) if near else boxes[number].x
        weight = boxes[number].weight
        pool = (weight * (wanted - offsets[place]), weight, 1)
        while pools and pools[-1][0] / pools[-1][1] >= pool[0] / pool[1]:
            last = pools.pop()
            pool = (last[0] + pool[0], last[1] + pool[1], last[2] + pool[2])
        pools.append(pool)
    values = [total / weight for total, weight, count in pools for _ in range(count)]
    for place, number in enumerate(row):
        boxes[number].x = values[place] + offsets[place]
