"""The parser's result for one statement: the statement as written, which `foretell.lang.statement` interprets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from lark import Transformer, v_args

from foretell.lang.source import Span
from foretell.lang.syntax import (
    ANONYMOUS,
    COUNTING,
    Atom,
    Compare,
    Constant,
    Count,
    Literal,
    Not,
    Promise,
    Term,
    Variable,
)
from foretell.lang.tokens import Token, spelling


@dataclass(frozen=True, slots=True)
class SizedFunctor:
    """`watch/2` as first argument of a declaration: the functor with this number of arguments."""

    functor: str
    arity: Token
    span: Span
    args: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class WideTerm:
    """`event(watch(U,P), 8)` or `post(C)`: a term whose arguments may be terms. `word` is its name as written."""

    functor: Token
    args: tuple[Variable | Atom | SizedFunctor, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """`1..5` as an argument."""

    first: int
    last: int
    span: Span

    def terms(self) -> Iterator[Constant]:
        return (Constant(str(number), self.span) for number in range(self.first, self.last + 1))

    def count(self) -> int:
        return max(0, self.last - self.first + 1)


@dataclass(frozen=True, slots=True)
class ManyAtoms:
    """`a(x; y)` or `level(1..5)`: several lists of arguments, which may have ranges."""

    functor: str
    choices: tuple[tuple[Term | IntegerRange, ...], ...]
    span: Span
    functor_span: Span

    def __str__(self) -> str:
        return self.span.source.text[self.span.start : self.span.end]

    def count(self) -> int:
        return sum(prod(one.count() for one in args if isinstance(one, IntegerRange)) for args in self.choices)

    def atoms(self) -> Iterator[Atom]:
        for args in self.choices:
            for chosen in product(*(one.terms() if isinstance(one, IntegerRange) else (one,) for one in args)):
                yield Atom(self.functor, chosen, self.span, self.functor_span)


@dataclass(frozen=True, slots=True)
class WrittenHead:
    atom: Atom | ManyAtoms
    beta: Atom | None
    removed: bool
    span: Span


@dataclass(frozen=True, slots=True)
class WrittenRule:
    arrow: Token | None  # None: a fact
    heads: tuple[WrittenHead, ...]
    body: tuple[Literal, ...]
    names: tuple[WideTerm, ...]
    span: Span
    lives: Token | None = None  # a duration such as `30m`


@dataclass(frozen=True, slots=True)
class WrittenDeclaration:
    term: WideTerm
    span: Span


Written = WrittenRule | WrittenDeclaration | Promise
Names = tuple[WideTerm, ...] | None


@v_args(inline=True)
class Builder(Transformer[Token, Written]):
    """The callbacks of the parser. They build the result during parsing, without an intermediate tree."""

    def variable(self, token: Token) -> Variable:
        return Variable(token.text, token.span, token.text == ANONYMOUS)

    def constant(self, token: Token) -> Constant:
        return Constant(spelling(token), token.span)

    def atom(self, functor: Token, pool: tuple[Any, ...] | None, close: Token | None) -> Atom | ManyAtoms:
        span = functor.span.to((close or functor).span)
        choices = tuple(one for one in pool or ((),) if not isinstance(one, Token))  # without `;`
        if len(choices) == 1 and not any(isinstance(one, IntegerRange) for one in choices[0]):
            return Atom(spelling(functor), choices[0], span, functor.span)
        return ManyAtoms(spelling(functor), choices, span, functor.span)

    def plain(self, functor: Token, arguments: tuple[Term, ...] | None, close: Token | None) -> Atom:
        return Atom(spelling(functor), arguments or (), functor.span.to((close or functor).span), functor.span)

    beta = plain

    def sized(self, functor: Token, _: Token, arity: Token) -> SizedFunctor:
        return SizedFunctor(spelling(functor), arity, functor.span.to(arity.span))

    def range(self, first: Token, _: Token, last: Token) -> IntegerRange:
        return IntegerRange(int(first.text), int(last.text), first.span.to(last.span))

    def wide(
        self, functor: Token, arguments: tuple[Variable | Atom | SizedFunctor, ...] | None, close: Token | None
    ) -> WideTerm:
        return WideTerm(functor, arguments or (), functor.span.to((close or functor).span))

    def _list(self, *found: Any) -> tuple[Any, ...]:
        return found

    arguments = pool = terms = wide_arguments = body = names = heads = _list

    def negation(self, sign: Token, atom: Atom) -> Not:
        return Not(atom, sign.span.to(atom.span))

    def compare(self, left: Term, sign: Token, right: Term) -> Compare:
        return Compare(sign.text, left, right, left.span.to(right.span))

    def counted(self, word: Token, atom: Atom, _: Token, sign: Token, right: Term) -> Count:
        assert word.text in COUNTING
        return Count(word.text, atom, sign.text, right, word.span.to(right.span))  # pyright: ignore[reportArgumentType]

    def head(self, atom: Atom | ManyAtoms, beta: Atom | None) -> WrittenHead:
        return WrittenHead(atom, beta, False, atom.span.to((beta or atom).span))

    def removed(self, sign: Token, atom: Atom | ManyAtoms, beta: Atom | None) -> WrittenHead:
        return WrittenHead(atom, beta, True, sign.span.to((beta or atom).span))

    def lives(self, _: Token, amount: Token) -> Token:
        return amount

    def fact(self, atom: Atom | ManyAtoms, beta: Atom | None, lives: Token | None, names: Names) -> WrittenRule:
        head = self.head(atom, beta)
        last = names[-1] if names else lives or head
        return WrittenRule(None, (head,), (), names or (), head.span.to(last.span), lives)

    def deduce(
        self,
        heads: tuple[WrittenHead, ...],
        arrow: Token,
        body: tuple[Literal, ...],
        lives: Token | None,
        names: Names,
    ) -> WrittenRule:
        last = names[-1] if names else lives or body[-1]
        return WrittenRule(arrow, heads, body, names or (), heads[0].span.to(last.span), lives)

    add = deduce

    def promise(self, sign: Token, _: Token, body: tuple[Literal, ...], close: Token) -> Promise:
        return Promise(body, sign.span.to(close.span))

    def declaration(self, sign: Token, term: WideTerm) -> WrittenDeclaration:
        return WrittenDeclaration(term, sign.span.to(term.span))
