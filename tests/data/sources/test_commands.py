"""`foretell data` and `foretell train` with logs and queries: four commands from a log to a report, and no word about time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foretell.cli.data import app
from foretell.cli.main import app as foretell
from foretell.cli.open_run import open_run
from foretell.data import load, load_file
from foretell.data.sources import whole_source
from foretell.errors import ForetellError
from tests.data.sources.test_xes import HEAD, event, trace

WHO = '<string key="org:resource" value="{}"/>'


def run(*arguments: object) -> str:
    """The output of a command; the mistakes of the user's come through as they are raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Twelve cases of a repair shop."""
    cases = []
    for number in range(12):
        day = f"2020-01-{1 + number % 28:02d}"
        steps = [("Receive", "08:00:00"), ("Repair", f"{9 + number % 8:02d}:30:00"), ("Return", "18:00:00")]
        cases.append(trace(f"c{number}", *(event(name, f"{day}T{at}+01:00", WHO.format("Ann")) for name, at in steps)))
    path = tmp_path / "shop.xes"
    path.write_text(f"{HEAD}{''.join(cases)}</log>\n")
    return path


def test_a_log_is_converted_into_every_format_and_back(log: Path, tmp_path: Path) -> None:
    before = load_file(log)
    for name in ("a.csv", "a.parquet", "a.jsonl.gz", "a.xes.gz"):
        assert "train: 12 sequences, 36 events" in run("convert", log, tmp_path / name)
        after = load_file(tmp_path / name)
        assert after.vocabulary == before.vocabulary and (after.columns.times == before.columns.times).all(), name
    run("convert", log, tmp_path / "b.csv", "--participants", "org:resource")
    assert load(tmp_path / "b.csv").vocabulary.names == ("'Receive'('Ann')", "'Repair'('Ann')", "'Return'('Ann')")
    run("convert", log, tmp_path / "folder", "--format", "xes")
    assert sorted(one.name for one in (tmp_path / "folder").iterdir()) == ["dataset.toml", "train.xes", "types.json"]
    assert load(tmp_path / "folder").vocabulary == before.vocabulary


def test_a_query_takes_the_place_of_a_path(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.sqlite") as base:
        base.execute("CREATE TABLE orders (customer, placed, status)")
        base.executemany("INSERT INTO orders VALUES (?, ?, ?)", [("a", f"2020-01-0{day}", "paid") for day in (1, 2, 4)])
    sql = ("--sql", "SELECT customer AS sequence, placed AS time, status AS event FROM orders")
    place = ("--database", tmp_path / "shop.sqlite")
    assert "1 of 1" in run("describe", *sql, *place)
    run("convert", *sql, *place, tmp_path / "orders.csv")
    assert load_file(tmp_path / "orders.csv")[0].times.tolist() == [0.0, 1.0, 3.0]
    for arguments, said in (
        (("describe",), "nothing to describe"),
        (("describe", "x.csv", *sql), "give one of both"),
        (("describe", "x.csv", *place), "give one with --sql"),
        (("convert", tmp_path / "orders.csv"), "where to"),
        (("convert", *sql, "--database", tmp_path / "none.duckdb", tmp_path / "no.csv"), "no such file"),
    ):
        with pytest.raises(ForetellError, match=said):
            run(*arguments)
    assert not (tmp_path / "no.csv").exists()


def test_from_a_log_to_a_report_in_four_commands(log: Path, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("matplotlib", reason="the report draws pictures")
    monkeypatch.chdir(tmp_path)
    small = ("--dim", "4", "--layers", "1", "--epochs", "1", "--quiet")
    for command in (
        ("train", "--data", str(log), *small),
        ("evaluate", "runs/shop-anhp"),
        ("predict", "runs/shop-anhp", str(log), "--sequence", "c3"),
        ("report", "runs/shop-anhp", "--no-floors"),
    ):
        result = CliRunner().invoke(foretell, command, catch_exceptions=False)
        assert result.exit_code == 0, (command, result.output)
    assert (tmp_path / "runs" / "shop-anhp").is_dir()


def test_a_run_asks_its_query_again_from_anywhere(tmp_path: Path, monkeypatch) -> None:
    with sqlite3.connect(tmp_path / "shop.sqlite") as base:
        base.execute("CREATE TABLE orders (sequence, time, event)")
        rows = [(f"c{number % 12}", f"2020-01-{1 + number // 12:02d}", "xy"[number % 2]) for number in range(60)]
        base.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
    monkeypatch.chdir(tmp_path)
    train = (
        "train",
        "--model",
        "poisson",
        "--database",
        "shop.sqlite",
        "--sql",
        "SELECT * FROM orders",
        "--out",
        "one",
    )
    assert CliRunner().invoke(foretell, train, catch_exceptions=False).exit_code == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = CliRunner().invoke(foretell, ("evaluate", str(tmp_path / "one")), catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_a_source_is_named_from_the_root(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a.duckdb").touch()
    monkeypatch.chdir(tmp_path)
    assert whole_source("sql:a.duckdb|SELECT 1") == f"sql:{tmp_path / 'a.duckdb'}|SELECT 1"
    assert whole_source("hf:.:small") == f"hf:{tmp_path}:small"
    for other in ("sql:postgresql://ann@host/base|SELECT 1", "hf:easytpp/taxi", "sql:|SELECT 1"):
        assert whole_source(other) == other


def test_a_run_reads_other_logs_in_its_own_unit_and_with_its_participants(log: Path, tmp_path: Path, caplog) -> None:
    train = (
        "train",
        "--model",
        "poisson",
        "--data",
        str(log),
        "--participants",
        "org:resource",
        "--out",
        str(tmp_path / "one"),
    )
    assert CliRunner().invoke(foretell, train, catch_exceptions=False).exit_code == 0
    # this log alone would be read in seconds, and its events would have no arguments
    quick = trace("q", *(event("Repair", f"2020-03-01T08:00:0{second}Z", WHO.format("Ann")) for second in (0, 1, 3)))
    (tmp_path / "quick.xes").write_text(f"{HEAD}{quick}</log>")
    opened = open_run(tmp_path / "one", str(tmp_path / "quick.xes"), None)
    assert opened.data.names_of(opened.data[0]) == ["'Repair'('Ann')"] * 3
    assert opened.data.clock.unit == "hours" and opened.data[0].times.tolist() == [0.0, 1 / 3600, 3 / 3600]
