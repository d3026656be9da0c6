"""Canonical names of parameters, stacked: all matrices of one shape and name functor are slices of one tensor.

A rule's own name is `ruleN`; a named parameter is named by its term after binding, `post(joke)`. Facts of the program and rows of tables
have one vector each, and these are rows of one table for each dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from foretell.ground.timeline import Grounding
from foretell.lang.program import Program
from foretell.lang.shapes import RuleShapes, shapes_of
from foretell.lang.syntax import Atom, Constant
from foretell.plan.layout import Layout


@dataclass
class Family:
    """Names whose parameters are stacked, with the shape of each."""

    stem: str  # own, deduce, beta, add
    shapes: dict[str, tuple[int, ...]]  # of each letter: W; V, K, Q; beta; W of own vectors
    names: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        found = self.index.get(name)
        if found is None:
            found = self.index[name] = len(self.names)
            self.names.append(name)
        return found


class ParameterBook:
    def __init__(self, layout: Layout, time_dim: int) -> None:
        self.layout, self.program = layout, layout.program
        self.families: dict[tuple[object, ...], Family] = {}
        self.shapes: list[RuleShapes] = [
            shapes_of(one, self.program.functors, layout.dim, time_dim) for one in self.program.rules
        ]
        # Names without variables exist before anything is grounded.
        for place, shapes in enumerate(self.shapes):
            if shapes.stem != "remove" and not shapes.groups and (shapes.beta is None or not _variables(shapes.beta)):
                self.numbers(place, ())
        for place, table in enumerate(self.program.tables):
            for row in table.rows:
                self.numbers(len(self.program.rules) + place, row)

    def family(self, key: tuple[object, ...], stem: str, shapes: dict[str, tuple[int, ...]]) -> Family:
        return self.families.setdefault(key, Family(stem, shapes))

    def numbers(self, rule: int, values: tuple[str, ...]) -> tuple[Family, int, Family | None, int]:
        """Family and place of a group's matrices, and of its pool exponent."""
        program = self.program
        if rule >= len(program.rules):
            table = program.tables[rule - len(program.rules)]
            dim = self.layout.dimension(table.functor)
            own = self.family(("own", dim), "own", {"W": (dim, 1)})
            return own, own.number(f"{table.functor}({','.join(values)})" if values else table.functor), None, 0
        shapes = self.shapes[rule]
        bound = dict(zip(self.variables(rule), values, strict=True))
        name = _bound(shapes.name, bound)
        if shapes.stem == "deduce" and shapes.beta is None:
            dim = shapes.matrices["W"][0]
            own = self.family(("own", dim), "own", {"W": (dim, 1)})
            return own, own.number(name), None, 0
        key = (shapes.stem, shapes.name.functor, len(shapes.name.args), tuple(shapes.matrices.items()))
        family = self.family(key, shapes.stem, dict(shapes.matrices))
        if shapes.beta is None:
            return family, family.number(name), None, 0
        beta = self.family(("beta",), "beta", {"beta": ()})
        return family, family.number(name), beta, beta.number(_bound(shapes.beta, bound))

    def variables(self, rule: int) -> tuple[str, ...]:
        """Of the parameter names of a rule, in the order in which groups have their values."""
        written = self.program.rules[rule].rule
        found: dict[str, None] = {}
        for name in (written.matrix, written.beta):
            found.update(dict.fromkeys(_variables(name) if name is not None else ()))
        return tuple(found)

    def of_group(self, grounding: Grounding, group: int) -> tuple[Family, int, Family | None, int]:
        rule, *values = grounding.groups[group]
        return self.numbers(rule, tuple(grounding.constants[value] for value in values))

    def read(self, grounding: Grounding) -> None:
        """Meet every group of a grounding."""
        for group in range(len(grounding.groups)):
            if self._is_learned(grounding.groups[group][0]):
                self.of_group(grounding, group)

    def _is_learned(self, rule: int) -> bool:
        return rule >= len(self.program.rules) or self.shapes[rule].stem != "remove"


def _variables(name: Atom) -> list[str]:
    return [variable.name for variable in name.variables()]


def _bound(name: Atom, values: dict[str, str]) -> str:
    args = [arg.text if isinstance(arg, Constant) else values[arg.name] for arg in name.args]
    return f"{name.functor}({','.join(args)})" if args else name.functor


def events_of(program: Program) -> list[str]:
    return [name for name, functor in program.functors.items() if functor.kind == "event"]
