"""`-o` of commands with a row per sequence, time or event: files that hold everything, a screen that holds the first."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.cli.invoking import fine, refused

HISTORY = ([1.0, 2.0, 2.0, 5.0], ["0", "1", "0", "1"])
MANY = 30  # sequences, more than are printed


def rows_of(path: Path) -> list[dict]:
    if path.suffix == ".parquet":
        return parquet.read_table(path).to_pylist()
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def many(events) -> Path:
    return events(*[HISTORY] * MANY)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_of_a_file_are_those_of_the_json(anhp: Path, many: Path, tmp_path: Path, suffix: str):
    path = tmp_path / f"x{suffix}"
    found = fine("predict", anhp, many, "-o", path, "--json").json
    predicted = rows_of(path)
    assert [row["event"] for row in predicted] == [one["event"] for each in found for one in each["events"]]
    expected = [one["probability"] for each in found for one in each["events"]]
    assert [float(row["probability"]) for row in predicted] == pytest.approx(expected, abs=1e-15)

    found = fine("intensity", anhp, many, "--at", "1,3", "-o", path, "--json").json
    expected = [value for each in found for one in each["queries"] for value in one["intensities"].values()]
    assert [float(row["intensity"]) for row in rows_of(path)] == pytest.approx(expected, abs=1e-15)

    found = fine("embed", anhp, many, "-o", path, "--json").json
    vectors = [
        row.get("embedding") or [float(row[f"embedding{place}"]) for place in range(1, 13)] for row in rows_of(path)
    ]
    assert vectors == [vector for each in found for vector in each["embeddings"]]


def test_lines_of_json_are_one_per_sequence(anhp: Path, many: Path, tmp_path: Path):
    path = tmp_path / "x.jsonl"
    for command in (("predict",), ("intensity", "--at", "1")):
        found = fine(command[0], anhp, many, *command[1:], "-o", path, "--json").json
        assert [json.loads(line) for line in path.read_text().splitlines()] == found


def test_a_pattern_s_events_are_the_rows(anhp: Path, events, tmp_path: Path):
    path = tmp_path / "x.csv"
    (found,) = fine("predict", anhp, events(HISTORY), "--pattern", "1", "-o", path, "--json").json
    (row,) = rows_of(path)
    assert (row["event"], float(row["probability"])) == ("1", found["pattern"]["events"][0]["probability"])
    assert float(row["share"]) == 1.0


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_scores_by_event_add_up_to_the_log_likelihood(anhp: Path, many: Path, tmp_path: Path, suffix: str):
    path = tmp_path / f"x{suffix}"
    asked = ("evaluate", anhp, many, "--no-times", "--quiet", "-o", path)
    found = fine(*asked, "--by-event", "--json").json
    rows = [json.loads(line) for line in path.read_text().splitlines()] if suffix == ".jsonl" else rows_of(path)
    mean = sum(float(row["log_likelihood"]) for row in rows) / found["events"]
    assert mean == pytest.approx(found["log_likelihood"]["value"], rel=1e-12)
    assert {row["median_time"] for row in rows} == {"" if suffix == ".csv" else None}, "times were not asked for"


def test_what_is_printed_is_at_most_a_screen(anhp: Path, many: Path, tmp_path: Path):
    commands = [
        ("predict", anhp, many),
        ("intensity", anhp, many, "--grid", 9),
        ("evaluate", anhp, many, "--no-times", "--by-event", "--quiet"),
        ("sample", anhp, many, "--events", 2),
    ]
    for command in commands:
        text = fine(*command).out.split("event by event: ")[-1]
        assert len(text.splitlines()) < 40 and "more" in text and "-o FILE" in text, command[0]
        if command[0] != "sample":
            brief = fine(*command, "-o", tmp_path / "x.csv").out.splitlines()
            assert str(tmp_path / "x.csv") in brief[-1] and "more" not in brief[-1]


def test_a_name_without_a_format_is_refused_before_any_work(anhp: Path, many: Path):
    for command in (("predict",), ("intensity", "--at", "1"), ("embed",), ("evaluate",)):
        message = refused(command[0], anhp, many, *command[1:], "-o", "x.txt")
        assert "x.txt: expected a name that ends in .csv, .parquet, .jsonl" in message
