"""SQL query → Arrow table of its rows. DuckDB, SQLite and PostgreSQL databases are opened read-only.

A source is written `sql:DATABASE|SELECT …`, so that it can replace a path. Without a database, DuckDB reads the files that are named
in the query.
"""

from __future__ import annotations

import importlib
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from foretell.data.sources.sqlite_files import is_sqlite, read_only
from foretell.errors import DataError, ForetellError, short
from foretell.reading import open_regular, read_limits

if TYPE_CHECKING:
    import pyarrow

PREFIX = "sql:"
SCHEMES = ("postgresql", "postgres")
ROWS_AT_ONCE = 100_000
NO_ROWS = "`sql=`: the statement gives no rows; expected a SELECT"
ONE_SELECT = "`sql=`: expected one SELECT and nothing else"
DUCKDB_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
}  # no extensions from elsewhere, since they are code
# no access to other files, since a view in an untrusted database could read any file
CLOSED = {**DUCKDB_SETTINGS, "enable_external_access": "false"}
_SELECTS = re.compile(
    r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*+(?:select|with|values|table)\b", re.IGNORECASE | re.DOTALL
)


def sql_source(statement: str, database: str) -> str:
    """Return the name of a source: `sql:DATABASE|SELECT …`."""
    if not statement.strip():
        raise ForetellError(
            "`sql=` is empty; expected a query such as SELECT patient AS sequence, at AS time, code AS event FROM visits"
        )
    if "|" in database:
        raise ForetellError(f"`database={database!r}`: a `|` cannot stand in its name")
    return f"{PREFIX}{database}|{statement.strip()}"


def is_sql_source(path: str) -> bool:
    """Whether a path is the name of an SQL source."""
    return path.startswith(PREFIX)


def short_name(source: str) -> str:
    """Return the name of a source in messages and runs: the name of its database."""
    database = source.removeprefix(PREFIX).partition("|")[0]
    return Path(urlsplit(database).path or database).stem or "query"


def query(source: str) -> pyarrow.Table:
    """Run the query of a source and return its rows."""
    database, bar, statement = source.removeprefix(PREFIX).partition("|")
    if not bar or not statement.strip():
        raise DataError(f"{short(source)}: expected sql:DATABASE|SELECT …, or `sql=` and `database=`")
    scheme = urlsplit(database).scheme if "://" in database else ""
    run: Callable[[str, str], pyarrow.Table]
    if scheme in SCHEMES:
        run = _postgresql
    elif scheme:
        raise DataError(f"`database={database}`: expected a file of DuckDB or SQLite, or postgresql://…")
    elif database and not Path(database).is_file():
        raise DataError(f"`database={database}`: no such file")
    elif database and is_sqlite(database):
        run = _sqlite
    elif database and not _is_duckdb(database):
        raise DataError(
            f"`database={database}`: it is a file of neither DuckDB nor SQLite; other files: `sql=… FROM 'FILE'`"
        )
    else:
        run = _duckdb
    return run(database, statement)


def _is_duckdb(path: str) -> bool:
    """Whether a file has DuckDB's magic bytes, which follow a checksum."""
    with open_regular(path) as file:
        return file.read(12)[8:] == b"DUCK"


def _duckdb(database: str, statement: str) -> pyarrow.Table:
    duckdb = _module("duckdb", "sql")
    most = _most_rows(database)
    try:
        settings = CLOSED if database else DUCKDB_SETTINGS
        with duckdb.connect(database or ":memory:", read_only=bool(database), config=settings) as connection:
            kinds = [one.type for one in connection.extract_statements(statement)]
            if kinds != [duckdb.StatementType.SELECT]:  # COPY … TO would write a file even if the database is read-only
                raise DataError(ONE_SELECT)
            found = connection.sql(statement).limit(most + 1).to_arrow_table()
    except duckdb.Error as error:
        raise _failed(database or "DuckDB", error) from None
    if len(found) > most:
        raise _too_many(most)
    return found


def _sqlite(database: str, statement: str) -> pyarrow.Table:
    most = _most_rows(database)
    try:
        with read_only(database) as connection:
            rows = connection.execute(statement)
            if rows.description is None:
                raise DataError(NO_ROWS)
            names = [column[0] for column in rows.description]
            cells: list[list[object]] = [[] for _ in names]
            count = 0
            while some := rows.fetchmany(ROWS_AT_ONCE):
                count += len(some)
                if count > most:
                    raise _too_many(most)
                for column, values in zip(cells, zip(*some, strict=True), strict=True):
                    column.extend(values)
    except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:
        denied = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_AUTH
        raise DataError(ONE_SELECT) if denied else _failed(database, error) from None
    pa = _module("pyarrow", "")
    return pa.Table.from_arrays([_array(pa, column) for column in cells], names=names)


def _array(pa: ModuleType, cells: list[object]) -> pyarrow.Array:
    """Return a column of SQLite as an Arrow array; values of different types become text."""
    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else str(value) for value in cells])


def _most_rows(database: str) -> int:
    """Return the largest allowed number of rows, since a query on a small file can return arbitrarily many rows."""
    return read_limits().events_of(Path(database).stat().st_size if database else 0)


def _too_many(most: int) -> DataError:
    return DataError(f"`sql=`: the query gives more than {most:,} rows; `max_events=` sets another limit")


def _postgresql(database: str, statement: str) -> pyarrow.Table:
    if urlsplit(database).password is not None:
        said = "a password would be kept in the run's configuration: give it as PGPASSWORD, or in ~/.pgpass"
        raise ForetellError(f"`database=`: {said}")
    if not _SELECTS.match(statement):
        raise DataError(ONE_SELECT)
    dbapi = _module("adbc_driver_postgresql.dbapi", "sql")
    try:
        with dbapi.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            cursor.execute(statement)
            return _plain_types(cursor.fetch_arrow_table())
    except dbapi.Error as error:
        raise _failed(database, error) from None


def _plain_types(table: pyarrow.Table) -> pyarrow.Table:
    """Convert columns of types that Arrow lacks, which arrive as text: `numeric` becomes float64, others stay text."""
    pa = _module("pyarrow", "")
    for place, column in enumerate(table.columns):
        if isinstance(column.type, pa.BaseExtensionType):
            text = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
            is_number = getattr(column.type, "type_name", "") == "numeric"
            table = table.set_column(place, table.column_names[place], text.cast(pa.float64()) if is_number else text)
    return table


def _failed(database: str, error: Exception) -> DataError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return DataError(f"`database={database}`: {' '.join(lines[:2]) or type(error).__name__}")


def _module(name: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        how = f": pip install 'foretell[{extra}]'" if extra else ""
        raise ForetellError(f"this database needs {name.partition('.')[0]}, which is not installed{how}") from None
