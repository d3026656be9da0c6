"""Signs and words that other languages have and this one has not, and text that should stand in quotes."""

from __future__ import annotations

from foretell.lang.source import Span
from foretell.lang.statement import DECLARATIONS
from foretell.lang.tokens import FUNCTORS
from foretell.lang.trouble import FAR, Mistake, Trouble, ends_something, glued, say, whole_argument
from foretell.wording import shown

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

TWO_RULES = "write two rules, one for each case"
RESULTS = "write the results as facts, in a table if they are many"


# --- signs ------------------------------------------------------------------------------------------------------------


def quote(t: Trouble) -> Mistake | None:
    if t.type != "ODD_QUOTE":
        return None
    quote = t.text[0]
    start = Span(t.span.source, t.span.start, t.span.start + 1)
    return say(
        "unclosed-quote",
        start,
        "the quote that opens here is not closed on its line",
        f"close it with {quote} before the line ends",
    )


def fraction(t: Trouble) -> Mistake | None:
    if t.type != "ODD_NUMBER":
        return None
    if t.is_declaration:
        return say("bad-dimension", t.span, f"a dimension is a whole number, not {shown(t.text)}", "write 8, say")
    hint = f"in quotes it is a name: '{t.text}'" if len(t.text) < 20 else "in quotes it is a name"
    return say(
        "fractional-number",
        t.span,
        f"{shown(t.text)} is a fractional number; constants are names and whole numbers",
        hint,
        (t.place, "NAME"),
    )


def word(t: Trouble) -> Mistake | None:
    if t.type != "ODD_WORD":
        return None
    if t.text.startswith("-"):
        message = f"{shown(t.text)}: only integers have a minus sign, and there is no arithmetic"
        return say("bad-word", t.span, message, "put a name with a hyphen in quotes: 'a-b'")
    hint = f"put it in quotes: '{t.text}'" if len(t.text) < 40 else "put it in quotes"
    message = f"{shown(t.text)} is neither a name nor an integer"
    return say("bad-word", t.span, message, hint, (t.place, "NAME"))


def odd(t: Trouble) -> Mistake | None:
    if t.type != "ODD":
        return None
    text, sign = t.text, shown(t.text)
    if text in WRONG_ARROWS and t.arrow is None and not t.open:
        hint = "write `:-` to deduce, or `<-` to add when an event occurs"
        return say("unknown-arrow", t.span, f"{sign} is no arrow of the language", hint, (t.place, "ADD"))
    if text in EQUALS | UNEQUALS | ORDERS:
        meant = (t.place, "UNEQUAL")
        if text in ORDERS:
            hint = "only `=` and `!=` compare"
            return say("comparison-sign", t.span, f"{sign}: constants have no order", hint, meant)
        hint = f"write `{'=' if text in EQUALS else '!='}`"
        return say("comparison-sign", t.span, f"{sign} is no comparison of the language", hint, meant)
    if text in WRONG_ARROWS:
        return say("unknown-arrow", t.span, f"{sign} is no arrow of the language", "a rule has one arrow, `:-` or `<-`")
    if text in ORS:
        return say("disjunction", t.span, f"{sign}: there is no `or`", TWO_RULES, (t.place, "_COMMA"))
    if text in ANDS:
        hint = "put commas between conditions"
        return say("missing-comma", t.span, f"{sign} is no sign of the language", hint, (t.place, "_COMMA"))
    if text in NEGATIONS:
        return _negation(t)
    if text in COMMENTS:
        return say("comment-sign", t.span, f"{sign} does not begin a comment", "comments begin with `%`")
    if text in ARITHMETIC:
        return _arithmetic(t)
    if text in BRACKETS:
        return say("odd-character", t.span, f"{sign}: there are no lists or sets", "write one fact for each member")
    if text in CURLY:
        return say("odd-character", t.span, f"{sign} is no quote of the language", "quotes are straight: ' or \"")
    return say(
        "odd-character", t.span, f"{sign} (U+{ord(text[0]):04X}) means nothing here", "remove it, or put it in quotes"
    )


def _arithmetic(t: Trouble) -> Mistake:
    hint = RESULTS
    word = glued(t)
    if word is not None:
        hint += f"; a name with such a sign stands in quotes: '{word}'"
    return say("arithmetic", t.span, f"{shown(t.text)}: there is no arithmetic", hint)


def _negation(t: Trouble) -> Mistake:
    if t.arrow is None:
        message = f"{shown(t.text)} cannot stand in a head"
        return say(
            "negation-sign", t.span, message, "to remove a fact when an event occurs: `!forum(T) <- destroy(T).`"
        )
    hint = "write `not` before the condition: `not g(X)`"
    return say("negation-sign", t.span, f"{shown(t.text)} does not negate", hint, (t.place, "NOT"))


def sign_of_negation(t: Trouble) -> Mistake | None:
    if t.type == "BANG" and t.place > t.start and t.arrow is not None and not ends_something(t.before):
        return _negation(t)
    if t.type == "NOT" and t.arrow is None and (t.before is None or t.before.type == "BANG"):
        return _negation(t)
    if t.type == "NOT" and t.before is not None and t.before.type == "NOT":
        return say("negation-sign", t.span, "a negation of a negation", "remove both")
    return None


# --- words ------------------------------------------------------------------------------------------------------------


def logic_word(t: Trouble) -> Mistake | None:
    """`NOT g(X)`, `g(X) and h(X)`, `g(X) OR h(X)` in a body."""
    if t.arrow is None or t.open or t.is_declaration:
        return None
    before, after, word = t.before, t.after, t.text.lower()
    negates = before is not None and before.type == "VARIABLE" and before.text.lower() == "not"
    if negates and t.type in FUNCTORS | {"VARIABLE", "_OPEN"}:
        assert before is not None
        hint = "write `not`, in lower case and without parentheses: `not g(X)`"
        repair = None if t.type == "_OPEN" else (t.place - 1, "NOT")
        return say("negation-sign", before.span, f"{shown(before.text)} does not negate", hint, repair)
    if t.type not in ("NAME", "VARIABLE") or not ends_something(before):
        return None
    if after is None or after.type not in FUNCTORS | {"VARIABLE", "NOT"}:
        return None
    if word == "and":
        message = f"{shown(t.text)} is no word of the language"
        return say("missing-comma", t.span, message, "write `,` between conditions", (t.place, "_COMMA"))
    if word == "or":
        return say("disjunction", t.span, f"{shown(t.text)}: there is no `or`", TWO_RULES, (t.place, "_COMMA"))
    return None


def spaced_arrow(t: Trouble) -> Mistake | None:
    """`h : - g.` and `h < - e.`"""
    first, second = (t.before, t.bad) if t.text.startswith("-") else (t.bad, t.after)
    if t.open or first is None or second is None or first.text not in (":", "<") or not second.text.startswith("-"):
        return None
    sign = Span(first.source, first.start, second.start + 1)
    message = f"{shown(f'{first.text} -')} is no arrow of the language"
    return say("unknown-arrow", sign, message, f"write `{first.text}-`, without a space")


def bare_text(t: Trouble) -> Mistake | None:
    """`open(8:30)` and `version(v1.2)`; a colon or a full stop stands inside a word."""
    if t.type not in ("_COLON", "ODD_DOT") or not t.open:
        return None
    word = glued(t)
    if word is None and t.type == "_COLON" and t.closes_too_few():
        return None  # `busy(P : b :- …`
    hint = "put the text in quotes" if word is None else f"put the text in quotes: '{word}'"
    return say("bad-word", t.span, f"{shown(t.text)} cannot stand in an argument", hint)


def declared(t: Trouble) -> Mistake | None:
    """`:- event(admit/2).`, `:- event admit.`, `:- table(staff, staff.csv).`"""
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
        return say("bad-declaration", t.span, f"`{word}` takes what it declares in parentheses", hint)
    if t.text == "/" and t.after is not None and t.after.type == "INTEGER" and t.before.type in FUNCTORS:
        rest = source.text[keyword.start : t.span.start] + source.text[t.after.end : last.end]
        message = (
            f"`{word}` takes a functor without its number of arguments, not {shown(t.before.text + '/' + t.after.text)}"
        )
        hint = f"write {shown(f':- {rest}.')}"
        return say("bad-declaration", Span(source, t.before.start, t.after.end), message, hint)
    if word in ("include", "table") and len(t.open) == 1 and (t.type.startswith("ODD") or t.type == "_COLON"):
        path = whole_argument(t)
        text = source.text[path.start : path.end]
        message = f"`{word}` takes a path in quotes, not {shown(text)}"
        return say("bad-declaration", path, message, f"put the file name in quotes: {shown(chr(34) + text + chr(34))}")
    return None
