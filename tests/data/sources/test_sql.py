"""Queries of DuckDB, SQLite and PostgreSQL: rows become events, nothing is changed, and a wrong query is told."""

from __future__ import annotations

import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.data import Dataset, load
from foretell.data.sources.sql import sql_source
from foretell.errors import DataError, ForetellError
from foretell.reading import limits

ROWS = [(f"p{number % 3}", f"2020-01-0{1 + number} 00:00:00", f"e{number % 2}", 1.5 * number) for number in range(8)]
QUERY = "SELECT patient AS sequence, seen AS time, code AS event, dose FROM visits ORDER BY seen"


def check(found: Dataset) -> None:
    assert found.train is not None and [one.id for one in found.train] == ["p0", "p1", "p2"]
    assert (found.train[0].times * found.clock.seconds_per_unit / 86400).tolist() == [0.0, 3.0, 6.0]
    assert found.train.names_of(found.train[1]) == ["e1", "e0", "e1"]
    assert found.train.columns.attributes["dose"].values[:3].tolist() == [0.0, 4.5, 9.0]


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "ward.sqlite") as base:
        base.execute("CREATE TABLE visits (patient TEXT, seen TEXT, code TEXT, dose REAL)")
        base.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", ROWS)
    return tmp_path / "ward.sqlite"


def test_rows_of_sqlite_are_events(sqlite: Path) -> None:
    check(load(sql_source(QUERY, str(sqlite))))


def test_rows_of_duckdb_are_events_and_so_are_those_of_files(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="the package duckdb is not installed")
    path = tmp_path / "ward.duckdb"
    with duckdb.connect(str(path)) as base:
        base.execute("CREATE TABLE visits (patient VARCHAR, seen TIMESTAMP, code VARCHAR, dose DOUBLE)")
        base.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", ROWS)
        base.execute(f"COPY visits TO '{tmp_path / 'visits.parquet'}'")
    check(load(sql_source(QUERY, str(path))))
    check(load(sql_source(QUERY.replace("visits", f"'{tmp_path / 'visits.parquet'}'"), "")))
    target = tmp_path / "written"
    for database in (str(path), ""):
        for statement in (
            "DELETE FROM visits",
            f"COPY (SELECT 1) TO '{target}'",
            f"SELECT 1; COPY (SELECT 1) TO '{target}'",
            f"ATTACH '{target}' AS other",
            "INSTALL httpfs",
        ):
            with pytest.raises(DataError, match="expected one SELECT and nothing else"):
                load(sql_source(statement, database))
    assert not target.exists()
    endless = "SELECT n AS time, 'x' AS event FROM range(100_000_000_000) AS r(n)"
    with pytest.raises(DataError, match="more than 1,000 rows; `max_events=`"), limits(max_events=1000):
        load(sql_source(endless, ""))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT * FROM vists", "no such table"),
        ("SELEC", "syntax error"),
        ("DELETE FROM visits", "expected one SELECT"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("PRAGMA user_version = 3", "expected one SELECT"),
        ("ATTACH 'WRITTEN' AS other", "expected one SELECT"),
        ("VACUUM INTO 'WRITTEN'", "expected one SELECT"),
        (
            "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) SELECT n AS time, 'x' AS event FROM a",
            "more than 1,000 rows; `max_events=`",
        ),
        ("SELECT patient FROM visits", "no column 'time'"),
        ("SELECT patient AS sequence, 'soon' AS time, code AS event FROM visits", "row 1: .*time is 'soon'"),
        ("SELECT * FROM visits WHERE 0", "no column 'time'"),
    ],
)
def test_a_query_that_gives_no_events_is_told(sqlite: Path, statement: str, said: str) -> None:
    before, written = sqlite.read_bytes(), sqlite.with_name("written")
    with pytest.raises(DataError, match=said), limits(max_events=1000):
        load(sql_source(statement.replace("WRITTEN", str(written)), str(sqlite)))
    assert sqlite.read_bytes() == before and not written.exists()


def test_databases_that_cannot_be_opened_are_told(tmp_path: Path) -> None:
    (tmp_path / "no.sqlite").write_bytes(b"SQLite format 3\x00 and then nothing")
    (tmp_path / "table.csv").write_text("sequence,time,event\na,1,x\n")
    for database, said in (
        (str(tmp_path / "none.duckdb"), "no such file"),
        (str(tmp_path / "no.sqlite"), "not a database|malformed"),
        (str(tmp_path / "table.csv"), "neither DuckDB nor SQLite"),
        ("mysql://host/base", "expected a file of DuckDB or SQLite, or postgresql://"),
        ("postgresql://eve:secret@host/base", "PGPASSWORD"),
    ):
        with pytest.raises(ForetellError, match=said) as caught:
            load(sql_source(QUERY, database))
        assert "secret" not in str(caught.value)
    with pytest.raises(ForetellError, match="`sql=` is empty"):
        sql_source(" ", "x.duckdb")


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The address of a server of its own, from the binaries of Debian's package; skipped where there are none."""
    pytest.importorskip("adbc_driver_postgresql", reason="the package adbc-driver-postgresql is not installed")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not found:
        pytest.skip("no PostgreSQL server in /usr/lib/postgresql")
    user = None
    if os.geteuid() == 0:  # the server refuses to be run by root
        try:
            user = pwd.getpwnam("postgres").pw_name
        except KeyError:
            pytest.skip("running as root, and there is no user postgres to run the server")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # the name of a socket may not be long
    if user is not None:
        shutil.chown(folder, user)

    def run(program: str, *arguments: str) -> None:
        command = [str(found[-1].with_name(program)), "-D", str(folder / "data"), *arguments]
        subprocess.run(command, user=user, cwd=folder, check=True, capture_output=True, timeout=60)

    try:
        run("initdb", "-A", "trust", "-U", "foretell", "--no-sync")
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", f"-k {folder} -h '' -F", "start")
        try:
            yield f"postgresql:///postgres?host={folder}&user=foretell"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_rows_of_postgresql_are_events_and_its_data_stay_as_they_are(postgresql: str) -> None:
    import adbc_driver_postgresql.dbapi as dbapi

    with dbapi.connect(postgresql) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE visits (patient TEXT, seen TIMESTAMPTZ, code TEXT, dose NUMERIC)")
        values = ", ".join(f"('{patient}', '{at}+00', '{code}', {dose})" for patient, at, code, dose in ROWS)
        cursor.execute(f"INSERT INTO visits VALUES {values}")
        connection.commit()
    check(load(sql_source(QUERY, postgresql)))
    for statement, said in (
        ("DELETE FROM visits", "expected one SELECT"),
        ("COPY visits TO PROGRAM 'cat > /dev/null'", "expected one SELECT"),
        ("WITH gone AS (DELETE FROM visits RETURNING *) SELECT * FROM gone", "read-only transaction"),
        ("SELECT * FROM vists", "does not exist"),
        ("SELECT 1; SELECT 2", "multiple commands"),
    ):
        with pytest.raises(DataError, match=said):
            load(sql_source(statement, postgresql))
    check(load(sql_source(QUERY, postgresql)))
