"""Tables and JSON lines with dates: one clock per data set, windows that start where they are said to, and every guess said."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from foretell.data import ReadOptions, Vocabulary, load, load_file, save
from foretell.data.csv_files import csv_table
from foretell.errors import DataError, ForetellError

FORMS = {
    "iso": "2012-03-01T12:00:00Z,2012-03-01T14:30:00Z,2012-03-02T12:00:00.5Z",
    "local": "2012-03-01 13:00:00 +0100,2012-03-01T15:30+01:00,2012-03-02T06:00:00.5-06:00",
    "seconds": "1330603200,1330612200,1330689600.5",
    "milliseconds": "1330603200000,1330612200000,1330689600500",
    "microseconds": "1330603200000000,1330612200000000,1330689600500000",
    "nanoseconds": "1330603200000000000,1330612200000000000,1330689600500000000",
}
EXPECTED = np.array([0.0, 2.5, 24.0 + 0.5 / 3600.0])


def table(tmp_path, times: str, name: str = "log.csv", more: str = ""):
    path = tmp_path / name
    path.write_text(
        "sequence,time,event\n" + "".join(f"a,{time},e{n}\n" for n, time in enumerate(times.split(","))) + more
    )
    return path


@pytest.mark.parametrize("form", FORMS)
def test_dates_in_every_form_give_the_same_times(tmp_path, form: str) -> None:
    data = load_file(table(tmp_path, FORMS[form]))
    assert data.clock.unit == "hours" and data.clock.seconds_per_unit == 3600.0 and data.origin == "first-event"
    np.testing.assert_array_equal(data[0].times, EXPECTED)
    assert data[0].start == 1330603200_000_000_000 and data[0].end_assumed
    assert data.clock.iso(data[0].times[1], data[0].start) == "2012-03-01T14:30:00Z"


@pytest.mark.parametrize("form", FORMS)
def test_json_lines_have_the_same_times(jsonl, form: str) -> None:
    times = [time if "-" in time else json.loads(time) for time in FORMS[form].split(",")]
    data = load_file(jsonl({"times": times, "events": ["e0", "e1", "e2"]}))
    np.testing.assert_array_equal(data[0].times, EXPECTED)
    assert data.clock.absolute and data[0].start == 1330603200_000_000_000


def test_datetimes_of_parquet_are_read_with_and_without_zone(tmp_path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    instants = np.array([1330603200, 1330612200], dtype="datetime64[s]").astype("datetime64[us]")
    for zone, options in ((None, ReadOptions()), ("Europe/Berlin", ReadOptions(timezone="America/New_York"))):
        kind = pa.timestamp("us", tz=zone)
        columns = {"sequence": ["a", "a"], "time": pa.array(instants, kind), "event": ["x", "y"]}
        pq.write_table(pa.table(columns), tmp_path / "log.parquet")
        assert load_file(tmp_path / "log.parquet", options=options)[0].start == 1330603200_000_000_000
    local = load_file(_dates(tmp_path, pa, pq), options=ReadOptions(timezone="Europe/Berlin"))
    assert local.clock.iso(0.0, local[0].start) == "2012-03-01T00:00:00+01:00"


def _dates(tmp_path, pa, pq):
    days = pa.array(np.array(["2012-03-01", "2012-03-04"], dtype="datetime64[D]"))
    pq.write_table(pa.table({"sequence": ["a", "a"], "time": days, "event": ["x", "y"]}), tmp_path / "days.parquet")
    return tmp_path / "days.parquet"


def test_what_was_assumed_of_time_is_said_once(tmp_path, caplog) -> None:
    with caplog.at_level(logging.WARNING, "foretell"):
        load_file(table(tmp_path, "2012-03-01T12:00,2012-03-01T11:00,2012-03-02T12:00"))
    said = "\n".join(caplog.messages)
    assert said.count("times without a zone (3) are taken as UTC") == 1
    assert said.count("2 of 3 rows were out of order in their sequence, and were sorted by time") == 1
    assert said.count("first event, which is given and not scored") == 1
    caplog.clear()
    with caplog.at_level(logging.WARNING, "foretell"):
        load_file(table(tmp_path, FORMS["seconds"]))
    assert 'times are read as Unix seconds; `time_format="number"` reads them as plain numbers' in caplog.text


def test_daylight_saving_is_counted_and_said(tmp_path, caplog) -> None:
    path = table(tmp_path, "2021-03-28T02:30,2021-10-31T02:30,2021-11-01")
    with caplog.at_level(logging.WARNING, "foretell"):
        load_file(path, options=ReadOptions(timezone="Europe/Berlin"))
    assert "happen twice in Europe/Berlin, when clocks go back (1)" in caplog.text
    assert "when clocks go forward (1), are taken" in caplog.text and "without a zone" not in caplog.text


def test_times_are_counted_by_row_also_where_texts_repeat(tmp_path, caplog) -> None:
    rows = [("a", "2021-03-28T02:30"), ("b", "2021-03-28T02:30"), ("a", "2021-10-31T02:30"), ("b", "2021-10-31T02:30")]
    path = tmp_path / "repeated.csv"
    path.write_text("sequence,time,event\n" + "".join(f"{name},{when},x\n" for name, when in rows))
    for zone, expected in (("", ["times without a zone (4)"]), ("Europe/Berlin", ["go back (2)", "go forward (2)"])):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "foretell"):
            load_file(path, options=ReadOptions(timezone=zone))
        assert all(text in caplog.text for text in expected)


def test_an_end_or_start_by_an_option_is_one_mistake_that_names_it(tmp_path) -> None:
    path = table(tmp_path, "2012-03-01T12:00Z,2012-03-02T12:00Z")
    for options, said in (
        (ReadOptions(observed_until="2012-02-01"), "the last event is after the end"),
        (ReadOptions(start="2012-03-02"), "the first event is before the start"),
    ):
        with pytest.raises(DataError) as raised:
            load_file(path, options=options)
        flag = "`observed_until=`" if options.observed_until else "`start=`"
        assert str(raised.value).count("sequence 'a'") == 1
        assert said in str(raised.value) and f", by {flag}" in str(raised.value)


def test_numbers_stay_numbers_where_the_user_or_the_card_says_so(tmp_path) -> None:
    path = table(tmp_path, "1330603200,1330612200,1330689600.5")
    assert load_file(path, options=ReadOptions(time_format="number"))[0].times[0] == 1330603200.0
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.csv").write_text(path.read_text())
    assert load(tmp_path / "set").clock.absolute
    (tmp_path / "set" / "dataset.toml").write_text('time_format = "number"\n')
    assert not load(tmp_path / "set").clock.absolute
    (tmp_path / "set" / "dataset.toml").write_text('time_unit = "seconds"\n')
    assert not load(tmp_path / "set").clock.absolute and load(tmp_path / "set").clock.seconds_per_unit == 1.0


def test_numbers_far_from_zero_are_warned_of(tmp_path, caplog) -> None:
    path = table(tmp_path, "5000000,5000001,5000003")
    with caplog.at_level(logging.WARNING, "foretell"):
        data = load_file(path)
    assert data[0].times[0] == 5e6 and "begin far from 0" in caplog.text and '`start="first-event"`' in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "foretell"):
        data = load_file(path, options=ReadOptions(start="first-event"))
    assert (
        data[0].times.tolist() == [0.0, 1.0, 3.0] and data.origin == "first-event" and "far from 0" not in caplog.text
    )


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("first-event", "2012-03-01T13:00:00+01:00"),
        ("day", "2012-03-01T00:00:00+01:00"),
        ("week", "2012-02-27T00:00:00+01:00"),
        ("month", "2012-03-01T00:00:00+01:00"),
        ("2012-01-01", "2012-01-01T00:00:00+01:00"),
    ],
)
def test_windows_start_where_the_rule_says(tmp_path, start: str, first: str) -> None:
    options = ReadOptions(start=start, timezone="Europe/Berlin")
    data = load_file(table(tmp_path, FORMS["iso"]), options=options)
    assert data.clock.iso(0.0, data[0].start) == first
    assert data.origin == ("first-event" if start == "first-event" else "window")


def test_columns_say_where_windows_start_and_end(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "sequence,time,event,t_start,t_end\n"
        "a,2012-03-02,x,2012-03-01,2012-03-05\nb,,,2012-03-01,2012-03-03\na,2012-03-03,x,,\n"
    )
    data = load_file(path)
    assert data.origin == "window" and data[0].times.tolist() == [1.0, 2.0] and data[0].t_end == 4.0
    assert len(data[1]) == 0 and data[1].t_end == 2.0 and data.columns.ends_assumed is None
    exported = load_file(table(tmp_path, FORMS["iso"]), options=ReadOptions(observed_until="2012-03-03T12:00"))
    assert exported[0].t_end == 48.0 and not exported[0].end_assumed


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("sequence,time,event,t_end\na,2012-03-02,x,2012-03-01", ":2: sequence 'a': the last event is after the end"),
        (
            "sequence,time,event,t_start\na,2012-03-02,x,2012-03-03",
            ":2: sequence 'a': the first event is before the start",
        ),
        ("sequence,time,event,t_start\na,2012-03-02,x,2012-03-01\nb,2012-03-02,x,", ":3: sequence 'b': no t_start"),
        ("sequence,time,event,t_end\na,2012-03-02,x,9", "t_end has numbers, but time has times"),
        ("sequence,time,event\na,2012-03-02,x\na,soon,x", ":3: sequence 'a': time is 'soon', expected a time"),
        ("sequence,time,event,t_start\na,,,2012-03-02", "no events and no t_end"),
    ],
)
def test_mistakes_about_dates_are_told_with_their_place(tmp_path, rows: str, reason: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(rows + "\n")
    with pytest.raises(DataError, match=reason):
        load_file(path)


def test_sorted_insists_on_order(tmp_path) -> None:
    path = table(tmp_path, "2012-03-01T12:00,2012-03-01T11:00")
    with pytest.raises(
        DataError, match=r":3: sequence 'a': 2012-03-01T11:00:00Z comes after .* `sorted=True` is given"
    ):
        load_file(path, options=ReadOptions(sorted=True))


@pytest.mark.parametrize(
    "given", [{"start": "noon"}, {"timezone": "Mars/Base"}, {"time_format": "unix"}, {"observed_until": "soon"}]
)
def test_options_that_make_no_sense_are_refused(given) -> None:
    with pytest.raises(ForetellError, match=f"`{next(iter(given))}="):
        ReadOptions(**given)


def test_files_of_dates_and_of_numbers_do_not_mix(tmp_path) -> None:
    (tmp_path / "set").mkdir()
    table(tmp_path, FORMS["iso"], "set/train.csv")
    table(tmp_path, "1,2,3", "set/dev.csv")
    with pytest.raises(DataError, match=r"dev\.csv: its times are numbers, but those of .*train\.csv are dates"):
        load(tmp_path / "set")


def test_the_unit_is_that_of_all_splits(tmp_path) -> None:
    (tmp_path / "set").mkdir()
    table(tmp_path, ",".join(f"2012-03-0{day}" for day in range(1, 9)), "set/train.csv")
    table(tmp_path, "2012-03-01T12:00:00,2012-03-01T12:00:01", "set/dev.csv")
    dataset = load(tmp_path / "set")
    assert dataset.clock.unit == dataset.dev.clock.unit == "days" and dataset.card.time_unit == "days"
    assert dataset.dev[0].times[1] == 1.0 / 86400.0


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".jsonl", ".parquet"])
@pytest.mark.parametrize("start", ["", "day"])
def test_data_with_dates_read_back_equal_and_an_assumed_end_is_not_written(tmp_path, suffix: str, start: str) -> None:
    rng = np.random.default_rng(3)
    whole = np.datetime64("2012-03-01T00:00:00", "us") + np.sort(rng.integers(0, 90 * 86400 * 10**6, 50))
    more = "b,2012-05-01T12:00:00.000000123Z,x\n"
    path = table(tmp_path, ",".join(f"{one}Z" for one in np.datetime_as_string(whole)), more=more)
    data = load_file(path, options=ReadOptions(start=start))
    save(data, tmp_path / f"again{suffix}")
    again = load_file(tmp_path / f"again{suffix}")
    for one, other in zip(data, again, strict=True):
        np.testing.assert_array_equal(one.times, other.times)
        assert (one.start, one.t_end, one.end_assumed) == (other.start, other.t_end, other.end_assumed)
    assert again.origin == data.origin and again.clock == data.clock and again.vocabulary == data.vocabulary
    if suffix == ".csv":
        assert "t_end" not in (tmp_path / "again.csv").read_text().splitlines()[0]


@pytest.mark.parametrize(
    "content",
    [
        "sequence,time,event,arg1,note,n\nb,2012-03-01,x,eve,hi,1\na,2012-03-01T12:00,y,,,2.5\n\nb,2012-03-02 ,x,New York,ho,\n",
        'sequence;time;event\r\na;1;"x;y"\r\na;2;"two\nlines"\r\na;3;"say ""so"""\r\n',
        "sequence\ttime\tevent\tt_end\nu\t1.5\t3\t9\nu\t2.5\t4\t\nv\t\t\t2\n",
        "\ufeffsequence|time|event\na|5|007\n a|6|8\n",
        "time,event\n1e-3,ü\n2,é\n",
    ],
)
def test_tables_read_in_blocks_and_line_by_line_are_the_same(tmp_path, content: str) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "log.csv"
    path.write_bytes(content.encode())
    fast, slow = (csv_table(path, ReadOptions(), fast=way) for way in (True, False))
    assert fast.ids == slow.ids and fast.problems == slow.problems == () and fast.said == slow.said
    for name in ("sequences", "times", "places", "t_ends", "sequence_places"):
        one, other = getattr(fast, name), getattr(slow, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other)
    kinds = [
        [table.names[code] for code in table.events] if table.names is not None else table.events.tolist()
        for table in (fast, slow)
    ]
    assert kinds[0] == kinds[1] and list(fast.attributes) == list(slow.attributes)
    for name, one in fast.attributes.items():
        other = slow.attributes[name]
        assert one.categories == other.categories
        np.testing.assert_array_equal(one.values, other.values)


def test_events_outside_a_vocabulary_are_refused_left_out_or_made_other(tmp_path, caplog) -> None:
    path, known = table(tmp_path, "1,2,3"), Vocabulary(("e0", "e2", "other"))
    with pytest.raises(DataError, match="event `e1` is not one of the 3 known"):
        load_file(path, known)
    with caplog.at_level(logging.WARNING, "foretell"):
        skipped = load_file(path, known, options=ReadOptions(unknown="skip"))
    assert skipped[0].times.tolist() == [1.0, 3.0] and skipped.report.unknown_types == (("e1", 1),)
    assert "1 event of 1 type that training never saw (`e1`) was left out" in caplog.text
    assert load_file(path, known, options=ReadOptions(unknown="other"))[0].types.tolist() == [0, 2, 1]
    with pytest.raises(DataError, match="has no event type `other`"):
        load_file(path, Vocabulary(("e0",)), options=ReadOptions(unknown="other"))
