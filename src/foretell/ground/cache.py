"""Replayed chunks on disk, each under a hash of everything it depends on.

A file is written under a name of its own and then renamed, so that a reader finds a whole one or none, however many runs write at once and
wherever one is killed. What cannot be read is replayed again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretell.data import EventData
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.ground.chunk import Chunk
from foretell.lang.program import Program

log = logging.getLogger("foretell")

FORMAT = 4  # of the files, and of the numbering that they rely on: raise it whenever the engine changes either
VARIABLE = "FORETELL_CACHE"


def default_folder() -> Path:
    """`FORETELL_CACHE`, else where this system keeps caches."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "foretell"


def chunk_hash(program: Program, data: EventData, impossible: str) -> str:
    """Of the program, the events in their order, and the options that change what is replayed; times do not matter."""
    digest = hashlib.sha256(f"{FORMAT}\n{program.digest}\n{program.undeclared}\n{impossible}\n".encode())
    # Numbers are stored, and they follow the order in which things are declared, though the meaning does not.
    order = [*program.functors, "", *(name for one in program.components for name in one.functors), ""]
    order += [str((table.functor, table.rows)) for table in program.tables]
    digest.update("\n".join(order).encode("utf-8", "surrogatepass"))
    used: dict[int, None] = {}
    for sequence in data:
        types = np.asarray(sequence.types, dtype=np.int32)
        digest.update(len(types).to_bytes(8, "little"))
        digest.update(types.tobytes())
        if sequence.unscored is not None and sequence.unscored.any():  # such events may be impossible
            digest.update(b"unscored" + sequence.unscored.tobytes())
        used.update(dict.fromkeys(np.unique(types).tolist()))
    for kind in sorted(used):
        digest.update(f"{kind} {data.vocabulary.names[kind]}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@dataclass(frozen=True)
class Cache:
    folder: Path

    def path(self, key: str) -> Path:
        return self.folder / "timelines" / f"{key}.npz"

    def get(self, key: str) -> Chunk | None:
        path = self.path(key)
        try:
            with np.load(path, allow_pickle=False) as stored:
                return Chunk.from_arrays({name: stored[name] for name in stored.files})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, IndexError, TypeError, EOFError, zipfile.BadZipFile) as error:
            log.warning("%s: cannot be read (%s); replayed again", path, error)
            return None

    def put(self, key: str, chunk: Chunk) -> None:
        """A cache that cannot be written costs time, not the result."""
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, open(temporary, "wb") as file:
                np.savez(file, **chunk.arrays())  # pyright: ignore[reportArgumentType]
        except (OSError, ForetellError) as error:
            log.warning("%s: the replay could not be kept for next time (%s)", path, error)
