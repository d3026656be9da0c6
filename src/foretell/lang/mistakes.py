"""The token that the parser rejected → a specific mistake, and the token at which to continue.

The rules below are tried in order. Each looks at the rejected token, its neighbours and the tokens that the parser expected. If no rule
applies, the mistake is `syntax`, and the message lists what was expected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from foretell.lang import foreign
from foretell.lang.source import Span
from foretell.lang.syntax import COUNTING
from foretell.lang.tokens import FUNCTORS, SIGNS
from foretell.lang.trouble import ARROWS, Mistake, Trouble, ends_something
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
    "ORDER": "`<`",
    "CLOSE": "`)`",
    "_OPEN": "`(`",
    "_COMMA": "a comma",
    "_COLON": "`:`",
    "_NAMES": "`::`",
    "FOR": "`for`",
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
    """Return the mistake of a statement that ends before `place` without a full stop."""
    last = trouble.tokens[place - 1]
    where = span or Span(last.source, last.end, last.end)
    found = trouble.say("missing-full-stop", "missing full stop: the statement does not end", "end it with `.`", where)
    return replace(found, resume=place if trouble.start < place < trouble.end else None)


def _not_closed(t: Trouble) -> Mistake:
    opening = t.tokens[t.open[-1]].span
    return t.say("unclosed-parenthesis", "the parenthesis that opens here is not closed", "close it with `)`", opening)


# --- terms -----------------------------------------------------------------------------------------------------------


def _upper_case(t: Trouble) -> Mistake | None:
    """Recognise upper-case words as functors or constants: `Forum(T)`, `X.`, `a :- X, b.`"""
    token, before = t.bad, t.before
    after_variable = before is not None and before.type == "VARIABLE"
    if after_variable and (t.type == "_OPEN" or t.expected == SIGNS):
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
    return t.say("upper-case-functor", message, hint, token.span, "NAME", place)


def _opening(t: Trouble) -> Mistake | None:
    if t.type != "_OPEN":
        return None
    before = t.before
    if t.open and before is not None and before.type in FUNCTORS:
        outer = t.tokens[t.open[-1] - 1]
        if outer.type == "NAME" and outer.text == "not":
            return t.say("negation-sign", "`not` takes no parentheses", "write `not g(X)`", outer.span)
        if t.closes_too_few():
            return _not_closed(t)
        if outer.text in COUNTING and not t.is_declaration:
            message = f"{shown(outer.text)} counts facts, and nothing is compared with the number"
            return t.say("bad-count", message, f"write `{outer.text}(cart(U, _)) >= 2`", outer.span)
        if outer.text in ("mparams", "betaparams", "allparams") or not t.is_declaration or len(t.open) > 1:
            message = f"{shown(before.text)} is a term inside a term: arguments are constants and variables"
            return t.say("nested-term", message, "give its parts as arguments of their own", before.span)
    if before is None or not ends_something(before):
        return t.say("syntax", "a parenthesis without a functor: conditions are not grouped", "remove it")
    return None


def _closing(t: Trouble) -> Mistake | None:
    if t.type != "CLOSE":
        return None
    before = t.before
    if before is not None and before.type == "_OPEN":
        functor = t.tokens[t.place - 2] if t.place - 2 >= t.start else before
        name = shown(functor.text)
        message, hint = f"{name} has parentheses and no arguments", f"write {name} alone"
        return t.say("empty-arguments", message, hint, before.span.to(t.span))
    if not t.open:
        return t.say("stray-parenthesis", "no parenthesis is open here", "remove it, or open one before")
    return None


def _unclosed(t: Trouble) -> Mistake | None:
    if not t.open or not (t.before is not None and (ends_something(t.before) or t.before.type in ("_OPEN", "_COMMA"))):
        return None
    begins_anew = not t.at_end and t.starts_line(t.place) and t.span.source.line_column(t.span.start)[1] == 1
    if t.at_end or t.type in ARROWS | SIGNS | {"_NAMES", "_COLON"} or begins_anew:
        return replace(_not_closed(t), resume=t.place if begins_anew else None)
    return None


# --- between terms and statements --------------------------------------------------------------------------------------


def _stop_meant(t: Trouble) -> Mistake | None:
    """Recognise a missing full stop: `a :- b` on one line, `c :- d.` on the next; also a comma instead of the full stop."""
    if t.open:
        return None
    if t.expected == {"STOP"}:  # set in `load.py`, not by the grammar
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


def _duration(t: Trouble) -> Mistake | None:
    """Recognise `for X`, `for half an hour`, `for 30 m`, and `for 30m` after the name of the matrices."""
    hint = "write a number in the data's unit, or one with a unit: `session(U) <- login(U) for 30m.`"
    before = t.before
    if t.type == "FOR" and before is not None and ends_something(before):
        return t.say("bad-duration", "`for` stands behind the conditions, before `::`", hint)
    if before is not None and before.type == "DURATION" and not t.at_end and not t.starts_line(t.place):
        message = f"{shown(t.text)} after {shown(before.text)}: a duration is one word, behind all conditions"
        return t.say("bad-duration", message, hint)
    if t.type == "NAME" and t.text == "for" and t.arrow is not None and before is not None and ends_something(before):
        if t.open or t.starts_line(t.place):
            return None
        return t.say("bad-duration", "`for` without a number: it says how long an addition lives", hint)
    return None


def _comma_meant(t: Trouble) -> Mistake | None:
    before = t.before
    if before is None or not ends_something(before) or t.type not in FUNCTORS | {"VARIABLE", "NOT", "BANG"}:
        return None
    if t.type == "INTEGER" and t.text.startswith("-"):
        hint = f"{foreign.RESULTS}; put a name with a hyphen in quotes: 'a-b'"
        return t.say("arithmetic", f"{shown(t.text)} after {shown(before.text)}: there is no arithmetic", hint)
    if t.type == "NAME" and t.text == "is":
        hint = f"{foreign.RESULTS}; `X = Y` says that two values are equal"
        return t.say("arithmetic", "`is`: there is no arithmetic", hint)
    hint = (
        f"put a comma between {'arguments' if t.open else 'conditions'}; text with spaces stands in quotes: 'New York'"
    )
    if not t.open and t.arrow is None:
        hint = "a fact ends with a full stop; text with spaces stands in quotes"
    where = Span(before.source, before.end, t.span.end if before.end == t.span.start else before.end + 1)
    return t.say("missing-comma", f"a comma is missing between {shown(before.text)} and {shown(t.text)}", hint, where)


def _arrow(t: Trouble) -> Mistake | None:
    if t.type == "ADD" and t.place == t.start:
        hint = "a rule has a head, `h <- event.`; a declaration begins with `:-`"
        return t.say("wrong-arrow", "`<-` without a head", hint)
    if t.type in ARROWS and t.arrow is None and any(one.type == "_NAMES" for one in t.tokens[t.start : t.place]):
        return t.say("parameter-names", "the matrices are named before the arrow", "put `:: name` after the body")
    if t.type == "ADD" and t.arrow is not None and t.after is not None and t.after.type == "INTEGER":
        message = f"`<-` is an arrow, also before {shown(t.after.text)}"
        return t.say("comparison-sign", message, f"with a space it compares: `< -{t.after.text}`")
    if t.type in ARROWS and t.arrow is not None:
        return t.say("syntax", f"a second arrow, {shown(t.text)}, in one rule", "is a full stop missing before?")
    return None


def _names(t: Trouble) -> Mistake | None:
    if t.type == "_COLON" and t.arrow is not None and ends_something(t.before):
        return t.say("parameter-names", "the pool exponent is named after the body", "write `head : b :- body.`")
    if t.before is not None and t.before.type in ("_COLON", "_NAMES") and t.type not in ("ODD", "_OPEN"):
        message = f"a name is missing after {shown(t.before.text)}"
        return t.say("parameter-names", message, "write `:: post(C)`, say")
    return None


def _incomplete(t: Trouble) -> Mistake | None:
    before = t.before
    what = "an argument" if t.open else "a condition"
    if t.type in ("_COMMA", "CLOSE") and before is not None and before.type in ("_COMMA", "_OPEN"):
        return t.say("syntax", f"{what} is missing before {shown(t.text)}", "remove a comma")
    if not t.at_end:
        return None
    if t.arrow is None and ends_something(before) and not t.open and not t.is_declaration:
        comma = next((one for one in t.tokens[t.start : t.place] if one.type == "_COMMA"), None)
        if comma is not None:
            return t.say("syntax", "a comma after a fact", "facts end with a full stop each", comma.span)
    if before is None:
        return t.say("syntax", "a full stop with nothing before it", "remove it")
    if before.type == "_COMMA":
        return t.say("syntax", f"{what} is missing after the comma", "remove the comma", before.span)
    if before.type in ARROWS:
        return t.say("syntax", f"nothing follows {shown(before.text)}", "give at least one condition", before.span)
    if t.tokens[t.start].type == "BANG" and t.arrow is None:
        return t.say("syntax", "a removal needs the event that removes", "write `!forum(T) <- destroy(T).`")
    return None


def _comparison_outside(t: Trouble) -> Mistake | None:
    if t.type not in SIGNS or t.open:
        return None
    if t.arrow is None:
        return t.say("syntax", "a comparison can only be a condition of a rule", "write it after `:-` or `<-`")
    message = f"{shown(t.text)} compares constants and variables, not facts"
    return t.say("syntax", message, "write `X = Y`, where conditions bind both")


def _unexpected(t: Trouble) -> Mistake:
    *others, last = sorted({WORDS[one] for one in t.expected if one in WORDS}) or [""]
    wanted = f"expected {', '.join(others)} or {last}" if others else f"expected {last}" if last else None
    return t.say("syntax", f"unexpected {'the end of the text' if t.bad is None else shown(t.text)}", wanted)


def _start_of_atom(t: Trouble, place: int) -> int | None:
    """Return the position of the functor of the atom that ends just before `place`, or None."""
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
    _duration,
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
