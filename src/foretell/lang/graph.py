"""A checked program → a graph of its predicates and rules, printed by `--show graph`; and its layout, drawn by `--plot`.

The layout has layers. A long link has a waypoint in every layer that it passes, so it crosses no box. Within a layer, boxes are sorted by
the mean position of their neighbours, in upward and downward sweeps. Then each box moves as close to its neighbours as the gaps allow
(isotonic regression, solved exactly).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from foretell.lang.program import BOS, FunctorKind, Program
from foretell.lang.syntax import Kind, Not, atom_of, pretty_rule
from foretell.terms import bare


@dataclass(frozen=True)
class Predicate:
    name: str
    arity: int | None
    kind: FunctorKind
    dim: int | None
    facts: int  # the number of facts in the program and rows of tables

    @property
    def label(self) -> str:
        return self.name if not self.arity or bare(self.name) != self.name else f"{self.name}/{self.arity}"


@dataclass(frozen=True)
class GraphCondition:
    functor: str
    negated: bool
    is_event: bool


@dataclass(frozen=True)
class Arrow:
    """Rules that look the same in the graph: equal kind, head and conditions."""

    kind: Kind
    head: str
    conditions: tuple[GraphCondition, ...]
    rules: tuple[int, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    predicates: tuple[Predicate, ...]
    arrows: tuple[Arrow, ...]


def graph_of(program: Program) -> Graph:
    facts: Counter[str] = Counter()
    for table in program.tables:
        facts[table.functor] += len(table.rows)
    alike: dict[tuple[Kind, str, tuple[GraphCondition, ...]], list[tuple[int, str]]] = {}
    waits_for_bos = False
    for one in program.rules:
        rule = one.rule
        if rule.is_fact:
            facts[rule.head.functor] += 1
            continue
        found = [
            GraphCondition(atom.functor, isinstance(literal, Not), rule.kind != "deduce" and place == 0)
            for place, literal in enumerate(rule.body)
            if (atom := atom_of(literal)) is not None
        ]
        waits_for_bos = waits_for_bos or any(condition.functor == BOS for condition in found)
        key = (rule.kind, rule.head.functor, tuple(dict.fromkeys(found)))
        alike.setdefault(key, []).append((one.number, pretty_rule(rule)))
    predicates = [
        Predicate(name, functor.arity, functor.kind, functor.dim, facts[name])
        for name, functor in program.functors.items()
    ]
    if waits_for_bos:
        predicates.append(Predicate(BOS, 0, "exogenous", 0, 0))
    arrows = [
        Arrow(kind, head, found, tuple(number for number, _ in rules), tuple(text for _, text in rules))
        for (kind, head, found), rules in alike.items()
    ]
    return Graph(tuple(predicates), tuple(arrows))


def graph_lines(graph: Graph) -> Iterator[str]:
    """Yield lines of text: each predicate, followed by the rules that add, deduce or remove it."""
    by_head: dict[str, list[Arrow]] = {}
    for arrow in graph.arrows:
        by_head.setdefault(arrow.head, []).append(arrow)
    for predicate in graph.predicates:
        notes = [predicate.kind] if predicate.kind != "fact" else []
        notes += [f"{predicate.facts:,} facts" if predicate.facts != 1 else "1 fact"] if predicate.facts else []
        yield predicate.label + (f"  ({', '.join(notes)})" if notes else "")
        for arrow in by_head.get(predicate.name, ()):
            sign = {"deduce": ":-", "add": "<-", "remove": "<- !"}[arrow.kind]
            body = ", ".join(f"not {one.functor}" if one.negated else one.functor for one in arrow.conditions)
            yield f"  {sign:4} {body}  [{', '.join(f'rule{number}' for number in arrow.rules)}]"


def graph_json(graph: Graph) -> dict[str, object]:
    def named(one: Predicate) -> dict[str, object]:
        return {"functor": one.name, "arity": one.arity, "kind": one.kind, "dim": one.dim, "facts": one.facts}

    def drawn(one: Arrow) -> dict[str, object]:
        found = [{"functor": each.functor, "negated": each.negated, "event": each.is_event} for each in one.conditions]
        rules = [f"rule{number}" for number in one.rules]
        return {"kind": one.kind, "head": one.head, "conditions": found, "rules": rules}

    return {"predicates": [*map(named, graph.predicates)], "arrows": [*map(drawn, graph.arrows)]}


# --- layout


SWEEPS = 12
STRAIGHT = 8.0  # the weight of waypoints of long links, relative to boxes


@dataclass
class Box:
    """A box or waypoint in a layer; `x` is its centre."""

    width: float
    layer: int
    x: float = 0.0
    weight: float = 1.0  # its weight when positions in a row are optimised
    near: list[int] = field(default_factory=list)  # linked boxes in neighbouring layers


@dataclass(frozen=True)
class GraphLayout:
    boxes: list[Box]
    ways: list[list[int]]  # for each link the boxes and waypoints on it, with both ends
    width: float


def arrange(
    widths: Sequence[float], layers: Sequence[int], links: Sequence[tuple[int, int]], gap: float
) -> GraphLayout:
    """Compute the positions of boxes. `links` are pairs of boxes in different layers."""
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
    """Return the mean position of a box's neighbours on one side, or of all neighbours if there are none on this side."""
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
    """Move boxes as close as possible to their neighbours, keeping order and gaps: pools neighbours that would overlap."""
    offset, offsets = 0.0, []
    for place, number in enumerate(row):
        offset += _distance(boxes, row[place - 1], number, gap) if place else 0.0
        offsets.append(offset)
    pools: list[tuple[float, float, int]] = []  # (weighted sum, weight, number of boxes) of each pool
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
