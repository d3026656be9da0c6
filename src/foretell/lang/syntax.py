"""The syntax tree of a program. Every node has its place in the text. Places are ignored when trees are compared.

Functors and constants are stored in normalised spelling (`eve`, `12`, `'New York'`; see `foretell.terms`), never as program text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import eq, ge, gt, le, lt, ne
from typing import Literal as OneOf

from foretell.lang.log_place import LogPlace
from foretell.lang.source import Source, Span
from foretell.terms import bare, constant, fact, is_integer

ANONYMOUS = "_"
COUNTING = ("count", "min", "max")  # words before `(…)` that count facts
PARAMETERS = ("mparams", "betaparams", "allparams")  # words after `::` that may enclose a name


@dataclass(frozen=True, slots=True)
class Constant:
    text: str  # the normalised spelling
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable. Each `_` is a fresh variable: the reader names it `_1`, `_2`, … within a rule and sets `is_anonymous`."""

    name: str
    span: Span = field(compare=False, repr=False)
    is_anonymous: bool = False

    def __str__(self) -> str:
        return ANONYMOUS if self.is_anonymous else self.name


Term = Constant | Variable


@dataclass(frozen=True, slots=True)
class Atom:
    functor: str
    args: tuple[Term, ...]
    span: Span = field(compare=False, repr=False)
    functor_span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return fact(self.functor, map(str, self.args))

    def variables(self) -> Iterator[Variable]:
        return (arg for arg in self.args if isinstance(arg, Variable))


@dataclass(frozen=True, slots=True)
class Not:
    """`not g(X,_)`: true if no fact matches."""

    atom: Atom
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"not {self.atom}"


ORDERS: Mapping[str, Callable[[int, int], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {"=": eq, "!=": ne, **ORDERS}  # comparisons of two integers


@dataclass(frozen=True, slots=True)
class Compare:
    """`X = Y` or `X != Y` of any constants, or `X < Y`, `<=`, `>`, `>=` of integers."""

    sign: str
    left: Term
    right: Term
    span: Span = field(compare=False, repr=False)

    @property
    def equal(self) -> bool:
        return self.sign == "="

    def holds(self, left: str, right: str) -> bool:
        """Whether the comparison holds for two normalised constants. `<`, `<=`, `>` and `>=` are false if one of them is no integer."""
        if self.sign not in ORDERS:
            return (left == right) == self.equal
        return is_integer(left) and is_integer(right) and ORDERS[self.sign](int(left), int(right))

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


@dataclass(frozen=True, slots=True)
class Count:
    """`count(cart(U,_)) >= 2`: compares the number of matching facts, or the smallest or largest integer at the place of the `_`."""

    word: OneOf["count", "min", "max"]
    atom: Atom
    sign: str
    right: Term
    span: Span = field(compare=False, repr=False)

    def of(self, facts: Iterable[Sequence[str]]) -> int | None:
        """Return the number for the arguments of the matching facts; None for `min` and `max` if no integer is there."""
        if self.word == "count":
            return sum(1 for _ in facts)
        place = self.place
        found = [int(args[place]) for args in facts if is_integer(args[place])]
        return (min if self.word == "min" else max)(found, default=None)

    @property
    def place(self) -> int:
        """The place of the `_` whose smallest or largest value is compared."""
        return next(place for place, arg in enumerate(self.atom.args) if isinstance(arg, Variable) and arg.is_anonymous)

    def holds(self, value: int | None, right: str) -> bool:
        return value is not None and is_integer(right) and COMPARISONS[self.sign](value, int(right))

    def __str__(self) -> str:
        return f"{self.word}({self.atom}) {self.sign} {self.right}"


Literal = Atom | Not | Compare | Count
Kind = OneOf["deduce", "add", "remove"]


@dataclass(frozen=True, slots=True)
class Duration:
    """The lifetime of additions: `for 30m`, or `for 1800` in the unit of the data."""

    text: str
    number: float  # in seconds, or in the unit of the data
    in_seconds: bool  # whether it is written with a unit
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Rule:
    """`head : beta :- body :: matrix.`; a fact is a `deduce` rule without body. The first condition of `add` and `remove` is the event."""

    kind: Kind
    head: Atom
    body: tuple[Literal, ...]
    beta: Atom | None
    matrix: Atom | None
    span: Span = field(compare=False, repr=False)
    duration: Duration | None = None  # the lifetime of its additions; None: they live until they are removed

    @property
    def is_fact(self) -> bool:
        return self.kind == "deduce" and not self.body

    @property
    def parameter_variables(self) -> tuple[str, ...]:
        """The variables in its parameter names. Each binding of them is one `r`."""
        names = [name for name in (self.matrix, self.beta) if name is not None]
        return tuple(dict.fromkeys(variable.name for name in names for variable in name.variables()))


def rule_terms(rule: Rule) -> Iterator[Term]:
    """Yield all arguments of a rule, in the order in which they are printed."""
    yield from rule.head.args
    for literal in rule.body:
        yield from literal_terms(literal)
    for name in (rule.beta, rule.matrix):
        if name is not None:
            yield from name.args


def literal_terms(literal: Literal) -> tuple[Term, ...]:
    if isinstance(literal, Compare):
        return literal.left, literal.right
    if isinstance(literal, Count):
        return *literal.atom.args, literal.right
    return literal.atom.args if isinstance(literal, Not) else literal.args


class Equalities:
    """Terms that are equal by `X = Y` or by unification."""

    def __init__(self) -> None:
        self.stands_for: dict[str, Term] = {}  # variable → the term to which it is equal

    def root(self, term: Term) -> Term:
        """Return the representative of a term: a constant if the term is equal to one."""
        passed = []
        while isinstance(term, Variable) and term.name in self.stands_for:
            passed.append(term.name)
            term = self.stands_for[term.name]
        self.stands_for.update(dict.fromkeys(passed, term))  # path compression
        return term

    def unite(self, left: Term, right: Term) -> bool:
        """Make two terms equal. Returns False if they are different constants."""
        left, right = self.root(left), self.root(right)
        if isinstance(left, Constant):
            left, right = right, left
        if isinstance(left, Variable) and left != right:
            self.stands_for[left.name] = right
        return isinstance(left, Variable) or left == right


@dataclass(frozen=True, slots=True)
class Embed:
    """`:- embed(forum, 8).`; functor None is written `_` and stands for all functors without a declared dimension."""

    functor: str | None
    dim: int
    span: Span = field(compare=False, repr=False)
    arity: int | None = None  # `:- embed(forum/2, 8).`; None: any number of arguments


@dataclass(frozen=True, slots=True)
class EventDeclaration:
    """`:- event(watch, 8).`, `:- event(watch).`, `:- event(watch(U,P)).`, and the same with `exogenous`."""

    functor: str
    exogenous: bool
    dim: int | None
    arity: int | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Key:
    """`:- key(forum, 4).`"""

    functor: str
    length: int
    span: Span = field(compare=False, repr=False)
    arity: int | None = None


@dataclass(frozen=True, slots=True)
class Include:
    """`:- include("teams.ndtt").`"""

    path: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Table:
    """`:- table(teammate, "teammate.csv").` or `:- table(price, "price.csv", features(amount, weight)).`

    `:- table(user, from_log(buy, 1)).`: its rows are the values of an argument of events.
    """

    functor: str
    path: str  # empty if the rows come from a log
    features: tuple[str, ...]  # columns with numbers, which are not arguments
    span: Span = field(compare=False, repr=False)
    log: LogPlace | None = None


@dataclass(frozen=True, slots=True)
class FeatureDeclaration:
    """`:- features(buy, amount).`: data columns that are inputs of the embeddings of these events."""

    functor: str
    columns: tuple[str, ...]
    span: Span = field(compare=False, repr=False)
    arity: int | None = None


@dataclass(frozen=True, slots=True)
class GivenDeclaration:
    """`:- given(age).` or `:- given(age(P,A)).`: facts that come with a sequence."""

    functor: str
    arity: int | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Promise:
    """`:- never(has(P,B), has(Q,B), P != Q).`: a body that must never be true."""

    body: tuple[Literal, ...]
    span: Span = field(compare=False, repr=False)


Declaration = Embed | EventDeclaration | Key | Include | Table | FeatureDeclaration | GivenDeclaration | Promise
Statement = Rule | Declaration


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A parsed file: its statements in order."""

    source: Source = field(compare=False, repr=False)
    statements: tuple[Statement, ...]


def atom_of(literal: Literal) -> Atom | None:
    """Return the atom of a condition, whether plain, negated or counted; None for a comparison."""
    if isinstance(literal, Not | Count):
        return literal.atom
    return literal if isinstance(literal, Atom) else None


def conditions(body: tuple[Literal, ...]) -> Iterator[tuple[Atom, bool]]:
    """Yield the atoms of a body, each with whether it is negated or counted. More facts can make such a condition false."""
    for literal in body:
        atom = atom_of(literal)
        if atom is not None:
            yield atom, not isinstance(literal, Atom)


# --- text


ARROWS = {"deduce": ":-", "add": "<-", "remove": "<-"}


def pretty(program: SourceFile | Iterable[Statement]) -> str:
    statements = program.statements if isinstance(program, SourceFile) else program
    return "".join(f"{pretty_statement(one)}\n" for one in statements)


def pretty_statement(statement: Statement) -> str:
    if isinstance(statement, Rule):
        return pretty_rule(statement)
    return f":- {_declaration(statement)}."


def pretty_rule(rule: Rule) -> str:
    head = f"{'!' if rule.kind == 'remove' else ''}{pretty_atom(rule.head)}"
    if rule.beta is not None:
        head += f" : {pretty_atom(rule.beta)}"
    body = f" {ARROWS[rule.kind]} {', '.join(map(pretty_literal, rule.body))}" if rule.body else ""
    body += f" for {rule.duration}" if rule.duration is not None else ""
    return f"{head}{body}{f' :: {_name(rule.matrix)}' if rule.matrix is not None else ''}."


def pretty_literal(literal: Literal) -> str:
    if isinstance(literal, Compare):
        return str(literal)
    if isinstance(literal, Count):
        return f"{literal.word}({pretty_atom(literal.atom)}) {literal.sign} {literal.right}"
    return f"not {pretty_atom(literal.atom)}" if isinstance(literal, Not) else pretty_atom(literal)


def pretty_atom(atom: Atom) -> str:
    """Return an atom as text. Functors that would be read as `not` or as a count are quoted."""
    functor = bare(atom.functor)
    functor = f"'{functor}'" if functor in ("not", *COUNTING) else functor
    return f"{functor}({', '.join(map(str, atom.args))})" if atom.args else functor


def _name(atom: Atom) -> str:
    """Return a parameter name as text. A matrix that is itself called `mparams(w)` is quoted."""
    text = pretty_atom(atom)
    return f"'{atom.functor}'{text[len(atom.functor) :]}" if atom.functor in PARAMETERS and atom.args else text


def _declaration(statement: Statement) -> str:
    if isinstance(statement, Embed):
        return f"embed({ANONYMOUS if statement.functor is None else _sized(statement)}, {statement.dim})"
    if isinstance(statement, EventDeclaration):
        word = "exogenous" if statement.exogenous else "event"
        dim = "" if statement.dim is None else f", {statement.dim}"
        return f"{word}({_sized(statement)}{dim})"
    if isinstance(statement, Key):
        return f"key({_sized(statement)}, {statement.length})"
    if isinstance(statement, Include):
        return f"include({_quoted(statement.path)})"
    if isinstance(statement, GivenDeclaration):
        return f"given({_sized(statement)})"
    if isinstance(statement, Promise):
        return f"never({', '.join(map(pretty_literal, statement.body))})"
    if isinstance(statement, FeatureDeclaration):
        return f"features({_sized(statement)}, {_columns(statement.columns)})"
    assert not isinstance(statement, Rule)
    if statement.log is not None:
        return f"table({statement.functor}, {statement.log})"
    features = f", features({_columns(statement.features)})" if statement.features else ""
    return f"table({statement.functor}, {_quoted(statement.path)}{features})"


def _columns(names: Iterable[str]) -> str:
    return ", ".join(map(constant, names))


def _sized(one: Embed | EventDeclaration | Key | GivenDeclaration | FeatureDeclaration) -> str:
    """Return the functor, with its number of arguments if that is declared."""
    return f"{bare(str(one.functor))}/{one.arity}" if one.arity is not None else str(one.functor)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
