"""A checked program: rules numbered, functors resolved, tables read, dependencies sorted. Databases and models are built from it.

Dimensions of functors give the shape of every parameter, how many numbers each rule learns, and names used for two shapes. The first input
of every matrix multiplies the constant 1. A condition under `not` and a comparison add no input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Literal as OneOf
from typing import get_args

from foretell.errors import ForetellError
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.source import Source, Span
from foretell.lang.syntax import Atom, Constant, Equalities, Rule, Statement, Term, Variable
from foretell.options import Undeclared
from foretell.wording import counted, printable, shown

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


@dataclass(eq=False)
class UncheckedProgram:
    """All that was read, before it is checked: rules numbered, tables loaded, and the mistakes found so far."""

    rules: list[NumberedRule] = field(default_factory=list)
    declarations: list[Statement] = field(default_factory=list)
    tables: list[FactTable] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    found: list[Diagnostic] = field(default_factory=list)
    unread: set[str] = field(
        default_factory=set
    )  # functors of which not all is known: a statement or table was not read
    is_complete: bool = True  # False: a file is missing, so that any functor may be made true by it


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
        from foretell.lang.load import check, gather

        _check_choice(undeclared)
        return check(gather(Source(name, text), Path(folder)), undeclared=undeclared, dim=dim)


def _check_choice(undeclared: str) -> None:
    choices = get_args(Undeclared)
    if undeclared not in choices:
        raise ForetellError(f"undeclared={undeclared!r}: expected {' or '.join(map(repr, choices))}")


Shape = tuple[int, int]
GATES = 6  # input, forget, candidate, target-input, target-forget, decay: rows of `G`, in this order


@dataclass(frozen=True)
class RuleShapes:
    """The matrices of one rule: `W` of a deduction, `V`, `K`, `Q` of one layer of an addition, or its `G`; a removal has none."""

    stem: str  # `deduce` or `add`
    name: Atom
    beta: Atom | None  # the name of the pool exponent, where there is one
    matrices: Mapping[str, Shape]

    @property
    def groups(self) -> tuple[str, ...]:
        """The variables in the name: there is one set of matrices for each of their values."""
        return tuple(dict.fromkeys(term.name for term in self.name.args if isinstance(term, Variable)))


def dimension(functors: Mapping[str, Functor], name: str, dim: int) -> int:
    """`bos` has no embedding."""
    functor = functors.get(name)
    return 0 if functor is None else dim if functor.dim is None else functor.dim


def shapes_of(one: NumberedRule, functors: Mapping[str, Functor], dim: int, time_dim: int) -> RuleShapes:
    rule = one.rule
    own = Atom(one.name, (), rule.head.span, rule.head.functor_span)
    head = dimension(functors, rule.head.functor, dim)
    body = sum(dimension(functors, atom.functor, dim) for atom in rule.body if isinstance(atom, Atom))
    if rule.kind == "remove":
        return RuleShapes("remove", own, None, {})
    if rule.kind == "deduce":
        beta = None if rule.is_fact else rule.beta or own
        return RuleShapes("deduce", rule.matrix or own, beta, {"W": (head, 1 + body)})
    functor = functors.get(rule.head.functor)  # None: a reserved name, which is reported
    key = head if functor is None or functor.key is None else functor.key
    past = 1 + time_dim + body
    return RuleShapes(
        "add", rule.matrix or own, None, {"V": (head, past), "K": (key, past), "Q": (key, 1 + time_dim + head)}
    )


def cell_shapes_of(one: NumberedRule, functors: Mapping[str, Functor], dim: int, rows: int | None = None) -> RuleShapes:
    """The matrices of a rule where facts have cells: an addition has `G` and pools what is proposed; `rows` of it, or six gates."""
    shapes = shapes_of(one, functors, dim, 0)
    if shapes.stem != "add":
        return shapes
    own = Atom(one.name, (), one.rule.head.span, one.rule.head.functor_span)
    head, past = shapes.matrices["V"]
    return RuleShapes("add", shapes.name, one.rule.beta or own, {"G": (GATES * head if rows is None else rows, past)})


# --- counts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RuleCount:
    rule: NumberedRule
    shapes: RuleShapes
    parameters: int  # of its matrices, all layers, for one binding of the variables in its name, and its exponent
    shared_with: str | None  # an earlier rule whose matrices these are


@dataclass(frozen=True)
class Counts:
    rules: tuple[RuleCount, ...]
    tables: int
    intensities: int
    total: int  # each shared matrix once; each group of `:: post(C)` for one value of C
    per_value: bool  # True: there are such groups, and the total grows with their values


def count_parameters(
    rules: Iterable[NumberedRule],
    tables: Iterable[FactTable],
    functors: Mapping[str, Functor],
    *,
    dim: int,
    layers: int,
    time_dim: int | None = None,
) -> Counts:
    time_dim = dim if time_dim is None else time_dim
    owner: dict[object, str] = {}
    counts: list[RuleCount] = []
    total = 0
    for one in rules:
        shapes = shapes_of(one, functors, dim, time_dim)
        matrices = sum(map(prod, shapes.matrices.values())) * (layers if shapes.stem == "add" else 1)
        shared = owner.setdefault((shapes.stem, _pattern(shapes.name)), one.name) if shapes.matrices else one.name
        exponent = 0 if shapes.beta is None else 1
        total += (matrices if shared == one.name else 0) + (
            exponent and owner.setdefault(("beta", _pattern(shapes.beta or shapes.name)), one.name) == one.name
        )
        counts.append(RuleCount(one, shapes, matrices + exponent, None if shared == one.name else shared))
    rows = sum(len(table.rows) * dimension(functors, table.functor, dim) for table in tables)
    events = sum(2 + dimension(functors, name, dim) for name, one in functors.items() if one.kind == "event")
    per_value = any(count.shapes.groups for count in counts)
    return Counts(tuple(counts), rows, events, total + rows + events, per_value)


def _pattern(name: Atom) -> tuple[object, ...]:
    """A name up to the names of its variables."""
    places: dict[str, int] = {}
    args = tuple(
        one.text if isinstance(one, Constant) else places.setdefault(one.name, len(places)) for one in name.args
    )
    return (name.functor, *args)


# --- one name, two shapes ----------------------------------------------------------------------------------------------


class _Family:
    """Names with one functor and arity, found again by the constants at their places: thousands need not be compared pairwise."""

    def __init__(self, arity: int) -> None:
        self.members: list[tuple[RuleShapes, NumberedRule]] = []
        self.seen: set[object] = set()
        self.at: list[dict[str | None, list[int]]] = [{} for _ in range(arity)]  # None: a variable

    def is_new(self, shapes: RuleShapes) -> bool:
        key = (_pattern(shapes.name), tuple(shapes.matrices.items()))
        new = key not in self.seen
        self.seen.add(key)
        return new

    def candidates(self, name: Atom) -> Iterable[int]:
        """Members that agree with the name at the place that leaves the fewest."""
        best: list[int] | None = None
        for term, members in zip(name.args, self.at, strict=True):
            if isinstance(term, Constant):
                found = members.get(term.text, []) + members.get(None, [])
                best = found if best is None or len(found) < len(best) else best
        return range(len(self.members)) if best is None else sorted(best)

    def add(self, shapes: RuleShapes, rule: NumberedRule) -> None:
        for term, members in zip(shapes.name.args, self.at, strict=True):
            members.setdefault(term.text if isinstance(term, Constant) else None, []).append(len(self.members))
        self.members.append((shapes, rule))


def check_names(
    rules: Iterable[NumberedRule], tables: Iterable[FactTable], functors: Mapping[str, Functor], dim: int
) -> Iterator[Diagnostic]:
    """Two rules share a matrix where their names can be bound to the same term; then its shape must be the same."""
    families: dict[tuple[str, str, int], _Family] = {}
    for one in rules:
        shapes = shapes_of(one, functors, dim, dim)
        if not shapes.matrices:
            continue
        arity = len(shapes.name.args)
        family = families.setdefault((shapes.stem, shapes.name.functor, arity), _Family(arity))
        if not family.is_new(shapes):
            continue
        for number in family.candidates(shapes.name):
            earlier, rule = family.members[number]
            if earlier.matrices != shapes.matrices and unify(earlier.name.args, shapes.name.args):
                yield _clash(one, shapes, earlier, f"{rule.name} ({rule.rule.span.place})")
                break
        family.add(shapes, one)
    for table in tables:
        shape = {"W": (dimension(functors, table.functor, dim), 1)}
        family = families.get(("deduce", table.functor, table.arity))
        for shapes, rule in family.members if family is not None else ():
            if shapes.matrices != shape and any(_matches(shapes.name, row) for row in table.rows):
                named = RuleShapes("deduce", shapes.name, None, shape)
                yield _clash(rule, shapes, named, f"the facts of a table ({table.span.place})")


def _clash(one: NumberedRule, here: RuleShapes, there: RuleShapes, where: str) -> Diagnostic:
    letter = next(name for name in here.matrices if here.matrices[name] != there.matrices[name])
    span = one.rule.matrix.span if one.rule.matrix is not None else one.rule.head.span
    return Diagnostic(
        "shape-clash",
        span,
        f"{shown(str(here.name))} names a matrix of {_sides(here.matrices[letter])} here and of "
        f"{_sides(there.matrices[letter])} for {shown(str(there.name))} in {where}",
        "give one of them another name, or declare dimensions that agree",
    )


def _sides(shape: Shape) -> str:
    return f"{shape[0]} × {shape[1]}"


def _matches(name: Atom, row: tuple[str, ...]) -> bool:
    bound: dict[str, str] = {}
    for term, cell in zip(name.args, row, strict=True):
        wanted = term.text if isinstance(term, Constant) else bound.setdefault(term.name, cell)
        if wanted != cell:
            return False
    return True


def unify(left: tuple[Term, ...], right: tuple[Term, ...]) -> bool:
    """Whether some binding makes two flat lists equal; a variable of the one is not the same one of the other."""
    own = (replace(term, name=f"{term.name} of the right") if isinstance(term, Variable) else term for term in right)
    equalities = Equalities()
    return all([equalities.unite(*pair) for pair in zip(left, own, strict=True)])
