"""The layout of a packed folder: a manifest, and one file per column and split, with values of one dtype.

```text
FOLDER/packed.json           the manifest: version, types, clock, splits with their shards, columns and checksums
FOLDER/dataset.toml          the card
FOLDER/train/times.f64 …     a column of all sequences, one after the other, little-endian
```

A *shard* is a range of consecutive sequences, which is written at once, has one checksum, and is shuffled as a unit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foretell.errors import DataError, short

MANIFEST = "packed.json"
FORMAT, VERSION = "foretell packed data", 1
SHARD_EVENTS = 1 << 20  # the largest number of events in a shard, unless one sequence has more
MOST_SHARDS = 10_000_000
AttributeKind = Literal["number", "integer", "time", "text"]
Scope = Literal["event", "sequence", "offset", "letter"]  # the unit that has one value in a column


@dataclass(frozen=True)
class ColumnFile:
    """A file of a split: its name, the dtype of its values, and their scope (one per event, sequence, …)."""

    name: str
    dtype: str
    scope: Scope


ALWAYS = (
    ColumnFile("times.f64", "<f8", "event"),
    ColumnFile("types.i32", "<i4", "event"),
    ColumnFile("offsets.i64", "<i8", "offset"),
    ColumnFile("t_ends.f64", "<f8", "sequence"),
    ColumnFile("ids.utf8", "u1", "letter"),
    ColumnFile("id_offsets.i64", "<i8", "offset"),
)
SOMETIMES = (
    ColumnFile("unscored.b8", "u1", "event"),
    ColumnFile("starts.i64", "<i8", "sequence"),
    ColumnFile("scored_from.f64", "<f8", "sequence"),
    ColumnFile("ends_assumed.b8", "u1", "sequence"),
    ColumnFile("metadata.utf8", "u1", "letter"),
    ColumnFile("metadata_offsets.i64", "<i8", "offset"),
)
STORED: dict[AttributeKind, str] = {"number": "<f8", "integer": "<i8", "time": "<i8", "text": "<i4"}


@dataclass(frozen=True)
class AttributeEntry:
    """An attribute in the manifest: name, kind and scope; for text also the categories."""

    name: str
    kind: AttributeKind
    scope: Literal["event", "sequence"]
    categories: tuple[str, ...] = ()

    def file(self, place: int) -> ColumnFile:
        """Return the file of this attribute, which has index `place` in the manifest."""
        dtype = STORED[self.kind]
        return ColumnFile(f"attribute{place}.{dtype[1]}{8 * int(dtype[2])}", dtype, self.scope)


@dataclass(frozen=True)
class ShardEntry:
    """A shard in the manifest: its sizes, and the CRC-32 of its parts of all files, in the order of the files."""

    sequences: int
    events: int
    letters: tuple[int, int]  # number of bytes of ids, and of metadata
    checksum: int


@dataclass(frozen=True)
class SplitEntry:
    """A split in the manifest."""

    shards: tuple[ShardEntry, ...]
    optional: tuple[str, ...] = ()  # names of the files in `SOMETIMES` that exist
    attributes: tuple[AttributeEntry, ...] = ()
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def sequences(self) -> int:
        return sum(shard.sequences for shard in self.shards)

    @property
    def events(self) -> int:
        return sum(shard.events for shard in self.shards)

    def files(self) -> list[ColumnFile]:
        """Return all files of the split, in the order used for checksums."""
        there = [one for one in SOMETIMES if one.name in self.optional]
        return [*ALWAYS, *there, *(one.file(place) for place, one in enumerate(self.attributes))]

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON values; `read_split` is the inverse."""
        return {
            "shards": [[one.sequences, one.events, *one.letters, one.checksum] for one in self.shards],
            "optional": list(self.optional),
            "attributes": [asdict(one) | {"categories": list(one.categories)} for one in self.attributes],
            "report": self.report,
        }


def sizes(shard: ShardEntry, file: ColumnFile, first: bool) -> int:
    """Return the number of values of a shard in a file; offsets have an additional value in the first shard."""
    if file.scope == "letter":
        return shard.letters[0 if file.name.startswith("ids") else 1]
    if file.scope == "event":
        return shard.events
    return shard.sequences + (first and file.scope == "offset")


def byte_ranges(entry: SplitEntry, file: ColumnFile) -> Iterator[tuple[int, int]]:
    """Yield the (start, stop) of each shard in a file, in bytes."""
    size, start = np.dtype(file.dtype).itemsize, 0
    for place, shard in enumerate(entry.shards):
        stop = start + size * sizes(shard, file, place == 0)
        yield start, stop
        start = stop


def read_split(path: Path, name: str, found: Any) -> SplitEntry:
    """Check and return a split of a manifest; raise a `DataError` for invalid input."""

    def wrong(what: str, value: Any) -> DataError:
        said = f"{path}: split {name!r}: {what} is {short(value)}, expected what `foretell data pack` wrote"
        return DataError(f"{said}; pack the data again")

    if not isinstance(found, dict):
        raise wrong("it", found)
    shards = found.get("shards")
    if not isinstance(shards, list) or len(shards) > MOST_SHARDS or not all(map(_is_shard, shards)):
        raise wrong("shards", shards)
    optional, names = found.get("optional"), {one.name for one in SOMETIMES}
    if not isinstance(optional, list) or not all(isinstance(one, str) and one in names for one in optional):
        raise wrong("optional", optional)
    if ("metadata.utf8" in optional) != ("metadata_offsets.i64" in optional):
        raise wrong("optional", optional)
    attributes, report = found.get("attributes"), found.get("report")
    if not isinstance(attributes, list) or not all(map(_is_attribute, attributes)):
        raise wrong("attributes", attributes)
    if not isinstance(report, dict):
        raise wrong("report", report)
    return SplitEntry(
        tuple(ShardEntry(one[0], one[1], (one[2], one[3]), one[4]) for one in shards),
        tuple(optional),
        tuple(AttributeEntry(one["name"], one["kind"], one["scope"], tuple(one["categories"])) for one in attributes),
        report,
    )


def _is_shard(found: Any) -> bool:
    return isinstance(found, list) and len(found) == 5 and all(type(one) is int and 0 <= one < 2**48 for one in found)


def _is_attribute(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("name"), str)
        and isinstance(found.get("kind"), str)
        and found["kind"] in STORED
        and found.get("scope") in ("event", "sequence")
        and _texts(found.get("categories"))
    )


def _texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(one, str) for one in found)


def joined_checksum(parts: Iterable[int]) -> int:
    """Combine the checksums of a shard's parts of all files, in the order of the files."""
    return zlib.crc32(b"".join(one.to_bytes(4, "little") for one in parts))
