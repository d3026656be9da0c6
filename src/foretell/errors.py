"""What is wrong with a user's input: raised anywhere, printed once by the command line, exit code 1."""

from __future__ import annotations

from collections.abc import Iterable

SHOWN_PROBLEMS = 20


class ForetellError(Exception):
    """The user's input is wrong; the message says where, what was found, what was expected and what to do."""


class DataError(ForetellError):
    """Mistakes in event data: all that one stage found, of which the first twenty are shown."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        found = (problems,) if isinstance(problems, str) else tuple(problems)
        assert found, "a DataError names at least one problem"
        self.problems = found
        lines = list(found[:SHOWN_PROBLEMS])
        if len(found) > SHOWN_PROBLEMS:
            lines.append(f"… and {len(found) - SHOWN_PROBLEMS} more")
        super().__init__("\n".join(lines))
