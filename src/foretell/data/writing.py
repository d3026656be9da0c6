"""Files appear whole or not at all: written under a temporary name beside their place, then renamed."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from foretell.errors import ForetellError


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
