"""Recognises signs and words of other languages that this language does not have, and text that should be in quotes."""

from __future__ import annotations

from foretell.lang.declarations import DECLARATIONS
from foretell.lang.source import Span
from foretell.lang.tokens import FUNCTORS
from foretell.lang.tokens import SIGNS as COMPARES
from foretell.lang.trouble import FAR, Mistake, Trouble, ends_something, glued, whole_argument
from foretell.wording import shown

TWO_RULES = "write two rules, one for each case"
RESULTS = "write the results as facts, in a table if they are many"
TO_REMOVE = "to remove a fact when an event occurs: `!forum(T) <- destroy(T).`"

WRONG_ARROWS = frozenset(["=>", "->", "-->", "==>", "<=", "<=>", ":=", "←", "→", "⇐", "⇒", "⟵", "⟶"])
NEGATIONS = frozenset(("\\+", "~", "¬", "\\"))
ARITHMETIC = frozenset("+-*/^")
# Signs, code, message after the sign, hint, and the token that was probably meant.
SIGNS: tuple[tuple[str, str, str, str, str | None], ...] = (
    ("== === =:= ≡", "comparison-sign", " is no comparison of the language", "write `=`", "UNEQUAL"),
    ("\\= \\== <> =\\= !== ~= ≠", "comparison-sign", " is no comparison of the language", "write `!=`", "UNEQUAL"),
    ("=< ≤", "comparison-sign", " is no comparison of the language", "write `<=`", "ORDER"),
    ("=> ≥", "comparison-sign", " is no comparison of the language", "write `>=`", "ORDER"),
    (
        " ".join(WRONG_ARROWS),
        "unknown-arrow",
        " is no arrow of the language",
        "a rule has one arrow, `:-` or `<-`",
        None,
    ),
    ("; | || ∨", "disjunction", ": there is no `or`", TWO_RULES, "_COMMA"),  # noqa: RUF001
    ("& && ∧", "missing-comma", " is no sign of the language", "put commas between conditions", "_COMMA"),
    ("# // /*", "comment-sign", " does not begin a comment", "comments begin with `%`", None),
    ("[ ] { }", "odd-character", ": there are no lists or sets", "write one fact for each member", None),
    ("“ ” ‘ ’ ` ´ « »", "odd-character", " is no quote of the language", "quotes are straight: ' or \"", None),  # noqa: RUF001
)


# --- signs ------------------------------------------------------------------------------------------------------------


def quote(t: Trouble) -> Mistake | None:
    if t.type != "ODD_QUOTE":
        return None
    start = Span(t.span.source, t.span.start, t.span.start + 1)
    hint = f"close it with {t.text[0]} before the line ends"
    return t.say("unclosed-quote", "the quote that opens here is not closed on its line", hint, start)


def fraction(t: Trouble) -> Mistake | None:
    if t.type != "ODD_NUMBER":
        return None
    if t.is_declaration:
        return t.say("bad-dimension", f"a dimension is a whole number, not {shown(t.text)}", "write 8, say")
    hint = f"in quotes it is a name: '{t.text}'" if len(t.text) < 20 else "in quotes it is a name"
    message = f"{shown(t.text)} is a fractional number; constants are names and whole numbers"
    return t.say("fractional-number", message, hint, meant="NAME")


def word(t: Trouble) -> Mistake | None:
    if t.type != "ODD_WORD":
        return None
    if t.text.startswith("-"):
        message = f"{shown(t.text)}: only integers have a minus sign, and there is no arithmetic"
        return t.say("bad-word", message, "put a name with a hyphen in quotes: 'a-b'")
    hint = f"put it in quotes: '{t.text}'" if len(t.text) < 40 else "put it in quotes"
    return t.say("bad-word", f"{shown(t.text)} is neither a name nor an integer", hint, meant="NAME")


def odd(t: Trouble) -> Mistake | None:
    if t.type not in ("ODD", "SEMI") and not (t.text == "<=" and t.arrow is None):
        return None
    text, sign = t.text, shown(t.text)
    if text in WRONG_ARROWS and t.arrow is None and not t.open:
        hint = "write `:-` to deduce, or `<-` to add when an event occurs"
        return t.say("unknown-arrow", f"{sign} is no arrow of the language", hint, meant="ADD")
    for signs, code, said, hint, meant in SIGNS:
        if text in signs.split():
            return t.say(code, f"{sign}{said}", hint, meant=meant)
    if text in NEGATIONS:
        return _negation(t)
    if text in ARITHMETIC:
        name = glued(t)
        hint = RESULTS if name is None else f"{RESULTS}; a name with such a sign stands in quotes: '{name}'"
        return t.say("arithmetic", f"{sign}: there is no arithmetic", hint)
    return t.say("odd-character", f"{sign} (U+{ord(text[0]):04X}) means nothing here", "remove it, or put it in quotes")


def _negation(t: Trouble) -> Mistake:
    if t.arrow is None:
        return t.say("negation-sign", f"{shown(t.text)} cannot stand in a head", TO_REMOVE)
    hint = "write `not` before the condition: `not g(X)`"
    return t.say("negation-sign", f"{shown(t.text)} does not negate", hint, meant="NOT")


def sign_of_negation(t: Trouble) -> Mistake | None:
    if t.type == "BANG" and t.place > t.start and t.arrow is not None and not ends_something(t.before):
        return _negation(t)
    if t.type == "NOT" and t.arrow is None and (t.before is None or t.before.type == "BANG"):
        return _negation(t)
    if t.before is not None and t.before.type == "NOT" and (t.type == "COUNT" or t.expected == COMPARES):
        hint = "remove `not` and turn the sign: `<` for `>=`, `!=` for `=`"
        return t.say("negation-sign", "`not` before a comparison", hint, t.before.span)
    if t.type == "NOT" and t.before is not None and t.before.type == "NOT":
        return t.say("negation-sign", "a negation of a negation", "remove both")
    return None


# --- words ------------------------------------------------------------------------------------------------------------


def logic_word(t: Trouble) -> Mistake | None:
    """Recognise `NOT g(X)`, `g(X) and h(X)` or `g(X) OR h(X)` in a body."""
    if t.arrow is None or t.open or t.is_declaration:
        return None
    before, after, word = t.before, t.after, t.text.lower()
    negates = before is not None and before.type == "VARIABLE" and before.text.lower() == "not"
    if negates and t.type in FUNCTORS | {"VARIABLE", "_OPEN"}:
        assert before is not None
        hint = "write `not`, in lower case and without parentheses: `not g(X)`"
        meant = None if t.type == "_OPEN" else "NOT"
        return t.say("negation-sign", f"{shown(before.text)} does not negate", hint, before.span, meant, t.place - 1)
    if t.type not in ("NAME", "VARIABLE") or not ends_something(before):
        return None
    if after is None or after.type not in FUNCTORS | {"VARIABLE", "NOT"}:
        return None
    if word == "and":
        message = f"{shown(t.text)} is no word of the language"
        return t.say("missing-comma", message, "write `,` between conditions", meant="_COMMA")
    if word == "or":
        return t.say("disjunction", f"{shown(t.text)}: there is no `or`", TWO_RULES, meant="_COMMA")
    return None


def spaced_arrow(t: Trouble) -> Mistake | None:
    """Recognise `h : - g.` and `h < - e.`"""
    first, second = (t.before, t.bad) if t.text.startswith("-") else (t.bad, t.after)
    if t.open or first is None or second is None or first.text not in (":", "<") or not second.text.startswith("-"):
        return None
    sign = Span(first.source, first.start, second.start + 1)
    message = f"{shown(f'{first.text} -')} is no arrow of the language"
    return t.say("unknown-arrow", message, f"write `{first.text}-`, without a space", sign)


def bare_text(t: Trouble) -> Mistake | None:
    """Recognise `open(8:30)` and `version(v1.2)`: a colon or a full stop inside a word."""
    if t.type not in ("_COLON", "ODD_DOT") or not t.open:
        return None
    word = glued(t)
    if word is None and t.type == "_COLON" and t.closes_too_few():
        return None  # for example `busy(P : b :- …`
    hint = "put the text in quotes" if word is None else f"put the text in quotes: '{word}'"
    return t.say("bad-word", f"{shown(t.text)} cannot stand in an argument", hint)


def declared(t: Trouble) -> Mistake | None:
    """Recognise `:- event(admit/2).`, `:- event admit.` and `:- table(staff, staff.csv).`"""
    if not t.is_declaration or t.place < t.start + 2 or t.before is None:
        return None
    keyword = t.tokens[t.start + 1]
    word, source = keyword.text, keyword.source
    if keyword.type != "NAME" or word not in DECLARATIONS:
        return None
    last = t.tokens[min(t.end, t.start + FAR) - 1]
    if last.type == "STOP":
        last = t.tokens[min(t.end, t.start + FAR) - 2]
    if t.place == t.start + 2 and t.type in FUNCTORS | {"VARIABLE"}:
        rest = source.text[t.span.start : last.end]
        if "," not in rest and "(" not in rest:
            rest = ", ".join(rest.split())
        hint = f"write {shown(f':- {word}({rest}).')}"
        return t.say("bad-declaration", f"`{word}` takes what it declares in parentheses", hint)
    if t.text == "/" and t.after is not None and t.after.type == "INTEGER" and t.before.type in FUNCTORS:
        rest = source.text[keyword.start : t.span.start] + source.text[t.after.end : last.end]
        pair = Span(source, t.before.start, t.after.end)
        message = (
            f"`{word}` takes a functor without its number of arguments, not {shown(t.before.text + '/' + t.after.text)}"
        )
        return t.say("bad-declaration", message, f"write {shown(f':- {rest}.')}", pair)
    if word in ("include", "table") and len(t.open) == 1 and (t.type.startswith("ODD") or t.type == "_COLON"):
        path = whole_argument(t)
        text = source.text[path.start : path.end]
        hint = f"put the file name in quotes: {shown(chr(34) + text + chr(34))}"
        return t.say("bad-declaration", f"`{word}` takes a path in quotes, not {shown(text)}", hint, path)
    return None
