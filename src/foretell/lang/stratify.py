"""Rules → components of functors in order of dependence, and strata of `not` and counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foretell.lang.program import Component, NumberedRule
from foretell.lang.syntax import Atom, Count, Literal, Not, conditions

MOST_CYCLES = 20  # the largest number of cycles that are searched for and shown


@dataclass(frozen=True)
class Edge:
    """A dependence: `head :- …, body, …`."""

    head: str
    body: str
    word: str  # `not`, `count`, `min`, `max`, or empty
    atom: Atom

    @property
    def negated(self) -> bool:
        """Whether more facts of the body can make the head false."""
        return bool(self.word)


@dataclass(frozen=True)
class Order:
    components: tuple[Component, ...]
    stratum: Mapping[str, int]
    negated_cycles: tuple[tuple[Edge, tuple[str, ...]], ...]  # an edge through `not`, and the functors on the way back


def edges_of(rules: Iterable[NumberedRule]) -> list[Edge]:
    return [
        Edge(one.rule.head.functor, atom.functor, _word(literal), atom)
        for one in rules
        if one.rule.kind == "deduce"
        for literal in one.rule.body
        for atom, _ in conditions((literal,))
    ]


def _word(literal: Literal) -> str:
    return literal.word if isinstance(literal, Count) else "not" if isinstance(literal, Not) else ""


def order(functors: Iterable[str], edges: Iterable[Edge]) -> Order:
    edges = list(edges)
    below: dict[str, dict[str, None]] = {functor: {} for functor in functors}
    for edge in edges:
        below.setdefault(edge.head, {})[edge.body] = None
        below.setdefault(edge.body, {})
    groups = strong_components({name: list(found) for name, found in below.items()})
    group_of = {name: number for number, group in enumerate(groups) for name in group}
    recursive = {group_of[edge.head] for edge in edges if group_of[edge.head] == group_of[edge.body]}
    negated = [edge for edge in edges if edge.negated and group_of[edge.head] == group_of[edge.body]]
    negated = list({(edge.head, edge.body): edge for edge in reversed(negated)}.values())[::-1][:MOST_CYCLES]
    cycles = tuple((edge, path(edge.body, edge.head, below, set(groups[group_of[edge.head]]))) for edge in negated)
    level = [0] * len(groups)
    out: list[list[Edge]] = [[] for _ in groups]
    for edge in edges:
        out[group_of[edge.head]].append(edge)
    for number in range(len(groups)):  # groups are sorted: each comes after those on which it depends
        for edge in out[number]:
            if group_of[edge.body] != number:
                level[number] = max(level[number], level[group_of[edge.body]] + edge.negated)
    places = sorted(range(len(groups)), key=lambda number: level[number])  # a stable sort keeps the order of dependence
    components = tuple(Component(tuple(groups[number]), number in recursive) for number in places)
    return Order(components, {name: level[group_of[name]] for name in group_of}, cycles)


def strong_components(below: Mapping[str, list[str]]) -> list[list[str]]:
    """Tarjan's algorithm with an explicit stack. Each group comes after all groups on which it depends."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_stack: set[str] = set()
    stack: list[str] = []
    groups: list[list[str]] = []
    for root in below:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(below[root]))]
        while work:
            node, rest = work[-1]
            after = next(rest, None)
            if after is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    group = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        group.append(member)
                        if member == node:
                            break
                    groups.append(sorted(group, key=index.__getitem__))
            elif after not in index:
                index[after] = low[after] = len(index)
                stack.append(after)
                on_stack.add(after)
                work.append((after, iter(below[after])))
            elif after in on_stack:
                low[node] = min(low[node], index[after])
    return groups


def path(start: str, goal: str, below: Mapping[str, Iterable[str]], within: set[str]) -> tuple[str, ...]:
    """Return a shortest path from one functor down to another inside a group."""
    came: dict[str, str | None] = {start: None}
    queue = [start]
    for node in queue:
        if node == goal:
            break
        for after in below[node]:
            if after in within and after not in came:
                came[after] = node
                queue.append(after)
    way = []
    step: str | None = goal
    while step is not None:
        way.append(step)
        step = came[step]
    return tuple(reversed(way))
