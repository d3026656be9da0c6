"""What somebody has who comes with data of their own: the log of a web server, a table with decimals, warnings on the first screen."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.invoking import fine, refused

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "sql.md"
LINE = '10.0.0.{} - - [0{}/Nov/2026:{:02}:{:02}:42 +0100] "GET {} HTTP/1.1" 200 85 "-" "Mozilla/5.0 (X11; a, b)"\n'


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Thirty visitors of three pages, one of whom asks something."""
    pages = ["/", "/cart?id=3&x='1'", "/about"]
    rows = sorted((day, hour, visitor) for day in (1, 2) for hour in (3, 9, 17) for visitor in range(30))
    text = [LINE.format(who, day, hour, who, pages[(who + hour) % 3]) for day, hour, who in rows]
    (tmp_path / "access.log").write_text("".join(text))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "access.log"


def test_the_log_of_a_web_server_is_trained_on_as_its_page_says(log: Path):
    pytest.importorskip("duckdb")
    assert "docs/guide/sql.md, A log of a web server" in refused("data", "describe", log)
    (command,) = re.findall(r"^\$ (foretell train --out runs/web .*)$", GUIDE.read_text(), re.MULTILINE)
    fine(*shlex.split(command)[1:], "--model", "poisson", "--quiet", "--no-floors")
    words = fine("params", "runs/web").out
    assert "/cart" in words and "id=3" not in words


def test_data_are_read_once_and_what_is_said_of_them_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import foretell.train.splits as splits

    rows = [
        f"s{n},2024-03-{n + 1:02}T{hour:02}:00:00,{'ab'[hour % 2]},{hour}" for n in range(20) for hour in (1, 2, 5, 9)
    ]
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(["sequence,time,event,amount", *rows]) + "\n")
    reads: list[str] = []
    real = splits.load
    monkeypatch.setattr(splits, "load", lambda path, **more: reads.append(path) or real(path, **more))
    outcome = fine("train", "--data", path, "--out", tmp_path / "run", "--epochs", "1")
    assert reads == [str(path)]
    said = [line for line in outcome.err.splitlines() if line.startswith("warning")]
    assert said and len(said) == len(set(said)), said


def test_decimals_of_a_query_are_times():
    pytest.importorskip("duckdb")
    found = fine(
        "data", "describe", "--sql", f"SELECT 'a' AS sequence, 1.25 AS time, 'x' AS event{' ' * 300}", "--json"
    )
    assert found.json["splits"]["train"]["events"] == 1
