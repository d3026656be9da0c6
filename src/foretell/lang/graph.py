"""A checked program → its predicates and rules as a graph: what `--show graph` prints and `--graph` draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretell.lang.program import BOS, FunctorKind, Program
from foretell.lang.syntax import Kind, conditions, pretty_rule


@dataclass(frozen=True)
class Predicate:
    name: str
    arity: int | None
    kind: FunctorKind
    dim: int | None
    facts: int  # written in the program, and rows of tables

    @property
    def label(self) -> str:
        return self.name if not self.arity else f"{self.name}/{self.arity}"


@dataclass(frozen=True)
class GraphCondition:
    functor: str
    negated: bool
    is_event: bool


@dataclass(frozen=True)
class Arrow:
    """Rules that look alike: of one kind, with one head and the same conditions."""

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
    facts: dict[str, int] = {}
    for table in program.tables:
        facts[table.functor] = facts.get(table.functor, 0) + len(table.rows)
    alike: dict[tuple[Kind, str, tuple[GraphCondition, ...]], list[tuple[int, str]]] = {}
    waits_for_bos = False
    for one in program.rules:
        rule = one.rule
        if rule.is_fact:
            facts[rule.head.functor] = facts.get(rule.head.functor, 0) + 1
            continue
        found = [
            GraphCondition(atom.functor, negated, rule.kind != "deduce" and place == 0)
            for place, (atom, negated) in enumerate(conditions(rule.body))
        ]
        waits_for_bos = waits_for_bos or any(condition.functor == BOS for condition in found)
        key = (rule.kind, rule.head.functor, tuple(dict.fromkeys(found)))
        alike.setdefault(key, []).append((one.number, pretty_rule(rule)))
    predicates = [
        Predicate(name, functor.arity, functor.kind, functor.dim, facts.get(name, 0))
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
    """Text: each predicate, and under it the rules that make or remove it."""
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
    return {
        "predicates": [
            {"functor": one.name, "arity": one.arity, "kind": one.kind, "dim": one.dim, "facts": one.facts}
            for one in graph.predicates
        ],
        "arrows": [
            {
                "kind": one.kind,
                "head": one.head,
                "conditions": [
                    {"functor": condition.functor, "negated": condition.negated, "event": condition.is_event}
                    for condition in one.conditions
                ],
                "rules": [f"rule{number}" for number in one.rules],
            }
            for one in graph.arrows
        ],
    }
