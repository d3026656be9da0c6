"""The library's own file formats, chosen by a file's suffix: JSON lines (plain or gzip), CSV, Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.data.formats import csvtable, jsonlines, parquet
from foretell.data.formats.longtable import ColumnMap
from foretell.data.raw import RawEvents
from foretell.errors import DataError

if TYPE_CHECKING:
    from foretell.data.dataset import EventData

SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet")


def suffix_of(path: Path) -> str | None:
    """The suffix that says the format, or None if the file is in none of them."""
    name = path.name.lower()
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), None)


def read(path: Path, columns: ColumnMap | None = None) -> RawEvents:
    """A file's sequences and mistakes, before a vocabulary is known."""
    readers: dict[str, Callable[[Path, ColumnMap], RawEvents]] = {
        ".jsonl": lambda path, _: jsonlines.read(path),
        ".csv": csvtable.read,
        ".parquet": parquet.read,
    }
    return readers[_format(path)](path, columns or ColumnMap())


def write(data: EventData, path: Path) -> None:
    """Writes a split in the format of the suffix."""
    writers: dict[str, Callable[[EventData, Path], None]] = {
        ".jsonl": jsonlines.write,
        ".csv": csvtable.write,
        ".parquet": parquet.write,
    }
    writers[_format(path)](data, path)


def _format(path: Path) -> str:
    suffix = suffix_of(path)
    if suffix is None:
        hint = "; convert it first: foretell data convert" if path.suffix in (".pkl", ".json", ".pickle") else ""
        raise DataError(f"{path}: unknown format {path.suffix!r}, expected one of {', '.join(SUFFIXES)}{hint}")
    return suffix.removesuffix(".gz")
