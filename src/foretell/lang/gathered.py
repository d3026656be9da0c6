"""All that was read, before it is checked: rules numbered, tables loaded, and the mistakes found so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretell.lang.diagnostics import Diagnostic
from foretell.lang.program import FactTable, NumberedRule
from foretell.lang.source import Source
from foretell.lang.syntax import Atom, Literal, Not, Statement

BOS, EOS = "bos", "eos"


@dataclass(frozen=True)
class Gathered:
    rules: tuple[NumberedRule, ...]
    declarations: tuple[Statement, ...]
    tables: tuple[FactTable, ...]
    sources: tuple[Source, ...]
    found: tuple[Diagnostic, ...]
    unread: frozenset[str]  # functors of which not all is known, because a statement or table could not be read
    is_complete: bool  # False: a file is missing, so that any functor may be made true by it


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
