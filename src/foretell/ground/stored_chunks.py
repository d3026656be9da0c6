"""Chunks on disk → the rows of single sequences, by memory mapping, for data that are larger than memory.

A cache file is an uncompressed archive, so an array in it is a range of bytes that can be mapped. Each file was written or read
completely, with its checksums, before it is used here. Files that are missing or changed are skipped
with a message.
"""

from __future__ import annotations

import logging
import math
import mmap
import zipfile
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretell.ground.chunk import ARRAYS, SequenceRows
from foretell.ground.numbering import ChunkNumbers, renumbered

log = logging.getLogger("foretell")

MOST_OPEN = 64  # the number of mapped files; each costs address space and the offsets of its sequences
LOCAL_HEADER = 30  # the number of bytes before the name of an archive's member
DAMAGED = (OSError, ValueError, KeyError, IndexError, TypeError, zipfile.BadZipFile)


class MappedChunk:
    """A cache file whose arrays are memory-mapped."""

    def __init__(self, path: Path, numbers: ChunkNumbers) -> None:
        self.facts, self.instances = numbers.tables()
        self.arrays = mapped_arrays(path)
        self.starts = {name: np.cumsum([0, *self.arrays[f"{name}.sizes"].tolist()]) for name in ARRAYS}

    def rows(self, place: int) -> SequenceRows:
        """Return the rows of the sequence at this position, in the engine's numbering."""
        found = (
            np.array(self.arrays[name][self.starts[name][place] : self.starts[name][place + 1]]) for name in ARRAYS
        )
        return renumbered(SequenceRows(*found), self.facts, self.instances)


@dataclass(frozen=True)
class _StoredChunk:
    path: Path
    numbers: ChunkNumbers


class StoredChunks:
    """Finds the file that contains a sequence. Copies of this object, also in other processes, start empty."""

    def __init__(self) -> None:
        self.chunks: list[_StoredChunk] = []
        self.places: dict[bytes, tuple[int, int]] = {}  # by key: (chunk, position of the sequence in it)
        self.opened: OrderedDict[int, MappedChunk] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self.places

    def add(self, path: Path, numbers: ChunkNumbers, keys: Iterable[bytes]) -> None:
        """Add a chunk's file with the keys of its sequences, in order. Does nothing if the file does not exist."""
        if not path.is_file():
            return
        self.places.update((key, (len(self.chunks), place)) for place, key in enumerate(keys))
        self.chunks.append(_StoredChunk(path, numbers))

    def get(self, key: bytes) -> SequenceRows | None:
        """Return the rows of a sequence, or None if no file has them."""
        if key not in self.places:
            return None
        number, place = self.places[key]
        try:
            return self._open(number).rows(place)
        except DAMAGED as error:
            path = self.chunks[number].path
            log.warning("%s: cannot be read (%s); its sequences are replayed again", path, error)
            self.places = {key: there for key, there in self.places.items() if there[0] != number}
            return None

    def _open(self, number: int) -> MappedChunk:
        found = self.opened.get(number)
        if found is None:
            found = self.opened[number] = MappedChunk(self.chunks[number].path, self.chunks[number].numbers)
            while len(self.opened) > MOST_OPEN:
                self.opened.popitem(last=False)
        self.opened.move_to_end(number)
        return found

    def clear(self) -> None:
        """Drop all references to files; the files stay on disk."""
        self.chunks, self.places = [], {}
        self.opened.clear()


def mapped_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file written by `np.savez`, as views of one memory map."""
    with open(path, "rb") as file:
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
        return {one.filename.removesuffix(".npy"): _mapped(file, whole, one) for one in members}


def _mapped(file: Any, whole: mmap.mmap, member: zipfile.ZipInfo) -> np.ndarray:
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is compressed")
    name, extra = np.frombuffer(whole, dtype="<u2", count=2, offset=member.header_offset + LOCAL_HEADER - 4).tolist()
    file.seek(member.header_offset + LOCAL_HEADER + name + extra)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(f"{member.filename} holds objects")
    array = np.frombuffer(whole, dtype=dtype, count=math.prod(shape), offset=file.tell())
    return array.reshape(shape, order="F" if fortran else "C")
