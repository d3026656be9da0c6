"""A checked program: rules numbered, functors resolved, tables read, dependencies sorted. Databases and models are built from it.

Dimensions of functors give the shape of every parameter, how many numbers each rule learns, and names used for two shapes. The first input
of every matrix multiplies the constant 1. A condition under `not` and a comparison add no input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal as OneOf
from typing import get_args

from foretell.errors import ForetellError
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.fact_table import FactTable
from foretell.lang.source import Source
from foretell.lang.syntax import Atom, Constant, Equalities, Promise, Rule, Statement, Term, Variable
from foretell.options import Products, Undeclared
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
    """A fact or rule with the name that its parameters have by themselves: rules are `rule1`, `rule2`, …, a fact is named after itself."""

    number: int  # among rules, removals too, from 1 on; 0 for a fact
    rule: Rule
    place: int  # among facts and rules together, from 1 on

    @property
    def name(self) -> str:
        return str(self.own_name)

    @property
    def own_name(self) -> Atom:
        head = self.rule.head
        if self.is_made and self.rule.matrix is not None:
            return self.rule.matrix
        return head if self.rule.is_fact else Atom(f"rule{self.number}", (), head.span, head.functor_span)

    @property
    def is_made(self) -> bool:
        """Whether a declaration stands for it: the program has no such rule, but facts that come with sequences."""
        return self.number == 0 and not self.rule.is_fact

    @property
    def earlier_name(self) -> str:
        """In parameter files of format 1, facts and rules were numbered together; starting values are still drawn under these names."""
        return f"rule{self.place}"


def promise_rule(promise: Promise, functor: str = "never") -> Rule:
    """The promise as a rule: whatever it deduces breaks it. Its head has the variables of the body that are bound."""
    named = (term for one in promise.body if isinstance(one, Atom) for term in one.variables() if not term.is_anonymous)
    args = tuple({term.name: term for term in named}.values())
    return Rule("deduce", Atom(functor, args, promise.span, promise.span), promise.body, None, None, promise.span)


@dataclass(eq=False)
class UncheckedProgram:
    """All that was read, before it is checked: rules numbered, tables loaded, and the mistakes found so far."""

    rules: list[NumberedRule] = field(default_factory=list)
    declarations: list[Statement] = field(default_factory=list)
    tables: list[FactTable] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    found: list[Diagnostic] = field(default_factory=list)
    unread: set[str] = field(
        default_factory=set
    )  # functors of which not all is known: a statement or table was not read
    last_number: int = 0  # of a rule
    is_complete: bool = True  # False: a file is missing, so that any functor may be made true by it

    def bodies(self) -> Iterator[Rule]:
        """All rules, and promises as such."""
        yield from (one.rule for one in self.rules)
        yield from map(promise_rule, self.promises)

    def take(self, rule: Rule) -> None:
        """A fact or rule, with the next number."""
        self.last_number += not rule.is_fact
        self.rules.append(NumberedRule(0 if rule.is_fact else self.last_number, rule, len(self.rules) + 1))


@dataclass(frozen=True, slots=True)
class Component:
    """Functors that are deduced from one another; a component comes after all it depends on."""

    functors: tuple[str, ...]
    recursive: bool


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A program of rules that was read and has no mistakes.

    `from_file`, `named` and `from_text` make one; a constructor is not called directly.

    Args:
        rules, tables: facts and rules in the order of the text; facts that come from files.
        promises: bodies that must never hold.
        given: functors whose facts come with sequences.
        features: columns of the data that embeddings of events take in, by functor.
        functors: all functors with their kind, arity and dimension.
        components: functors that are deduced from one another, in order of dependence.
        stratum: for each functor, how many negations lie below it.
        undeclared: what becomes of events of the data that the program does not declare.
        warnings, sources: what is doubtful and no mistake; the files that were read.
        digest: a hash of all that has a meaning; equal programs replay equally.
        products: how possible events of independent parts are kept; changes no number.

    Example:
        >>> program = ft.Program.from_text("user(ann). user(bob). :- event(buy). buy(U) :- user(U).")
        >>> program
        <Program <program>: 1 rule, 2 facts, 1 event>
    """

    rules: tuple[NumberedRule, ...]
    tables: tuple[FactTable, ...]
    promises: tuple[Promise, ...]
    given: Mapping[
        str, str
    ]  # functors whose facts come with sequences → the functor that stands for these before any rule
    features: Mapping[str, tuple[str, ...]]  # of events: columns of the data that their embeddings take in
    functors: Mapping[str, Functor]
    components: tuple[Component, ...]  # of the `:-` rules, in order of dependence
    stratum: Mapping[str, int]  # of each functor: how many negations lie below it
    undeclared: Undeclared
    warnings: tuple[Diagnostic, ...]
    sources: tuple[Source, ...]
    digest: str  # of everything above that has a meaning: equal programs replay equally
    products: Products = "auto"

    def __repr__(self) -> str:
        rules = sum(not one.rule.is_fact for one in self.rules)
        facts = len(self.rules) - rules + sum(len(one.rows) for one in self.tables)
        events = sum(one.kind != "fact" for one in self.functors.values())
        parts = ", ".join(counted(*one) for one in ((rules, "rule"), (facts, "fact"), (events, "event")))
        return f"<Program {printable(self.sources[0].name)}: {parts}>"

    @property
    def expires(self) -> bool:
        return any(one.rule.duration is not None for one in self.rules)

    @staticmethod
    def from_file(path: str | Path, *, undeclared: Undeclared = "error", dim: int = DEFAULT_DIM) -> Program:
        """Read and check a program with all it includes.

        Args:
            path: the file, or the name of a program that ships with foretell: `"robocup"`.
            undeclared: "error": every event of the data must be declared. "exogenous": others happen, and are not predicted.
            dim: the dimension of functors whose dimension is not declared; it decides which parameters have one shape.

        Returns:
            The program.

        Raises:
            ProgramError: every mistake of the program, with its place.
        """
        from foretell.lang.load import load_program

        _check_choice(undeclared)
        return load_program(Path(path), undeclared=undeclared, dim=dim)

    @staticmethod
    def named(name: str, *, undeclared: Undeclared = "error", dim: int = DEFAULT_DIM) -> Program:
        """A program that ships with foretell: `Program.named("robocup")` is for the data `load("robocup")`.

        Args:
            name: its name.
            undeclared: as in `from_file`.
            dim: as in `from_file`.

        Returns:
            The program.
        """
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
        """Read and check a program that is given as text.

        Args:
            text: the rules.
            name: what messages call the text.
            folder: where includes and tables are looked for.
            undeclared: as in `from_file`.
            dim: as in `from_file`.

        Returns:
            The program.

        Raises:
            ProgramError: every mistake of the program, with its place.
        """
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
    own = one.own_name
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
    head, past = shapes.matrices["V"]
    return RuleShapes(
        "add", shapes.name, one.rule.beta or one.own_name, {"G": (GATES * head if rows is None else rows, past)}
    )


def pattern_of(name: Atom) -> tuple[object, ...]:
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
        key = (pattern_of(shapes.name), tuple(shapes.matrices.items()))
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
    own: dict[tuple[str, int], list[NumberedRule]] = {}  # facts that are named after themselves, as rows of tables are
    for one in rules:
        if one.rule.is_fact and one.rule.matrix is None:
            own.setdefault((one.rule.head.functor, len(one.rule.head.args)), []).append(one)
            continue
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
    plain = (one for one in tables if not one.features)
    named = [(one.functor, one.arity, one.rows, f"the facts of a table ({one.span.place})") for one in plain]
    for (functor, arity), facts in own.items():
        rows = [tuple(str(arg) for arg in one.rule.head.args) for one in facts]
        named.append((functor, arity, rows, f"the facts from {facts[0].rule.span.place} on"))
    for functor, arity, rows, where in named:
        shape = {"W": (dimension(functors, functor, dim), 1)}
        family = families.get(("deduce", functor, arity))
        for shapes, rule in family.members if family is not None else ():
            if shapes.matrices != shape and any(_matches(shapes.name, row) for row in rows):
                yield _clash(rule, shapes, RuleShapes("deduce", shapes.name, None, shape), where)


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
