"""A page of Markdown → the files it shows and the commands it runs, each with the output it claims.

Output may be shortened: a line `…` stands for any lines, ` …` at the end of a line for its rest.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^",]+)(, continued)?"')


@dataclass(frozen=True)
class Shown:
    """A file that the page shows under its name; `continued`: lines to add to it."""

    name: str
    text: str
    continued: bool


@dataclass(frozen=True)
class Command:
    line: str
    output: list[str]

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.line, comments=True)[1:]


def steps(page: Path) -> Iterator[Shown | Command]:
    """In the order of the page."""
    for language, info, body in _FENCE.findall(page.read_text(encoding="utf-8")):
        titled = _TITLE.search(info)
        if titled:
            yield Shown(titled[1], body, bool(titled[2]))
        elif language == "console":
            yield from _commands(body)


def _commands(body: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(line, output.splitlines())


def agrees(claimed: list[str], printed: str) -> bool:
    """Whether what the page shows is what was printed, but for what it leaves out."""
    pattern = ""
    for line in claimed:
        if line == "…":
            pattern += r"(?:[^\n]*\n)+"
        elif line.endswith(" …"):
            pattern += re.escape(line.removesuffix(" …")) + r"[^\n]+\n"
        else:
            pattern += re.escape(line) + r"[ ]*\n"
    return re.fullmatch(pattern, printed) is not None
