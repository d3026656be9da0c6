"""What a program's rules are to a network: the dimension of every functor, and which conditions have embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from foretell.ground.timeline import Grounding
from foretell.lang.program import Program
from foretell.lang.shapes import dimension
from foretell.lang.syntax import Atom


@dataclass(frozen=True)
class RuleLayout:
    """One rule, or one table: its embedded conditions are those whose functors have a dimension above 0."""

    index: int  # in the program's rules, then in its tables
    kind: str  # deduce, add, own (a fact of the program or a row of a table: its vector is its own)
    head: str
    embedded: tuple[int, ...]  # places in an instantiation's body
    dims: tuple[int, ...]  # their dimensions


@dataclass(frozen=True, eq=False)
class DimensionLayout:
    program: Program
    dim: int

    def __deepcopy__(self, memo: dict[int, object]) -> DimensionLayout:
        return self  # nothing in it changes

    def dimension(self, functor: str) -> int:
        return dimension(self.program.functors, functor, self.dim)

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Of all functors that have embeddings, ascending."""
        return tuple(sorted({self.dimension(name) for name in self.program.functors} - {0}))

    @cached_property
    def rules(self) -> tuple[RuleLayout | None, ...]:
        """By place; None for removals, which no embedding sees."""
        found: list[RuleLayout | None] = []
        for place, numbered in enumerate(self.program.rules):
            rule = numbered.rule
            if rule.kind == "remove":
                found.append(None)
                continue
            atoms = [literal for literal in rule.body if isinstance(literal, Atom)]
            dims = [self.dimension(atom.functor) for atom in atoms]
            embedded = tuple(number for number, size in enumerate(dims) if size)
            kind = "add" if rule.kind == "add" else "deduce" if rule.body else "own"
            found.append(
                RuleLayout(
                    place,
                    kind,
                    rule.head.functor,
                    embedded,
                    tuple(dims[number] for number in embedded),
                )
            )
        for place, table in enumerate(self.program.tables):
            found.append(RuleLayout(len(self.program.rules) + place, "own", table.functor, (), ()))
        return tuple(found)

    @cached_property
    def values_of_heads(self) -> dict[int, int]:
        """Adding rules whose `: b(X)` has variables of its own: how many of a group's values, from the first, make attention heads."""
        found: dict[int, int] = {}
        for place, numbered in enumerate(self.program.rules):
            rule = numbered.rule
            if rule.kind == "add" and rule.beta is not None:
                of_matrix = dict.fromkeys(one.name for one in (rule.matrix.variables() if rule.matrix else ()))
                both = dict.fromkeys([*of_matrix, *(one.name for one in rule.beta.variables())])
                if len(both) > len(of_matrix):
                    found[place] = len(of_matrix)
        return found

    @cached_property
    def changing(self) -> frozenset[str]:
        """Functors whose embeddings can change with time: those that are added, and what is deduced from such."""
        changing = {one.head for one in self.rules if one is not None and one.kind == "add"}
        readers: dict[str, list[str]] = {}
        for numbered in self.program.rules:
            if numbered.rule.kind == "deduce":
                for literal in numbered.rule.body:
                    atom = literal if isinstance(literal, Atom) else getattr(literal, "atom", None)
                    if atom is not None:
                        readers.setdefault(atom.functor, []).append(numbered.rule.head.functor)
        waiting = list(changing)
        while waiting:
            for reader in readers.get(waiting.pop(), ()):
                if reader not in changing:
                    changing.add(reader)
                    waiting.append(reader)
        return frozenset(changing)

    def of_facts(self, grounding: Grounding) -> tuple[list[int], list[bool]]:
        """Dimension of every functor of a grounding, and whether its facts' embeddings can change."""
        return (
            [self.dimension(name) for name in grounding.functors],
            [name in self.changing for name in grounding.functors],
        )
