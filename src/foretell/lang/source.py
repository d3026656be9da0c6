"""The text of a program and places in it: reads files, and converts offsets to file, line and column."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from foretell.reading import UnreadableFile, read_bytes


@dataclass(frozen=True, eq=False)
class Source:
    name: str  # the name in messages: the path as given, or "<program>"
    text: str
    is_read: bool = True  # False: the file could not be opened, only its name is known

    @cached_property
    def line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    def line_column(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both counted from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start:] if end < 0 else self.text[start:end]


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a source: `[start, end)`."""

    source: Source = field(repr=False)
    start: int
    end: int

    @property
    def place(self) -> str:
        """Return `file:line:column`."""
        if not self.source.is_read:
            return self.source.name
        line, column = self.source.line_column(self.start)
        return f"{self.source.name}:{line}:{column}"

    def to(self, other: Span) -> Span:
        return Span(self.source, self.start, other.end)


PROGRAM_BYTES = 16 << 20  # the largest size of a program file; data belong in tables


def read_text(path: Path, most: int | None = PROGRAM_BYTES) -> str:
    """Return the text of a UTF-8 file, without a byte order mark. Raises `UnreadableFile`."""
    return decoded(read_bytes(path, most))


def decoded(data: bytes) -> str:
    """Decode UTF-8 text without a byte order mark. Raises `UnreadableFile`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableFile(
            f"it is not UTF-8 text: byte 0x{data[error.start]:02x} in line {line}", "save it as UTF-8"
        ) from None


def neighbours(path: Path) -> list[str]:
    """Return the names of the files in the same folder, for a suggestion."""
    try:
        return sorted(os.listdir(path.parent))[:1000]
    except (OSError, ValueError):
        return []
