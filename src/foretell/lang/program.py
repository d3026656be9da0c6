"""A checked program: numbered rules, resolved functors, loaded tables, sorted dependencies. Databases and models are built from it.

The dimensions of functors give the shapes of all parameters, the number of parameters of each rule, and conflicts between shared names.
The first input of every matrix multiplies the constant 1. Comparisons and conditions under `not` add no input.
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
DEFAULT_DIM = 32  # the default of the models
BOS, EOS = "bos", "eos"


@dataclass(frozen=True, slots=True)
class Functor:
    name: str
    arity: int | None  # None: declared without arity and not used
    kind: FunctorKind
    dim: int | None  # as declared; None: the model's default
    key: int | None  # declared length of keys and queries for rules that add facts of this functor

    def __str__(self) -> str:
        return self.name if self.arity is None or bare(self.name) != self.name else f"{self.name}/{self.arity}"


@dataclass(frozen=True, slots=True)
class NumberedRule:
    """A fact or rule with the default name of its parameters: `rule1`, `rule2`, … for rules; a fact is named after itself."""

    number: int  # position among rules, including removals, from 1; 0 for a fact
    rule: Rule
    place: int  # position among facts and rules, from 1

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
        """Whether the rule is generated from a declaration, for facts that come with sequences, and so is not in the text."""
        return self.number == 0 and not self.rule.is_fact

    @property
    def earlier_name(self) -> str:
        """The name in parameter files of format 1, which numbered facts and rules together. It still seeds the initial values."""
        return f"rule{self.place}"


def promise_rule(promise: Promise, functor: str = "never") -> Rule:
    """Return the promise as a rule that deduces a fact if the promise is broken. The head has the bound variables of the body."""
    named = (term for one in promise.body if isinstance(one, Atom) for term in one.variables() if not term.is_anonymous)
    args = tuple({term.name: term for term in named}.values())
    return Rule("deduce", Atom(functor, args, promise.span, promise.span), promise.body, None, None, promise.span)


@dataclass(eq=False)
class UncheckedProgram:
    """A program before the checks: numbered rules, loaded tables, and the mistakes found so far."""

    rules: list[NumberedRule] = field(default_factory=list)
    declarations: list[Statement] = field(default_factory=list)
    tables: list[FactTable] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    found: list[Diagnostic] = field(default_factory=list)
    unread: set[str] = field(
        default_factory=set
    )  # functors that may have unknown facts or rules, because a statement or table was not read
    last_number: int = 0  # the number of the last rule
    is_complete: bool = True  # False: a file is missing, so any functor may have unknown facts

    def bodies(self) -> Iterator[Rule]:
        """Yield all rules, and promises as rules."""
        yield from (one.rule for one in self.rules)
        yield from map(promise_rule, self.promises)

    def take(self, rule: Rule) -> None:
        """Append a fact or rule with the next number."""
        self.last_number += not rule.is_fact
        self.rules.append(NumberedRule(0 if rule.is_fact else self.last_number, rule, len(self.rules) + 1))


@dataclass(frozen=True, slots=True)
class Component:
    """Functors that are deduced from one another. A component comes after all components on which it depends."""

    functors: tuple[str, ...]
    recursive: bool


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A checked program of rules.

    Use `from_file`, `named` or `from_text`; do not call the constructor directly.

    Args:
        rules, tables: the facts and rules in the order of the text; the facts that come from files.
        promises: bodies that must never hold.
        given: functors whose facts come with sequences.
        unseen_rows: functors of tables from a log, for which a sequence may bring rows that the training log did not have.
        features: data columns that are inputs of event embeddings, by functor.
        functors: all functors with their kind, arity and dimension.
        components: functors that are deduced from one another, in order of dependence.
        stratum: for each functor, the number of negations on which it depends.
        undeclared: how events in the data are treated that the program does not declare.
        warnings, sources: warnings of the checks; the files that were read.
        digest: a hash of the program's meaning; equal programs have equal replays.
        products: how possible events of independent parts are stored; results do not depend on it.

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
    ]  # functors of facts that come with sequences → internal functors for these facts before any rule is applied
    unseen_rows: Mapping[str, str]  # functors of tables from a log → internal functors for rows that sequences bring
    features: Mapping[str, tuple[str, ...]]  # event functors → data columns that are inputs of their embeddings
    functors: Mapping[str, Functor]
    components: tuple[Component, ...]  # the components of the `:-` rules, in order of dependence
    stratum: Mapping[str, int]  # for each functor, the number of negations on which it depends
    undeclared: Undeclared
    warnings: tuple[Diagnostic, ...]
    sources: tuple[Source, ...]
    digest: str  # a hash of everything above that has a meaning; equal programs have equal replays
    products: Products = "auto"

    def __repr__(self) -> str:
        rules = sum(not one.rule.is_fact for one in self.rules)
        facts = len(self.rules) - rules + sum(len(one.rows) for one in self.tables)
        events = sum(one.kind != "fact" for one in self.functors.values())
        parts = ", ".join(counted(*one) for one in ((rules, "rule"), (facts, "fact"), (events, "event")))
        return f"<Program {printable(self.sources[0].name)}: {parts}>"

    @property
    def brought(self) -> tuple[str, ...]:
        """The internal functors of facts that sequences bring, before any rule is applied."""
        return *self.given.values(), *self.unseen_rows.values()

    @cached_property
    def several_arities(self) -> frozenset[str]:
        """The names that are used with several numbers of arguments; their functors are `age/1` and `age/2`."""
        return frozenset(bare(name) for name in self.functors if bare(name) != name)

    def functor_of(self, name: str, places: int) -> str:
        """Return the key of a name in `functors`: `age/2` if the name has several numbers of arguments.

        Args:
            name: the name of a functor.
            places: the number of arguments.

        Returns:
            The key.
        """
        return f"{name}/{places}" if name in self.several_arities else name

    def split(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Split the name of a fact or event into functor and arguments.

        Args:
            name: a normalised name, such as `age(p1,old)`.

        Returns:
            The functor as a key of `functors`, and the arguments.
        """
        functor, args = split(name)
        return self.functor_of(functor, len(args)), args

    @property
    def waits_for_log(self) -> bool:
        """Whether a table still needs rows from training data."""
        return any(one.waits for one in self.tables)

    def with_log(self, events: Iterable[str]) -> Program:
        """Return the program with its tables `from_log` filled from the events of training data.

        Args:
            events: the names of the events; their number and order do not matter.

        Returns:
            The program with the values as rows. Values that only occur in other data are unseen rows of their sequences.

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
        """Return the program with other rows in some of its tables.

        Args:
            files: CSV or Parquet files by the name of their table, as in `program.with_tables({"user": "new.csv"})`.

        Returns:
            The program; facts in its text stay.

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
        """Read and check a program file and all files that it includes.

        Args:
            path: the file, or the name of a shipped program, such as `"robocup"`.
            undeclared: "error": every event of the data must be declared. "exogenous": others may happen, and are not predicted.
            dim: the dimension of functors without a declared dimension; it decides which parameters have equal shapes.

        Returns:
            The program.

        Raises:
            ProgramError: with all mistakes of the program and their places.
        """
        from foretell.lang.load import load_program

        _check_choice(undeclared)
        return load_program(Path(path), undeclared=undeclared, dim=dim)

    @staticmethod
    def named(name: str, *, undeclared: Undeclared = "error", dim: int = DEFAULT_DIM) -> Program:
        """Return a shipped program: `Program.named("robocup")` is for the data `load("robocup")`.

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
        """Read and check a program from a text.

        Args:
            text: the rules.
            name: the name of the text in messages.
            folder: the folder of included files and tables.
            undeclared: as in `from_file`.
            dim: as in `from_file`.

        Returns:
            The program.

        Raises:
            ProgramError: with all mistakes of the program and their places.
        """
        from foretell.lang.load import check, gather

        _check_choice(undeclared)
        return check(gather(Source(name, text), Path(folder)), undeclared=undeclared, dim=dim)


def _check_choice(undeclared: str) -> None:
    choices = get_args(Undeclared)
    if undeclared not in choices:
        raise ForetellError(f"undeclared={undeclared!r}: expected {' or '.join(map(repr, choices))}")


Shape = tuple[int, int]
GATES = 6  # the rows of `G` in this order: input, forget, candidate, target-input, target-forget, decay


@dataclass(frozen=True)
class RuleShapes:
    """The matrices of one rule: `W` of a deduction; `V`, `K`, `Q` of one layer, or `G`, of an addition; none of a removal."""

    stem: str  # `deduce`, `add` or `remove`
    name: Atom
    beta: Atom | None  # the name of the pool exponent, if the rule has one
    matrices: Mapping[str, Shape]

    @property
    def groups(self) -> tuple[str, ...]:
        """The variables in the name. Each binding of them has its own matrices."""
        return tuple(dict.fromkeys(term.name for term in self.name.args if isinstance(term, Variable)))


def dimension(functors: Mapping[str, Functor], name: str, dim: int) -> int:
    """Return the dimension of a functor; 0 for `bos`, which has no embedding."""
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
    functor = functors.get(rule.head.functor)  # None: a reserved name, which is reported elsewhere
    key = head if functor is None or functor.key is None else functor.key
    past = 1 + time_dim + body
    return RuleShapes(
        "add", rule.matrix or own, None, {"V": (head, past), "K": (key, past), "Q": (key, 1 + time_dim + head)}
    )


def cell_shapes_of(one: NumberedRule, functors: Mapping[str, Functor], dim: int, rows: int | None = None) -> RuleShapes:
    """Return the matrices of a rule for models with cells. An addition has `G`, with `rows` rows or six gates, and a pool exponent."""
    shapes = shapes_of(one, functors, dim, 0)
    if shapes.stem != "add":
        return shapes
    head, past = shapes.matrices["V"]
    return RuleShapes(
        "add", shapes.name, one.rule.beta or one.own_name, {"G": (GATES * head if rows is None else rows, past)}
    )


def pattern_of(name: Atom) -> tuple[object, ...]:
    """Return a key that is equal for names which differ only in the names of variables."""
    places: dict[str, int] = {}
    args = tuple(
        one.text if isinstance(one, Constant) else places.setdefault(one.name, len(places)) for one in name.args
    )
    return (name.functor, *args)
