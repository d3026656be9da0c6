"""Called by the parser as it goes: tokens of one statement → pieces of the syntax tree, without a tree of strings in between."""

from __future__ import annotations

from dataclasses import dataclass

from lark import Transformer, v_args

from foretell import terms
from foretell.lang.source import Span
from foretell.lang.syntax import ANONYMOUS, Atom, Compare, Constant, Kind, Literal, Not, Term, Variable
from foretell.lang.tokens import Token


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


def spelling(token: Token) -> str:
    return terms.unquote(token.text) if token.type == "STRING" else token.text


@v_args(inline=True)
class Builder(Transformer[Token, Written]):
    def variable(self, token: Token) -> Variable:
        return Variable(token.text, token.span, token.text == ANONYMOUS)

    def constant(self, token: Token) -> Constant:
        return Constant(spelling(token), token.span)

    def atom(self, functor: Token, arguments: tuple[Term, ...] | None, close: Token | None) -> Atom:
        end = functor.end if close is None else close.end
        return Atom(spelling(functor), arguments or (), Span(functor.source, functor.start, end), functor.span)

    def arguments(self, *found: Term) -> tuple[Term, ...]:
        return found

    def wide(self, functor: Token, arguments: tuple[Variable | Atom, ...] | None, close: Token | None) -> WideTerm:
        end = functor.end if close is None else close.end
        return WideTerm(functor, arguments or (), Span(functor.source, functor.start, end))

    def wide_arguments(self, *found: Variable | Atom) -> tuple[Variable | Atom, ...]:
        return found

    def negation(self, sign: Token, atom: Atom) -> Not:
        return Not(atom, sign.span.to(atom.span))

    def compare(self, left: Term, sign: Token, right: Term) -> Compare:
        return Compare(sign.type == "EQUAL", left, right, left.span.to(right.span))

    def body(self, *literals: Literal) -> tuple[Literal, ...]:
        return literals

    def beta(self, name: Atom) -> Atom:
        return name

    def names(self, *found: WideTerm) -> tuple[WideTerm, ...]:
        return found

    def fact(self, head: Atom, beta: Atom | None, names: tuple[WideTerm, ...] | None) -> WrittenRule:
        return WrittenRule("deduce", head, (), beta, names or (), _span(head.span, head, (), beta, names))

    def deduce(
        self, head: Atom, beta: Atom | None, _: Token, body: tuple[Literal, ...], names: tuple[WideTerm, ...] | None
    ) -> WrittenRule:
        return WrittenRule("deduce", head, body, beta, names or (), _span(head.span, head, body, beta, names))

    def add(
        self, head: Atom, beta: Atom | None, _: Token, body: tuple[Literal, ...], names: tuple[WideTerm, ...] | None
    ) -> WrittenRule:
        return WrittenRule("add", head, body, beta, names or (), _span(head.span, head, body, beta, names))

    def remove(
        self,
        sign: Token,
        head: Atom,
        beta: Atom | None,
        _: Token,
        body: tuple[Literal, ...],
        names: tuple[WideTerm, ...] | None,
    ) -> WrittenRule:
        return WrittenRule("remove", head, body, beta, names or (), _span(sign.span, head, body, beta, names))

    def declaration(self, sign: Token, term: WideTerm) -> WrittenDeclaration:
        return WrittenDeclaration(term, sign.span.to(term.span))


def _span(
    start: Span, head: Atom, body: tuple[Literal, ...], beta: Atom | None, names: tuple[WideTerm, ...] | None
) -> Span:
    last = (names or body or (beta or head,))[-1]
    return start.to(last.span)
