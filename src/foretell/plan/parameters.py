"""Canonical names of parameters, and where each lies: everything of one shape is stacked in one tensor.

A rule's own name is `ruleN`; a named parameter is named by its term after binding, `post(joke)`. The `W` of a deduction is cut up: its
first column is a row of the stack of vectors, where facts of the program and rows of tables have theirs; the columns that meet one
condition are a block of a stack of such blocks. So all rules of a level can be applied together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from foretell.data.covariates import NumberColumn
from foretell.ground.timeline import Grounding
from foretell.lang.fact_table import inputs, numbers_of
from foretell.lang.program import Program, RuleShapes, cell_shapes_of, dimension, shapes_of
from foretell.lang.reachable import closure
from foretell.lang.syntax import Atom, Constant, conditions
from foretell.plan.feature_rows import FeatureRows, fit_tables
from foretell.terms import bare, fact, split


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
    cells_take_deduced: bool = False  # whether a cell that is moved takes in what is deduced for its fact just before

    def __deepcopy__(self, memo: dict[int, object]) -> DimensionLayout:
        return self  # nothing in it changes

    def dimension(self, functor: str) -> int:
        return dimension(self.program.functors, functor, self.dim)

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of all functors that have embeddings, ascending."""
        return tuple(sorted({self.dimension(name) for name in self.program.functors} - {0}))

    @cached_property
    def rules(self) -> tuple[RuleLayout | None, ...]:
        """The rules by position; None for removals, which do not affect embeddings."""
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

    def event_with_features(self, rule: int) -> str | None:
        """The functor of an adding rule's event, where such events have features."""
        first = self.program.rules[rule].rule.body[0]
        return first.functor if isinstance(first, Atom) and first.functor in self.program.features else None

    @cached_property
    def values_of_heads(self) -> dict[int, int]:
        """Adding rules whose `: b(X)` has variables of its own: how many of a group's values, from the first, make attention heads."""
        found: dict[int, int] = {}
        for place, numbered in enumerate(self.program.rules):
            of_matrix = replace(numbered.rule, beta=None).parameter_variables
            if numbered.rule.kind == "add" and numbered.rule.parameter_variables != of_matrix:
                found[place] = len(of_matrix)
        return found

    @cached_property
    def added(self) -> tuple[str, ...]:
        """Functors with embeddings whose facts events add."""
        heads = [one.head for one in self.rules if one is not None and one.kind == "add"]
        return tuple(dict.fromkeys(name for name in heads if self.dimension(name)))

    def added_numbers(self, grounding: Grounding) -> np.ndarray:
        """For every functor of a grounding its place in `added`; 0 for others."""
        place = {name: number for number, name in enumerate(self.added)}
        return np.asarray([place.get(name, 0) for name in grounding.functors], dtype=np.int64)

    @cached_property
    def changing(self) -> frozenset[str]:
        """Functors whose embeddings can change with time: those that are added, and what is deduced from such."""
        readers: dict[str, list[str]] = {}
        for numbered in self.program.rules:
            if numbered.rule.kind == "deduce":
                for atom, _ in conditions(numbered.rule.body):
                    readers.setdefault(atom.functor, []).append(numbered.rule.head.functor)
        added = [one.head for one in self.rules if one is not None and one.kind == "add"]
        return frozenset(closure(added, readers))

    def of_facts(self, grounding: Grounding) -> tuple[list[int], list[bool]]:
        """Dimension of every functor of a grounding, and whether its facts' embeddings can change."""
        return (
            [self.dimension(name) for name in grounding.functors],
            [name in self.changing for name in grounding.functors],
        )


@dataclass
class Stack:
    """Parameters of one shape."""

    key: str
    shapes: dict[str, tuple[int, ...]]  # of each letter
    layered: bool  # one of each for every layer
    count: int = 0

    def take(self) -> int:
        self.count += 1
        return self.count - 1


@dataclass
class ParameterFamily:
    """Names whose parameters have one shape."""

    place: int  # among the families of its book
    stem: str  # own, deduce, beta, add; features; row (of a fact with features: its vector is no parameter)
    prefix: str  # of its names in files: deduce or add
    shapes: dict[str, tuple[int, ...]]  # of each letter: W; V, K, Q or G; beta; W of own vectors
    stacks: tuple[Stack, ...]  # where its parts lie
    columns: tuple[tuple[int, int], ...]  # of a `W`: those of its blocks, which are the stacks after the first
    order: list[tuple[ParameterFamily, str]]  # of the book: all names in the order in which they were met
    names: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, ...]] = field(default_factory=list)  # of each name: its row in every stack
    met: list[int] = field(default_factory=list)  # of each name: its place in `order`

    @property
    def is_learned(self) -> bool:
        """Whether the rule has parameters."""
        return self.stem != "row"

    def number(self, name: str) -> int:
        found = self.index.get(name)
        if found is None:
            found = self.index[name] = len(self.names)
            self.names.append(name)
            self.rows.append(tuple(stack.take() for stack in self.stacks))
            self.met.append(len(self.order))
            self.order.append((self, name))
        return found

    def blocks_of(self, dims: Sequence[int]) -> list[tuple[int, int, tuple[int, int]]]:
        """How conditions of these dimensions meet the blocks: (number of the block, which condition, which of its components)."""
        found = []
        start, place = 1, 0
        for number, (low, high) in enumerate(self.columns):
            while high > start + dims[place]:
                start, place = start + dims[place], place + 1
            found.append((number, place, (low - start, high - start)))
        return found


class ParameterBook:
    def __init__(self, layout: DimensionLayout, time_dim: int | None, cell_rows: int | None = None) -> None:
        """Without `time_dim` additions have cells with pools, and no attention; `cell_rows` are those of `G`, if not of six gates."""
        self.layout, self.program = layout, layout.program
        self.gated = time_dim is None
        self.families: dict[tuple[object, ...], ParameterFamily] = {}
        self.stacks: dict[str, Stack] = {}
        self.order: list[tuple[ParameterFamily, str]] = []
        self.trained: int | None = None  # of `order`, from its beginning: names that training met; None: not trained
        self.given: set[int] = set()  # rules whose names have met values for their variables
        self.renamed = {
            one.earlier_name: one.name for one in self.program.rules if one.rule.matrix is None or one.rule.body
        }
        self.columns = fit_tables(self.program.tables)  # of every functor with features; they stay when the rows change
        self.feature_rows: dict[int, dict[str, FeatureRows]] = {}  # by dimension and functor
        self.drawn_as = {
            one.name: one.earlier_name for one in self.program.rules
        }  # names of starting values, where they are others
        functors, dim = self.program.functors, layout.dim
        self.shapes: list[RuleShapes] = [
            cell_shapes_of(one, functors, dim, cell_rows)
            if time_dim is None
            else shapes_of(one, functors, dim, time_dim)
            for one in self.program.rules
        ]
        self._cuts: dict[tuple[object, ...], set[int]] = {}
        for place, shapes in enumerate(self.shapes):
            if shapes.stem == "deduce":  # rules may share a `W` and cut it up in different ways
                written = layout.rules[place]
                assert written is not None
                self._cuts.setdefault(_key(shapes), set()).update(accumulate(written.dims, initial=1))
        # Families are in the order of the program; names without variables exist before anything is grounded.
        for place, shapes in enumerate(self.shapes):
            if shapes.stem != "remove":
                family, beta = self._families(place)
                if not shapes.groups:
                    family.number(_bound(shapes.name, {}))
                if beta is not None and shapes.beta is not None and not _variables(shapes.beta):
                    beta.number(_bound(shapes.beta, {}))
        for place, table in enumerate(self.program.tables):
            for row in table.rows:
                self.numbers(len(self.program.rules) + place, row)

    def family(
        self, key: tuple[object, ...], stem: str, shapes: dict[str, tuple[int, ...]], prefix: str = "deduce"
    ) -> ParameterFamily:
        found = self.families.get(key)
        if found is None:
            columns: tuple[tuple[int, int], ...] = ()
            if stem == "beta":
                stacks = (self._stack("beta", {"beta": ()}),)
            elif stem == "add":
                sizes = "_".join(str(size) for shape in shapes.values() for size in shape)
                stacks = (self._stack(f"add_{sizes}", shapes, not self.gated),)
            elif stem == "features":
                out, width = shapes["W"]
                stacks = (self._stack(f"features_{out}_{width}", shapes),)
            else:
                out = shapes["W"][0]
                columns = tuple(pairwise(sorted(self._cuts.get(key, ()))))
                blocks = (self._stack(f"blocks_{out}_{high - low}", {"W": (out, high - low)}) for low, high in columns)
                stacks = (self._stack(f"vectors_{out}", {"W": (out,)}), *blocks)
            found = self.families[key] = ParameterFamily(
                len(self.families), stem, prefix, shapes, stacks, columns, self.order
            )
        return found

    def _stack(self, key: str, shapes: dict[str, tuple[int, ...]], layered: bool = False) -> Stack:
        return self.stacks.setdefault(key, Stack(key, shapes, layered))

    def numbers(self, rule: int, values: tuple[str, ...]) -> tuple[ParameterFamily, int, ParameterFamily | None, int]:
        """Family and place of a group's matrices, and of its pool exponent."""
        program = self.program
        if rule >= len(program.rules):
            table = program.tables[rule - len(program.rules)]
            dim = self.layout.dimension(table.functor)
            if table.features:
                return (*self._feature_row(table.functor, dim, values), None, 0)
            own = self.family(("own", dim), "own", {"W": (dim, 1)})
            return own, own.number(fact(table.functor, values)), None, 0
        shapes = self.shapes[rule]
        bound = dict(zip(program.rules[rule].rule.parameter_variables, values, strict=True))
        if values:
            self.given.add(rule)
        family, beta = self._families(rule)
        number = family.number(_bound(shapes.name, bound))
        if beta is None or shapes.beta is None:
            return family, number, None, 0
        return family, number, beta, beta.number(_bound(shapes.beta, bound))

    def _feature_row(self, functor: str, dim: int, args: tuple[str, ...]) -> tuple[ParameterFamily, int]:
        """The position of a fact's vector, which is computed from its numbers."""
        family = self.family(("row", dim), "row", {"W": (dim, 1)})
        number = family.number(fact(functor, args))
        self._features(functor, dim).meet(family.rows[number][0], args)
        return family, number

    def _features(self, functor: str, dim: int) -> FeatureRows:
        by_functor = self.feature_rows.setdefault(dim, {})
        if functor not in by_functor:
            columns = self.columns[functor]
            shape = dim, inputs(len(columns))
            learned = self.family(("features", shape), "features", {"W": shape})
            matrix = learned.rows[learned.number(f"features({functor})")][0]
            numbers = numbers_of(self.program.tables)[functor]
            by_functor[functor] = FeatureRows(columns, numbers, matrix, learned.stacks[0].key)
        return by_functor[functor]

    def use_columns(self, columns: dict[str, tuple[NumberColumn, ...]]) -> None:
        """Numbers of facts count as they say from now on."""
        self.columns = columns
        for of_functors in self.feature_rows.values():
            for functor, one in of_functors.items():
                one.recount(columns[functor])

    def _families(self, rule: int) -> tuple[ParameterFamily, ParameterFamily | None]:
        """The families of a rule's matrices, and of its pool exponent."""
        shapes = self.shapes[rule]
        if shapes.stem == "deduce" and shapes.matrices["W"][1] == 1:
            # The vector of a fact, or of a rule whose conditions have no embeddings: one name may stand for both.
            dim = shapes.matrices["W"][0]
            family = self.family(("own", dim), "own", {"W": (dim, 1)})
        else:
            family = self.family(_key(shapes), shapes.stem, dict(shapes.matrices), shapes.stem)
        if shapes.beta is None:
            return family, None
        return family, self.family(("beta", shapes.stem), "beta", {"beta": ()}, shapes.stem)

    def of_group(self, grounding: Grounding, group: int) -> tuple[ParameterFamily, int, ParameterFamily | None, int]:
        rule, *values = grounding.groups[group]
        return self.numbers(rule, tuple(grounding.constants[value] for value in values))

    def read(self, grounding: Grounding) -> None:
        """Meet every group of a grounding."""
        for group in range(len(grounding.groups)):
            if self._is_learned(grounding.groups[group][0]):
                self.of_group(grounding, group)

    def admit(self, name: str) -> None:
        """Meet the name of a group by what a file calls it, `add.post(joke).1.V`, if rules have such names."""
        stem, _, rest = name.partition(".")
        exponent = name.endswith(".beta")
        term = rest.rsplit(".", 2 if stem == "add" and not self.gated else 1)[0]
        functor, args = split(term)
        for rule, shapes in enumerate(self.shapes):
            written = shapes.beta if exponent else shapes.name
            if written is None or shapes.stem != stem:
                continue
            if bare(written.functor) == functor and len(written.args) == len(args) and _variables(written):
                family, beta = self._families(rule)
                chosen = beta if exponent else family
                if chosen is not None:
                    chosen.number(term)

    @property
    def unseen(self) -> list[tuple[ParameterFamily, str]]:
        """Names that training never met."""
        return [] if self.trained is None else [one for one in self.order[self.trained :] if one[0].is_learned]

    def unseen_name(self, grounding: Grounding, group: int) -> str | None:
        """The name of a group's matrices, or else of its pool exponent, if training never met it."""
        if self.trained is None or not self._is_learned(grounding.groups[group][0]):
            return None
        family, number, beta, exponent = self.of_group(grounding, group)
        if family.met[number] >= self.trained and family.is_learned:
            return family.names[number]
        return None if beta is None or beta.met[exponent] < self.trained else beta.names[exponent]

    def _is_learned(self, rule: int) -> bool:
        return rule >= len(self.program.rules) or self.shapes[rule].stem != "remove"


def _key(shapes: RuleShapes) -> tuple[object, ...]:
    return shapes.stem, shapes.name.functor, len(shapes.name.args), tuple(shapes.matrices.items())


def _variables(name: Atom) -> list[str]:
    return [variable.name for variable in name.variables()]


def _bound(name: Atom, values: dict[str, str]) -> str:
    args = [arg.text if isinstance(arg, Constant) else values[arg.name] for arg in name.args]
    return fact(name.functor, args)


def events_of(program: Program) -> list[str]:
    return [name for name, functor in program.functors.items() if functor.kind == "event"]
