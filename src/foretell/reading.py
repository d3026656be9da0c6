"""A path → an open file, its bytes, or its JSON or TOML, within limits. All files from outside are opened by this module.

Only regular files are read: pipes, sockets and devices are refused before they are opened. The unpacked size of an archive is
limited. JSON and TOML that are nested too deeply for recursive code are refused.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from foretell.errors import ForetellError

MIB = 1 << 20
MOST_BYTES = 64 << 30  # the largest size of a file that is not compressed
PACKED_BYTES = 64 * MIB  # the unpacked size that every archive may have
PACKED_RATIO = 100  # a larger unpacked size must be at most this many times the file's size; event logs reach 5 to 40
PACKED_EVENTS = 5_000_000  # rows that every columnar file may have
EVENTS_PER_BYTE = 100  # a columnar file with more rows may have at most this many per byte of the file
MOST_EVENTS = 2_000_000_000  # positions in a data set are 32-bit in several formats
DOCUMENT_BYTES = 64 * MIB  # the largest size of a description, a file of parameters, or the metrics of a run
TOML_BYTES = MIB  # the largest size of a TOML file; small, because the parser is slow
MOST_NESTING = 64  # levels of nested lists and tables in a document
_LONG_KEY = re.compile(r"(?<![\w.'\"-])(?:[\w'\"-]++[ \t]*+\.[ \t]*+){64}")  # a.b.c. …
MOST_DIGITS = 400  # digits of an integer in a document; the largest float64 has 309


class UnreadableFile(ForetellError):
    """A file that cannot be read. The message has the reason and a hint; `missing` is True if the file does not exist."""

    def __init__(
        self, reason: str, hint: str = "write the file again", missing: bool = False, path: Path | None = None
    ) -> None:
        self.reason, self.hint, self.missing = reason, hint, missing
        super().__init__(reason if path is None else f"{path}: {reason}; {hint}")


@dataclass(frozen=True)
class ReadLimits:
    """Limits on the size of files, on the folders that a program may read, and on the number of instantiations of its rules."""

    max_bytes: int | None = None  # unpacked size; None: the defaults above
    max_events: int | None = None
    allow: tuple[Path, ...] = field(default=())  # folders that a program may read besides its own
    rules: float = 1.0  # factor of the usual limit on instantiations of rules

    def bytes_of(self, size: int, packed: bool) -> int:
        """Return the largest allowed content, in bytes, of a file of `size` bytes."""
        if self.max_bytes is not None:
            return self.max_bytes
        return max(PACKED_BYTES, PACKED_RATIO * size) if packed else MOST_BYTES

    def events_of(self, size: int) -> int:
        """Return the largest allowed number of events in a columnar file of `size` bytes. A few bytes could encode billions of equal
        values."""
        if self.max_events is not None:
            return self.max_events
        return min(MOST_EVENTS, max(PACKED_EVENTS, EVENTS_PER_BYTE * size))


DEFAULT_LIMITS = ReadLimits()
_limits: ContextVar[ReadLimits] = ContextVar("foretell_read_limits", default=DEFAULT_LIMITS)


def read_limits() -> ReadLimits:
    """Return the current limits."""
    return _limits.get()


@contextlib.contextmanager
def limits(**changes: Any) -> Iterator[ReadLimits]:
    """Context manager that changes the limits: `with limits(max_bytes=10**9, allow=(folder,)): …`."""
    token = _limits.set(ReadLimits(**{**vars(_limits.get()), **changes}))
    try:
        yield _limits.get()
    finally:
        _limits.reset(token)


def check_file(path: Path) -> os.stat_result:
    """Return the status of a regular file, or of a link to one; raise `UnreadableFile` for anything else."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        # the name is too long or contains a NUL, so there is no such file
        why = "" if missing else f" ({getattr(error, 'strerror', None) or error})"
        if isinstance(error, PermissionError):
            raise UnreadableFile("it cannot be read: permission denied", "look at its permissions", path=path) from None
        raise UnreadableFile(f"there is no such file{why}", "look at the path", missing=True, path=path) from None
    if stat.S_ISDIR(found.st_mode):
        raise UnreadableFile("it is a folder", "name a file in it", path=path)
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableFile("it is no ordinary file", "give a file: pipes and devices are not read", path=path)
    return found


def check_regular(path: Path) -> None:
    """Raise `UnreadableFile` if the path exists and is neither a folder nor a regular file."""
    if not path.is_dir():
        check_file(path)


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading bytes; raise `UnreadableFile` if that is impossible."""
    path = Path(path)
    check_file(path)
    try:
        # if the file has been replaced by a pipe since the check, opening must not wait for a writer
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        reason = f"it cannot be read: {error.strerror or error}"
        raise UnreadableFile(reason, "look at its permissions", path=path) from None
    file = os.fdopen(number, "rb")
    if not stat.S_ISREG(os.fstat(number).st_mode):
        file.close()
        raise UnreadableFile("it is no ordinary file", "give a file: pipes and devices are not read", path=path)
    return file


class _Counted(io.RawIOBase):
    """A stream that reads from another one, and raises `UnreadableFile` after a limit of bytes."""

    def __init__(self, stream: Any, most: int, path: Path) -> None:
        self.stream, self.left, self.most, self.path = stream, most, most, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self.stream.readinto(buffer)
        self.left -= found
        if self.left < 0:
            raise too_large(self.path, self.most)
        return found

    def close(self) -> None:
        self.stream.close()
        super().close()


def too_large(path: Path, most: int) -> UnreadableFile:
    said = f"it unpacks to more than {most:,} bytes"
    return UnreadableFile(said, "if that is right, allow more with `foretell.reading.limits(max_bytes=…)`", path=path)


def open_unpacked(path: str | Path, packed: bool) -> BinaryIO:
    """Open a regular file, decompressed if `packed`. The stream raises `UnreadableFile` if the content exceeds the limit."""
    path, file = Path(path), open_regular(path)
    size = os.fstat(file.fileno()).st_size
    most = read_limits().bytes_of(size, packed)
    if not packed:
        if size > most:
            file.close()
            hint = "allow more with `foretell.reading.limits(max_bytes=…)`"
            raise UnreadableFile(f"it has {size:,} bytes, more than {most:,}", hint, path=path)
        return file
    if size > 18 and file.read(2) == b"\x1f\x8b":
        file.seek(-4, os.SEEK_END)
        told = int.from_bytes(file.read(4), "little")  # size of the last member; a wrong one is noticed while reading
        if told > most:
            file.close()
            raise too_large(path, most)
    file.seek(0)
    return io.BufferedReader(_Counted(gzip.GzipFile(fileobj=file, mode="rb"), most, path), 1 << 16)


def read_bytes(path: str | Path, most: int | None = None) -> bytes:
    """Return the content of a regular file; raise `UnreadableFile` if it has more than `most` bytes."""
    path, most = Path(path), read_limits().bytes_of(0, packed=False) if most is None else most
    with open_regular(path) as file:
        try:
            content = file.read(most + 1) if most < MOST_BYTES else file.read()
        except OSError as error:
            raise UnreadableFile(f"it cannot be read: {error.strerror or error}", path=path) from None
    if len(content) > most:
        raise UnreadableFile(f"it has more than {most:,} bytes", "is this the right file?", path=path)
    return content


def read_document(path: str | Path, most: int = DOCUMENT_BYTES) -> str:
    """Return the text of a small UTF-8 file, such as a configuration."""
    content = read_bytes(path, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        reason = f"it is not UTF-8 text: byte 0x{content[error.start]:02x} in line {line}"
        raise UnreadableFile(reason, "save it as UTF-8", path=Path(path)) from None


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise a `ValueError` with the reason if it is invalid, too deeply nested, or has too long integers."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise ValueError(f"lists and objects lie inside each other more than {MOST_NESTING} deep") from None
    check_nesting(found)
    return found


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise a `ValueError` with the reason if it is invalid, too deeply nested, or has too long integers."""
    try:
        if _LONG_KEY.search(text):  # the parser's time is quadratic in the number of a key's parts
            raise RecursionError
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"lists and tables lie inside each other more than {MOST_NESTING} deep") from None
    check_nesting(found)
    return found


def check_nesting(value: Any) -> None:
    """Raise `ValueError` if containers are nested too deeply, or integers are too long to be printed or converted to float."""
    level: list[Any] = [value]
    for _ in range(MOST_NESTING):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list | tuple):
                inner += one
            elif type(one) is int and one.bit_length() > 4 * MOST_DIGITS:
                raise ValueError(f"it has a whole number of more than {MOST_DIGITS} digits")
        if not inner:
            return
        level = inner
    raise ValueError(f"lists and tables lie inside each other more than {MOST_NESTING} deep")


def read_json(path: str | Path) -> Any:
    try:
        return parse_json(read_document(path))
    except ValueError as error:
        raise ForetellError(f"{path}: not JSON: {error}") from None


def read_toml(path: str | Path) -> dict[str, Any]:
    try:
        return parse_toml(read_document(path, TOML_BYTES))
    except ValueError as error:
        raise ForetellError(f"{path}: not TOML: {error}") from None
