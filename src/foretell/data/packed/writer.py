"""Write `Columns` shard by shard to a packed folder, which only appears when it is complete.

Files are written to a hidden folder next to the target, `.NAME.ID.part`, which is renamed at the end. A killed process leaves this
folder behind; the next process that packs to the same target removes the folders of dead processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from foretell.data.attributes import Attribute, as_texts
from foretell.data.columns import Columns
from foretell.data.dataset import CARD_FILE, Card, LoadReport
from foretell.data.packed.layout import (
    ALWAYS,
    FORMAT,
    MANIFEST,
    SHARD_EVENTS,
    SOMETIMES,
    VERSION,
    AttributeEntry,
    AttributeKind,
    ColumnFile,
    ShardEntry,
    SplitEntry,
    joined_checksum,
    sizes,
)
from foretell.data.packed.load_counts import LoadCounts
from foretell.data.sequence import Vocabulary
from foretell.errors import DataError, ForetellError

FILES = {one.name: one for one in (*ALWAYS, *SOMETIMES)}
NOTHING: dict[AttributeKind, object] = {
    "number": np.nan,
    "integer": 0,
    "time": np.iinfo(np.int64).min,
    "text": -1,
}


Scope = Literal["event", "sequence"]
KINDS: dict[str, AttributeKind] = {"M": "time", "i": "integer", "u": "integer"}  # by the `kind` of a numpy dtype


@dataclass
class FileWriter:
    """Writes a column to disk and records the checksum of each shard. A column that first occurs in a later shard is filled up."""

    path: Path
    file: ColumnFile
    checksums: list[int] = field(default_factory=list)

    def append(self, values: np.ndarray) -> None:
        """Write the values of the next shard."""
        content = np.ascontiguousarray(values, dtype=self.file.dtype).tobytes()
        self.checksums.append(zlib.crc32(content))
        with open(self.path, "ab") as stream:
            stream.write(content)


class AttributeWriter:
    """Writes an attribute to disk; all shards share one list of categories."""

    def __init__(self, path: Path, entry: AttributeEntry, place: int) -> None:
        self.entry, self.place = entry, place
        file = entry.file(place)
        self.file = FileWriter(path / file.name, file)
        self.categories: dict[str, int] = {}

    def append(self, attribute: Attribute | None, count: int) -> None:
        """Write the values of the next shard; None: all `count` values are missing."""
        kind = self.entry.kind
        if attribute is None:
            if kind == "integer":
                raise DataError(f"attribute {self.entry.name!r}: whole numbers are missing from a part of the data")
            self.file.append(np.full(count, NOTHING[kind]))
            return
        found = kind_of(attribute)
        if kind == "text":
            self.file.append(self._codes(attribute))
        elif found == kind or (kind, found) == ("number", "integer"):
            values = attribute.values
            self.file.append(values.view(np.int64) if kind == "time" else values)
        else:
            said = f"attribute {self.entry.name!r} is {kind} in one part of the data and {found} in another"
            raise DataError(f"{said}; as a covariate it can be named {self.entry.name}:category")

    def _codes(self, attribute: Attribute) -> np.ndarray:
        if attribute.categories is None:
            texts = as_texts(attribute)
            codes = [-1 if text is None else self.categories.setdefault(text, len(self.categories)) for text in texts]
            return np.array(codes, dtype=np.int32)
        used = np.unique(attribute.values)
        place = np.full(len(attribute.categories) + 1, -1, dtype=np.int32)
        for code in used[used >= 0].tolist():
            place[code] = self.categories.setdefault(attribute.categories[code], len(self.categories))
        return place[attribute.values]


def kind_of(attribute: Attribute) -> AttributeKind:
    """Return the kind in which an attribute is stored."""
    if attribute.categories is not None:
        return "text"
    return KINDS.get(attribute.values.dtype.kind, "number")


class SplitWriter:
    """Writes one split to disk; `kinds` has the stored kinds of attributes whose kind differs between shards."""

    def __init__(self, folder: Path, kinds: Mapping[str, AttributeKind] | None = None) -> None:
        folder.mkdir()
        self.folder = folder
        self.kinds: dict[str, AttributeKind] = dict(kinds or {})
        self.counts, self.shards = LoadCounts(), list[ShardEntry]()
        self.files: dict[str, FileWriter] = {}
        self.attributes: dict[tuple[str, str], AttributeWriter] = {}
        self.events = self.letters = self.metadata_letters = 0

    def append(self, columns: Columns) -> None:
        """Write the next sequences, cut into shards."""
        for start, stop in shard_cuts(columns.offsets):
            self._shard(columns.span(start, stop))

    def _shard(self, columns: Columns) -> None:
        count, first = len(columns), not self.shards
        ids, id_lengths = _letters(columns.ids)
        about = [json.dumps(dict(one), ensure_ascii=False) if one else "" for one in columns.metadata]
        metadata, metadata_lengths = _letters(about)
        values = {
            "times.f64": columns.times,
            "types.i32": columns.types,
            "offsets.i64": self._ends(columns.lengths, self.events, first),
            "t_ends.f64": columns.t_ends,
            "ids.utf8": ids,
            "id_offsets.i64": self._ends(id_lengths, self.letters, first),
        }
        optional = {
            "unscored.b8": columns.unscored,
            "starts.i64": columns.starts,
            "scored_from.f64": columns.scored_from,
            "ends_assumed.b8": columns.ends_assumed,
        }
        values |= {name: array for name, array in optional.items() if array is not None}
        if len(metadata):
            values["metadata.utf8"] = metadata
            values["metadata_offsets.i64"] = self._ends(metadata_lengths, self.metadata_letters, first)
        self._write(values, ShardEntry(count, len(columns.times), (len(ids), len(metadata)), 0))
        self._write_attributes(columns)
        self.events += len(columns.times)
        self.letters += len(ids)
        self.metadata_letters += len(metadata)
        self.counts.add(columns)

    @staticmethod
    def _ends(lengths: np.ndarray, before: int, first: bool) -> np.ndarray:
        ends = before + np.cumsum(lengths, dtype=np.int64)
        return np.concatenate([[0], ends]) if first else ends

    def _write(self, values: Mapping[str, np.ndarray], shard: ShardEntry) -> None:
        for name in values:
            if name not in self.files:
                self.files[name] = self._filled(name)
        self.shards.append(shard)
        for name, writer in self.files.items():
            found = values.get(name)
            if found is None:
                found = self._missing(writer.file, shard, len(self.shards) == 1)
            writer.append(found)

    def _filled(self, name: str) -> FileWriter:
        """Return the writer of a new column, after writing missing values for all shards so far."""
        writer = FileWriter(self.folder / name, FILES[name])
        if name == "starts.i64" and self.shards:
            raise DataError("some sequences have an absolute start and others do not: expected all or none")
        for place, shard in enumerate(self.shards):
            writer.append(self._missing(writer.file, shard, place == 0))
        return writer

    def _missing(self, file: ColumnFile, shard: ShardEntry, first: bool) -> np.ndarray:
        if file.name == "starts.i64":
            raise DataError("some sequences have an absolute start and others do not: expected all or none")
        before = self.metadata_letters if file.name == "metadata_offsets.i64" else 0
        return np.full(sizes(shard, file, first), before)

    def _write_attributes(self, columns: Columns) -> None:
        tables: tuple[tuple[Scope, Mapping[str, Attribute], int], ...] = (
            ("event", columns.attributes, len(columns.times)),
            ("sequence", columns.sequence_attributes, len(columns)),
        )
        for scope, found, count in tables:
            for name, attribute in found.items():
                if (scope, name) not in self.attributes:
                    self._new_attribute(scope, name, self.kinds.get(name) or kind_of(attribute))
            for (one, name), writer in self.attributes.items():
                if one == scope:
                    writer.append(found.get(name), count)

    def _new_attribute(self, scope: Scope, name: str, kind: AttributeKind) -> None:
        writer = AttributeWriter(self.folder, AttributeEntry(name, kind, scope), len(self.attributes))
        for shard in self.shards[:-1]:
            writer.append(None, shard.events if scope == "event" else shard.sequences)
        self.attributes[scope, name] = writer

    def finish(self, report: LoadReport) -> SplitEntry:
        """Return the split's entry in the manifest."""
        if not self.shards:
            raise DataError(f"{report.path}: there are no sequences to pack")
        entry = SplitEntry(
            tuple(self.shards),
            tuple(one.name for one in SOMETIMES if one.name in self.files),
            tuple(
                AttributeEntry(one.entry.name, one.entry.kind, one.entry.scope, tuple(one.categories))
                for one in self.attributes.values()
            ),
            {name: value for name, value in asdict(report).items() if name not in ("unknown_types", "unknown")},
        )
        for one in ALWAYS:
            (self.folder / one.name).touch()
        checksums = [self.files[one.name].checksums for one in entry.files()[: -len(self.attributes) or None]]
        checksums += [one.file.checksums for one in self.attributes.values()]
        shards = (
            ShardEntry(one.sequences, one.events, one.letters, joined_checksum(parts))
            for one, parts in zip(entry.shards, zip(*checksums, strict=True), strict=True)
        )
        return SplitEntry(tuple(shards), entry.optional, entry.attributes, entry.report)


def shard_cuts(offsets: np.ndarray, most: int = SHARD_EVENTS) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of runs of sequences. A run has at most `most` sequences and, if it has several, at most `most` events."""
    start, count = 0, len(offsets) - 1
    while start < count:
        stop = int(np.searchsorted(offsets, offsets[start] + most, side="right")) - 1
        stop = min(max(stop, start + 1), start + most, count)
        yield start, stop
        start = stop


def _letters(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return all texts as one array of UTF-8 bytes, and the length of each."""
    content = [text.encode("utf-8") for text in texts]
    lengths = np.fromiter(map(len, content), dtype=np.int64, count=len(content))
    return np.frombuffer(b"".join(content), dtype=np.uint8), lengths


@dataclass(frozen=True)
class PackedFacts:
    """The properties that all splits of a packed data set share."""

    vocabulary: Vocabulary
    card: Card
    clock: Mapping[str, object]


class PackWriter:
    """Writes a packed folder: `with packing(target) as writer`, then `split` for each split, then `finish`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, SplitEntry] = {}
        self.done = False

    def split(self, name: str, kinds: Mapping[str, AttributeKind] | None = None) -> SplitWriter:
        return SplitWriter(self.folder / name, kinds)

    def finish(self, facts: PackedFacts) -> None:
        """Write the manifest and the card, which make the folder readable."""
        (self.folder / CARD_FILE).write_text(facts.card.to_toml(), encoding="utf-8")
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "types": len(facts.vocabulary) if facts.vocabulary.numbered else list(facts.vocabulary.names),
            "clock": dict(facts.clock),
            "splits": {name: entry.to_json() for name, entry in self.entries.items()},
        }
        text = json.dumps(manifest, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        (self.folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
        for path in self.folder.rglob("*"):
            if path.is_file():
                with open(path, "rb") as stream:
                    os.fsync(stream.fileno())
        self.done = True


@contextlib.contextmanager
def packing(target: Path) -> Iterator[PackWriter]:
    """Context manager for a writer; its folder becomes `target` if the block ends without an error and `finish` was called."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ForetellError(f"{target}: there is something already; give a folder that does not exist yet")
    parent = target.resolve().parent
    temporary = parent / f".{target.name}.{os.getpid()}.part"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        remove_left_over(target)
        temporary.mkdir()
        writer = PackWriter(temporary)
        yield writer
        assert writer.done
        os.replace(temporary, target.resolve())
    except OSError as error:
        raise ForetellError(f"{target}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_left_over(target: Path, alive: Callable[[int], bool] | None = None) -> None:
    """Remove unfinished folders of dead processes for the same target."""
    alive = _is_running if alive is None else alive
    name = re.compile(rf"\.{re.escape(target.name)}\.([0-9]+)\.part\Z")
    for path in target.resolve().parent.iterdir():
        found = name.match(path.name)
        if (
            found
            and path.is_dir()
            and not path.is_symlink()
            and (int(found[1]) == os.getpid() or not alive(int(found[1])))
        ):
            shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
