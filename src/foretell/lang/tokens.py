"""A program's text → tokens → statements as written. What is no token of the language becomes an `ODD` one, for the parser to name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lark import Transformer, v_args

from foretell import terms
from foretell.lang.source import Source, Span
from foretell.lang.syntax import ANONYMOUS, Atom, Compare, Constant, Kind, Literal, Not, Term, Variable

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
MARKS = {
    ":-": "RULE",
    "<-": "ADD",
    "::": "_NAMES",
    ":": "_COLON",
    "!=": "UNEQUAL",
    "=": "EQUAL",
    "!": "BANG",
    "(": "_OPEN",
    ")": "CLOSE",
    ",": "_COMMA",
    ".": "STOP",
}
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
        return _rule("deduce", head.span, head, beta, (), names)

    def deduce(self, head: Atom, beta: Atom | None, _: Token, body: tuple[Literal, ...], names: Names) -> WrittenRule:
        return _rule("deduce", head.span, head, beta, body, names)

    def add(self, head: Atom, beta: Atom | None, _: Token, body: tuple[Literal, ...], names: Names) -> WrittenRule:
        return _rule("add", head.span, head, beta, body, names)

    def remove(
        self, sign: Token, head: Atom, beta: Atom | None, _: Token, body: tuple[Literal, ...], names: Names
    ) -> WrittenRule:
        return _rule("remove", sign.span, head, beta, body, names)

    def declaration(self, sign: Token, term: WideTerm) -> WrittenDeclaration:
        return WrittenDeclaration(term, sign.span.to(term.span))


def _rule(
    kind: Kind, start: Span, head: Atom, beta: Atom | None, body: tuple[Literal, ...], names: Names
) -> WrittenRule:
    last = (names or body or (beta or head,))[-1]
    return WrittenRule(kind, head, body, beta, names or (), start.to(last.span))
