"""SQLite files, recognised by how they begin and opened so that nothing in them can change or run."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from foretell.reading import UnreadableFile, open_regular

MAGIC = b"SQLite format 3\x00"
READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
LONGEST_VALUE = 64 << 20  # bytes of one text; a formula of the file's schema can make a gigabyte of nothing
LOGGED = b"\x02\x02"  # in its header: changes are written to a log beside the file first
CATALOGUE = {"table_info", "table_xinfo", "table_list", "data_version"}  # pragmas that a read may look at


def is_sqlite(path: str | Path) -> bool:
    """Whether a file begins as SQLite's do."""
    with open_regular(path) as file:
        return file.read(len(MAGIC)) == MAGIC


@contextlib.contextmanager
def read_only(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write, and does not trust functions that the file's own schema calls."""
    path = Path(path).resolve()
    alone = "&immutable=1" if _is_alone(path) else ""
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro{alone}", uri=True)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_authorizer(_only_reads)
        yield connection


def _is_alone(path: Path) -> bool:
    """Whether a file that has a log has none now, so that SQLite need not make one beside it to read.

    Raises:
        UnreadableFile: there is a log without its index: SQLite would write the index.
    """
    log, index = (path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))
    if log.exists() and not index.exists():
        hint = "close the program that writes it, or let it run `PRAGMA wal_checkpoint(TRUNCATE)`"
        raise UnreadableFile(f"its latest changes are still in {log.name}", hint, path=path)
    with open_regular(path) as file:
        return file.read(20)[18:] == LOGGED and not log.exists()


def _only_reads(action: int, what: str | None, *_: str | None) -> int:
    """Restrict what statements may do: `ATTACH` and `VACUUM INTO` could create files even if the database is read-only."""
    allowed = action in READS or (action == sqlite3.SQLITE_PRAGMA and what in CATALOGUE)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
