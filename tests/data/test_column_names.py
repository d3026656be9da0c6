"""Columns of event logs are recognised by their usual names, and what was taken is said."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from foretell.data import ColumnMap, load_file
from foretell.data.column_names import recognised
from foretell.data.packed.packing import pack
from foretell.errors import DataError

HEADERS = [
    (["case:concept:name", "concept:name", "time:timestamp"], ("case:concept:name", "time:timestamp", "concept:name")),
    (["Case ID", "Activity", "Complete Timestamp"], ("Case ID", "Complete Timestamp", "Activity")),
    (["user_id", "session_id", "event_type", "timestamp"], ("session_id", "timestamp", "event_type")),
    (["CaseID", "time", "event"], ("CaseID", "time", "event")),
    (["date", "action"], (None, "date", "action")),
    (["sequence", "case_id", "time", "event", "timestamp"], (None, "time", "event")),
]
TABLE = "Case ID,Activity,Timestamp,price\na,view,2024-01-01T00:00:00Z,1\nb,buy,2024-01-02,2\na,buy,2024-01-03,3\n"


@pytest.mark.parametrize(("header", "expected"), HEADERS)
def test_usual_names_are_recognised(header: list[str], expected: tuple[str | None, str, str]) -> None:
    columns, said = recognised(ColumnMap(), header)
    assert (columns.sequence, columns.time, columns.event) == expected
    usual = (None, "time", "event")
    assert len(said) == sum(one != plain for one, plain in zip(expected, usual, strict=True))


def test_a_name_that_was_given_is_not_replaced() -> None:
    columns, _ = recognised(ColumnMap(sequence="user_id", event="type"), ["user_id", "case_id", "timestamp", "type"])
    assert (columns.sequence, columns.time, columns.event) == ("user_id", "timestamp", "type")
    columns, _ = recognised(ColumnMap(time="moment"), ["case_id", "timestamp", "event"])
    assert columns.time == "moment"


def test_one_column_is_not_taken_for_two() -> None:
    columns, _ = recognised(ColumnMap(event="timestamp"), ["case_id", "timestamp"])
    assert (columns.time, columns.event) == ("time", "timestamp")


def test_two_columns_that_may_be_the_time_are_an_error_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("case_id,activity,created_at,timestamp\na,x,2024-01-01,2024-01-02\n")
    with pytest.raises(DataError, match=r"no column 'time'; which of 'timestamp', 'created_at' is it\?"):
        load_file(path)


def test_a_table_with_usual_names_is_read_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log.csv"
    path.write_text(TABLE)
    with caplog.at_level(logging.WARNING):
        data = load_file(path)
    assert [len(one.times) for one in data] == [2, 1]
    assert sorted(data.vocabulary.names) == ["buy", "view"]
    assert set(data.columns.attributes) == {"price"}
    assert "'Case ID' is taken for it" in caplog.text
    assert '`columns={"sequence": …}`' in caplog.text


def test_an_empty_sequence_column_makes_one_stream(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(TABLE)
    data = load_file(path, columns=ColumnMap.parse("sequence="))
    assert len(data) == 1
    assert set(data.columns.attributes) == {"Case ID", "price"}


def test_frames_with_usual_names_are_read_also_from_an_index() -> None:
    pandas = pytest.importorskip("pandas")
    import foretell as ft

    rows = [line.split(",") for line in TABLE.splitlines()]
    frame = pandas.DataFrame(rows[1:], columns=rows[0])
    frame["Timestamp"] = pandas.to_datetime(frame["Timestamp"], format="ISO8601", utc=True)
    for one in (frame, frame.set_index("Timestamp"), frame.set_index(["Case ID", "Timestamp"])):
        data = ft.from_frame(one)
        assert data.train is not None
        assert [len(each.times) for each in data.train] == [2, 1]


def test_packing_takes_the_columns_that_reading_takes(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(TABLE)
    assert pack(path, tmp_path / "packed") == {"train": (2, 3)}
