"""Converts a declaration as written, such as `:- event(message, 16).`, to a node of the syntax tree."""

from __future__ import annotations

from collections.abc import Sequence

from foretell import terms
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.log_place import LogPlace
from foretell.lang.source import Span
from foretell.lang.syntax import (
    Atom,
    Constant,
    Declaration,
    Embed,
    EventDeclaration,
    FeatureDeclaration,
    GivenDeclaration,
    Include,
    Key,
    Table,
    Term,
    Variable,
)
from foretell.lang.written import SizedFunctor, WideTerm, WrittenDeclaration
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
MOST_PLACES = 1_000  # the highest argument place that `from_log` accepts
LARGEST = 1_000_000  # the largest accepted dimension; models of larger dimensions do not fit any machine


class StatementError(Exception):
    """Raised for a statement that is well-formed but has no valid meaning."""

    def __init__(self, code: str, span: Span, message: str, hint: str | None = None) -> None:
        self.diagnostic = Diagnostic(code, span, message, hint)
        super().__init__(message)


def read_declaration(written: WrittenDeclaration) -> Declaration:
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
        if isinstance(term.args[0], SizedFunctor):
            example = DECLARATIONS[word].replace("teammate", term.args[0].functor[:40])
            message = "a fact of a table has as many arguments as its file has columns"
            raise _bad(word, term.args[0].span, message, hint=f"write {shown(example)}")
        log = _log_place(term)
        path = "" if log is not None else _path(term, 1)
        return Table(_functor(term)[0], path, _features(term), written.span, log)
    if word == "features":
        functor, arity = _functor(term)
        return FeatureDeclaration(functor, _columns(word, term.args[1:]), written.span, arity)
    if word == "embed":
        anyone = isinstance(term.args[0], Variable) and term.args[0].is_anonymous
        functor, arity = (None, None) if anyone else _functor(term)
        return Embed(functor, _number(term, 0), written.span, arity)
    if word == "key":
        functor, arity = _functor(term)
        return Key(functor, _number(term, 1), written.span, arity)
    functor, arity = _functor(term, may_have_arguments=True)
    if word == "given":
        return GivenDeclaration(functor, arity, written.span)
    dim = _number(term, 0) if len(term.args) == 2 else None
    return EventDeclaration(functor, word == "exogenous", dim, arity, written.span)


def _bad(word: str, span: Span, message: str, code: str = "bad-declaration", hint: str = "") -> StatementError:
    """Return the error. The default hint shows the form of such a declaration."""
    return StatementError(code, span, message, hint or f"write {DECLARATIONS[word]}")


def _functor(term: WideTerm, may_have_arguments: bool = False) -> tuple[str, int | None]:
    first, word = term.args[0], term.functor.text
    if isinstance(first, Variable) and first.name[0] != "_" and len(first.name) <= LONGEST:
        message = f"`{word}` takes a functor first, and {shown(first.name)} is a variable: it begins in upper case"
        hint = f"write {shown(as_functor(first.name))} or `{terms.constant(first.name)}`"
        raise _bad(word, first.span, message, hint=hint)
    if isinstance(first, Variable) or (first.args and not may_have_arguments):
        raise _bad(word, first.span, f"`{word}` takes a functor first, not {shown(str(first))}")
    if isinstance(first, SizedFunctor):
        if len(first.arity.text) > len(str(MOST_PLACES)):
            raise _bad(word, first.span, f"a fact has at most {MOST_PLACES:,} arguments")
        return first.functor, int(first.arity.text)
    return first.functor, len(first.args) or None


def _number(term: WideTerm, least: int) -> int:
    value, word = term.args[1], term.functor.text
    what = "a key length" if word == "key" else "a dimension"
    text = source_text(value.span)
    if isinstance(value, Variable) or value.args or not terms.is_integer(value.functor):
        raise _bad(word, value.span, f"{what} is a whole number, not {shown(text)}", "bad-dimension")
    if len(text) > 8 or not least <= int(text) <= LARGEST:
        raise _bad(word, value.span, f"{what} is {shown(text)}, expected {least} to {LARGEST:,}", "bad-dimension")
    return int(text)


def _path(term: WideTerm, place: int) -> str:
    value, word = term.args[place], term.functor.text
    text = source_text(value.span)
    if isinstance(value, Variable) or value.args or text[:1] not in "'\"":
        raise _bad(word, value.span, f"`{word}` takes a path in quotes, not {shown(text)}")
    return terms.plain(value.functor)


FROM_LOG = ":- table(user, from_log(buy, 1))."


def _log_place(term: WideTerm) -> LogPlace | None:
    """Return the argument `from_log(…)` of a table whose rows are values of events; None: it is another term."""
    value = term.args[1]
    if isinstance(value, Variable) or value.functor != "from_log" or not value.args:
        return None
    hint = f"write {FROM_LOG}"
    if len(value.args) != 2 or not isinstance(value.args[0], Constant):
        message = "`from_log` takes an event and a place among its arguments"
        raise _bad("table", value.span, message, hint=hint)
    event, place = value.args[0].text, value.args[1]
    number = int(place.text) if isinstance(place, Constant) and terms.is_integer(place.text) else 0
    if not 1 <= number <= MOST_PLACES:
        message = f"places of arguments are counted from 1, and {shown(str(place))} is none"
        raise _bad("table", place.span, message, hint=hint)
    if len(term.args) > 2:
        message = "values of a log have no columns beside them that could be features"
        raise _bad("table", term.args[2].span, message, hint=f"leave `features` out: {FROM_LOG}")
    return LogPlace(event, number)


def _features(term: WideTerm) -> tuple[str, ...]:
    """Return the columns in the third argument of a table."""
    if len(term.args) < 3:
        return ()
    value = term.args[2]
    if isinstance(value, Variable) or value.functor != "features" or not value.args:
        hint = 'write `:- table(price, "price.csv", features(amount, weight)).`'
        message = f"a table takes `features(…)` last, not {shown(source_text(value.span))}"
        raise _bad("table", value.span, message, hint=hint)
    return _columns("features", value.args)


def _columns(word: str, args: Sequence[Atom | Term | SizedFunctor]) -> tuple[str, ...]:
    """Return the names of columns. Raises `StatementError` for repeated names."""
    found: list[str] = []
    for one in args:
        if isinstance(one, Variable) or (isinstance(one, Atom) and one.args):
            text = source_text(one.span)
            hint = f'a name that is no constant stands in quotes: "{text}"'
            raise _bad(word, one.span, f"`features` takes names of columns, not {shown(text)}", hint=hint)
        name = terms.plain(one.text if isinstance(one, Constant) else one.functor)
        if name in found:
            raise _bad(word, one.span, f"the column {shown(name)} is named twice", hint="name it once")
        found.append(name)
    return tuple(found)


def source_text(span: Span) -> str:
    return span.source.text[span.start : span.end]
