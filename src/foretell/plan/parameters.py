"""Names of parameters, and the position of each in a tensor. Parameters of one shape are stacked in one tensor.

A rule's own name is `ruleN`; a named parameter is named by its term after binding, such as `post(joke)`. The `W` of a deduction is split.
Its first column is a row of the stack of vectors, which also has the vectors of the program's facts and of table rows. The columns for
one condition are a block in a stack of blocks. So all rules of a level can be applied together.
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
    """A rule or a table. Its embedded conditions are the atoms whose functors have a dimension above 0."""

    index: int  # its position: rules of the program first, then tables
    kind: str  # deduce, add, or own (a fact of the program or a row of a table, which has its own vector)
    head: str
    embedded: tuple[int, ...]  # places of the embedded conditions in the body of a rule instance
    dims: tuple[int, ...]  # the dimensions of the embedded conditions


@dataclass(frozen=True, eq=False)
class DimensionLayout:
    program: Program
    dim: int
    cells_take_deduced: bool = False  # whether cell updates read the fact's deduced embedding

    def __deepcopy__(self, memo: dict[int, object]) -> DimensionLayout:
        return self  # immutable, so a copy can share it

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
        """Return the functor of an adding rule's event if events of this functor have features, else None."""
        first = self.program.rules[rule].rule.body[0]
        return first.functor if isinstance(first, Atom) and first.functor in self.program.features else None

    @cached_property
    def values_of_heads(self) -> dict[int, int]:
        """For adding rules whose `: b(X)` has its own variables: how many values of a group, from the first, are in its matrices' name."""
        found: dict[int, int] = {}
        for place, numbered in enumerate(self.program.rules):
            of_matrix = replace(numbered.rule, beta=None).parameter_variables
            if numbered.rule.kind == "add" and numbered.rule.parameter_variables != of_matrix:
                found[place] = len(of_matrix)
        return found

    @cached_property
    def added(self) -> tuple[str, ...]:
        """The functors that have embeddings and whose facts are added by events."""
        heads = [one.head for one in self.rules if one is not None and one.kind == "add"]
        return tuple(dict.fromkeys(name for name in heads if self.dimension(name)))

    def added_numbers(self, grounding: Grounding) -> np.ndarray:
        """Return the place of every functor of a grounding in `added`; 0 for functors that are not in it."""
        place = {name: number for number, name in enumerate(self.added)}
        return np.asarray([place.get(name, 0) for name in grounding.functors], dtype=np.int64)

    @cached_property
    def changing(self) -> frozenset[str]:
        """The functors whose embeddings can change with time: functors of added facts, and functors that are deduced from them."""
        readers: dict[str, list[str]] = {}
        for numbered in self.program.rules:
            if numbered.rule.kind == "deduce":
                for atom, _ in conditions(numbered.rule.body):
                    readers.setdefault(atom.functor, []).append(numbered.rule.head.functor)
        added = [one.head for one in self.rules if one is not None and one.kind == "add"]
        return frozenset(closure(added, readers))

    def of_facts(self, grounding: Grounding) -> tuple[list[int], list[bool]]:
        """Return the dimension of every functor of a grounding, and whether the embeddings of its facts can change."""
        return (
            [self.dimension(name) for name in grounding.functors],
            [name in self.changing for name in grounding.functors],
        )


@dataclass
class Stack:
    """Parameters of one shape, as rows of one tensor."""

    key: str
    shapes: dict[str, tuple[int, ...]]  # the shape of each parameter, by its letter
    layered: bool  # whether every layer has its own copy
    count: int = 0

    def take(self) -> int:
        self.count += 1
        return self.count - 1


@dataclass
class ParameterFamily:
    """Named parameters of one shape."""

    place: int  # its position among the families of the book
    stem: str  # own, deduce, beta, add, features, or row (a fact with features, whose vector is computed and not a parameter)
    prefix: str  # of the names in files: deduce or add
    shapes: dict[str, tuple[int, ...]]  # by letter: W; V, K, Q or G; beta; W of own vectors
    stacks: tuple[Stack, ...]  # the stacks that contain its parameters
    columns: tuple[tuple[int, int], ...]  # of a `W`: the columns of each block (`stacks[1:]`)
    order: list[tuple[ParameterFamily, str]]  # shared with the book: (family, name) as first met
    names: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, ...]] = field(default_factory=list)  # for each name its row in every stack
    met: list[int] = field(default_factory=list)  # for each name its position in `order`

    @property
    def is_learned(self) -> bool:
        """Whether the family has parameters."""
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
        """Assign blocks to conditions with these dimensions. Returns (block, condition, range of the condition's components)."""
        found = []
        start, place = 1, 0
        for number, (low, high) in enumerate(self.columns):
            while high > start + dims[place]:
                start, place = start + dims[place], place + 1
            found.append((number, place, (low - start, high - start)))
        return found


class ParameterBook:
    def __init__(self, layout: DimensionLayout, time_dim: int | None, cell_rows: int | None = None) -> None:
        """Without `time_dim`, additions have cells and no attention. `cell_rows` is the number of rows of `G`; None: six gates."""
        self.layout, self.program = layout, layout.program
        self.gated = time_dim is None
        self.families: dict[tuple[object, ...], ParameterFamily] = {}
        self.stacks: dict[str, Stack] = {}
        self.order: list[tuple[ParameterFamily, str]] = []
        self.trained: int | None = None  # the number of names that training met; None: not trained
        self.given: set[int] = set()  # rules with parameter names that were bound to values
        self.renamed = {
            one.earlier_name: one.name for one in self.program.rules if one.rule.matrix is None or one.rule.body
        }
        self.columns = fit_tables(self.program.tables)  # by functor with features; kept when the rows change
        self.feature_rows: dict[int, dict[str, FeatureRows]] = {}  # by dimension, then by functor
        self.drawn_as = {
            one.name: one.earlier_name for one in self.program.rules
        }  # names that seed the initial values, where they differ from the current names
        functors, dim = self.program.functors, layout.dim
        self.shapes: list[RuleShapes] = [
            cell_shapes_of(one, functors, dim, cell_rows)
            if time_dim is None
            else shapes_of(one, functors, dim, time_dim)
            for one in self.program.rules
        ]
        self._cuts: dict[tuple[object, ...], set[int]] = {}
        for place, shapes in enumerate(self.shapes):
            if shapes.stem == "deduce":  # rules may share a `W` and split it differently
                written = layout.rules[place]
                assert written is not None
                self._cuts.setdefault(_key(shapes), set()).update(accumulate(written.dims, initial=1))
        # Families are in the order of the program. Names without variables exist before anything is grounded.
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
        """Return family and place of a group's matrices, then family and place of its pool exponent (None and 0 without exponent)."""
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
        """Return family and place of a fact's vector, which is computed from the fact's features."""
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
        """Use these means and standard deviations to standardise the features of facts from now on."""
        self.columns = columns
        for of_functors in self.feature_rows.values():
            for functor, one in of_functors.items():
                one.recount(columns[functor])

    def _families(self, rule: int) -> tuple[ParameterFamily, ParameterFamily | None]:
        """Return the family of a rule's matrices, and that of its pool exponent or None."""
        shapes = self.shapes[rule]
        if shapes.stem == "deduce" and shapes.matrices["W"][1] == 1:
            # The vector of a fact, or of a rule without embedded conditions: both may have the same name, so they share a family.
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
        """Register the names of all groups of a grounding."""
        for group in range(len(grounding.groups)):
            if self._is_learned(grounding.groups[group][0]):
                self.of_group(grounding, group)

    def admit(self, name: str) -> None:
        """Register a parameter by its name in a file, such as `add.post(joke).1.V`. Names that fit no rule are ignored."""
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
        """The names that training never met."""
        return [] if self.trained is None else [one for one in self.order[self.trained :] if one[0].is_learned]

    def unseen_name(self, grounding: Grounding, group: int) -> str | None:
        """Return the first name, of a group's matrices and its pool exponent, that training never met; None: it met them all."""
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
