"""A checked program: rules numbered, functors resolved, tables read, dependencies sorted. Databases and models are built from it.

Dimensions of functors give the shape of every parameter, how many numbers each rule learns, and names used for two shapes. The first input
of every matrix multiplies the constant 1. A condition under `not` and a comparison add no input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Literal as OneOf
from typing import get_args

from foretell.errors import ForetellError
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.fact_table import FactTable
from foretell.lang.source import Source
from foretell.lang.syntax import Atom, Constant, Promise, Rule, Statement, Variable
from foretell.options import Products, Undeclared
from foretell.terms import bare, split
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
        return self.name if self.arity is None or bare(self.name) != self.name else f"{self.name}/{self.arity}"


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
        """Whether it is generated from a declaration: not a rule of the text, but facts that come with sequences."""
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
    """A program before it is checked: numbered rules, loaded tables, and the mistakes found so far."""

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
        """All rules, with promises marked."""
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
        unseen_rows: functors of tables from a log: a sequence may bring rows that the log of training did not have.
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
    unseen_rows: Mapping[str, str]  # functors of tables from a log → the functor that stands for other rows
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
    def brought(self) -> tuple[str, ...]:
        """Functors of what sequences bring, before any rule."""
        return *self.given.values(), *self.unseen_rows.values()

    @cached_property
    def several_arities(self) -> frozenset[str]:
        """Names that are used with several numbers of arguments: their functors are `age/1` and `age/2`."""
        return frozenset(bare(name) for name in self.functors if bare(name) != name)

    def functor_of(self, name: str, places: int) -> str:
        """The key of a name in `functors`: `age/2` if it has several numbers of arguments.

        Args:
            name: the name of a functor.
            places: how many arguments it has.

        Returns:
            The key.
        """
        return f"{name}/{places}" if name in self.several_arities else name

    def split(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Take the name of a fact or event apart.

        Args:
            name: a normalised name: `age(p1,old)`.

        Returns:
            The functor as `functors` has it, and the arguments.
        """
        functor, args = split(name)
        return self.functor_of(functor, len(args)), args

    @property
    def waits_for_log(self) -> bool:
        """Whether some table still needs rows from training data."""
        return any(one.waits for one in self.tables)

    def with_log(self, events: Iterable[str]) -> Program:
        """The program with its tables `from_log` filled from what happened in training data.

        Args:
            events: names of the events that happened; how often and in which order does not matter.

        Returns:
            The program, with the values as rows. Values that only other data have are unseen rows of the sequences that have them.

        Example:
            >>> program = ft.Program.from_text(":- table(user, from_log(buy, 1)). :- event(buy). buy(U) :- user(U).")
            >>> program.with_log(["buy(bob)", "buy(ann)"]).tables[0].rows
            [('ann',), ('bob',)]
        """
        rows: dict[str, set[tuple[str, ...]]] = {}
        for one in self.tables:
            rows.setdefault(one.functor, set()).update(() if one.waits else one.rows)
        named = [split(name) for name in dict.fromkeys(events)]
        tables = []
        for one in self.tables:
            if one.log is not None and one.waits:
                known = rows[one.functor]
                found = sorted({(value,) for value in one.log.values(named)} - known)
                known.update(found)
                one = replace(one, rows=found, waits=False)
            tables.append(one)
        text = "".join(f"{one.functor} {one.rows}\n" for one in tables if one.log is not None)
        digest = sha256(f"{self.digest} {text}".encode("utf-8", "surrogatepass")).hexdigest()
        return replace(self, tables=tuple(tables), digest=digest)

    def with_tables(self, files: Mapping[str, str | Path]) -> Program:
        """The program with other rows for some of its tables.

        Args:
            files: CSV or Parquet files by the name of their table: `program.with_tables({"user": "new.csv"})`.

        Returns:
            The program; facts that it writes out stay.

        Raises:
            ForetellError: there is no such table, or its file cannot be read or has other columns.
        """
        from foretell.lang.other_rows import with_tables

        return with_tables(self, files)

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
