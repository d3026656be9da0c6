"""Words of the user's inside our messages: shortened, made printable, and matched with what may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 40  # characters of a name that a message shows


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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    if len(name) > LONGEST:
        return None  # nobody mistypes a name that long, and comparing takes the square of its length
    candidates = [one for one in known if len(one) <= LONGEST and one != name]
    found = difflib.get_close_matches(name, candidates, n=1, cutoff=0.7)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    found = nearest(name, known)
    return f"did you mean {shown(found)}?" if found else None
