"""Splits names that are used with several numbers of arguments into one functor each: `age/1` and `age/2`.

A declaration that names only `age` applies to all of them; `:- embed(age/2, 8).` and `:- event(age(P, A)).` apply to one. Functors
of names that are always used with one number of arguments keep their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from foretell.lang.diagnostics import Diagnostic
from foretell.lang.fact_table import FactTable
from foretell.lang.program import BOS, EOS, UncheckedProgram
from foretell.lang.source import Span
from foretell.lang.syntax import (
    Atom,
    Count,
    Embed,
    EventDeclaration,
    FeatureDeclaration,
    GivenDeclaration,
    Key,
    Literal,
    Not,
    Promise,
    Rule,
    Statement,
    Table,
    conditions,
)
from foretell.wording import counted, listed, shown

Sizes = Mapping[str, Mapping[int, Span]]  # name → {number of arguments: its first occurrence}

OfFunctor = Embed | EventDeclaration | Key | GivenDeclaration | FeatureDeclaration


def one_arity_each(gathered: UncheckedProgram) -> UncheckedProgram:
    """Return the program with one number of arguments per functor. A name with several numbers of arguments causes a warning."""
    several = {name: sizes for name, sizes in _sizes(gathered).items() if len(sizes) > 1}
    if not several:
        return gathered
    names = _Names(several, gathered.tables)
    return replace(
        gathered,
        rules=[replace(one, rule=names.rule(one.rule)) for one in gathered.rules],
        declarations=[each for one in gathered.declarations for each in names.declared(one)],
        tables=[replace(one, functor=names.key(one.functor, one.arity)) for one in gathered.tables],
        promises=[replace(one, body=names.body(one.body)) for one in gathered.promises],
        found=[*gathered.found, *_warnings(several)],
        unread={each for one in gathered.unread for each in names.keys(one)},
    )


def arguments(number: int) -> str:
    return counted(number, "argument") if number else "no arguments"


def _sizes(gathered: UncheckedProgram) -> dict[str, dict[int, Span]]:
    found: dict[str, dict[int, Span]] = {}
    for name, arity, span in _uses(gathered):
        if name not in (BOS, EOS):
            found.setdefault(name, {}).setdefault(arity, span)
    return found


def _uses(gathered: UncheckedProgram) -> Iterator[tuple[str, int, Span]]:
    for one in gathered.declarations:
        if isinstance(one, OfFunctor) and one.functor is not None and one.arity is not None:
            yield one.functor, one.arity, one.span
    for rule in gathered.bodies():
        for atom in (rule.head, *(atom for atom, _ in conditions(rule.body))):
            yield atom.functor, len(atom.args), atom.functor_span
    for table in gathered.tables:
        yield table.functor, table.arity, table.span


def _warnings(several: Sizes) -> Iterator[Diagnostic]:
    for name, sizes in several.items():
        (first, at), (second, span), *_ = sizes.items()
        keys = listed([f"{name}/{size}" for size in sizes])
        message = f"{shown(name)} has {arguments(second)} here and {arguments(first)} at {at.place}: {keys} are different functors"
        yield Diagnostic(
            "two-arities", span, message, "if one was meant, give it the same arguments everywhere", "warning"
        )


class _Names:
    def __init__(self, several: Sizes, tables: Iterable[FactTable]) -> None:
        self.several = several
        self.of_table = {id(one.span): one.arity for one in tables}

    def key(self, name: str, arity: int) -> str:
        return f"{name}/{arity}" if name in self.several else name

    def keys(self, name: str) -> list[str]:
        return [f"{name}/{arity}" for arity in self.several.get(name, ())] or [name]

    def atom(self, one: Atom) -> Atom:
        return replace(one, functor=self.key(one.functor, len(one.args))) if one.functor in self.several else one

    def literal(self, one: Literal) -> Literal:
        if isinstance(one, Atom):
            return self.atom(one)
        return replace(one, atom=self.atom(one.atom)) if isinstance(one, Not | Count) else one

    def body(self, body: tuple[Literal, ...]) -> tuple[Literal, ...]:
        return tuple(map(self.literal, body))

    def rule(self, rule: Rule) -> Rule:
        return replace(rule, head=self.atom(rule.head), body=self.body(rule.body))

    def declared(self, one: Statement) -> list[Statement]:
        """Return one declaration for each number of arguments if the declaration only names the functor."""
        if isinstance(one, Promise):
            return [replace(one, body=self.body(one.body))]
        if isinstance(one, Table):
            arity = self.of_table.get(id(one.span))
            known = arity is not None or one.functor not in self.several
            return [replace(one, functor=self.key(one.functor, arity or 0))] if known else []  # else it was not read
        if not isinstance(one, OfFunctor) or one.functor is None or one.functor not in self.several:
            return [one]
        sizes = self.several[one.functor] if one.arity is None else (one.arity,)
        return [replace(one, functor=f"{one.functor}/{arity}", arity=arity) for arity in sizes]
