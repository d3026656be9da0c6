"""Where the parser gave up → the mistake, named for what it is, and the place to read on from.

The rules below are tried in order; each looks at the token that could not follow, at those around it and at what the
parser would have taken. What no rule knows is `syntax`, with what was expected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from foretell.lang.diagnostics import Diagnostic
from foretell.lang.source import Span
from foretell.lang.tokens import FUNCTORS, Token
from foretell.lang.wording import shown

ARROWS = frozenset(("RULE", "ADD"))
FAR = 200  # tokens that are looked at ahead of a mistake: enough for a statement, and bounded in a text without full stops

WRONG_ARROWS = frozenset(("=>", "->", "-->", "==>", "<=", "<=>", ":=", "←", "→", "⇐", "⇒", "⟵", "⟶"))
EQUALS = frozenset(("==", "===", "=:=", "≡"))
UNEQUALS = frozenset(("\\=", "\\==", "<>", "=\\=", "!==", "~=", "≠"))
ORDERS = frozenset(("<", ">", ">=", "=<", "<=", "=>", "≤", "≥"))
ORS = frozenset((";", "|", "||", "∨"))  # noqa: RUF001
ANDS = frozenset(("&", "&&", "∧"))
NEGATIONS = frozenset(("\\+", "~", "¬", "\\"))
COMMENTS = frozenset(("#", "//", "/*"))
ARITHMETIC = frozenset(("+", "-", "*", "/", "^"))
BRACKETS = frozenset(("[", "]", "{", "}"))
CURLY = "“”‘’`´«»"  # noqa: RUF001

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


@dataclass(frozen=True)
class Trouble:
    """The parser took `tokens[start:place]` of a statement and could not take `tokens[place]`; `end` is past its last token."""

    tokens: list[Token]
    start: int
    place: int
    end: int
    expected: frozenset[str]

    @property
    def bad(self) -> Token | None:
        """None: the text ended."""
        return self.tokens[self.place] if self.place < self.end else None

    @property
    def type(self) -> str:
        return self.bad.type if self.bad is not None else "$END"

    @property
    def text(self) -> str:
        return self.bad.text if self.bad is not None else ""

    @property
    def before(self) -> Token | None:
        return self.tokens[self.place - 1] if self.place > self.start else None

    @property
    def after(self) -> Token | None:
        return self.tokens[self.place + 1] if self.place + 1 < self.end else None

    @property
    def at_end(self) -> bool:
        return self.bad is None or self.bad.type == "STOP"

    @property
    def span(self) -> Span:
        if self.bad is not None:
            return self.bad.span
        last = self.tokens[self.end - 1]
        return Span(last.source, last.end, last.end)

    @cached_property
    def arrow(self) -> str | None:
        """The arrow that was already read."""
        taken = self.tokens[self.start : self.place]
        return next((one.type for one in taken if one.type in ARROWS), None)

    @cached_property
    def open(self) -> list[int]:
        """Places of the parentheses that are open."""
        found: list[int] = []
        for place in range(self.start, self.place):
            if self.tokens[place].type == "_OPEN":
                found.append(place)
            elif self.tokens[place].type == "CLOSE" and found:
                found.pop()
        return found

    @property
    def is_declaration(self) -> bool:
        return self.place > self.start and self.tokens[self.start].type == "RULE"

    def starts_line(self, place: int) -> bool:
        """Nothing but space stands before it on its line."""
        token = self.tokens[place]
        if place == 0:
            return True
        return token.source.text.find("\n", self.tokens[place - 1].end, token.start) >= 0

    def closes_too_few(self) -> bool:
        """To the end of the statement, more parentheses are opened than closed."""
        found = [one.type for one in self.tokens[self.start : min(self.end, self.place + FAR)]]
        return found.count("_OPEN") > found.count("CLOSE")

    def arrow_ahead(self) -> bool:
        ahead = self.tokens[self.place : min(self.end, self.place + FAR)]
        return any(one.type in ARROWS for one in ahead)


@dataclass(frozen=True)
class Mistake:
    diagnostic: Diagnostic
    resume: int | None = None  # the token at which another statement begins


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


def _say(code: str, span: Span, message: str, hint: str | None = None) -> Mistake:
    return Mistake(Diagnostic(code, span, message, hint))


# --- signs that the language does not have ---------------------------------------------------------------------------


def _quote(t: Trouble) -> Mistake | None:
    if t.type != "ODD_QUOTE":
        return None
    quote = t.text[0]
    start = Span(t.span.source, t.span.start, t.span.start + 1)
    return _say(
        "unclosed-quote",
        start,
        "the quote that opens here is not closed on its line",
        f"close it with {quote} before the line ends",
    )


def _fraction(t: Trouble) -> Mistake | None:
    if t.type != "ODD_NUMBER":
        return None
    if t.is_declaration:
        return _say("bad-dimension", t.span, f"a dimension is a whole number, not {shown(t.text)}", "write 8, say")
    hint = f"in quotes it is a name: '{t.text}'" if len(t.text) < 20 else "in quotes it is a name"
    return _say(
        "fractional-number",
        t.span,
        f"{shown(t.text)} is a fractional number; constants are names and whole numbers",
        hint,
    )


def _word(t: Trouble) -> Mistake | None:
    if t.type != "ODD_WORD":
        return None
    if t.text.startswith("-"):
        message = f"{shown(t.text)}: only integers have a minus sign, and there is no arithmetic"
        return _say("bad-word", t.span, message, "put a name with a hyphen in quotes: 'a-b'")
    hint = f"put it in quotes: '{t.text}'" if len(t.text) < 40 else "put it in quotes"
    return _say("bad-word", t.span, f"{shown(t.text)} is neither a name nor an integer", hint)


def _odd(t: Trouble) -> Mistake | None:
    if t.type != "ODD":
        return None
    text, sign = t.text, shown(t.text)
    if text in WRONG_ARROWS and t.arrow is None and not t.open:
        hint = "write `:-` to deduce, or `<-` to add when an event occurs"
        return _say("unknown-arrow", t.span, f"{sign} is no arrow of the language", hint)
    if text in EQUALS | UNEQUALS | ORDERS:
        if text in ORDERS:
            return _say("comparison-sign", t.span, f"{sign}: constants have no order", "only `=` and `!=` compare")
        meant = "=" if text in EQUALS else "!="
        return _say("comparison-sign", t.span, f"{sign} is no comparison of the language", f"write `{meant}`")
    if text in WRONG_ARROWS:
        return _say(
            "unknown-arrow", t.span, f"{sign} is no arrow of the language", "a rule has one arrow, `:-` or `<-`"
        )
    if text in ORS:
        return _say("disjunction", t.span, f"{sign}: there is no `or`", "write two rules, one for each case")
    if text in ANDS:
        return _say("missing-comma", t.span, f"{sign} is no sign of the language", "put commas between conditions")
    if text in NEGATIONS:
        return _negation(t)
    if text in COMMENTS:
        return _say("comment-sign", t.span, f"{sign} does not begin a comment", "comments begin with `%`")
    if text in ARITHMETIC:
        return _say(
            "arithmetic", t.span, f"{sign}: there is no arithmetic", "a name with such a sign stands in quotes: 'a-b'"
        )
    if text in BRACKETS:
        return _say("odd-character", t.span, f"{sign}: there are no lists or sets", "write one fact for each member")
    if text in CURLY:
        return _say("odd-character", t.span, f"{sign} is no quote of the language", "quotes are straight: ' or \"")
    return _say(
        "odd-character", t.span, f"{sign} (U+{ord(text[0]):04X}) means nothing here", "remove it, or put it in quotes"
    )


def _negation(t: Trouble) -> Mistake:
    if t.arrow is None:
        message = f"{shown(t.text)} cannot stand in a head"
        return _say(
            "negation-sign", t.span, message, "to remove a fact when an event occurs: `!forum(T) <- destroy(T).`"
        )
    return _say(
        "negation-sign", t.span, f"{shown(t.text)} does not negate", "write `not` before the condition: `not g(X)`"
    )


def _sign_of_negation(t: Trouble) -> Mistake | None:
    if t.type == "BANG" and t.place > t.start and t.arrow is not None and not _ends_something(t.before):
        return _negation(t)
    if t.type == "NOT" and t.arrow is None and (t.before is None or t.before.type == "BANG"):
        return _negation(t)
    if t.type == "NOT" and t.before is not None and t.before.type == "NOT":
        return _say("negation-sign", t.span, "a negation of a negation", "remove both")
    return None


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
    hint = (
        f"write `{word[0].lower()}{word[1:]}`, or put it in quotes"
        if len(word) < 40
        else "begin it with a lower-case letter"
    )
    if word[0] == "_":
        hint = "begin it with a lower-case letter, or put it in quotes"
    message = f"{shown(word)} is a variable: it begins with an upper-case letter or `_`, and here a functor is expected"
    return _say("upper-case-functor", token.span, message, hint)


def _opening(t: Trouble) -> Mistake | None:
    if t.type != "_OPEN":
        return None
    before = t.before
    if t.open and before is not None and before.type in FUNCTORS:
        outer = t.tokens[t.open[-1] - 1]
        if outer.type == "NAME" and outer.text == "not":
            return _say("negation-sign", outer.span, "`not` takes no parentheses", "write `not g(X)`")
        if t.closes_too_few():
            opening = t.tokens[t.open[-1]].span
            return _say(
                "unclosed-parenthesis", opening, "the parenthesis that opens here is not closed", "close it with `)`"
            )
        if outer.text in ("mparams", "betaparams", "allparams") or not t.is_declaration or len(t.open) > 1:
            return _say(
                "nested-term",
                before.span,
                f"{shown(before.text)} is a term inside a term: arguments are constants and variables",
                "give its parts as arguments of their own",
            )
    if before is None or not _ends_something(before):
        return _say("syntax", t.span, "a parenthesis without a functor: conditions are not grouped", "remove it")
    return None


def _closing(t: Trouble) -> Mistake | None:
    if t.type != "CLOSE":
        return None
    before = t.before
    if before is not None and before.type == "_OPEN":
        functor = t.tokens[t.place - 2] if t.place - 2 >= t.start else before
        return _say(
            "empty-arguments",
            before.span.to(t.span),
            f"{shown(functor.text)} has parentheses and no arguments",
            f"write {shown(functor.text)} alone",
        )
    if not t.open:
        return _say("stray-parenthesis", t.span, "no parenthesis is open here", "remove it, or open one before")
    return None


def _unclosed(t: Trouble) -> Mistake | None:
    if not t.open or not (t.before is not None and (_ends_something(t.before) or t.before.type in ("_OPEN", "_COMMA"))):
        return None
    begins_anew = not t.at_end and t.starts_line(t.place) and t.span.source.line_column(t.span.start)[1] == 1
    if t.at_end or t.type in ARROWS | {"_NAMES", "_COLON", "EQUAL", "UNEQUAL"} or begins_anew:
        opening = t.tokens[t.open[-1]].span
        found = _say(
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
    if starts and t.before is not None and _ends_something(t.before):
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
    if before is None or not _ends_something(before) or t.type not in FUNCTORS | {"VARIABLE", "NOT", "BANG"}:
        return None
    if t.type == "INTEGER" and t.text.startswith("-"):
        return _say(
            "arithmetic",
            t.span,
            f"{shown(t.text)} after {shown(before.text)}: there is no arithmetic",
            "put a name with a hyphen in quotes: 'a-b'",
        )
    if t.type == "NAME" and t.text == "is":
        return _say(
            "arithmetic", t.span, "`is`: there is no arithmetic", "write `X = Y` where two values are to be equal"
        )
    what = "arguments" if t.open else "conditions"
    if not t.open and t.arrow is None:
        hint = "a fact ends with a full stop; text with spaces stands in quotes"
    else:
        hint = f"put a comma between {what}; text with spaces stands in quotes: 'New York'"
    where = Span(before.source, before.end, t.span.end if before.end == t.span.start else before.end + 1)
    return _say("missing-comma", where, f"a comma is missing between {shown(before.text)} and {shown(t.text)}", hint)


def _arrow(t: Trouble) -> Mistake | None:
    first = t.tokens[t.start]
    if t.type == "RULE" and first.type == "BANG" and t.arrow is None:
        return _say(
            "wrong-arrow", t.span, "`:-` where `<-` was meant: a fact is removed when an event occurs", "write `<-`"
        )
    if t.type == "ADD" and t.place == t.start:
        return _say(
            "wrong-arrow",
            t.span,
            "`<-` without a head",
            "a rule has a head, `h <- event.`; a declaration begins with `:-`",
        )
    if t.type in ARROWS and t.arrow is None and any(one.type == "_NAMES" for one in t.tokens[t.start : t.place]):
        return _say(
            "parameter-names", t.span, "the matrices are named before the arrow", "put `:: name` after the body"
        )
    if t.type in ARROWS and t.arrow is not None:
        return _say("syntax", t.span, f"a second arrow, {shown(t.text)}, in one rule", "is a full stop missing before?")
    return None


def _names(t: Trouble) -> Mistake | None:
    if t.type == "_COLON" and t.arrow is not None and _ends_something(t.before):
        return _say("parameter-names", t.span, "the pool exponent is named after the body", "write `head : b :- body.`")
    if t.before is not None and t.before.type in ("_COLON", "_NAMES") and t.type not in ("ODD", "_OPEN"):
        return _say(
            "parameter-names", t.span, f"a name is missing after {shown(t.before.text)}", "write `:: post(C)`, say"
        )
    return None


def _incomplete(t: Trouble) -> Mistake | None:
    before = t.before
    if t.type in ("_COMMA", "CLOSE") and before is not None and before.type in ("_COMMA", "_OPEN"):
        what = "an argument" if t.open else "a condition"
        return _say("syntax", t.span, f"{what} is missing before {shown(t.text)}", "remove a comma")
    if t.type == "_COMMA" and t.arrow is None and _ends_something(before):
        return _say("syntax", t.span, "a comma after a head", "facts end with a full stop each; a rule has one head")
    if not t.at_end:
        return None
    if before is None:
        return _say("syntax", t.span, "a full stop with nothing before it", "remove it")
    if before.type == "_COMMA":
        what = "an argument" if t.open else "a condition"
        return _say("syntax", before.span, f"{what} is missing after the comma", "remove the comma")
    if before.type in ARROWS:
        return _say("syntax", before.span, f"nothing follows {shown(before.text)}", "give at least one condition")
    if t.tokens[t.start].type == "BANG" and t.arrow is None:
        return _say("syntax", t.span, "a removal needs the event that removes", "write `!forum(T) <- destroy(T).`")
    return None


def _comparison_outside(t: Trouble) -> Mistake | None:
    if t.type not in ("EQUAL", "UNEQUAL") or t.open:
        return None
    if t.arrow is None:
        return _say("syntax", t.span, "a comparison can only be a condition of a rule", "write it after `:-` or `<-`")
    return _say(
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
    return _say("syntax", t.span, f"unexpected {what}", wanted)


def _ends_something(token: Token | None) -> bool:
    """After it a term or an atom may be complete."""
    return token is not None and (token.type in FUNCTORS or token.type in ("CLOSE", "VARIABLE"))


def _start_of_atom(t: Trouble, place: int) -> int | None:
    """The functor of the atom that ends just before `place`."""
    at = place - 1
    if t.tokens[at].type == "CLOSE":
        while at > t.start and t.tokens[at].type != "_OPEN":
            at -= 1
        at -= 1
    return at if at >= t.start and t.tokens[at].type in FUNCTORS else None


RULES: tuple[Callable[[Trouble], Mistake | None], ...] = (
    _quote,
    _fraction,
    _word,
    _odd,
    _sign_of_negation,
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
