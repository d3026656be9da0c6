"""A packed folder → a `Dataset` with memory-mapped columns, which are checked once, shard by shard.

A folder is not trusted: sizes, checksums and values are checked in one pass before the first use.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data.attributes import Attribute
from foretell.data.clock import Clock
from foretell.data.columns import Columns, ShardMap
from foretell.data.covariates import CovariateNames
from foretell.data.dataset import CARD_FILE, GRIDS, SPLITS, Card, Dataset, EventData, LoadReport
from foretell.data.packed.layout import (
    FORMAT,
    MANIFEST,
    VERSION,
    SplitEntry,
    byte_ranges,
    joined_checksum,
    read_split,
    sizes,
)
from foretell.data.packed.stored_texts import MetadataColumn, TextColumn
from foretell.data.read_options import ReadOptions
from foretell.data.sequence import Vocabulary
from foretell.errors import DataError, short
from foretell.reading import check_file, parse_json, read_document

AGAIN = "pack the data again"


def is_packed(path: Path) -> bool:
    """Whether a folder was written by `foretell data pack`."""
    return (path / MANIFEST).is_file()


def split_names(path: Path) -> set[str]:
    """Return the names of the splits in a packed folder."""
    return {name for name in SPLITS if (path / name).is_dir()}


def open_packed(path: Path, options: ReadOptions, unseen: Sequence[str] = ()) -> Dataset:
    """Open the data set in a packed folder, except for the splits in `unseen`.

    Raises:
        DataError: the folder is damaged, or an option is set that only applies to reading unpacked files.
    """
    refused = [f"`{name}=`" for name in ("time_format", "start", "observed_until") if getattr(options, name)]
    if refused:
        raise DataError(
            f"{path}: packed data have their times settled: leave out {', '.join(refused)}, or pack again with it"
        )
    manifest = _manifest(path)
    vocabulary, clock, card = (
        _vocabulary(path, manifest),
        _clock(path, manifest),
        Card.read(path / CARD_FILE, path.name),
    )
    names = CovariateNames(options.covariates or card.covariates, options.static or card.static)
    splits: dict[str, EventData | None] = dict.fromkeys(SPLITS)
    for name, found in manifest["splits"].items():
        if name in unseen:
            continue
        entry = read_split(path / MANIFEST, name, found)
        columns = MappedSplit(path / name, name, entry).columns(len(vocabulary))
        report = _report(path / name, entry)
        _check_covariates(path, names, columns)
        splits[name] = EventData(columns, vocabulary, card.origin, name, report, clock, covariates=names)
        for sentence in report.warnings:
            options.tell(path / name, sentence)
        if columns.shards is not None:
            columns.shards.release()
    return Dataset(splits["train"], splits["dev"], splits["test"], vocabulary, card, str(path))


def _manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        found = parse_json(read_document(file))
    except ValueError as error:
        raise DataError(f"{file}: not JSON: {error}; {AGAIN}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DataError(f"{file}: this is no manifest of packed data; {AGAIN}")
    if found.get("version") != VERSION:
        version = short(found.get("version"))
        raise DataError(f"{file}: its version is {version}, and this foretell reads {VERSION}; {AGAIN}")
    splits = found.get("splits")
    if not isinstance(splits, dict) or not splits or not set(splits) <= set(SPLITS):
        raise DataError(f"{file}: splits is {short(splits)}, expected some of {', '.join(SPLITS)}; {AGAIN}")
    return found


def _vocabulary(path: Path, manifest: Mapping[str, Any]) -> Vocabulary:
    types = manifest.get("types")
    try:
        if type(types) is int:
            return Vocabulary.of_size(types)
        if isinstance(types, list):
            return Vocabulary(tuple(types))
    except DataError as error:
        raise DataError(f"{path / MANIFEST}: {problem}" for problem in error.problems) from None
    raise DataError(f"{path / MANIFEST}: types is {short(types)}, expected a number or names; {AGAIN}")


def _clock(path: Path, manifest: Mapping[str, Any]) -> Clock:
    found = manifest.get("clock")
    kinds = {"unit": str, "zone": str, "absolute": bool}
    right = isinstance(found, dict) and all(type(found.get(name)) is kind for name, kind in kinds.items())
    seconds = found.get("seconds_per_unit") if isinstance(found, dict) else None
    if not right or not (seconds is None or (type(seconds) in (int, float) and 0.0 < seconds < 1e18)):
        raise DataError(
            f"{path / MANIFEST}: clock is {short(found)}, expected what `foretell data pack` wrote; {AGAIN}"
        )
    assert isinstance(found, dict)
    return Clock(found["unit"], None if seconds is None else float(seconds), found["zone"], found["absolute"])


def _report(path: Path, entry: SplitEntry) -> LoadReport:
    """Return the report of a split; invalid values in the manifest become 0 or empty."""
    found = entry.report

    def number(name: str) -> float:
        value = found.get(name)
        return float(value) if isinstance(value, int | float) and abs(value) < 2**62 else 0.0

    def texts(name: str) -> tuple[str, ...]:
        value = found.get(name)
        return tuple(map(str, value)) if isinstance(value, list) else ()

    shares = found.get("grid_shares")
    pairs = [one for one in shares if isinstance(one, list) and len(one) == 2] if isinstance(shares, list) else []
    return LoadReport(
        path=str(path),
        sequences=entry.sequences,
        events=entry.events,
        ties=number("ties"),
        grid_shares=tuple(
            (float(one), float(share))
            for one, share in pairs
            if one in GRIDS and type(share) in (int, float) and 0.0 <= share <= 1.0
        ),
        missing_ends=int(number("missing_ends")),
        attributes=texts("attributes"),
        unused_columns=texts("unused_columns"),
    )


def _check_covariates(path: Path, names: CovariateNames, columns: Columns) -> None:
    """Raise an error if named covariates are not in the packed data; they can only be added by packing again."""
    problems: list[str] = []
    for option, wanted, there in (
        ("covariates", names.events, columns.attributes),
        ("static", names.static, columns.sequence_attributes),
    ):
        for name in (text.partition(":")[0] for text in wanted):
            if name not in there:
                found = ", ".join(there) or "none"
                asked = f'`{option}=["{name}"]`'
                problems.append(f"{path}: {asked}: no such column is packed (found {found}); pack again with {asked}")
    if problems:
        raise DataError(problems)


class MappedSplit:
    """The memory-mapped files of one split."""

    def __init__(self, folder: Path, name: str, entry: SplitEntry) -> None:
        self.folder, self.name, self.entry = folder, name, entry
        self.maps: list[mmap.mmap] = []
        self.arrays = {file.name: self._mapped(file.name, np.dtype(file.dtype), size) for file, size in self._sizes()}

    def _sizes(self) -> Iterator[tuple[Any, int]]:
        for file in self.entry.files():
            yield file, sum(sizes(shard, file, place == 0) for place, shard in enumerate(self.entry.shards))

    def _mapped(self, name: str, dtype: np.dtype, count: int) -> np.ndarray:
        path, expected = self.folder / name, count * dtype.itemsize
        if path.is_symlink():
            raise DataError(f"{path}: this is a link, expected a file; {AGAIN}")
        size = check_file(path).st_size
        if size != expected:
            raise DataError(f"{path}: it has {size:,} bytes, expected {expected:,}: the folder is damaged; {AGAIN}")
        if not expected:
            return np.zeros(0, dtype=dtype)
        with open(path, "rb") as stream:
            mapped = mmap.mmap(stream.fileno(), expected, access=mmap.ACCESS_READ)
        self.maps.append(mapped)
        return np.frombuffer(mapped, dtype=dtype)

    def release(self) -> None:
        """Release the memory pages; the system reads them again when needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for one in self.maps:
                one.madvise(mmap.MADV_DONTNEED)

    def columns(self, types: int) -> Columns:
        """Check the whole split and return it as `Columns`."""
        self._check(types)
        found, entry = self.arrays, self.entry
        attributes: dict[str, dict[str, Attribute]] = {"event": {}, "sequence": {}}
        for place, one in enumerate(entry.attributes):
            values = found[one.file(place).name]
            if one.kind == "time":
                values = values.view("datetime64[ns]")
            attributes[one.scope][one.name] = Attribute(values, one.categories if one.kind == "text" else None)
        about = "metadata.utf8" in entry.optional
        texts = TextColumn(found["metadata.utf8"], found["metadata_offsets.i64"]) if about else None
        unscored, assumed = (found.get(name) for name in ("unscored.b8", "ends_assumed.b8"))
        return Columns(
            times=found["times.f64"],
            types=found["types.i32"],
            offsets=found["offsets.i64"],
            t_ends=found["t_ends.f64"],
            ids=TextColumn(found["ids.utf8"], found["id_offsets.i64"]),
            metadata=MetadataColumn(entry.sequences, texts),
            unscored=None if unscored is None else unscored.view(np.bool_),
            starts=found.get("starts.i64"),
            scored_from=found.get("scored_from.f64"),
            ends_assumed=None if assumed is None else assumed.view(np.bool_),
            attributes=attributes["event"],
            sequence_attributes=attributes["sequence"],
            shards=ShardMap(np.cumsum([0, *(shard.sequences for shard in entry.shards)]), self.release),
        )

    def _check(self, types: int) -> None:
        ranges = [list(byte_ranges(self.entry, file)) for file in self.entry.files()]
        files = self.entry.files()
        sequence = event = 0
        letters = [0, 0]
        for place, shard in enumerate(self.entry.shards):
            parts = [
                self.arrays[file.name].view(np.uint8)[slice(*ranges[number][place])]
                for number, file in enumerate(files)
            ]
            where = f"{self.folder}: shard {place + 1} of {len(self.entry.shards)}"
            if joined_checksum(zlib.crc32(part.data) for part in parts) != shard.checksum:
                raise DataError(f"{where} is damaged: its checksum is another than when it was written; {AGAIN}")
            wrong = self._wrong((sequence, sequence + shard.sequences), (event, event + shard.events), letters, types)
            if wrong:
                raise DataError(f"{where} does not hold what packed data hold: {wrong}; {AGAIN}")
            sequence, event = sequence + shard.sequences, event + shard.events
            letters = [one + more for one, more in zip(letters, shard.letters, strict=True)]
            self.release()

    def _wrong(self, sequences: tuple[int, int], events: tuple[int, int], letters: list[int], types: int) -> str:
        """Return the first mistake in the values of a shard; "" if there is none."""
        found, (first, last) = self.arrays, sequences
        offsets = found["offsets.i64"][first : last + 1]
        if offsets[0] != events[0] or offsets[-1] != events[1] or (np.diff(offsets) < 0).any():
            return "where its sequences begin is not in order"
        times, kinds = found["times.f64"][slice(*events)], found["types.i32"][slice(*events)]
        ends = found["t_ends.f64"][first:last]
        if len(kinds) and not (kinds.min() >= 0 and kinds.max() < types):
            return f"its types lie between {kinds.min()} and {kinds.max()}, and there are {types}"
        checks: list[tuple[str, Callable[[], bool]]] = [
            ("times or ends are no finite numbers from 0 on", lambda: _is_time(times) and _is_time(ends)),
            ("times are not in order, or are after the end", lambda: _in_order(times, offsets - events[0], ends)),
            (
                "ids are not Unicode text",
                lambda: self._are_texts("ids.utf8", "id_offsets.i64", sequences, letters[0], True),
            ),
        ]
        if "metadata.utf8" in self.entry.optional:
            metadata = "metadata.utf8", "metadata_offsets.i64"
            checks.append(
                ("metadata are not Unicode text", lambda: self._are_texts(*metadata, sequences, letters[1], False))
            )
        if "scored_from.f64" in self.entry.optional:
            later = found["scored_from.f64"][first:last]
            checks.append(("score_from is after the end", lambda: _is_time(later) and bool((later <= ends).all())))
        for name, rows in (("unscored.b8", events), ("ends_assumed.b8", sequences)):
            if name in self.entry.optional:
                flags = found[name][slice(*rows)]
                checks.append((f"{name} holds others than 0 and 1", lambda flags=flags: bool((flags <= 1).all())))
        for place, one in enumerate(self.entry.attributes):
            if one.kind == "text":
                codes = found[one.file(place).name][slice(*(events if one.scope == "event" else sequences))]
                most = len(one.categories)
                said = f"attribute {one.name!r} has codes that stand for nothing"
                checks.append((said, lambda codes=codes, most=most: bool(((codes >= -1) & (codes < most)).all())))
        return next((said for said, right in checks if not right()), "")

    def _are_texts(self, letters: str, offsets: str, sequences: tuple[int, int], start: int, filled: bool) -> bool:
        places = self.arrays[offsets][sequences[0] : sequences[1] + 1]
        if places[0] != start or (np.diff(places) < filled).any() or places[-1] > len(self.arrays[letters]):
            return False
        content = self.arrays[letters][places[0] : places[-1]]
        try:
            content.tobytes().decode("utf-8")
        except UnicodeDecodeError:
            return False
        begins = places[:-1][np.diff(places) > 0] - start
        return not (content[begins] & 0xC0 == 0x80).any()  # no text begins inside a UTF-8 character


def _is_time(values: np.ndarray) -> bool:
    """Whether all values are finite and not negative."""
    return not len(values) or bool(values.min() >= 0.0 and values.max() < np.inf)


def _in_order(times: np.ndarray, offsets: np.ndarray, ends: np.ndarray) -> bool:
    falls = np.flatnonzero(times[1:] < times[:-1]) + 1
    if len(falls) and not (offsets[np.searchsorted(offsets, falls)] == falls).all():
        return False
    some = np.diff(offsets) > 0
    return bool((times[offsets[1:][some] - 1] <= ends[some]).all())
