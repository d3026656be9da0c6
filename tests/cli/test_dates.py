"""From a CSV with dates to predictions: a run remembers how its data were read, and every command speaks their clock."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from foretell.data import load
from tests.cli.invoking import fine, foretell


def log(path: Path, names: list[str], events: int, seed: int) -> Path:
    """A log as people have them: newest first, local times, columns with other names."""
    rng, rows = np.random.default_rng(seed), []
    for place, name in enumerate(names):
        when = np.datetime64("2024-03-01T08:00:00", "s") + np.timedelta64(place, "D")
        for kind in rng.choice(["buy (online)", "buy (shop)", "return"], events):
            when = when + np.timedelta64(int(rng.integers(600, 20000)), "s")
            rows.append(f"{name};{str(when).replace('T', ' ')};{kind};{rng.integers(1, 9)}")
    path.write_text("\n".join(["customer;date;what;price", *reversed(rows)]))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dates")
    data = log(folder / "orders.csv", [f"c{n}" for n in range(12)], 8, 0)
    columns = "sequence=customer,time=date,event=what"
    given = ["--columns", columns, "--timezone", "Europe/Berlin", "--start", "day", "--epochs", "1", "--quiet"]
    fine("train", "--data", data, "--out", folder / "run", "--model", "poisson", *given[:6])
    return folder / "run"


def test_a_run_reads_a_new_file_as_its_own_without_an_option(run: Path, tmp_path: Path):
    new = log(tmp_path / "new.csv", ["d0"], 5, 1)
    (found,) = json.loads(fine("predict", run, new, "--json").out)
    assert found["iso"]["start"].endswith("+01:00") and found["events_seen"] == 5
    assert found["iso"]["start"][:10] == "2024-03-01"
    told = fine("predict", run, new).out
    assert "from 2024-03-01 " in told and "expected at 2024-03-0" in told


def test_times_and_durations_are_understood(run: Path, tmp_path: Path):
    new = log(tmp_path / "new.csv", ["d0", "d1"], 5, 1)
    asked = fine("predict", run, new, "--from", "2024-03-01T12:00", "--json")
    (found,) = json.loads(asked.out)
    assert found["iso"]["start"] == "2024-03-01T12:00:00+01:00" and "1 sequence of 2 begin after" in asked.err
    (first, *_) = json.loads(fine("sample", run, "--history", new, "--horizon", "2d", "--n", "2", "--json").out)
    unit = json.loads((run / "environment.json").read_text())["data"]["clock"]["seconds_per_unit"]
    assert (first["horizon"] - first["start"]) * unit == pytest.approx(2 * 86400.0)
    assert all(len(one["iso"]) == len(one["times"]) for one in first["futures"])
    (answer,) = json.loads(fine("intensity", run, new, "--at", "2024-03-01T12:00,2024-03-01", "--json").out)
    assert [one["iso"] for one in answer["queries"]] == ["2024-03-01T12:00:00+01:00", "2024-03-01T00:00:00+01:00"]


def test_futures_of_dates_are_written_as_dates_and_an_assumed_end_is_not(run: Path, tmp_path: Path):
    new = log(tmp_path / "new.csv", ["d0"], 5, 1)
    fine("sample", run, "--history", new, "--horizon", "1d", "-o", tmp_path / "futures.csv")
    assert "2024-03-01T" in (tmp_path / "futures.csv").read_text().splitlines()[1]
    columns = ["--columns", "sequence=customer,time=date,event=what"]
    fine("data", "convert", new, tmp_path / "again.csv", *columns)
    header, first = (tmp_path / "again.csv").read_text().splitlines()[:2]
    assert "t_end" not in header and first.startswith("d0,2024-03-01T")


def test_new_event_types_are_refused_or_left_out(run: Path, tmp_path: Path):
    new = log(tmp_path / "new.csv", ["d0"], 5, 1)
    new.write_text(new.read_text() + "\nd0;2024-03-09 12:00:00;steal;1")
    refused = foretell("predict", run, new, "--unknown", "error")
    assert (
        refused.code == 1
        and "event `steal` is not one of the 3 known" in refused.err
        and "--unknown skip" in refused.err
    )
    for choice in ([], ["--unknown", "skip"]):
        skipped = fine("predict", run, new, *choice, "--json")
        assert json.loads(skipped.out)[0]["events_seen"] == 5
        assert "1 event of 1 type that training never saw (`steal`) was left out" in skipped.err
    refused = foretell("predict", run, new, "--unknown", "other")
    assert refused.code == 1 and "train it with --unknown other" in refused.err
    for name, count in (("buy (online)", 0), ("buy (shop)", 0), ("return", 1)):
        new.write_text(new.read_text().replace(name, f"steal {count}"))
    nothing = foretell("predict", run, new)
    assert nothing.code == 1 and "event `steal 0` is not one of the 3 known" in nothing.err


def test_what_makes_no_sense_is_refused(run: Path, tmp_path: Path):
    new = log(tmp_path / "new.csv", ["d0"], 5, 1)
    for more, said in (
        (["--from", "soon"], "expected a number or a time such as 2012-03-01T12:00"),
        (["--from", "2020-01-01"], "all sequences begin later, the first at 2024-03-01T00:00:00+01:00"),
        (["--timezone", "Europe/Berln"], "did you mean `Europe/Berlin`"),
    ):
        outcome = foretell("predict", run, new, *more)
        assert outcome.code == 1 and said in outcome.err
    outcome = foretell("predict", run, "--timezone", "UTC", "--split", "test")
    assert outcome.code == 1 and "other data than the run's own" in outcome.err
    outcome = foretell("sample", run, "--history", new, "--horizon", "soon")
    assert outcome.code == 1 and "a duration such as 30m" in outcome.err


def test_a_report_of_dates_has_a_calendar(run: Path, tmp_path: Path):
    fine("report", run, "-o", tmp_path / "report.html", "--no-floors", "--quiet")
    text = (tmp_path / "report.html").read_text()
    assert '"calendar"' in text and "time (UTC+01:00)" in text
    fine("intensity", run, "--grid", "3", "--plot", tmp_path / "x.svg")
    assert "Europe/Berlin" in (tmp_path / "x.svg").read_text()


def test_a_model_that_was_trained_with_other_reads_new_types_as_that(tmp_path: Path):
    data, new = log(tmp_path / "orders.csv", [f"c{n}" for n in range(12)], 8, 0), log(tmp_path / "new.csv", ["d"], 5, 1)
    data.write_text(data.read_text().replace("return", "scarce", 2))
    new.write_text(new.read_text() + "\nd;2024-03-09 12:00:00;steal;1")
    given = ["--columns", "sequence=customer,time=date,event=what", "--model", "poisson", "--quiet"]
    told = fine("train", "--data", data, "--out", tmp_path / "run", *given, "--unknown", "other")
    assert "1 event type with fewer than 5 training events (`scarce`)" in told.err
    asked = fine("predict", tmp_path / "run", new, "--json")
    (found,) = json.loads(asked.out)
    assert found["events_seen"] == 6 and "other" in {one["event"] for one in found["events"]}
    assert "(`steal`) was read as `other`" in asked.err
    fine("evaluate", tmp_path / "run", "--no-times")


def test_a_time_after_an_end_that_is_only_assumed_is_explained_and_a_given_end_is_not(run: Path, tmp_path: Path):
    new = log(tmp_path / "new.csv", ["d0"], 5, 1)
    asked = fine("explain", run, new, "--at", "2024-03-09T12:00", "--json")
    (found,) = json.loads(asked.out)
    assert found["iso"] == "2024-03-09T12:00:00+01:00" and "nothing is taken to have happened" in asked.err
    assert all(one["iso"].startswith("2024-03-0") for one in found["past"])
    refused = foretell("explain", run, new, "--at", "2024-03-09T12:00", "--observed-until", "2024-03-08")
    assert refused.code == 1 and "was observed until 2024-03-08 00:00:00 only" in refused.err


def test_what_convert_writes_is_read_without_what_the_source_needed(tmp_path: Path):
    folder = tmp_path / "orders"
    folder.mkdir()
    rows = "".join(f"a;{day:02}.03.2024 12:00;x\n" for day in range(1, 9))
    (folder / "train.csv").write_text("sequence;time;event\n" + rows)
    card = "time_format = '%d.%m.%Y %H:%M'\ntimezone = 'Europe/Berlin'\nstart = 'day'\n"
    (folder / "dataset.toml").write_text(card)
    fine("data", "convert", folder, tmp_path / "again", "--format", ".csv")
    one, two = load(folder), load(tmp_path / "again")
    assert one.clock == two.clock and one.clock.zone == "Europe/Berlin"
    assert one.train is not None and two.train is not None
    np.testing.assert_array_equal(one.train.columns.times, two.train.columns.times)
    np.testing.assert_array_equal(one.train.columns.starts, two.train.columns.starts)
    (folder / "train.csv").write_text("time,event\n1330603200,x\n1330603300,y\n")
    (folder / "dataset.toml").write_text("time_format = 'number'\n")
    fine("data", "convert", folder, tmp_path / "numbers")
    assert not load(tmp_path / "numbers").clock.absolute
