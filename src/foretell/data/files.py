"""A text file, plain or gzip, → its lines, with damage told as a mistake of the file."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from foretell.data.raw import Gatherer
from foretell.errors import ForetellError

GZIP_MAGIC = b"\x1f\x8b"


def text_lines(path: Path, gatherer: Gatherer) -> Iterator[tuple[int, str]]:
    """Numbered lines; a broken archive ends them, a line that is not UTF-8 is left out. Both are noted."""
    packed = path.suffix == ".gz"
    number = 0
    try:
        with open(path, "rb") as raw:
            start = raw.read(2)
            raw.seek(0)
            if not packed and start == GZIP_MAGIC:
                gatherer.fault(0, "the content is gzip, the name says plain text; rename it to end in .gz")
                return
            stream = io.BufferedReader(gzip.GzipFile(fileobj=raw, mode="rb")) if packed else raw  # type: ignore[arg-type]
            for number, line in enumerate(stream, start=1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    gatherer.fault(number, f"not UTF-8: byte {line[error.start]:#04x} at column {error.start + 1}")
                    continue
                yield number, text
    except EOFError:
        gatherer.fault(number, "the gzip file is truncated: it ends in the middle; copy or download it again")
    except (gzip.BadGzipFile, zlib.error) as error:
        gatherer.fault(number, f"the gzip file is damaged: {error}")
    except OSError as error:
        gatherer.fault(0, f"cannot be read: {error.strerror or error}")


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
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def text_file(path: Path) -> Iterator[IO[str]]:
    """A UTF-8 text file that replaces `path`; compressed if that ends in `.gz`, the same bytes every time."""
    import io

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
