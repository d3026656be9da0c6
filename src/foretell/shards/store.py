"""Results of shards on disk: one Parquet file per shard, written atomically, and a manifest of the complete ones.

A shard is complete when `manifest.jsonl` has a line with the digest of its file. Damaged or missing shards are reported and repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data.files import replacing, text_file
from foretell.errors import ForetellError
from foretell.wording import counted

MANIFEST, FORMAT = "manifest.jsonl", 1

Table = dict[str, Any]  # column name → numpy array of numbers, or list of strings or of lists


class ShardStore:
    """The folder with the results of one work. `tell` receives messages about damage."""

    def __init__(self, folder: Path, work: str, tell: Callable[[str], None]) -> None:
        self.folder, self.work, self.tell = folder, work, tell
        self.known: dict[int, str] = {}  # shard number → digest of its file
        _load_pyarrow()
        self._read()

    def path(self, number: int) -> Path:
        return self.folder / f"shard-{number:06d}.parquet"

    def get(self, number: int) -> Table | None:
        """Return a shard's result; None if it is missing or damaged."""
        digest = self.known.get(number)
        if digest is None:
            return None
        path = self.path(number)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return self._lost(number, f"{path}: it is gone, though the manifest has it; done again")
        except OSError as error:
            return self._lost(number, f"{path}: cannot be read ({error.strerror}); done again")
        if hashlib.sha256(content).hexdigest() != digest:
            return self._lost(number, f"{path}: damaged (its digest is not that of the manifest); done again")
        return unpacked(content)

    def put(self, number: int, table: Table) -> None:
        content = packed(table)
        with replacing(self.path(number)) as temporary:
            temporary.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        self._append({"shard": number, "file": self.path(number).name, "sha256": digest})
        self.known[number] = digest

    def _lost(self, number: int, line: str) -> None:
        del self.known[number]
        self.tell(line)

    def _append(self, entry: dict[str, Any]) -> None:
        path = self.folder / MANIFEST
        try:
            fresh = not path.exists()
            with open(path, "a", encoding="utf-8") as file:
                if fresh:
                    file.write(json.dumps(self._head()) + "\n")
                file.write(json.dumps(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ForetellError(f"{path}: cannot be written: {error.strerror}") from None

    def _head(self) -> dict[str, Any]:
        return {"format": FORMAT, "work": self.work}

    def _read(self) -> None:
        """Read the manifest; if some lines are damaged, rewrite it with the valid ones."""
        path = self.folder / MANIFEST
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise ForetellError(f"{path}: cannot be read: {error.strerror}") from None
        lines = content.split(b"\n")
        whole, found = lines[:-1], [_parsed(line) for line in lines[:-1]]
        damaged = sum(one is None for one in found) + bool(lines[-1])
        if not found or found[0] != self._head():
            self.tell(f"{path}: not a manifest of this work; its shards are done again")
            path.unlink()
            return
        for entry in found[1:]:
            if entry is not None:
                self.known[entry["shard"]] = entry["sha256"]
        if damaged:
            self.tell(f"{path}: {counted(damaged, 'damaged line')}; the shards that are not in it are done again")
            kept = [line.decode("utf-8") for line, one in zip(whole, found, strict=True) if one is not None]
            with text_file(path) as file:
                file.writelines(f"{line}\n" for line in kept)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Parse an entry of the manifest; return None if it is damaged."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict):
        return None
    head = {"format": int, "work": str}
    kinds = head if "format" in entry else {"shard": int, "file": str, "sha256": str}
    return entry if all(type(entry.get(name)) is kind for name, kind in kinds.items()) else None


def packed(table: Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    pyarrow, parquet = _load_pyarrow()
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(table), sink)
    return sink.getvalue().to_pybytes()


def unpacked(content: bytes) -> Table:
    pyarrow, parquet = _load_pyarrow()
    found = parquet.read_table(pyarrow.BufferReader(content))
    plain = pyarrow.types
    return {
        name: column.to_numpy()
        if plain.is_integer(column.type) or plain.is_floating(column.type) or plain.is_boolean(column.type)
        else column.to_pylist()
        for name, column in zip(found.column_names, found.columns, strict=True)
    }


def joined(tables: list[Table]) -> Table:
    """Concatenate tables with the same columns; return a table without columns for an empty list."""
    if len(tables) == 1:
        return tables[0]
    found: Table = {}
    for name in tables[0] if tables else ():
        parts = [table[name] for table in tables]
        numbers = isinstance(parts[0], np.ndarray)
        found[name] = np.concatenate(parts) if numbers else [one for part in parts for one in part]
    return found


def _load_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ForetellError("results in shards are Parquet files: pip install pyarrow, or leave out `on=`") from None
    return pyarrow, parquet
