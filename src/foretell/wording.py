"""Text for messages: short and printable names, counts, lists, and "did you mean" hints."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from heapq import nsmallest
from itertools import islice

LONGEST = 40  # characters of a name that a message shows
LONGEST_LINE = 2_000  # characters of a line of a message
LONGEST_MESSAGE = 60_000  # characters of a whole message
LONGEST_COMPARED = 80  # characters; longer names get no hint, since the time of a comparison is quadratic in the length
MOST_KNOWN = 20_000  # known names that are examined for a hint
MOST_COMPARED = 200  # known names compared in full, chosen by first letter, last letter and length


def printable(text: str) -> str:
    """Replace each control or unprintable character by one visible sign, such as ␛; the length of the text stays the same."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _sign(one) for one in text)


def _sign(one: str) -> str:
    code = ord(one)
    return chr(0x2400 + code) if 0 < code < 32 else "\u2421" if code == 127 else "\N{REPLACEMENT CHARACTER}"


def escape(text: str) -> str:
    """Return a name without control characters, and with rich's markup escaped."""
    from rich.markup import escape as without_markup

    return without_markup(printable(text))


def readable(message: str) -> str:
    """Return a message without control characters, its lines cut at `LONGEST_LINE` and the whole at `LONGEST_MESSAGE` characters."""
    if message.isprintable() and len(message) <= LONGEST_LINE:
        return message
    lines = message.split("\n")
    short = [
        printable(one if len(one) <= LONGEST_LINE else f"{one[: LONGEST_LINE - 1]}…") for one in lines[:LONGEST_MESSAGE]
    ]
    size = 0
    for place, line in enumerate(short):
        size += len(line) + 1
        if size > LONGEST_MESSAGE:
            return "\n".join([*short[:place], f"… and {len(lines) - place:,} more lines"])
    return "\n".join(short)


def shown(text: str) -> str:
    """Return a name or code in backticks, printable and cut at `LONGEST` characters: `likes(U,P)`."""
    short = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return f"`{printable(short)}`"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural: `1 row`, `1,200 rows`."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def as_functor(word: str) -> str:
    """Return a capitalised word in the spelling of a functor or constant: `Anna` is `anna`, `P001` is `p001`."""
    return word.lower() if word.isupper() else f"{word[0].lower()}{word[1:]}"


def listed(names: Iterable[str], last: str = "and", most: int = 6) -> str:
    """Join names: `a`, `b` and `c`; names beyond `most` are only counted."""
    found = [shown(name) for name in names]
    if len(found) > most:
        found = [*found[:most], f"{len(found) - most} more"]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}"


def did_you_mean(name: str, known: Iterable[str], before: str = "", otherwise: str = "") -> str:
    """Return `before` and "did you mean `likes`?" for the nearest known name; return `otherwise` if no known name is near."""
    if not name or len(name) > LONGEST_COMPARED:
        return otherwise
    candidates = [one for one in islice(known, MOST_KNOWN) if 0 < len(one) <= LONGEST_COMPARED and one != name]
    if len(candidates) > MOST_COMPARED:
        first, last, size = name[0], name[-1], len(name)
        unlike = lambda one: (one[0] != first) + (one[-1] != last) + abs(len(one) - size)  # noqa: E731
        candidates = nsmallest(MOST_COMPARED, candidates, key=unlike)
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.7)
    return f"{before}did you mean `{printable(near[0])}`?" if near else otherwise
