"""Where the parser gave up → the mistake, named for what it is, and the place to read on from.

The rules below are tried in order; each looks at the token that could not follow, at those around it and at what the
parser would have taken. What no rule knows is `syntax`, with what was expected.
"""

from __future__ import annotations

from collections.abc import Callable

from foretell.lang import foreign
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.source import Span
from foretell.lang.tokens import FUNCTORS
from foretell.lang.trouble import ARROWS, Mistake, Trouble, ends_something, say
from foretell.wording import LONGEST, as_functor, shown

WORDS = {
    "NAME": "a name",
    "INTEGER": "an integer",
    "STRING": "a name in quotes",
    "VARIABLE": "a variable",
    "NOT": "`not`",
    "RULE": "`:-`",
    "ADD": "`<-`",
    "BANG": "`!`",
    "EQUAL": "`=`",
    "UNEQUAL": "`!=`",
    "CLOSE": "`)`",
    "_OPEN": "`(`",
    "_COMMA": "a comma",
    "_COLON": "`:`",
    "_NAMES": "`::`",
    "$END": "a full stop",
    "STOP": "a full stop",
}


def name_mistake(trouble: Trouble) -> Mistake:
    for rule in RULES:
        found = rule(trouble)
        if found is not None:
            return found
    return _unexpected(trouble)


def missing_stop(trouble: Trouble, place: int, span: Span | None = None) -> Mistake:
    """A statement ends before `place` without a full stop."""
    last = trouble.tokens[place - 1]
    where = span or Span(last.source, last.end, last.end)
    return Mistake(
        Diagnostic("missing-full-stop", where, "missing full stop: the statement does not end", "end it with `.`"),
        place if trouble.start < place < trouble.end else None,
    )


# --- terms -----------------------------------------------------------------------------------------------------------


def _upper_case(t: Trouble) -> Mistake | None:
    """`Forum(T)`, `X.`, `a :- X, b.`"""
    token, before = t.bad, t.before
    after_variable = before is not None and before.type == "VARIABLE"
    if after_variable and (t.type == "_OPEN" or t.expected == {"EQUAL", "UNEQUAL"}):
        token = before
        assert token is not None
    elif not (token is not None and token.type == "VARIABLE" and "NAME" in t.expected and not t.open):
        return None
    word = token.text
    hint = "begin it with a lower-case letter, or put it in quotes"
    if word[0] != "_" and len(word) <= LONGEST:
        hint = f"write `{as_functor(word)}`, or put it in quotes"
    message = f"{shown(word)} is a variable: it begins with an upper-case letter or `_`, and here a functor is expected"
    place = t.place if token is t.bad else t.place - 1
    return say("upper-case-functor", token.span, message, hint, (place, "NAME"))


def _opening(t: Trouble) -> Mistake | None:
    if t.type != "_OPEN":
        return None
    before = t.before
    if t.open and before is not None and before.type in FUNCTORS:
        outer = t.tokens[t.open[-1] - 1]
        if outer.type == "NAME" and outer.text == "not":
            return say("negation-sign", outer.span, "`not` takes no parentheses", "write `not g(X)`")
        if t.closes_too_few():
            opening = t.tokens[t.open[-1]].span
            return say(
                "unclosed-parenthesis", opening, "the parenthesis that opens here is not closed", "close it with `)`"
            )
        if outer.text in ("mparams", "betaparams", "allparams") or not t.is_declaration or len(t.open) > 1:
            return say(
                "nested-term",
                before.span,
                f"{shown(before.text)} is a term inside a term: arguments are constants and variables",
                "give its parts as arguments of their own",
            )
    if before is None or not ends_something(before):
        return say("syntax", t.span, "a parenthesis without a functor: conditions are not grouped", "remove it")
    return None


def _closing(t: Trouble) -> Mistake | None:
    if t.type != "CLOSE":
        return None
    before = t.before
    if before is not None and before.type == "_OPEN":
        functor = t.tokens[t.place - 2] if t.place - 2 >= t.start else before
        return say(
            "empty-arguments",
            before.span.to(t.span),
            f"{shown(functor.text)} has parentheses and no arguments",
            f"write {shown(functor.text)} alone",
        )
    if not t.open:
        return say("stray-parenthesis", t.span, "no parenthesis is open here", "remove it, or open one before")
    return None


def _unclosed(t: Trouble) -> Mistake | None:
    if not t.open or not (t.before is not None and (ends_something(t.before) or t.before.type in ("_OPEN", "_COMMA"))):
        return None
    begins_anew = not t.at_end and t.starts_line(t.place) and t.span.source.line_column(t.span.start)[1] == 1
    if t.at_end or t.type in ARROWS | {"_NAMES", "_COLON", "EQUAL", "UNEQUAL"} or begins_anew:
        opening = t.tokens[t.open[-1]].span
        found = say(
            "unclosed-parenthesis", opening, "the parenthesis that opens here is not closed", "close it with `)`"
        )
        return Mistake(found.diagnostic, t.place if begins_anew else None)
    return None


# --- between terms and statements --------------------------------------------------------------------------------------


def _stop_meant(t: Trouble) -> Mistake | None:
    """`a :- b` on one line, `c :- d.` on the next; also with a comma where the full stop was meant."""
    if t.open:
        return None
    if t.expected == {"STOP"}:  # said by the reader, not by the grammar
        return missing_stop(t, t.place)
    starts = t.type in FUNCTORS | {"NOT", "BANG", "RULE", "VARIABLE"}
    if starts and t.before is not None and ends_something(t.before):
        anew = t.starts_line(t.place)
        if anew and (t.type != "RULE" or t.arrow is not None or t.is_declaration):
            return missing_stop(t, t.place)
        if t.type not in ("RULE", "VARIABLE") and t.arrow_ahead():
            return missing_stop(t, t.place)
    if t.type in ARROWS and t.arrow is not None:
        start = _start_of_atom(t, t.place)
        if start is not None and start > t.start and t.tokens[start - 1].type == "_COMMA" and t.starts_line(start):
            return missing_stop(t, start, t.tokens[start - 1].span)
    return None


def _comma_meant(t: Trouble) -> Mistake | None:
    before = t.before
    if before is None or not ends_something(before) or t.type not in FUNCTORS | {"VARIABLE", "NOT", "BANG"}:
        return None
    if t.type == "INTEGER" and t.text.startswith("-"):
        return say(
            "arithmetic",
            t.span,
            f"{shown(t.text)} after {shown(before.text)}: there is no arithmetic",
            f"{foreign.RESULTS}; put a name with a hyphen in quotes: 'a-b'",
        )
    if t.type == "NAME" and t.text == "is":
        hint = f"{foreign.RESULTS}; `X = Y` says that two values are equal"
        return say("arithmetic", t.span, "`is`: there is no arithmetic", hint)
    what = "arguments" if t.open else "conditions"
    if not t.open and t.arrow is None:
        hint = "a fact ends with a full stop; text with spaces stands in quotes"
    else:
        hint = f"put a comma between {what}; text with spaces stands in quotes: 'New York'"
    where = Span(before.source, before.end, t.span.end if before.end == t.span.start else before.end + 1)
    return say("missing-comma", where, f"a comma is missing between {shown(before.text)} and {shown(t.text)}", hint)


def _arrow(t: Trouble) -> Mistake | None:
    first = t.tokens[t.start]
    if t.type == "RULE" and first.type == "BANG" and t.arrow is None:
        return say(
            "wrong-arrow", t.span, "`:-` where `<-` was meant: a fact is removed when an event occurs", "write `<-`"
        )
    if t.type == "ADD" and t.place == t.start:
        return say(
            "wrong-arrow",
            t.span,
            "`<-` without a head",
            "a rule has a head, `h <- event.`; a declaration begins with `:-`",
        )
    if t.type in ARROWS and t.arrow is None and any(one.type == "_NAMES" for one in t.tokens[t.start : t.place]):
        return say("parameter-names", t.span, "the matrices are named before the arrow", "put `:: name` after the body")
    if t.type in ARROWS and t.arrow is not None:
        return say("syntax", t.span, f"a second arrow, {shown(t.text)}, in one rule", "is a full stop missing before?")
    return None


def _names(t: Trouble) -> Mistake | None:
    if t.type == "_COLON" and t.arrow is not None and ends_something(t.before):
        return say("parameter-names", t.span, "the pool exponent is named after the body", "write `head : b :- body.`")
    if t.before is not None and t.before.type in ("_COLON", "_NAMES") and t.type not in ("ODD", "_OPEN"):
        return say(
            "parameter-names", t.span, f"a name is missing after {shown(t.before.text)}", "write `:: post(C)`, say"
        )
    return None


def _incomplete(t: Trouble) -> Mistake | None:
    before = t.before
    if t.type in ("_COMMA", "CLOSE") and before is not None and before.type in ("_COMMA", "_OPEN"):
        what = "an argument" if t.open else "a condition"
        return say("syntax", t.span, f"{what} is missing before {shown(t.text)}", "remove a comma")
    if t.type == "_COMMA" and t.arrow is None and ends_something(before):
        return say("syntax", t.span, "a comma after a head", "facts end with a full stop each; a rule has one head")
    if not t.at_end:
        return None
    if before is None:
        return say("syntax", t.span, "a full stop with nothing before it", "remove it")
    if before.type == "_COMMA":
        what = "an argument" if t.open else "a condition"
        return say("syntax", before.span, f"{what} is missing after the comma", "remove the comma")
    if before.type in ARROWS:
        return say("syntax", before.span, f"nothing follows {shown(before.text)}", "give at least one condition")
    if t.tokens[t.start].type == "BANG" and t.arrow is None:
        return say("syntax", t.span, "a removal needs the event that removes", "write `!forum(T) <- destroy(T).`")
    return None


def _comparison_outside(t: Trouble) -> Mistake | None:
    if t.type not in ("EQUAL", "UNEQUAL") or t.open:
        return None
    if t.arrow is None:
        return say("syntax", t.span, "a comparison can only be a condition of a rule", "write it after `:-` or `<-`")
    return say(
        "syntax",
        t.span,
        f"{shown(t.text)} compares constants and variables, not facts",
        "write `X = Y`, where conditions bind both",
    )


def _unexpected(t: Trouble) -> Mistake:
    words = sorted({WORDS[one] for one in t.expected if one in WORDS})
    wanted = (
        f"expected {', '.join(words[:-1])} or {words[-1]}"
        if len(words) > 1
        else f"expected {words[0]}"
        if words
        else None
    )
    what = "the end of the text" if t.bad is None else shown(t.text)
    return say("syntax", t.span, f"unexpected {what}", wanted)


def _start_of_atom(t: Trouble, place: int) -> int | None:
    """The functor of the atom that ends just before `place`."""
    at = place - 1
    if t.tokens[at].type == "CLOSE":
        while at > t.start and t.tokens[at].type != "_OPEN":
            at -= 1
        at -= 1
    return at if at >= t.start and t.tokens[at].type in FUNCTORS else None


RULES: tuple[Callable[[Trouble], Mistake | None], ...] = (
    foreign.quote,
    foreign.declared,
    foreign.spaced_arrow,
    foreign.logic_word,
    foreign.fraction,
    foreign.word,
    foreign.bare_text,
    foreign.odd,
    foreign.sign_of_negation,
    _closing,
    _unclosed,
    _stop_meant,
    _upper_case,
    _opening,
    _comma_meant,
    _arrow,
    _names,
    _incomplete,
    _comparison_outside,
)
