"""A statement as it is written → rules or a declaration of the syntax tree.

`_` is numbered, parameter names are told apart, and what is short for several statements is written out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from foretell import terms
from foretell.durations import UNITS, duration_seconds
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.source import Span
from foretell.lang.syntax import (
    ORDERS,
    PARAMETERS,
    Atom,
    Compare,
    Constant,
    Count,
    Declaration,
    Duration,
    Embed,
    EventDeclaration,
    FeatureDeclaration,
    GivenDeclaration,
    Include,
    Key,
    Kind,
    Literal,
    Not,
    Promise,
    Rule,
    Statement,
    Table,
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
    WrittenDeclaration,
    WrittenHead,
    WrittenRule,
)
from foretell.wording import LONGEST, as_functor, did_you_mean, listed, shown

DECLARATIONS = {
    "embed": ":- embed(forum, 8).",
    "event": ":- event(message, 16).",
    "exogenous": ":- exogenous(release).",
    "key": ":- key(forum, 4).",
    "include": ':- include("teams.ndtt").',
    "table": ':- table(teammate, "teammate.csv").',
    "features": ":- features(buy, amount).",
    "given": ":- given(age).",
    "never": ":- never(has(P, B), has(Q, B), P != Q).",
}
ARGUMENTS = {
    "embed": (2,),
    "event": (1, 2),
    "exogenous": (1, 2),
    "key": (2,),
    "include": (1,),
    "table": (2, 3),
    "given": (1,),
}
LARGEST = 1_000_000  # a dimension above it is a mistake, and would not fit any machine


class StatementError(Exception):
    """A statement that is well-formed but says nothing that can be meant."""

    def __init__(self, code: str, span: Span, message: str, hint: str | None = None) -> None:
        self.diagnostic = Diagnostic(code, span, message, hint)
        super().__init__(message)


def read(written: Written) -> list[Statement]:
    """One, or several that it is short for; raises `StatementError`."""
    if isinstance(written, WrittenRule):
        return _rules(written)
    return [_promise(written) if isinstance(written, Promise) else _declaration(written)]


# --- rules ---------------------------------------------------------------------------------------------------------

MOST_STATEMENTS = 100_000  # that one is short for


def _rules(written: WrittenRule) -> list[Statement]:
    _check_body(written.body)
    made: list[Statement] = []
    _check_size(written)
    for head in written.heads:
        for atom in _written_out(head.atom):
            if written.body and atom.args and _source_text(atom.functor_span) == "not":
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
    """`30`, `0.5`, `30m`, `1d12h`."""
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
            message = f"{shown(_source_text(empty.span))} is empty: it ends before it begins"
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
        if isinstance(literal, Atom) and literal.args and _source_text(literal.functor_span) == "not":
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
    """What must be an integer for a comparison to hold."""
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
    """`: b`, `:: w`, `:: mparams(w), betaparams(b)`, `:: allparams(p)` → the names of the exponent and of the matrices."""
    beta, matrix = head.beta, None
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
            if word == "allparams" and written.arrow is None:
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
        if isinstance(one, Count):
            return replace(one, atom=atom(one.atom), right=fresh(one.right))
        return replace(one, left=fresh(one.left), right=fresh(one.right))

    head, body = atom(rule.head), tuple(map(literal, rule.body))
    beta = rule.beta and atom(rule.beta)
    return replace(rule, head=head, body=body, beta=beta, matrix=rule.matrix and atom(rule.matrix))


# --- declarations --------------------------------------------------------------------------------------------------


def _declaration(written: WrittenDeclaration) -> Declaration:
    term = written.term
    word = term.functor.text
    if term.functor.type != "NAME" or word not in DECLARATIONS:
        hint = f"declarations are {listed(DECLARATIONS, most=len(DECLARATIONS))}; a rule needs a head before `:-`"
        hint = did_you_mean(word, DECLARATIONS, otherwise=hint)
        raise StatementError("unknown-declaration", term.functor.span, f"{shown(word)} is no declaration", hint)
    if word == "never":
        raise _bad(word, term.span, "`never` takes conditions in parentheses")
    wanted = ARGUMENTS.get(word)
    if wanted is None and len(term.args) < 2:
        raise _bad(word, term.span, f"`{word}` takes an event and its columns")
    if wanted is not None and len(term.args) not in wanted:
        number = "1 argument" if wanted == (1,) else f"{' or '.join(map(str, wanted))} arguments"
        raise _bad(word, term.span, f"`{word}` takes {number}, not {len(term.args)}")
    if word == "include":
        return Include(_path(term, 0), written.span)
    if word == "table":
        return Table(_functor(term)[0], _path(term, 1), _features(term), written.span)
    if word == "features":
        return FeatureDeclaration(_functor(term)[0], _columns(word, term.args[1:]), written.span)
    if word == "embed":
        functor = None if isinstance(term.args[0], Variable) and term.args[0].is_anonymous else _functor(term)[0]
        return Embed(functor, _number(term, 0), written.span)
    if word == "key":
        return Key(_functor(term)[0], _number(term, 1), written.span)
    functor, arity = _functor(term, may_have_arguments=True)
    if word == "given":
        return GivenDeclaration(functor, arity, written.span)
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


def _features(term: WideTerm) -> tuple[str, ...]:
    """The columns in the third argument of a table."""
    if len(term.args) < 3:
        return ()
    value = term.args[2]
    if isinstance(value, Variable) or value.functor != "features" or not value.args:
        hint = 'write `:- table(price, "price.csv", features(amount, weight)).`'
        message = f"a table takes `features(…)` last, not {shown(_source_text(value.span))}"
        raise _bad("table", value.span, message, hint=hint)
    return _columns("features", value.args)


def _columns(word: str, args: Sequence[Atom | Term]) -> tuple[str, ...]:
    """Names of columns, each once."""
    found: list[str] = []
    for one in args:
        if isinstance(one, Variable) or (isinstance(one, Atom) and one.args):
            text = _source_text(one.span)
            hint = f'a name that is no constant stands in quotes: "{text}"'
            raise _bad(word, one.span, f"`features` takes names of columns, not {shown(text)}", hint=hint)
        name = terms.plain(one.functor if isinstance(one, Atom) else one.text)
        if name in found:
            raise _bad(word, one.span, f"the column {shown(name)} is named twice", hint="name it once")
        found.append(name)
    return tuple(found)


def _source_text(span: Span) -> str:
    return span.source.text[span.start : span.end]
