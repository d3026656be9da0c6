"""A statement as written → a rule or declaration of the syntax tree: `_` numbered, parameter names told apart, declarations read."""

from __future__ import annotations

from dataclasses import replace

from foretell import terms
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.source import Span
from foretell.lang.syntax import (
    PARAMETERS,
    Atom,
    Constant,
    Declaration,
    Embed,
    EventDeclaration,
    Include,
    Key,
    Literal,
    Not,
    Rule,
    Statement,
    Table,
    Term,
    Variable,
    rule_terms,
)
from foretell.lang.tokens import WideTerm, Written, WrittenDeclaration, WrittenRule, spelling
from foretell.wording import LONGEST, as_functor, did_you_mean, listed, shown

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
