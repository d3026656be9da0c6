"""Split a long table of any size into buckets on disk. All rows of a sequence are in one bucket, in the order of the file.

The hash of its sequence determines the bucket of a row, so that each bucket fits into memory. Buckets are Arrow streams. Meanwhile,
statistics of each text column are collected, to decide whether the whole column is numbers, categories, or free text.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data.attributes import Attribute
from foretell.data.csv_files import TextTable
from foretell.data.parquet import ArrowTable, pyarrow_modules
from foretell.data.raw import PlaceUnit
from foretell.data.read_options import ReadOptions
from foretell.data.tables import CodedColumn, TimeColumn, is_free_text, read_numbers, text_attribute

PLACE = "place of the row"  # name of the last column of a bucket: line or row numbers
BUCKET_ROWS = 1 << 20
MOST_BUCKETS = 512
MOST_DISTINCT = 200_000  # distinct texts that are stored per column; a column with more is free text


@dataclass
class TextKind:
    """Statistics of a text column over all batches so far, to determine its kind."""

    rows: int = 0
    numbers: bool = True
    filled: bool = False
    distinct: set[str] = field(default_factory=set)

    def add(self, texts: list[str], rows: int) -> None:
        """Add a batch: its distinct texts, and its number of rows."""
        values = [text.strip() for text in texts]
        given = [value for value in values if value]
        self.rows += rows
        self.filled |= bool(given)
        self.numbers = self.numbers and bool(read_numbers(given)[1].all())
        if len(self.distinct) < MOST_DISTINCT:
            self.distinct.update(texts)

    @property
    def are_numbers(self) -> bool:
        return self.numbers and self.filled

    @property
    def is_free(self) -> bool:
        """Whether the column is free text: most rows have different values, or there are too many distinct values to count."""
        many = len(self.distinct) >= MOST_DISTINCT or is_free_text(len(self.distinct), self.rows)
        return many and not self.are_numbers


@dataclass(eq=False)
class PartTable:
    """A bucket as a `TableSource`; the kinds of its columns are those in the whole file."""

    inner: TextTable | ArrowTable
    kinds: dict[str, TextKind]
    path: str = field(init=False)
    unit: PlaceUnit = field(init=False)
    header: list[str] = field(init=False)
    places: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.path, self.unit = self.inner.path, self.inner.unit
        self.header, self.places = self.inner.header, self.inner.places

    def coded(self, name: str) -> CodedColumn:
        return self.inner.coded(name)

    def times(self, name: str, options: ReadOptions) -> TimeColumn:
        return self.inner.times(name, options)

    def is_integer(self, name: str) -> bool:
        return self.inner.is_integer(name)

    def attribute(self, name: str) -> Attribute | None:
        kind = self.kinds.get(name)
        if kind is None:
            return self.inner.attribute(name)
        if kind.is_free:
            return None
        cells = self.coded(name)
        return text_attribute(cells) if kind.are_numbers else categories_of(cells)


def categories_of(cells: CodedColumn) -> Attribute:
    """Return a column as categories, even if all values in this bucket look like numbers."""
    places: dict[str, int] = {}
    values = [value.strip() for value in cells.values]
    codes = [places.setdefault(value, len(places)) if value else -1 for value in values]
    return Attribute(np.array(codes, dtype=np.int32)[cells.codes], tuple(places))


class BucketFolder:
    """The buckets of one table. `header` has the names of its columns; `sequence` is the index of the column of sequences, or None."""

    def __init__(self, folder: Path, header: list[str], sequence: int | None, buckets: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.header, self.sequence = folder, header, sequence
        self.count = 1 if sequence is None else max(1, min(buckets, MOST_BUCKETS))
        self.writers: dict[int, Any] = {}
        self.kinds: dict[str, TextKind] = {}
        self.rows = 0

    def add(self, batch: Any, plain: Iterable[str]) -> None:
        """Add a batch of rows: the columns of `header`, then `PLACE`. Columns named in `plain` do not become attributes."""
        pa, _ = pyarrow_modules()
        self.rows += batch.num_rows
        for number, name in enumerate(self.header):
            column = batch.column(number)
            if name not in plain and _is_text(pa, column.type):
                texts = ["" if one is None else one for one in column.unique().to_pylist()]
                self.kinds.setdefault(name, TextKind()).add(texts, batch.num_rows)
        if self.count == 1:
            self._write(0, batch)
            return
        buckets = self._buckets(batch.column(self.sequence))
        order = np.argsort(buckets, kind="stable")
        batch = batch.take(pa.array(order))
        cuts = np.searchsorted(buckets[order], np.arange(self.count + 1)).tolist()
        for bucket, (start, stop) in enumerate(pairwise(cuts)):
            if stop > start:
                self._write(bucket, batch.slice(start, stop - start))

    def _buckets(self, column: Any) -> np.ndarray:
        found = column.dictionary_encode()
        hashes = [
            zlib.crc32(str("" if one is None else one).encode()) % self.count for one in found.dictionary.to_pylist()
        ]
        codes = found.indices.fill_null(len(hashes)).to_numpy(zero_copy_only=False)
        return np.array([*hashes, zlib.crc32(b"") % self.count], dtype=np.int16)[codes]

    def _write(self, bucket: int, batch: Any) -> None:
        pa, _ = pyarrow_modules()
        if bucket not in self.writers:
            self.writers[bucket] = pa.ipc.new_stream(str(self._path(bucket)), batch.schema)
        self.writers[bucket].write_batch(batch)

    def _path(self, bucket: int) -> Path:
        return self.folder / f"{bucket}.arrow"

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()

    def tables(self, make: Callable[[Any, np.ndarray], TextTable | ArrowTable]) -> Iterable[PartTable]:
        """Yield the buckets as tables, deleting each file after it is read."""
        pa, _ = pyarrow_modules()
        self.close()
        for bucket in sorted(self.writers):
            with pa.OSFile(str(self._path(bucket)), "rb") as file:
                table = pa.ipc.open_stream(file).read_all()
            self._path(bucket).unlink()
            places = table.column(len(self.header)).to_numpy()
            yield PartTable(make(table.remove_column(len(self.header)), places), self.kinds)


def text_table(path: str, header: list[str], table: Any, places: np.ndarray) -> TextTable:
    """Return a bucket of text cells as a `TextTable`."""
    pa, _ = pyarrow_modules()
    columns: list[CodedColumn] = []
    for column in table.columns:
        found = column.combine_chunks().dictionary_encode()
        if isinstance(found, pa.ChunkedArray):
            found = found.unify_dictionaries().combine_chunks()
        columns.append(CodedColumn(found.indices.to_numpy(zero_copy_only=False), found.dictionary.to_pylist()))
    return TextTable(path, header, columns, places)


def _is_text(pa: Any, kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
