"""Read a file of any size in parts: `RawEvents` with some of its sequences. JSON lines are read in order, tables through buckets.

XES is read by traces. Other formats are read as a whole, with a message.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data.column_names import recognised
from foretell.data.csv_files import records, separator_of
from foretell.data.event_table import gathered
from foretell.data.files import MOST_MISTAKES, Mistakes, text_lines
from foretell.data.gatherer import Gatherer
from foretell.data.jsonlines import add_line
from foretell.data.packed.buckets import BUCKET_ROWS, PLACE, BucketFolder, text_table
from foretell.data.parquet import ArrowTable, check_size, pyarrow_modules, wrong_kinds
from foretell.data.raw import MOST_COLUMNS, RawEvents, too_many_columns
from foretell.data.read_options import ReadOptions
from foretell.data.tables import event_table
from foretell.errors import DataError
from foretell.reading import open_regular, open_unpacked

Progress = Callable[[str, int, int], None]
PART_EVENTS = 1 << 20
PART_SEQUENCES = 1 << 18
BUCKET_BYTES = 48 << 20  # bytes of text per bucket
PACKED_GAIN = 10  # assumed ratio of text to gzip bytes; it only affects the number of buckets
CSV_BLOCK = 1 << 24


class NotPlainError(Exception):
    """A CSV has quotes, blank lines or mistakes, and needs the slower reader."""


def jsonl_parts(path: Path, options: ReadOptions, progress: Progress) -> Iterator[RawEvents]:
    """Yield parts of a JSON lines file."""
    size, seen, met = path.stat().st_size, 0, 0

    def fresh() -> Gatherer:
        return Gatherer(str(path), "line", options.zone, options.terms, seen)

    gatherer, damage = fresh(), Mistakes()
    for number, line in text_lines(path, damage):
        met += len(line)
        add_line(gatherer, number, line)
        if len(gatherer.problems) >= MOST_MISTAKES:
            gatherer.fault(number, f"{MOST_MISTAKES:,} mistakes before this line: the rest was not read")
            break
        if gatherer.events >= PART_EVENTS or gatherer.seen >= PART_SEQUENCES:
            seen += gatherer.seen
            yield gatherer.finish()
            gatherer = fresh()
            progress(f"reading {path.name}", min(met, size), size)
    gatherer.problems += damage.problems
    if gatherer.seen or gatherer.problems or not seen:
        yield gatherer.finish()


def csv_parts(path: Path, options: ReadOptions, work: Path, progress: Progress) -> Iterator[RawEvents]:
    """Yield parts of a CSV or TSV file, one per bucket."""
    size = path.stat().st_size * (PACKED_GAIN if path.suffix == ".gz" else 1)
    count = -(-size // BUCKET_BYTES)
    mistakes = Mistakes()
    try:
        folder = _filled(_plain_batches(path), options, work / "plain", count, path, progress)
    except NotPlainError:
        folder = _filled(_any_batches(path, mistakes), options, work / "any", count, path, progress)
    if mistakes.problems or folder is None:
        raw = RawEvents(**_nothing(str(path), mistakes))
        yield raw
        return
    for table in folder.tables(lambda table, places: text_table(str(path), folder.header, table, places)):
        yield gathered(event_table(table, options, 1), options.terms)


def _filled(
    batches: Iterator[tuple[list[str], Any, int]],
    options: ReadOptions,
    work: Path,
    count: int,
    path: Path,
    progress: Progress,
) -> BucketFolder | None:
    """Write all rows to buckets; return None if there are no batches. `batches` yields (header, rows, bytes of the file read so far)."""
    folder, plain = None, set[str]()
    size = path.stat().st_size * (PACKED_GAIN if path.suffix == ".gz" else 1)
    for header, batch, done in batches:
        if folder is None:
            columns, _ = recognised(options.columns, header)
            name = "sequence" if columns.sequence is None else columns.sequence
            place = header.index(name) if name in header else None
            folder = BucketFolder(work, header, place, count)
            plain = {name, columns.time, columns.event, *columns.bounds, columns.metadata, *columns.arguments(header)}
        folder.add(batch, plain)
        progress(f"sorting {path.name}", min(done, size), size)
    return folder


def _plain_batches(path: Path) -> Iterator[tuple[list[str], Any, int]]:
    """Yield blocks of a CSV without quotes and blank lines, read by pyarrow.

    Raises:
        NotPlainError: the CSV has quotes, blank lines or mistakes.
    """
    pa, _ = pyarrow_modules()
    import pyarrow.csv as arrow_csv

    with open_unpacked(path, path.suffix == ".gz") as stream:
        try:
            line = stream.readline(1 << 20).removeprefix(b"\xef\xbb\xbf").decode("utf-8").rstrip("\r\n")
        except (OSError, EOFError, UnicodeDecodeError):
            raise NotPlainError from None
        separator = separator_of(line)
        if '"' in line or not line.strip() or line.count(separator) >= MOST_COLUMNS:
            raise NotPlainError
        header = [name.strip() for name in line.split(separator)]
        names = [f"c{number}" for number in range(len(header))]
        watched = _Watched(stream)
        place = 2
        try:
            reader = arrow_csv.open_csv(
                pa.PythonFile(watched, mode="r"),
                read_options=arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=CSV_BLOCK),
                parse_options=arrow_csv.ParseOptions(delimiter=separator, quote_char=False),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
                ),
            )
            for batch in reader:
                if watched.odd:
                    raise NotPlainError
                places = pa.array(np.arange(place, place + batch.num_rows))
                place += batch.num_rows
                yield header, pa.record_batch([*batch.columns, places], [*names, PLACE]), watched.bytes_read
        except (pa.ArrowException, OSError, EOFError, ValueError):
            raise NotPlainError from None
        if not watched.is_plain():
            raise NotPlainError


class _Watched:
    """A byte stream that detects quotes, NUL bytes, blank lines, and carriage returns inside lines."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self.stream, self.last, self.bytes_read = stream, b"\n", 0
        self.returns = self.pairs = 0
        self.odd = False

    def read(self, size: int = -1) -> bytes:
        content = self.stream.read(size)
        whole = self.last + content
        self.bytes_read += len(content)
        self.odd |= b'"' in content or b"\0" in content or b"\n\n" in whole or b"\n\r" in whole
        self.returns += content.count(b"\r")
        self.pairs += whole.count(b"\r\n")
        self.last = content[-1:] or self.last
        return content

    def close(self) -> None:
        """Do nothing; the caller closes the underlying stream."""

    def is_plain(self) -> bool:
        """Whether everything read so far is plain; the last line may be incomplete."""
        return not self.odd and self.returns - self.pairs <= (self.last == b"\r")


def _any_batches(path: Path, mistakes: Mistakes) -> Iterator[tuple[list[str], Any, int]]:
    """Yield batches of rows of any CSV, read by the standard library; mistakes are noted with their lines."""
    pa, _ = pyarrow_modules()
    limit = csv.field_size_limit(sys.maxsize)
    try:
        rows = records(path, mistakes)
        place, header = next(rows, (0, None))
        if header is None:
            if not mistakes.problems:
                mistakes.fault(0, "the file is empty; expected a header: sequence,time,event")
            return
        mistakes.problems.extend(too_many_columns(len(header), place))
        if mistakes.problems:
            return
        header, done = [name.strip() for name in header], 0
        names = [*(f"c{number}" for number in range(len(header))), PLACE]
        while block := list(islice(rows, 1 << 16)):
            right = [(line, cells) for line, cells in block if len(cells) == len(header)]
            for line, cells in block:
                if len(cells) != len(header):
                    mistakes.fault(line, f"{len(cells)} cells, but the header has {len(header)} columns")
            done += sum(len(cell) + 1 for _, cells in block for cell in cells)
            if right and not mistakes.problems:
                columns = [pa.array(column, pa.string()) for column in zip(*(cells for _, cells in right), strict=True)]
                columns.append(pa.array([line for line, _ in right], pa.int64()))
                yield header, pa.record_batch(columns, names), done
            elif not done:
                return
    finally:
        csv.field_size_limit(limit)


def parquet_parts(path: Path, options: ReadOptions, work: Path, progress: Progress) -> Iterator[RawEvents]:
    """Yield parts of a Parquet file, one per bucket."""
    pa, pq = pyarrow_modules()

    def batches() -> Iterator[tuple[list[str], Any, int]]:
        with open_regular(path) as file:
            source = pq.ParquetFile(file)
            check_size(source.metadata, path)
            done, rows = 0, max(source.metadata.num_rows, 1)
            header = list(source.schema_arrow.names)
            for batch in source.iter_batches(batch_size=1 << 18):
                places = pa.array(np.arange(done + 1, done + batch.num_rows + 1))
                done += batch.num_rows
                columns = [*map(_undictionaried, batch.columns), places]
                names = [*(f"c{number}" for number in range(len(header))), PLACE]
                yield header, pa.record_batch(columns, names), path.stat().st_size * done // rows

    try:
        with open_regular(path) as file:
            rows = pq.ParquetFile(file).metadata.num_rows
        folder = _filled(batches(), options, work / "rows", -(-rows // BUCKET_ROWS), path, progress)
        if folder is None:
            raise ValueError("it has no rows")
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a Parquet file that can be read: {text}") from None
    for part in folder.tables(
        lambda table, places: ArrowTable(str(path), folder.header, table.rename_columns(folder.header), places)
    ):
        wrong = wrong_kinds(part.inner, options) if isinstance(part.inner, ArrowTable) else []
        if wrong:
            raise DataError(f"{path}: {problem.text}" for problem in wrong)
        yield gathered(event_table(part, options), options.terms)


def _undictionaried(column: Any) -> Any:
    pa, _ = pyarrow_modules()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _nothing(path: str, mistakes: Mistakes) -> dict[str, Any]:
    nothing = np.zeros(0)
    return {
        "path": path,
        "unit": "line",
        "times": nothing,
        "codes": nothing.astype(np.int32),
        "names": None,
        "offsets": np.zeros(1, np.int64),
        "t_starts": nothing,
        "t_ends": nothing,
        "score_from": nothing,
        "ids": (),
        "metadata": (),
        "places": nothing.astype(np.int64),
        "problems": tuple(mistakes.problems),
    }
