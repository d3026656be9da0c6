"""The syntax tree of a program: what was written, each piece with its place. Two trees are equal if they say the same, wherever they stand.

Functors and constants are kept in their one spelling (`eve`, `12`, `'New York'`; see `foretell.terms`): no piece is ever code in a string.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal as OneOf

from foretell.lang.source import Source, Span

ANONYMOUS = "_"


@dataclass(frozen=True, slots=True)
class Constant:
    text: str  # its one spelling
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Variable:
    """`_` is a fresh variable each time: the reader names them `_1`, `_2`, … within a rule, and `is_anonymous` says so."""

    name: str
    span: Span = field(compare=False, repr=False)
    is_anonymous: bool = False

    def __str__(self) -> str:
        return ANONYMOUS if self.is_anonymous else self.name


Term = Constant | Variable


@dataclass(frozen=True, slots=True)
class Atom:
    functor: str
    args: tuple[Term, ...]
    span: Span = field(compare=False, repr=False)
    functor_span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.functor}({','.join(map(str, self.args))})" if self.args else self.functor

    def variables(self) -> Iterator[Variable]:
        return (arg for arg in self.args if isinstance(arg, Variable))


@dataclass(frozen=True, slots=True)
class Not:
    """`not g(X,_)`: no fact matches."""

    atom: Atom
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"not {self.atom}"


@dataclass(frozen=True, slots=True)
class Compare:
    """`X = Y` or `X != Y`."""

    equal: bool
    left: Term
    right: Term
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.left} {'=' if self.equal else '!='} {self.right}"


Literal = Atom | Not | Compare
Kind = OneOf["deduce", "add", "remove"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`head : beta :- body :: matrix.`; a fact is a `deduce` rule without body. The first condition of `add` and `remove` is the event."""

    kind: Kind
    head: Atom
    body: tuple[Literal, ...]
    beta: Atom | None
    matrix: Atom | None
    span: Span = field(compare=False, repr=False)

    @property
    def is_fact(self) -> bool:
        return self.kind == "deduce" and not self.body


@dataclass(frozen=True, slots=True)
class Embed:
    """`:- embed(forum, 8).`; `_` as functor (None) stands for all that are not declared."""

    functor: str | None
    dim: int
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EventDeclaration:
    """`:- event(watch, 8).`, `:- event(watch).`, `:- event(watch(U,P)).`, and the same with `exogenous`."""

    functor: str
    exogenous: bool
    dim: int | None
    arity: int | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Key:
    """`:- key(forum, 4).`"""

    functor: str
    length: int
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Include:
    """`:- include("teams.ndtt").`"""

    path: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Table:
    """`:- table(teammate, "teammate.csv").`"""

    functor: str
    path: str
    span: Span = field(compare=False, repr=False)


Declaration = Embed | EventDeclaration | Key | Include | Table
Statement = Rule | Declaration


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file, read: its statements in order."""

    source: Source = field(compare=False, repr=False)
    statements: tuple[Statement, ...]


def atom_of(literal: Literal) -> Atom | None:
    """The atom of a condition, negated or not; a comparison has none."""
    if isinstance(literal, Not):
        return literal.atom
    return literal if isinstance(literal, Atom) else None


def conditions(body: tuple[Literal, ...]) -> Iterator[tuple[Atom, bool]]:
    """The atoms of a body, each with whether it is negated."""
    for literal in body:
        atom = atom_of(literal)
        if atom is not None:
            yield atom, isinstance(literal, Not)
