"""Exceptions for mistakes in a user's input. The command line prints the message and exits with code 1."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from foretell.wording import readable

SHOWN_PROBLEMS = 20

# the full text of a value in a hostile file could fill the memory
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother, _BRIEF.maxlong = 2, 40, 40, 40


def short(value: object) -> str:
    """Return a short text of a value, for messages."""
    try:
        return _BRIEF.repr(value)
    except ValueError:
        return "a huge integer"  # Python refuses to write integers of thousands of digits


class ForetellError(Exception):
    """A mistake in the user's input. The message has its place, what was found, what was expected, and what to do.

    All errors of foretell are subclasses of this class.

    Args:
        message: the message. Control characters in it are replaced by visible signs.

    Example:
        >>> try:
        ...     ft.load("no-such-file.csv")
        ... except ft.ForetellError as error:
        ...     print(type(error).__name__)
        DataError
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(readable(str(message)))


class DataError(ForetellError):
    """Mistakes in event data. `problems` has all mistakes that one stage found; the message shows the first twenty.

    Args:
        problems: one message, or several.

    Example:
        >>> try:
        ...     ft.EventSequence([3.0, 1.0], [0], t_end=5.0)
        ... except ft.DataError as error:
        ...     error.problems
        ("sequence '0': 2 times but 1 types: each event needs one of both",)
    """

    def __init__(self, problems: str | Iterable[str]) -> None:
        found = (problems,) if isinstance(problems, str) else tuple(problems)
        assert found, "a DataError names at least one problem"
        self.problems = found
        lines = list(found[:SHOWN_PROBLEMS])
        if len(found) > SHOWN_PROBLEMS:
            lines.append(f"… and {len(found) - SHOWN_PROBLEMS} more")
        super().__init__("\n".join(lines))
