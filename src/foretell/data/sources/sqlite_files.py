"""SQLite files, recognised by how they begin and opened so that nothing in them can change or run."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from foretell.reading import open_regular

MAGIC = b"SQLite format 3\x00"
READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
CATALOGUE = {"table_info", "table_xinfo", "table_list", "data_version"}  # pragmas that a read may look at


def is_sqlite(path: str | Path) -> bool:
    """Whether a file begins as SQLite's do."""
    with open_regular(path) as file:
        return file.read(len(MAGIC)) == MAGIC


@contextlib.contextmanager
def read_only(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write, and does not trust functions that the file's own schema calls."""
    address = f"file:{quote(str(Path(path).resolve()))}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_authorizer(_only_reads)
        yield connection


def _only_reads(action: int, what: str | None, *_: str | None) -> int:
    """Restrict what statements may do: `ATTACH` and `VACUUM INTO` could create files even if the database is read-only."""
    allowed = action in READS or (action == sqlite3.SQLITE_PRAGMA and what in CATALOGUE)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
