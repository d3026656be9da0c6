"""A program's text and places in it: files are read here, and an offset becomes file, line and column."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, eq=False)
class Source:
    name: str  # as shown to the user: the path as it was given, or "<program>"
    text: str
    is_read: bool = True  # False: the file could not be opened, and only its name is known

    @cached_property
    def line_starts(self) -> list[int]:
        starts = [0]
        place = self.text.find("\n")
        while place >= 0:
            starts.append(place + 1)
            place = self.text.find("\n", place + 1)
        return starts

    def line_column(self, offset: int) -> tuple[int, int]:
        """Both count from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start:] if end < 0 else self.text[start:end]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a source: `[start, end)`."""

    source: Source = field(repr=False)
    start: int
    end: int

    @property
    def place(self) -> str:
        """`file:line:column`."""
        if not self.source.is_read:
            return self.source.name
        line, column = self.source.line_column(self.start)
        return f"{self.source.name}:{line}:{column}"

    def to(self, other: Span) -> Span:
        return Span(self.source, self.start, other.end)
