"""A text file, plain or gzip, → its lines, with damage told as a mistake of the file."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from foretell.data.raw import Gatherer

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
