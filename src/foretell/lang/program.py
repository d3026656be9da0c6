"""A checked program: rules numbered, functors resolved, tables read, dependencies sorted. Databases and models are built from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal as OneOf
from typing import get_args

from foretell.errors import ForetellError
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.source import Source, Span
from foretell.lang.syntax import Atom, Rule, Statement, conditions
from foretell.options import Undeclared
from foretell.wording import counted, printable

FunctorKind = OneOf["fact", "event", "exogenous"]
DEFAULT_DIM = 32  # that of the models
BOS, EOS = "bos", "eos"


@dataclass(frozen=True, slots=True)
class Functor:
    name: str
    arity: int | None  # None: declared, used nowhere, and its arity not given
    kind: FunctorKind
    dim: int | None  # as declared; None: the model's
    key: int | None  # key and query length of rules that add it, where declared

    def __str__(self) -> str:
        return self.name if self.arity is None else f"{self.name}/{self.arity}"


@dataclass(frozen=True, slots=True)
class NumberedRule:
    """A fact or rule with its place in the program: `rule1`, `rule2`, …"""

    number: int
    rule: Rule

    @property
    def name(self) -> str:
        return f"rule{self.number}"


@dataclass(frozen=True)
class FactTable:
    """Facts that come from a file: one row each, constants in their one spelling, no row twice."""

    functor: str
    arity: int
    rows: list[tuple[str, ...]] = field(repr=False)
    span: Span = field(repr=False)
    path: str  # as the program writes it
    header: tuple[str, ...]  # names of the columns


@dataclass(frozen=True)
class UncheckedProgram:
    """All that was read, before it is checked: rules numbered, tables loaded, and the mistakes found so far."""

    rules: tuple[NumberedRule, ...]
    declarations: tuple[Statement, ...]
    tables: tuple[FactTable, ...]
    sources: tuple[Source, ...]
    found: tuple[Diagnostic, ...]
    unread: frozenset[str]  # functors of which not all is known, because a statement or table could not be read
    is_complete: bool  # False: a file is missing, so that any functor may be made true by it


@dataclass(frozen=True, slots=True)
class Component:
    """Functors that are deduced from one another; a component comes after all it depends on."""

    functors: tuple[str, ...]
    recursive: bool


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A program that was read and found to be without mistakes; `from_file`, `named` and `from_text` make one."""

    rules: tuple[NumberedRule, ...]
    tables: tuple[FactTable, ...]
    functors: Mapping[str, Functor]
    components: tuple[Component, ...]  # of the `:-` rules, in order of dependence
    stratum: Mapping[str, int]  # of each functor: how many negations lie below it
    undeclared: Undeclared
    warnings: tuple[Diagnostic, ...]
    sources: tuple[Source, ...]
    digest: str  # of everything above that has a meaning: equal programs replay equally

    def __repr__(self) -> str:
        rules = sum(not one.rule.is_fact for one in self.rules)
        facts = len(self.rules) - rules + sum(len(one.rows) for one in self.tables)
        events = sum(one.kind != "fact" for one in self.functors.values())
        parts = ", ".join(counted(*one) for one in ((rules, "rule"), (facts, "fact"), (events, "event")))
        return f"<Program {printable(self.sources[0].name)}: {parts}>"

    @staticmethod
    def from_file(path: str | Path, *, undeclared: Undeclared = "error", dim: int = DEFAULT_DIM) -> Program:
        """Read and check a program with all it includes; raises `ProgramError` with every mistake of it.

        Where there is no such file, the name of a shipped program will do: `"robocup"`.
        """
        from foretell.lang.load import load_program

        _check_choice(undeclared)
        return load_program(Path(path), undeclared=undeclared, dim=dim)

    @staticmethod
    def named(name: str, *, undeclared: Undeclared = "error", dim: int = DEFAULT_DIM) -> Program:
        """A program that ships with foretell: `Program.named("robocup")` is for the data `load("robocup")`."""
        from foretell.lang.load import load_shipped

        _check_choice(undeclared)
        return load_shipped(name, undeclared=undeclared, dim=dim)

    @staticmethod
    def from_text(
        text: str,
        name: str = "<program>",
        *,
        folder: str | Path = ".",
        undeclared: Undeclared = "error",
        dim: int = DEFAULT_DIM,
    ) -> Program:
        """The same for a text; includes and tables are looked for in `folder`."""
        from foretell.lang.load import read_program

        _check_choice(undeclared)
        return read_program(Source(name, text), Path(folder), undeclared=undeclared, dim=dim)


def _check_choice(undeclared: str) -> None:
    choices = get_args(Undeclared)
    if undeclared not in choices:
        raise ForetellError(f"undeclared={undeclared!r}: expected {' or '.join(map(repr, choices))}")


MOST_CYCLES = 20  # that are searched for and shown


@dataclass(frozen=True)
class Edge:
    """`head :- …, body, …`."""

    head: str
    body: str
    negated: bool
    atom: Atom


@dataclass(frozen=True)
class Order:
    components: tuple[Component, ...]
    stratum: Mapping[str, int]
    negated_cycles: tuple[tuple[Edge, tuple[str, ...]], ...]  # an edge through `not`, and the functors of the way back


def edges_of(rules: Iterable[NumberedRule]) -> list[Edge]:
    return [
        Edge(one.rule.head.functor, atom.functor, negated, atom)
        for one in rules
        if one.rule.kind == "deduce"
        for atom, negated in conditions(one.rule.body)
    ]


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
    for number in range(len(groups)):  # a group comes after those it depends on
        for edge in out[number]:
            if group_of[edge.body] != number:
                level[number] = max(level[number], level[group_of[edge.body]] + edge.negated)
    places = sorted(range(len(groups)), key=lambda number: level[number])  # stable: dependence stays in order
    components = tuple(Component(tuple(groups[number]), number in recursive) for number in places)
    return Order(components, {name: level[group_of[name]] for name in group_of}, cycles)


def strong_components(below: Mapping[str, list[str]]) -> list[list[str]]:
    """Tarjan's algorithm with a stack of its own; each group comes after all that it depends on."""
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
    """A shortest way from one functor down to another inside a group."""
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
