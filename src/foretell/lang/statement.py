"""Converts a statement as written to rules or a declaration of the syntax tree.

It numbers `_`, separates parameter names, and expands statements that abbreviate several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from foretell import terms
from foretell.durations import UNITS, duration_seconds
from foretell.lang.declarations import StatementError, read_declaration, source_text
from foretell.lang.syntax import (
    ORDERS,
    PARAMETERS,
    Atom,
    Compare,
    Constant,
    Count,
    Duration,
    Kind,
    Literal,
    Not,
    Promise,
    Rule,
    Statement,
    Term,
    Variable,
    atom_of,
    rule_terms,
)
from foretell.lang.tokens import Token, spelling
from foretell.lang.written import (
    IntegerRange,
    ManyAtoms,
    WideTerm,
    Written,
    WrittenHead,
    WrittenRule,
)
from foretell.wording import listed, shown


def read(written: Written) -> list[Statement]:
    """Return the statement, or all statements that it abbreviates. Raises `StatementError`."""
    if isinstance(written, WrittenRule):
        return _rules(written)
    return [_promise(written) if isinstance(written, Promise) else read_declaration(written)]


# --- rules ---------------------------------------------------------------------------------------------------------

MOST_STATEMENTS = 100_000  # the largest number of statements that one may abbreviate


def _rules(written: WrittenRule) -> list[Statement]:
    _check_body(written.body)
    made: list[Statement] = []
    _check_size(written)
    for head in written.heads:
        for atom in _written_out(head.atom):
            if written.body and atom.args and source_text(atom.functor_span) == "not":
                hint = "to remove a fact when an event occurs: `!forum(T) <- destroy(T).`"
                raise StatementError("negation-sign", atom.functor_span, "`not` cannot stand in a head", hint)
            kind: Kind = "deduce" if written.arrow is None or written.arrow.type == "RULE" else "add"
            if head.removed and kind == "deduce":
                assert written.arrow is not None
                message = "`:-` where `<-` was meant: a fact is removed when an event occurs"
                raise StatementError("wrong-arrow", written.arrow.span, message, "write `<-`")
            names = _names(written, head)
            kind = "remove" if head.removed else kind
            duration = None if written.lives is None else _duration(written.lives, kind)
            made.append(number_anonymous(Rule(kind, atom, written.body, *names, written.span, duration)))
    return made


def _duration(token: Token, kind: Kind) -> Duration:
    """Return the duration of a token such as `30`, `0.5`, `30m` or `1d12h`."""
    if kind != "add":
        what = "removes" if kind == "remove" else "deduces"
        message = f"`for {token.text}` says how long an addition lives, and this {what} a fact"
        hint = "a removal is for good" if kind == "remove" else "write `session(U) <- login(U) for 30m.`"
        raise StatementError("bad-duration", token.span, message, hint)
    try:
        number, in_seconds = float(token.text), False
    except ValueError:
        seconds = duration_seconds(token.text.removeprefix("-"))
        if seconds is None:
            message = f"{shown(token.text)} is no duration"
            hint = f"write a number in the data's unit, or one with a unit: 30m, 2h, 1d12h ({', '.join(UNITS)})"
            raise StatementError("bad-duration", token.span, message, hint) from None
        number, in_seconds = seconds, True
    if token.text.startswith("-") or not 0.0 < number < math.inf:
        message = f"an addition lives for a time above 0, not for {shown(token.text)}"
        raise StatementError("bad-duration", token.span, message, "leave `for` out where it lives until it is removed")
    return Duration(token.text, number, in_seconds, token.span)


def _check_size(written: WrittenRule) -> None:
    many = [head.atom for head in written.heads if isinstance(head.atom, ManyAtoms)]
    for one in many:
        if len({len(args) for args in one.choices}) > 1:
            counts = listed([str(len(args)) for args in one.choices])
            message = f"`;` separates whole lists of arguments, and these have {counts}"
            raise StatementError(
                "bad-range", one.span, message, "write `edge(a, b; b, c)` for edge(a, b) and edge(b, c)"
            )
        empty = next(
            (one for args in one.choices for one in args if isinstance(one, IntegerRange) and not one.count()), None
        )
        if empty is not None:
            message = f"{shown(source_text(empty.span))} is empty: it ends before it begins"
            raise StatementError("bad-range", empty.span, message, "write the smaller number first")
    count = sum(one.count() for one in many)
    if count > MOST_STATEMENTS:
        written_count = f"{count:,}" if count < 10**18 else "more than 10^18"
        message = f"this is short for {written_count} statements, at most {MOST_STATEMENTS:,} are read"
        raise StatementError("bad-range", many[0].span, message, "give so many facts in a table: `:- table(…).`")


def _written_out(atom: Atom | ManyAtoms) -> Iterator[Atom]:
    return iter((atom,)) if isinstance(atom, Atom) else atom.atoms()


def _check_body(body: tuple[Literal, ...]) -> None:
    for literal in body:
        atom = atom_of(literal)
        if isinstance(literal, ManyAtoms) or isinstance(atom, ManyAtoms):
            many = literal if isinstance(literal, ManyAtoms) else atom
            assert isinstance(many, ManyAtoms)
            if len(many.choices) > 1:
                message = "`;` in a condition: there is no `or`"
                raise StatementError("disjunction", many.span, message, "write two rules, one for each case")
            message = "a range in a condition: it is short for several facts or heads"
            hint = "compare a variable instead: `level(X), X >= 1, X <= 5`"
            raise StatementError("bad-range", many.span, message, hint)
        if isinstance(literal, Atom) and literal.args and source_text(literal.functor_span) == "not":
            message = "`not` takes a condition, without parentheses"
            hint = "write `not g(X)`; a fact that is called not stands in quotes: 'not'(X)"
            raise StatementError("negation-sign", literal.functor_span, message, hint)
        if isinstance(literal, Count):
            _check_count(literal)
        for side in sides_of(literal):
            if isinstance(side, Constant) and not terms.is_integer(side.text):
                message = f"{shown(str(literal))} compares integers, and {shown(str(side))} is none"
                raise StatementError("not-a-number", side.span, message, "only `=` and `!=` compare names")


def sides_of(literal: Literal) -> tuple[Term, ...]:
    """Return the terms that must be integers for the comparison to hold."""
    if isinstance(literal, Count):
        return (literal.right,)
    return (literal.left, literal.right) if isinstance(literal, Compare) and literal.sign in ORDERS else ()


def _check_count(one: Count) -> None:
    free = sum(isinstance(arg, Variable) and arg.is_anonymous for arg in one.atom.args)
    if one.word == "count" or free == 1:
        return
    message = (
        f"`{one.word}` needs one `_`, where the number stands, and there {'is none' if not free else f'are {free}'}"
    )
    hint = f"write `{one.word}(price(I, _)) <= 10`"
    if free:
        hint += "; leave the other arguments out by a rule of their own: `price(I, P) :- offer(I, _, P).`"
    raise StatementError("bad-count", one.atom.span, message, hint)


def _promise(written: Promise) -> Promise:
    _check_body(written.body)
    head = Atom("never", (), written.span, written.span)
    numbered = number_anonymous(Rule("deduce", head, written.body, None, None, written.span))
    return Promise(numbered.body, written.span)


def _names(written: WrittenRule, head: WrittenHead) -> tuple[Atom | None, Atom | None]:
    """Return the names of the exponent and of the matrices, from `: b`, `:: w`, `:: mparams(w), betaparams(b)` or `:: allparams(p)`."""
    beta, matrix = head.beta, None
    for name in written.names:
        word = name.functor.text
        wrapped = name.functor.type == "NAME" and word in PARAMETERS and bool(name.args)
        if not wrapped and len(written.names) > 1:
            names = listed([source_text(one.span) for one in written.names])
            raise _bad_names(name, f"{names} are names of one rule", "give one name after `::`")
        if wrapped and (len(name.args) != 1 or not isinstance(name.args[0], Atom)):
            raise _bad_names(name, f"`{word}` takes one name", f"write {word}(w) or {word}(post(C))")
        atom = name.args[0] if wrapped and isinstance(name.args[0], Atom) else _flat(name)
        if not wrapped or word in ("mparams", "allparams"):
            if matrix is not None:
                raise _bad_names(name, "the matrices are named twice", "remove one of the names")
            matrix = atom
        if wrapped and word in ("betaparams", "allparams"):
            if word == "allparams" and written.arrow is None:
                continue  # a fact has no exponent
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
    args = (arg if isinstance(arg, Variable) else Constant(arg.functor, arg.span) for arg in wide.args)
    return Atom(spelling(wide.functor), tuple(args), wide.span, wide.functor.span)


def number_anonymous(rule: Rule) -> Rule:
    """Replace each `_` by a new variable `_1`, `_2`, … whose name does not occur in the rule."""
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
        if isinstance(one, Count):
            return replace(one, atom=atom(one.atom), right=fresh(one.right))
        return replace(one, left=fresh(one.left), right=fresh(one.right))

    head, body = atom(rule.head), tuple(map(literal, rule.body))
    beta = rule.beta and atom(rule.beta)
    return replace(rule, head=head, body=body, beta=beta, matrix=rule.matrix and atom(rule.matrix))
