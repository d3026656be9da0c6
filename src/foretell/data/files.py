"""A file, plain or gzip, → its lines or bytes; damage is reported as a mistake of the file."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

from foretell.data.raw import Problem
from foretell.errors import DataError, ForetellError
from foretell.reading import UnreadableFile, open_unpacked
from foretell.wording import printable

MOST_MISTAKES = 1_000  # of one file; after so many, it is probably of another kind
MOST_BLANK = 1_000_000  # lines of one file
GZIP_MAGIC = b"\x1f\x8b"


class NotesMistakes(Protocol):
    """A collector of the mistakes of a file."""

    problems: list[Problem]

    def fault(self, place: int, text: str) -> None: ...


class Mistakes:
    """Mistakes of a file, each with its place."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def fault(self, place: int, text: str) -> None:
        """Notes a mistake."""
        self.problems.append(Problem(place, text))


def whole_file(path: Path) -> bytes | None:
    """All bytes of a file, unpacked; None if it is damaged, which `text_lines` then reports."""
    try:
        with open_unpacked(path, path.suffix == ".gz") as stream:
            content = stream.read()
    except (OSError, EOFError, zlib.error):
        return None
    except UnreadableFile as error:
        raise DataError(str(error)) from None
    if path.suffix == ".gz":
        return content
    return None if content.startswith(GZIP_MAGIC) else content


def text_lines(path: Path, gatherer: NotesMistakes) -> Iterator[tuple[int, str]]:
    """Numbered lines; a broken archive ends them, a line that is not UTF-8 is left out. Both are noted."""
    number = 0
    with _noting_damage(gatherer, lambda: number), _opened(path, gatherer) as stream:
        blank = 0
        for number, line in enumerate(stream, start=1):
            if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                gatherer.fault(1, "this is UTF-16 text; save it as UTF-8")
                return
            if len(gatherer.problems) >= MOST_MISTAKES:
                gatherer.fault(number, f"{MOST_MISTAKES:,} mistakes before this line: the rest was not read")
                return
            if len(line) < 3 and line.isspace():
                blank += 1
                if blank > MOST_BLANK:
                    gatherer.fault(number, f"{MOST_BLANK:,} blank lines before this one: the rest was not read")
                    return
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                gatherer.fault(number, f"not UTF-8: byte {line[error.start]:#04x} at column {error.start + 1}")
                continue
            yield number, text


def byte_chunks(path: Path, mistakes: NotesMistakes, size: int = 1 << 20) -> Iterator[bytes]:
    """The content, unpacked, piece by piece; a broken archive ends it and is noted."""
    with _noting_damage(mistakes, lambda: 0), _opened(path, mistakes) as stream:
        while chunk := stream.read(size):
            yield chunk


@contextlib.contextmanager
def _opened(path: Path, mistakes: NotesMistakes) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where its name says so; none, and a note, where it should say so and does not."""
    packed = path.suffix == ".gz"
    with open_unpacked(path, packed) as stream:
        if not packed and stream.read(2) == GZIP_MAGIC:
            mistakes.fault(0, "the content is gzip, the name says plain text; rename it to end in .gz")
            yield io.BytesIO()
            return
        if not packed:
            stream.seek(0)
        yield stream


@contextlib.contextmanager
def _noting_damage(mistakes: NotesMistakes, place: Callable[[], int]) -> Iterator[None]:
    """A context that records errors while a file is read; reading ends at the first."""
    try:
        yield
    except EOFError:
        mistakes.fault(place(), "the gzip file is truncated: it ends in the middle; copy or download it again")
    except (gzip.BadGzipFile, zlib.error) as error:
        mistakes.fault(place(), f"the gzip file is damaged: {error}")
    except UnreadableFile as error:
        mistakes.fault(0, f"{error.reason}; {error.hint}")
    except OSError as error:
        mistakes.fault(0, f"cannot be read: {error.strerror or error}")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it takes the place of `path` if the block ends without an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise ForetellError(f"{path}: cannot be written: {error.strerror}") from None
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise ForetellError(f"{path}: cannot be written: {error.strerror}") from None
    except UnicodeEncodeError as error:
        half = printable(error.object[error.start : error.start + 1])
        reason = f"it would hold {half}, which is not Unicode; the name of a file may be wrong"
        raise ForetellError(f"{path}: cannot be written: {reason}") from None
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def text_file(path: Path) -> Iterator[IO[str]]:
    """A UTF-8 text file that replaces `path`; compressed if that ends in `.gz`, the same bytes every time."""
    with replacing(path) as temporary, open(temporary, "wb") as raw:
        if path.suffix == ".gz":
            # no name and no date in the header: equal content gives equal files
            with (
                gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
                io.TextIOWrapper(packed, encoding="utf-8", newline="") as text,
            ):
                yield text
        else:
            with io.TextIOWrapper(raw, encoding="utf-8", newline="") as text:
                yield text


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
