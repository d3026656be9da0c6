"""Read lines or bytes of a plain or gzip file, noting damage as a mistake; write files atomically."""

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

MOST_MISTAKES = 1_000  # mistakes per file; a file with more probably has another format
MOST_BLANK = 1_000_000  # blank lines per file
GZIP_MAGIC = b"\x1f\x8b"


class NotesMistakes(Protocol):
    """The interface of collectors of mistakes in a file."""

    problems: list[Problem]

    def fault(self, place: int, text: str) -> None: ...


class Mistakes:
    """The mistakes in a file, each with its line or row."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def fault(self, place: int, text: str) -> None:
        """Note a mistake at a line or row."""
        self.problems.append(Problem(place, text))


def whole_file(path: Path) -> bytes | None:
    """Return all bytes of a file, decompressed; None if it is damaged, which `text_lines` reports."""
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
    """Yield (number, line). A broken archive ends the iteration, and lines that are not UTF-8 are skipped; both are noted."""
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
    """Yield the decompressed content in chunks; a broken archive ends the iteration and is noted."""
    with _noting_damage(mistakes, lambda: 0), _opened(path, mistakes) as stream:
        while chunk := stream.read(size):
            yield chunk


@contextlib.contextmanager
def _opened(path: Path, mistakes: NotesMistakes) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if its name ends in `.gz`. A gzip file with another name is noted as a mistake, and reads as empty."""
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
    """Context manager that notes the first error of reading a file, and ends the block there."""
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
    """Context manager for a temporary path, which replaces `path` if the block ends without an error."""
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
    """Open a UTF-8 text file that replaces `path` when closed; gzip if the name ends in `.gz`. Equal text gives equal bytes."""
    with replacing(path) as temporary, open(temporary, "wb") as raw:
        if path.suffix == ".gz":
            # without name and date in the gzip header, equal content gives equal files
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
