"""Text for messages: names shortened and made printable, counts, lists, and the hint at what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 40  # characters of a name that a message shows
LONGEST_COMPARED = 80  # nobody mistypes a longer name, and comparing two takes the product of their lengths


def printable(text: str) -> str:
    """One character for one: what a terminal would not show, or would obey, becomes a replacement sign."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def shown(text: str) -> str:
    """A piece of the program inside a message: `likes(U,P)`."""
    short = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return f"`{printable(short)}`"


def counted(number: int, noun: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def as_functor(word: str) -> str:
    """A word in upper case, as a functor or constant would be written: `Anna` is `anna`, `P001` is `p001`."""
    return word.lower() if word.isupper() else f"{word[0].lower()}{word[1:]}"


def listed(names: Iterable[str], last: str = "and", most: int = 6) -> str:
    """`a`, `b` and `c`."""
    found = [shown(name) for name in names]
    if len(found) > most:
        found = [*found[:most], f"{len(found) - most} more"]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}"


def did_you_mean(name: str, known: Iterable[str], before: str = "", otherwise: str = "") -> str:
    """A hint at the known name that was probably meant, "did you mean `likes`?" after `before`; `otherwise` if none is near."""
    if len(name) > LONGEST_COMPARED:
        return otherwise
    candidates = [one for one in known if len(one) <= LONGEST_COMPARED and one != name]
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.7)
    return f"{before}did you mean `{printable(near[0])}`?" if near else otherwise
