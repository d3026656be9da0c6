"""A program's text → tokens; what the parser makes of those of one statement → a rule or declaration of the syntax tree.

What is no token of the language becomes an `ODD` one, for the parser to name. A statement is taken as it is written first; then `_` is
numbered, parameter names are told apart and declarations are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from lark import Transformer, v_args

from foretell import terms
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.source import Source, Span
from foretell.lang.syntax import (
    ANONYMOUS,
    PARAMETERS,
    Atom,
    Compare,
    Constant,
    Declaration,
    Embed,
    EventDeclaration,
    Include,
    Key,
    Kind,
    Literal,
    Not,
    Rule,
    Statement,
    Table,
    Term,
    Variable,
    rule_terms,
)
from foretell.wording import LONGEST, as_functor, did_you_mean, listed, shown

_PIECE = re.compile(
    r"""
    (?P<space>[\s\ufeff]+|%[^\n]*)
  | (?P<ODD_NUMBER>-?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?)
  | (?P<word>-?\w+)
  | (?P<STRING>'(?:[^'\\\n]|\\[^\n]|'')*+'|"(?:[^"\\\n]|\\[^\n]|"")*+")
  | (?P<ODD_QUOTE>['"][^\n]*)
  | (?P<ODD>/\*|//|\\==|\\=|\\\+|=\\=|=:=|:=|===|==>|==|=<|=>|<=>|<=|<>|>=|!==|-->|->|~=|\|\||&&)
  | (?P<mark>:-|<-|::|!=|[(),.:!=])
  | (?P<odd>.)
    """,
    re.VERBOSE | re.DOTALL,
)
MARKS = {":-": "RULE", "<-": "ADD", "::": "_NAMES", ":": "_COLON", "!=": "UNEQUAL", "=": "EQUAL", "!": "BANG"}
MARKS |= {"(": "_OPEN", ")": "CLOSE", ",": "_COMMA", ".": "STOP"}
FUNCTORS = frozenset(("NAME", "INTEGER", "STRING"))
WORDS = frozenset(("NAME", "INTEGER", "VARIABLE", "ODD_WORD", "ODD_NUMBER"))


class Token:
    """A word or mark with its place. `type` is what the grammar knows it by."""

    __slots__ = ("end", "source", "start", "text", "type")

    def __init__(self, type: str, text: str, source: Source, start: int, end: int) -> None:
        self.type, self.text, self.source, self.start, self.end = type, text, source, start, end

    @property
    def span(self) -> Span:
        return Span(self.source, self.start, self.end)

    def __repr__(self) -> str:
        return f"{self.type}({self.text[:40]!r})"


def tokenize(source: Source) -> list[Token]:
    found: list[Token] = []
    depth = 0  # of parentheses that are open in a statement
    for match in _PIECE.finditer(source.text):
        kind, text = match.lastgroup, match.group()
        assert kind is not None
        if kind == "space":
            continue
        if kind == "word":
            kind = _word(text)
        elif kind == "mark":
            kind = MARKS[text]
            depth = depth + 1 if kind == "_OPEN" else max(0, depth - 1) if kind == "CLOSE" else depth
            if kind == "STOP":
                kind = "ODD_DOT" if depth and _is_inner_dot(source.text, match.start(), found) else kind
                depth = depth if kind == "ODD_DOT" else 0
        elif kind == "odd":
            kind = "ODD"
        if found and found[-1].text == "not" and found[-1].type == "NAME" and (kind in FUNCTORS or kind == "VARIABLE"):
            found[-1].type = "NOT"  # two words side by side can mean nothing else
        found.append(Token(kind, text, source, match.start(), match.end()))
    return found


def _is_inner_dot(text: str, place: int, found: list[Token]) -> bool:
    """`staff.csv` or `../teams.ndtt` among arguments, without spaces: that is no end of a statement."""
    after, last = text[place + 1 : place + 2], found[-1]
    if not after.isalnum() and (not after or after not in "_./"):
        return False
    return (last.type in WORDS and last.end == place) or last.type in ("_OPEN", "_COMMA", "ODD", "ODD_DOT")


def _word(text: str) -> str:
    first = text[0]
    if first == "_" or first.isupper():
        return "VARIABLE"
    if terms.is_integer(text):
        return "INTEGER"
    return "NAME" if terms.constant(text) == text else "ODD_WORD"


def statements(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """Where each begins and ends, its full stop included; only the last of a text may lack one."""
    start = 0
    for place, token in enumerate(tokens):
        # a quote left open has swallowed the rest of its line: its statement ends there if a full stop did
        if token.type == "STOP" or (token.type == "ODD_QUOTE" and token.text.rstrip().endswith(".")):
            yield start, place + 1
            start = place + 1
    if start < len(tokens):
        yield start, len(tokens)


@dataclass(frozen=True, slots=True)
class WideTerm:
    """`event(watch(U,P), 8)` or `post(C)`: a term whose arguments may be terms; `word` is as it was written."""

    functor: Token
    args: tuple[Variable | Atom, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class WrittenRule:
    kind: Kind
    head: Atom
    body: tuple[Literal, ...]
    beta: Atom | None
    names: tuple[WideTerm, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class WrittenDeclaration:
    term: WideTerm
    span: Span


Written = WrittenRule | WrittenDeclaration
Names = tuple[WideTerm, ...] | None


def spelling(token: Token) -> str:
    return terms.unquote(token.text) if token.type == "STRING" else token.text


@v_args(inline=True)
class Builder(Transformer[Token, Written]):
    """Called by the parser as it goes, without a tree of strings in between."""

    def variable(self, token: Token) -> Variable:
        return Variable(token.text, token.span, token.text == ANONYMOUS)

    def constant(self, token: Token) -> Constant:
        return Constant(spelling(token), token.span)

    def atom(self, functor: Token, arguments: tuple[Term, ...] | None, close: Token | None) -> Atom:
        return Atom(spelling(functor), arguments or (), functor.span.to((close or functor).span), functor.span)

    def wide(self, functor: Token, arguments: tuple[Variable | Atom, ...] | None, close: Token | None) -> WideTerm:
        return WideTerm(functor, arguments or (), functor.span.to((close or functor).span))

    def _list(self, *found: Any) -> tuple[Any, ...]:
        return found

    arguments = wide_arguments = body = names = _list

    def negation(self, sign: Token, atom: Atom) -> Not:
        return Not(atom, sign.span.to(atom.span))

    def compare(self, left: Term, sign: Token, right: Term) -> Compare:
        return Compare(sign.type == "EQUAL", left, right, left.span.to(right.span))

    def beta(self, name: Atom) -> Atom:
        return name

    def fact(self, head: Atom, beta: Atom | None, names: Names) -> WrittenRule:
        return _written("deduce", head.span, head, beta, (), names)

    def deduce(self, head: Atom, beta: Atom | None, _: Token, body: tuple[Literal, ...], names: Names) -> WrittenRule:
        return _written("deduce", head.span, head, beta, body, names)

    def add(self, head: Atom, beta: Atom | None, _: Token, body: tuple[Literal, ...], names: Names) -> WrittenRule:
        return _written("add", head.span, head, beta, body, names)

    def remove(
        self, sign: Token, head: Atom, beta: Atom | None, _: Token, body: tuple[Literal, ...], names: Names
    ) -> WrittenRule:
        return _written("remove", sign.span, head, beta, body, names)

    def declaration(self, sign: Token, term: WideTerm) -> WrittenDeclaration:
        return WrittenDeclaration(term, sign.span.to(term.span))


def _written(
    kind: Kind, start: Span, head: Atom, beta: Atom | None, body: tuple[Literal, ...], names: Names
) -> WrittenRule:
    last = (names or body or (beta or head,))[-1]
    return WrittenRule(kind, head, body, beta, names or (), start.to(last.span))


DECLARATIONS = {
    "embed": ":- embed(forum, 8).",
    "event": ":- event(message, 16).",
    "exogenous": ":- exogenous(release).",
    "key": ":- key(forum, 4).",
    "include": ':- include("teams.ndtt").',
    "table": ':- table(teammate, "teammate.csv").',
}
ARGUMENTS = {"embed": (2,), "event": (1, 2), "exogenous": (1, 2), "key": (2,), "include": (1,), "table": (2,)}
LARGEST = 1_000_000  # a dimension above it is a mistake, and would not fit any machine


class StatementError(Exception):
    """A statement that is well-formed but says nothing that can be meant."""

    def __init__(self, code: str, span: Span, message: str, hint: str | None = None) -> None:
        self.diagnostic = Diagnostic(code, span, message, hint)
        super().__init__(message)


def read(written: Written) -> Statement:
    """Raises `StatementError`."""
    return _rule(written) if isinstance(written, WrittenRule) else _declaration(written)


# --- rules ---------------------------------------------------------------------------------------------------------


def _rule(written: WrittenRule) -> Rule:
    head = written.head
    if written.body and head.args and _source_text(head.functor_span) == "not":
        hint = "to remove a fact when an event occurs: `!forum(T) <- destroy(T).`"
        raise StatementError("negation-sign", head.functor_span, "`not` cannot stand in a head", hint)
    for literal in written.body:
        if isinstance(literal, Atom) and literal.args and _source_text(literal.functor_span) == "not":
            message = "`not` takes a condition, without parentheses"
            hint = "write `not g(X)`; a fact that is called not stands in quotes: 'not'(X)"
            raise StatementError("negation-sign", literal.functor_span, message, hint)
    return number_anonymous(Rule(written.kind, written.head, written.body, *_names(written), written.span))


def _names(written: WrittenRule) -> tuple[Atom | None, Atom | None]:
    """`: b`, `:: w`, `:: mparams(w), betaparams(b)`, `:: allparams(p)` → the names of the exponent and of the matrices."""
    beta, matrix = written.beta, None
    for name in written.names:
        word = name.functor.text
        wrapped = name.functor.type == "NAME" and word in PARAMETERS and bool(name.args)
        if not wrapped and len(written.names) > 1:
            names = listed([_source_text(one.span) for one in written.names])
            raise _bad_names(name, f"{names} are names of one rule", "give one name after `::`")
        if wrapped and (len(name.args) != 1 or not isinstance(name.args[0], Atom)):
            raise _bad_names(name, f"`{word}` takes one name", f"write {word}(w) or {word}(post(C))")
        atom = name.args[0] if wrapped and isinstance(name.args[0], Atom) else _flat(name)
        if not wrapped or word in ("mparams", "allparams"):
            if matrix is not None:
                raise _bad_names(name, "the matrices are named twice", "remove one of the names")
            matrix = atom
        if wrapped and word in ("betaparams", "allparams"):
            if word == "allparams" and written.kind == "deduce" and not written.body:
                continue  # a fact has no exponent to name
            if beta is not None:
                raise _bad_names(name, "the pool exponent is named twice", "remove one of the names")
            beta = atom
    return beta, matrix


def _bad_names(name: WideTerm, message: str, hint: str) -> StatementError:
    return StatementError("parameter-names", name.span, message, hint)


def _flat(wide: WideTerm) -> Atom:
    for arg in wide.args:
        if isinstance(arg, Atom) and arg.args:
            message = f"{shown(str(arg))} is a term inside a term: arguments are constants and variables"
            raise StatementError("nested-term", arg.span, message, "give its parts as arguments of their own")
    args = (Constant(arg.functor, arg.span) if isinstance(arg, Atom) else arg for arg in wide.args)
    return Atom(spelling(wide.functor), tuple(args), wide.span, wide.functor.span)


def number_anonymous(rule: Rule) -> Rule:
    """Each `_` becomes a variable of its own, `_1`, `_2`, …, whose name nothing else in the rule has."""
    terms_of = list(rule_terms(rule))
    if not any(isinstance(one, Variable) and one.is_anonymous for one in terms_of):
        return rule
    taken = {one.name for one in terms_of if isinstance(one, Variable) and not one.is_anonymous}
    count = 0

    def fresh(term: Term) -> Term:
        nonlocal count
        if isinstance(term, Constant) or not term.is_anonymous:
            return term
        count += 1
        while f"_{count}" in taken:
            count += 1
        return replace(term, name=f"_{count}")

    def atom(one: Atom) -> Atom:
        return replace(one, args=tuple(map(fresh, one.args)))

    def literal(one: Literal) -> Literal:
        if isinstance(one, Atom):
            return atom(one)
        if isinstance(one, Not):
            return replace(one, atom=atom(one.atom))
        return replace(one, left=fresh(one.left), right=fresh(one.right))

    head, body = atom(rule.head), tuple(map(literal, rule.body))
    beta = rule.beta and atom(rule.beta)
    return replace(rule, head=head, body=body, beta=beta, matrix=rule.matrix and atom(rule.matrix))


# --- declarations --------------------------------------------------------------------------------------------------


def _declaration(written: WrittenDeclaration) -> Declaration:
    term = written.term
    word = term.functor.text
    if term.functor.type != "NAME" or word not in DECLARATIONS:
        hint = f"declarations are {listed(DECLARATIONS)}; a rule needs a head before `:-`"
        hint = did_you_mean(word, DECLARATIONS, otherwise=hint)
        raise StatementError("unknown-declaration", term.functor.span, f"{shown(word)} is no declaration", hint)
    wanted = ARGUMENTS[word]
    if len(term.args) not in wanted:
        number = "1 argument" if wanted == (1,) else f"{' or '.join(map(str, wanted))} arguments"
        raise _bad(word, term.span, f"`{word}` takes {number}, not {len(term.args)}")
    if word == "include":
        return Include(_path(term, 0), written.span)
    if word == "table":
        return Table(_functor(term)[0], _path(term, 1), written.span)
    if word == "embed":
        functor = None if isinstance(term.args[0], Variable) and term.args[0].is_anonymous else _functor(term)[0]
        return Embed(functor, _number(term, 0), written.span)
    if word == "key":
        return Key(_functor(term)[0], _number(term, 1), written.span)
    functor, arity = _functor(term, may_have_arguments=True)
    dim = _number(term, 0) if len(term.args) == 2 else None
    return EventDeclaration(functor, word == "exogenous", dim, arity, written.span)


def _bad(word: str, span: Span, message: str, code: str = "bad-declaration", hint: str = "") -> StatementError:
    """The hint is how such a declaration is written, unless another is given."""
    return StatementError(code, span, message, hint or f"write {DECLARATIONS[word]}")


def _functor(term: WideTerm, may_have_arguments: bool = False) -> tuple[str, int | None]:
    first, word = term.args[0], term.functor.text
    if isinstance(first, Variable) and first.name[0] != "_" and len(first.name) <= LONGEST:
        message = f"`{word}` takes a functor first, and {shown(first.name)} is a variable: it begins in upper case"
        hint = f"write {shown(as_functor(first.name))} or `{terms.constant(first.name)}`"
        raise _bad(word, first.span, message, hint=hint)
    if isinstance(first, Variable) or (first.args and not may_have_arguments):
        raise _bad(word, first.span, f"`{word}` takes a functor first, not {shown(str(first))}")
    return first.functor, len(first.args) or None


def _number(term: WideTerm, least: int) -> int:
    value, word = term.args[1], term.functor.text
    what = "a key length" if word == "key" else "a dimension"
    text = _source_text(value.span)
    if isinstance(value, Variable) or value.args or not terms.is_integer(value.functor):
        raise _bad(word, value.span, f"{what} is a whole number, not {shown(text)}", "bad-dimension")
    if len(text) > 8 or not least <= int(text) <= LARGEST:
        raise _bad(word, value.span, f"{what} is {shown(text)}, expected {least} to {LARGEST:,}", "bad-dimension")
    return int(text)


def _path(term: WideTerm, place: int) -> str:
    value, word = term.args[place], term.functor.text
    text = _source_text(value.span)
    if isinstance(value, Variable) or value.args or text[:1] not in "'\"":
        raise _bad(word, value.span, f"`{word}` takes a path in quotes, not {shown(text)}")
    return terms.plain(value.functor)


def _source_text(span: Span) -> str:
    return span.source.text[span.start : span.end]
