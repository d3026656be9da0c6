"""SQLite files: recognised by their first bytes, and opened so that nothing is changed and no code in them is run."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from foretell.reading import UnreadableFile, open_regular

MAGIC = b"SQLite format 3\x00"
READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
LONGEST_VALUE = 64 << 20  # bytes of one value; an expression in the file's schema can produce gigabytes
LOGGED = b"\x02\x02"  # bytes in the header of a database with a write-ahead log (WAL)
CATALOGUE = {"table_info", "table_xinfo", "table_list", "data_version"}  # allowed pragmas


def is_sqlite(path: str | Path) -> bool:
    """Whether a file begins with SQLite's magic bytes."""
    with open_regular(path) as file:
        return file.read(len(MAGIC)) == MAGIC


@contextlib.contextmanager
def read_only(path: str | Path) -> Iterator[sqlite3.Connection]:
    """Context manager for a connection that cannot write, and does not run functions called in the file's schema."""
    path = Path(path).resolve()
    alone = "&immutable=1" if _is_alone(path) else ""
    with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro{alone}", uri=True)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_authorizer(_only_reads)
        yield connection


def _is_alone(path: Path) -> bool:
    """Whether a database in WAL mode has no log file now. It is then opened as immutable, so that SQLite does not create a log file.

    Raises:
        UnreadableFile: there is a log file without its index, which SQLite would have to write.
    """
    log, index = (path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))
    if log.exists() and not index.exists():
        hint = "close the program that writes it, or let it run `PRAGMA wal_checkpoint(TRUNCATE)`"
        raise UnreadableFile(f"its latest changes are still in {log.name}", hint, path=path)
    with open_regular(path) as file:
        return file.read(20)[18:] == LOGGED and not log.exists()


def _only_reads(action: int, what: str | None, *_: str | None) -> int:
    """Authorizer that only allows reads: `ATTACH` and `VACUUM INTO` could create files even if the database is read-only."""
    allowed = action in READS or (action == sqlite3.SQLITE_PRAGMA and what in CATALOGUE)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
