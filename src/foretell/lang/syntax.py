"""The syntax tree of a program: what was written, each piece with its place. Two trees are equal if they say the same, wherever they stand.

Functors and constants are kept in their one spelling (`eve`, `12`, `'New York'`; see `foretell.terms`): no piece is ever code in a string.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar
from typing import Literal as OneOf

from foretell.lang.source import Source, Span

Node = TypeVar("Node", bound=Hashable)
ANONYMOUS = "_"
PARAMETERS = ("mparams", "betaparams", "allparams")  # what follows `::` may be one of these with a name in it


@dataclass(frozen=True, slots=True)
class Constant:
    text: str  # its one spelling
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Variable:
    """`_` is a fresh variable each time: the reader names them `_1`, `_2`, … within a rule, and `is_anonymous` says so."""

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
        return f"{self.functor}({','.join(map(str, self.args))})" if self.args else self.functor

    def variables(self) -> Iterator[Variable]:
        return (arg for arg in self.args if isinstance(arg, Variable))


@dataclass(frozen=True, slots=True)
class Not:
    """`not g(X,_)`: no fact matches."""

    atom: Atom
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"not {self.atom}"


@dataclass(frozen=True, slots=True)
class Compare:
    """`X = Y` or `X != Y`."""

    equal: bool
    left: Term
    right: Term
    span: Span = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.left} {'=' if self.equal else '!='} {self.right}"


Literal = Atom | Not | Compare
Kind = OneOf["deduce", "add", "remove"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`head : beta :- body :: matrix.`; a fact is a `deduce` rule without body. The first condition of `add` and `remove` is the event."""

    kind: Kind
    head: Atom
    body: tuple[Literal, ...]
    beta: Atom | None
    matrix: Atom | None
    span: Span = field(compare=False, repr=False)

    @property
    def is_fact(self) -> bool:
        return self.kind == "deduce" and not self.body

    @property
    def parameter_variables(self) -> tuple[str, ...]:
        """The variables in its parameter names: each binding of them is an `r` of its own."""
        names = [name for name in (self.matrix, self.beta) if name is not None]
        return tuple(dict.fromkeys(variable.name for name in names for variable in name.variables()))


def rule_terms(rule: Rule) -> Iterator[Term]:
    """All arguments of a rule, in the order in which they are printed."""
    yield from rule.head.args
    for literal in rule.body:
        yield from literal_terms(literal)
    for name in (rule.beta, rule.matrix):
        if name is not None:
            yield from name.args


def literal_terms(literal: Literal) -> tuple[Term, ...]:
    if isinstance(literal, Compare):
        return literal.left, literal.right
    return literal.atom.args if isinstance(literal, Not) else literal.args


class Equalities:
    """Terms that are the same by `X = Y` or by unification."""

    def __init__(self) -> None:
        self.stands_for: dict[str, Term] = {}  # what each variable was set equal to

    def root(self, term: Term) -> Term:
        """What a term stands for: a constant if it is equal to one."""
        passed = []
        while isinstance(term, Variable) and term.name in self.stands_for:
            passed.append(term.name)
            term = self.stands_for[term.name]
        self.stands_for.update(dict.fromkeys(passed, term))  # the next search is short
        return term

    def unite(self, left: Term, right: Term) -> bool:
        """False: they are two different constants."""
        left, right = self.root(left), self.root(right)
        if isinstance(left, Constant):
            left, right = right, left
        if isinstance(left, Variable) and left != right:
            self.stands_for[left.name] = right
        return isinstance(left, Variable) or left == right


@dataclass(frozen=True, slots=True)
class Embed:
    """`:- embed(forum, 8).`; `_` as functor (None) stands for all that are not declared."""

    functor: str | None
    dim: int
    span: Span = field(compare=False, repr=False)


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


@dataclass(frozen=True, slots=True)
class Include:
    """`:- include("teams.ndtt").`"""

    path: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Table:
    """`:- table(teammate, "teammate.csv").`"""

    functor: str
    path: str
    span: Span = field(compare=False, repr=False)


Declaration = Embed | EventDeclaration | Key | Include | Table
Statement = Rule | Declaration


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file, read: its statements in order."""

    source: Source = field(compare=False, repr=False)
    statements: tuple[Statement, ...]


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


def closure(start: Iterable[Node], after: Mapping[Node, Iterable[Node]]) -> set[Node]:
    """All that can be reached."""
    found = set(start)
    waiting = list(found)
    while waiting:
        new = [one for one in after.get(waiting.pop(), ()) if one not in found]
        found.update(new)
        waiting += new
    return found


def chained(rules: Sequence[tuple[Node, Collection[Node]]], given: Iterable[Node]) -> Iterator[int]:
    """Forward chaining: numbers of the rules (head, body) whose bodies become true, in rounds; `given` is true from the start."""
    missing: list[int] = []
    users: dict[Node, list[int]] = {}
    for number, (_, body) in enumerate(rules):
        needed = set(body)
        missing.append(len(needed))
        for one in needed:
            users.setdefault(one, []).append(number)
    true = dict.fromkeys(given)
    queue, ready = deque(true), [number for number, count in enumerate(missing) if not count]
    while queue or ready:
        for number in ready:
            yield number
            head = rules[number][0]
            if head not in true:
                true[head] = None
                queue.append(head)
        ready = []
        for number in users.get(queue.popleft(), ()) if queue else ():
            missing[number] -= 1
            if not missing[number]:
                ready.append(number)


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
    return f"{head}{body}{f' :: {_name(rule.matrix)}' if rule.matrix is not None else ''}."


def pretty_literal(literal: Literal) -> str:
    if isinstance(literal, Compare):
        return str(literal)
    return f"not {pretty_atom(literal.atom)}" if isinstance(literal, Not) else pretty_atom(literal)


def pretty_atom(atom: Atom) -> str:
    """`not` as a functor is put in quotes: before a word it would negate."""
    functor = "'not'" if atom.functor == "not" else atom.functor
    return f"{functor}({', '.join(map(str, atom.args))})" if atom.args else functor


def _name(atom: Atom) -> str:
    """Quotes keep a matrix that is itself called `mparams(w)` from being read as the naming of one."""
    text = pretty_atom(atom)
    return f"'{atom.functor}'{text[len(atom.functor) :]}" if atom.functor in PARAMETERS and atom.args else text


def _declaration(statement: Statement) -> str:
    if isinstance(statement, Embed):
        return f"embed({ANONYMOUS if statement.functor is None else statement.functor}, {statement.dim})"
    if isinstance(statement, EventDeclaration):
        word = "exogenous" if statement.exogenous else "event"
        places = f"({', '.join(f'X{n + 1}' for n in range(statement.arity))})" if statement.arity else ""
        dim = "" if statement.dim is None else f", {statement.dim}"
        return f"{word}({statement.functor}{places}{dim})"
    if isinstance(statement, Key):
        return f"key({statement.functor}, {statement.length})"
    if isinstance(statement, Include):
        return f"include({_quoted(statement.path)})"
    assert not isinstance(statement, Rule)
    return f"table({statement.functor}, {_quoted(statement.path)})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def tree(node: object) -> Any:
    """Dataclasses become objects that name their class; places are left out, but for the line of a statement."""
    if is_dataclass(node) and not isinstance(node, type):
        found: dict[str, Any] = {"node": type(node).__name__}
        for one in fields(node):
            value = getattr(node, one.name)
            if not isinstance(value, Span | Source):
                found[one.name] = tree(value)
        return found
    return [tree(one) for one in node] if isinstance(node, tuple | list) else node


def tree_lines(value: Any, indent: int = 0) -> Iterator[str]:
    """Every node on a line with its plain fields, its parts below it."""
    pad = "  " * indent
    if isinstance(value, list):
        for one in value:
            yield from tree_lines(one, indent)
        return
    plain = {name: one for name, one in value.items() if name != "node" and not isinstance(one, list | dict)}
    words = " ".join(f"{name}={one}" for name, one in plain.items() if one is not None and one is not False)
    yield f"{pad}{value['node']} {words}".rstrip()
    for name, one in value.items():
        if isinstance(one, list | dict) and one:
            yield f"{pad}  {name}:"
            yield from tree_lines(one, indent + 2)
