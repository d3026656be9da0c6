"""Text for messages: names shortened and made printable, counts, lists, and the hint at what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from heapq import nsmallest
from itertools import islice

LONGEST = 40  # characters of a name that a message shows
LONGEST_LINE = 2_000  # characters of a line of a message
LONGEST_MESSAGE = 60_000  # characters of a whole message
LONGEST_COMPARED = 80  # nobody mistypes a longer name, and comparing two takes the product of their lengths
MOST_KNOWN = 20_000  # names that are looked at for a hint
MOST_COMPARED = 200  # of these, the likeliest by a quick look, letter by letter


def printable(text: str) -> str:
    """One character for one: what a terminal would not show, or would obey, becomes a sign for it, such as ␛."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _sign(one) for one in text)


def _sign(one: str) -> str:
    code = ord(one)
    return chr(0x2400 + code) if 0 < code < 32 else "\u2421" if code == 127 else "\N{REPLACEMENT CHARACTER}"


def escape(text: str) -> str:
    """Escape a name for a table or line of rich: it contains no markup and no control characters."""
    from rich.markup import escape as without_markup

    return without_markup(printable(text))


def readable(message: str) -> str:
    """A message for people: nothing that a terminal obeys, no line and no whole longer than anybody reads."""
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
    if not name or len(name) > LONGEST_COMPARED:
        return otherwise
    candidates = [one for one in islice(known, MOST_KNOWN) if 0 < len(one) <= LONGEST_COMPARED and one != name]
    if len(candidates) > MOST_COMPARED:
        first, last, size = name[0], name[-1], len(name)
        unlike = lambda one: (one[0] != first) + (one[-1] != last) + abs(len(one) - size)  # noqa: E731
        candidates = nsmallest(MOST_COMPARED, candidates, key=unlike)
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.7)
    return f"{before}did you mean `{printable(near[0])}`?" if near else otherwise
