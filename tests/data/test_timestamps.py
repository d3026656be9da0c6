"""Dates and times of every kind are read exactly, localised by decided rules, and told when they are no times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.data.clock import Clock, iso_text, iso_texts, readable_unit
from foretell.data.loading import load_file
from foretell.data.timestamps import (
    NS,
    expected_time,
    find_zone,
    from_unix,
    localised,
    parse_time,
    parse_times,
    unix_format,
)
from foretell.durations import duration_seconds
from foretell.errors import DataError, ForetellError

NOON = int(datetime(2012, 3, 1, 12, tzinfo=UTC).timestamp()) * NS


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2012-03-01", NOON - 12 * 3600 * NS),
        ("2012-03-01T12:00", NOON),
        ("2012-03-01 12:00:00", NOON),
        ("2012-03-01T12:00:00Z", NOON),
        ("2012-03-01T13:00:00+01:00", NOON),
        ("2012-03-01T13:00:00+0100", NOON),
        ("2012-03-01T13:00:00+01", NOON),
        ("2012-03-01 13:00:00 +0100", NOON),
        ("2012-03-01T06:30:00-05:30", NOON),
        ("2012-03-01T12:00:00.5", NOON + NS // 2),
        ("2012-03-01T12:00:00,123456789Z", NOON + 123456789),
        ("2012-03-01T13:00:00.000000001 +01:00", NOON + 1),
        ("20120301T120000Z", NOON),
        ("2012-W09-4T12:00:00+00:00", NOON),
        (" 2012-03-01T12:00 ".strip(), NOON),
        ("1969-12-31T23:59:59.999999999Z", -1),
    ],
)
def test_iso_text_is_read_to_the_nanosecond(text: str, instant: int) -> None:
    assert parse_time(text) == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "12",
        "20120301",
        "2012-3-1",
        "2012-02-30",
        "2012-13-01",
        "2012-00-10",
        "2012-03-01T12:60",
        "2012-03-01T12:00:60",
        "2012-03-01T12:00:00.",
        "2012-03-01T12:00:00+25:00",
        "2012-03-01T12:00:00 CET",
        "2012-03-01T12:00:00Zx",
        "0001-01-01",
        "9999-12-31",
        "2012-03-01T12:00:00" + "0" * 100,
    ],
)
def test_what_is_no_time_is_not_read(text: str) -> None:
    assert parse_time(text) is None


@given(
    st.lists(
        st.tuples(
            st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)),
            st.sampled_from([None, 0, 60, -330, 845]),
            st.sampled_from(["T", " "]),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_columns_are_read_as_python_reads_each_text(rows) -> None:
    texts, expected = [], []
    for local, minutes, between in rows:
        zone = None if minutes is None else __import__("datetime").timezone(timedelta(minutes=minutes))
        when = local.replace(tzinfo=zone)
        texts.append(when.isoformat(between))
        expected.append((when if zone else when.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC))
    found = parse_times(texts)
    assert found.valid.all() and found.zoneless == sum(zone is None for _, zone, _ in rows)
    assert found.instants.tolist() == [one // timedelta(microseconds=1) * 1000 for one in expected]


def test_a_pattern_reads_other_forms() -> None:
    found = parse_times(["10/Oct/2000:13:55:36 -0700", "nonsense"], pattern="%d/%b/%Y:%H:%M:%S %z")
    assert found.valid.tolist() == [True, False] and iso_text(int(found.instants[0])) == "2000-10-10T20:55:36Z"


def test_times_that_happen_twice_are_the_first_and_those_that_never_do_are_an_hour_later() -> None:
    found = parse_times(
        ["2021-10-31T02:30", "2021-03-28T02:30", "2021-03-28T03:30", "2021-07-01T12:00"], "Europe/Berlin"
    )
    assert [iso_text(one) for one in found.instants.tolist()] == [
        "2021-10-31T00:30:00Z",  # still summer time
        "2021-03-28T01:30:00Z",  # 03:30 on the clock that went forward
        "2021-03-28T01:30:00Z",
        "2021-07-01T10:00:00Z",
    ]
    assert (found.zoneless, found.twice, found.never) == (4, 1, 1)


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Asia/Kathmandu", "Africa/Monrovia"]
)
def test_local_times_are_those_of_zoneinfo(zone: str) -> None:
    rng = np.random.default_rng(0)
    # every quarter of an hour around changes of the clock, and random times
    near = [
        int(datetime(2021, m, d, tzinfo=UTC).timestamp())
        for m, d in ((3, 14), (3, 28), (4, 4), (10, 3), (10, 31), (11, 7))
    ]
    seconds = np.concatenate(
        [*(day - 86400 + np.arange(0, 3 * 86400, 900) for day in near), rng.integers(-3e9, 4e9, 300)]
    )
    found = localised(seconds * NS, zone)
    expected = [
        (datetime(1970, 1, 1) + timedelta(seconds=int(one))).replace(tzinfo=ZoneInfo(zone)).timestamp()
        for one in seconds
    ]
    np.testing.assert_array_equal(found.instants // NS, np.array(expected).round().astype(np.int64))


def test_an_unknown_zone_is_refused_with_a_near_one() -> None:
    with pytest.raises(ForetellError, match="did you mean `Europe/Berlin`"):
        find_zone("Europe/Berln")


def test_unix_numbers_are_recognised_by_their_size_alone() -> None:
    seconds = np.array([NOON // NS, NOON // NS + 86400])
    for form, factor in (("unix-s", 1), ("unix-ms", 10**3), ("unix-us", 10**6), ("unix-ns", 10**9)):
        assert unix_format([seconds * factor, np.zeros(0)]) == form
        assert unix_format([seconds * float(factor)]) == form
        np.testing.assert_array_equal(from_unix(seconds * factor, form), seconds * NS)
    assert unix_format([seconds, np.array([5.0])]) is None  # one number outside 1990 to 2100 is enough
    assert unix_format([seconds, seconds * 1000]) is None
    assert unix_format([np.array([0.0, 10.0])]) is None and unix_format([]) is None


def test_fractions_of_unix_numbers_are_read_to_the_microsecond() -> None:
    assert from_unix(np.array([1331234567.123456]), "unix-s").tolist() == [1331234567123456000]
    assert from_unix(np.array([1331234567123.456]), "unix-ms").tolist() == [1331234567123456000]
    assert from_unix(np.array([1331234567123456789]), "unix-ns").tolist() == [1331234567123456789]


@pytest.mark.parametrize("unit", ["seconds", "minutes", "hours", "days", "years"])
def test_numbers_are_exact_to_a_nanosecond_up_to_a_hundred_days(unit: str) -> None:
    clock = Clock.of_unit(unit, absolute=True)
    rng = np.random.default_rng(1)
    elapsed = np.concatenate([rng.integers(0, 100 * 86400 * NS, 20000), [0, 1, 2, 100 * 86400 * NS]])
    back = np.rint(clock.numbers(NOON + elapsed, NOON) * (clock.seconds_per_unit * NS)).astype(np.int64)
    assert np.abs(back - elapsed).max() <= 1
    assert clock.numbers(np.array([NOON]), NOON)[0] == 0.0
    # what a detour over float64 seconds since 1970 would lose
    assert clock.numbers(np.array([NOON + 1]), NOON)[0] > 0.0


def test_whole_microseconds_come_back_whole() -> None:
    clock = Clock.of_unit("days", absolute=True)
    elapsed = np.random.default_rng(2).integers(0, 3000 * 86400 * 10**6, 5000) * 1000
    np.testing.assert_array_equal(clock.instants(clock.numbers(NOON + elapsed, NOON), NOON), NOON + elapsed)
    fine = np.array([1, 1001, 2_000_000_003])
    np.testing.assert_array_equal(clock.instants(clock.numbers(NOON + fine, NOON), NOON), NOON + fine)


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [
        (0.01, "seconds"),
        (30, "seconds"),
        (90, "minutes"),
        (5000, "hours"),
        (2 * 86400, "days"),
        (40 * 86400, "days"),
        (5e7, "years"),
    ],
)
def test_the_unit_makes_the_median_gap_readable(seconds: float, unit: str) -> None:
    gaps = np.array([0, seconds * NS * 0.5, seconds * NS, seconds * NS * 2]).astype(np.int64)
    assert readable_unit(gaps) == unit
    assert readable_unit(np.zeros(0, np.int64)) == "seconds"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10d", 864000.0),
        ("30m", 1800.0),
        ("2h", 7200.0),
        ("1d12h", 129600.0),
        ("1.5 hours", 5400.0),
        ("90 sec", 90.0),
        ("5ms", 0.005),
    ],
)
def test_durations_are_understood(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds
    assert Clock.of_unit("hours").duration(text) == seconds / 3600


def test_durations_and_dates_need_a_clock_that_knows_them() -> None:
    assert duration_seconds("soon") is None and duration_seconds("10q") is None and duration_seconds("10d!") is None
    assert Clock().duration("2.5") == 2.5
    with pytest.raises(ForetellError, match="plain numbers"):
        Clock().duration("10d")
    with pytest.raises(ForetellError, match="such as 30m"):
        Clock.of_unit("days").duration("soon")
    clock = Clock.of_unit("days", "Europe/Berlin", absolute=True)
    assert clock.number_of("2012-03-03T13:00", NOON) == 2.0 and clock.number_of("1.5", NOON) == 1.5
    assert clock.iso(1.0, NOON) == "2012-03-02T13:00:00+01:00" and clock.iso(1.0, None) is None
    with pytest.raises(ForetellError, match="expected a number or a time"):
        clock.number_of("soon", NOON)
    with pytest.raises(ForetellError, match="not dates"):
        Clock().number_of("2012-03-01", None)


def test_instants_are_written_with_as_many_digits_as_the_finest_needs() -> None:
    assert iso_texts(np.array([NOON, NOON + 10**6])) == ["2012-03-01T12:00:00.000Z", "2012-03-01T12:00:00.001Z"]
    assert iso_texts(np.array([NOON])) == ["2012-03-01T12:00:00Z"] and iso_texts(np.zeros(0, np.int64)) == []
    assert iso_text(NOON + 500, "America/New_York") == "2012-03-01T07:00:00.0000005-05:00"


def test_a_time_beyond_nanoseconds_is_a_mistake_with_its_row(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    times = pa.array([0, 10**18, 5], pa.timestamp("us"))  # the second lies in the year 33658
    table = pa.table({"sequence": ["a", "a", "b"], "time": times, "event": ["x", "y", "x"]})
    parquet.write_table(table, tmp_path / "far.parquet")
    with pytest.raises(DataError, match=r"row 2.*time is '1000000000000000000'"):
        load_file(tmp_path / "far.parquet")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["01.03.2012 15:31:20", "31.12.2012 00:00:00"], "; `time_format='%d.%m.%Y %H:%M:%S'` would read this column"),
        (["03/01/2012 02:31 PM", "03/31/2012 12:00 AM"], "; `time_format='%m/%d/%Y %I:%M %p'` would read this column"),
        (["01/Mar/2024:01:00:57 +0100"], "; `time_format='%d/%b/%Y:%H:%M:%S %z'` would read this column"),
        (["01/02/2012", ""], "; `time_format='%d/%m/%Y'` or `time_format='%m/%d/%Y'` would read this column"),
        (["01/02/2012", "soon"], "(other forms: `time_format='%d/%m/%Y %H:%M'`)"),
    ],
)
def test_a_pattern_that_reads_a_column_is_proposed(texts: list[str], said: str) -> None:
    assert expected_time(texts).endswith(said)
