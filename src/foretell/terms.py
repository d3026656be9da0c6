"""An event's name in a file, or a constant of a program → its canonical spelling.

A name without parentheses is free text (`Nice Question`): only the spaces around it are removed. A name with
parentheses may be a flat, ground term, `functor(arg,…)`, in which spaces are ignored: `join(eve, sales)` is
`join(eve,sales)`. Functors and arguments start with a lower-case letter, are integers, or are in quotes.
Other names with parentheses (`Buy (online)`) are free text, too; they are an error if terms are required.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from foretell.wording import shown

LONGEST_NAME = 1 << 15  # characters
LONGEST_INTEGER = 1_000  # digits; a longer integer is treated as a name, and not compared as a number

_PLAIN = re.compile(r"[^\W\d_]\w*\Z")
_INTEGER = re.compile(r"-?[0-9]+\Z")
_QUOTED = re.compile(r"""(?:'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")\Z""", re.S)
_TOKEN = re.compile(
    r"""\s*(?:(?P<word>-?\w+)|(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")|(?P<mark>[(),]))\s*""", re.S
)


class NameProblem(ValueError):
    """A mistake in one event name; the message does not say where the name is."""


class NotATerm(NameProblem):
    """The name has parentheses and does not parse as a term."""


def normalise(name: str) -> str:
    """Return the canonical spelling of an event name; raise `NameProblem` if it is empty, too long, or no valid name."""
    text = name.strip()
    if not text:
        raise NameProblem("an event name is empty")
    if len(text) > LONGEST_NAME:
        raise NameProblem(f"event name {shown(text)} has {len(text):,} characters, at most {LONGEST_NAME:,} are read")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise NameProblem(f"event name {shown(name)} is not valid Unicode text") from None
    if "(" not in text and ")" not in text:
        return text
    return _term(text)


def event_name(name: str, terms: bool = False) -> str:
    """Return the canonical spelling of an event name. Names with parentheses that are no terms raise if `terms`, else they are text."""
    try:
        return normalise(name)
    except NotATerm:
        if terms:
            raise
        return name.strip()


def build(functor: str, arguments: list[str]) -> str:
    """Return `functor(arg,…)` from the cells of a table; cells that are not plain constants are put in quotes."""
    if not arguments:
        return normalise(functor)
    return f"{constant(functor.strip())}({','.join(constant(value.strip()) for value in arguments)})"


def constant(text: str) -> str:
    """Return a text as a constant of a term, in quotes if necessary: `eve`, `12`, `'New York'`."""
    if (_PLAIN.match(text) and not text[0].isupper()) or _INTEGER.match(text):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def fact(functor: str, arguments: Iterable[str] = ()) -> str:
    """Return `functor(arg,…)` from parts in canonical spelling; a number of arguments in the functor (`age/2`) is dropped."""
    found = ",".join(arguments)
    return f"{bare(functor)}({found})" if found else bare(functor)


def bare(functor: str) -> str:
    """Return a functor without its number of arguments: `age` for `age/2`. Functors in quotes are not changed."""
    return functor if functor[:1] == "'" else functor.partition("/")[0]


def is_integer(text: str) -> bool:
    """Whether a constant is an integer, and so is compared as a number."""
    return len(text) <= LONGEST_INTEGER and _INTEGER.match(text) is not None


def plain(spelled: str) -> str:
    """Return the text of a constant without quotes: `New York` for `'New York'`."""
    return re.sub(r"\\(.)", r"\1", spelled[1:-1], flags=re.S) if spelled[:1] == "'" else spelled


def split(name: str) -> tuple[str, tuple[str, ...]]:
    """Return functor and arguments of a normalised name, quotes included: `pass(a,'New York')` gives `pass`, (`a`, `'New York'`).

    If the name is no term, the whole name is the functor, in quotes if necessary, and there are no arguments.
    """
    if not name.endswith(")") or "(" not in name:
        return (unquote(name) if _QUOTED.match(name) else constant(name)), ()
    try:
        _term(name)
    except NotATerm:
        return constant(name), ()
    tokens = _tokens(name)
    return tokens[0][1], tuple(value for kind, value in tokens[1:] if kind == "atom")


def _term(text: str) -> str:
    tokens = _tokens(text)
    atoms: list[str] = []
    for position, (kind, value) in enumerate(tokens):
        wanted = "atom" if position % 2 == 0 else "mark"
        if position >= 3 and value == "(" and kind == "mark":
            raise NotATerm(f"event {shown(text)} is a nested term; only flat terms, functor(arg,…), are events")
        if kind != wanted:
            raise NotATerm(f"event {shown(text)} is not a term: {_expected(position)}")
        if kind == "atom":
            atoms.append(value)
        elif position < len(tokens) - 1 and value != ("(" if position == 1 else ","):
            raise NotATerm(f"event {shown(text)} is not a term: {_expected(position)}")
    if len(tokens) == 1:
        return atoms[0]
    if tokens[-1] != ("mark", ")") or len(tokens) < 4:
        raise NotATerm(f"event {shown(text)} is not a term: its closing parenthesis is missing or misplaced")
    return f"{atoms[0]}({','.join(atoms[1:])})"


def _expected(position: int) -> str:
    if position == 0:
        return "it must start with a functor; put text with parentheses in quotes"
    if position == 1:
        return "after the functor comes `(`; put text with spaces in quotes"
    return "arguments are constants with commas between; put other text in quotes, as in city('New York')"


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise NotATerm(
                f"event {shown(text)} is not a term: unexpected {text[place:].strip()[0]!r}; "
                f"put such text in quotes, as in city('New York')"
            )
        word, quoted, mark = match.group("word", "quoted", "mark")
        if word is not None:
            if constant(word) != word:
                raise NotATerm(
                    f"event {shown(text)}: {shown(word)} is not a constant; constants start with a lower-case letter, "
                    f"or are integers, or stand in quotes"
                )
            tokens.append(("atom", word))
        elif quoted is not None:
            tokens.append(("atom", unquote(quoted)))
        else:
            tokens.append(("mark", mark))
        place = match.end()
    return tokens


def unquote(quoted: str) -> str:
    """Return the canonical spelling of a quoted constant, with quotes only if necessary."""
    quote = quoted[0]
    inner = re.sub(r"\\(.)", r"\1", quoted[1:-1].replace(quote * 2, "\\" + quote), flags=re.S)
    # quotes around an integer stay, because '3' is a text and 3 is a number
    if _INTEGER.match(inner):
        return f"'{inner}'"
    return constant(inner)
