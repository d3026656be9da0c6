"""`foretell sample`: documented shapes, files that can be read again, and what is refused."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from unittest import mock

import pytest

from foretell.data import load_file
from tests.cli.invoking import fine, refused

HISTORY = ([1.0, 2.0, 2.0, 5.0], ["0", "1", "0", "1"])


def test_futures_as_json_have_the_documented_shape(anhp: Path, events):
    found = fine("sample", anhp, "--history", events(HISTORY, ([], [])), "--horizon", 4, "--n", 3, "--json").json
    assert [one["sequence"] for one in found] == ["s0", "s1"]
    for one in found:
        assert list(one) == ["sequence", "start", "horizon", "seed", "futures", "cost"]
        assert (one["start"], one["horizon"], one["seed"]) == (8.0, 12.0, 0)
        assert list(one["cost"]) == ["accepted", "proposals", "bounds", "pieces"]
        assert one["cost"]["accepted"] == sum(len(future["events"]) for future in one["futures"])
        assert len(one["futures"]) == 3
        for future in one["futures"]:
            assert list(future) == ["times", "events", "end"] and future["end"] == "horizon"
            assert all(8.0 < time <= 12.0 for time in future["times"])


def test_the_same_seed_gives_the_same_and_another_another(anhp: Path):
    asked = ("sample", anhp, "--horizon", 20, "--n", 2, "--json", "--seed")
    assert fine(*asked, 3).json == fine(*asked, 3).json
    assert fine(*asked, 3).json[0]["futures"] != fine(*asked, 4).json[0]["futures"]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_futures_are_written_as_data_that_can_be_read(anhp: Path, events, tmp_path: Path, suffix: str):
    path = tmp_path / f"futures{suffix}"
    asked = ("sample", anhp, "--history", events(HISTORY), "--horizon", 30, "--n", 2, "--json", "-o", path)
    (found,) = fine(*asked, "--no-whole").json
    data = load_file(path)
    assert [one.id for one in data] == ["s0-1", "s0-2"]
    for one, future in zip(data, found["futures"], strict=True):
        assert one.times.tolist() == pytest.approx(future["times"])
        assert data.names_of(one) == future["events"]
    fine(*asked)
    for one, future in zip(load_file(path), found["futures"], strict=True):
        assert one.times.tolist() == pytest.approx(HISTORY[0] + future["times"])


def test_a_history_may_come_through_a_pipe(anhp: Path):
    line = '{"times": [1.0, 2.0], "events": ["0", "1"], "t_end": 8.0}'
    stream = io.TextIOWrapper(io.BytesIO(line.encode()))
    with mock.patch.object(sys, "stdin", stream):
        (found,) = fine("sample", anhp, "--history", "-", "--horizon", 3, "--json").json
    assert found["start"] == 8.0


def test_many_histories_have_one_table(anhp: Path, events):
    text = fine("sample", anhp, "--history", events(*[HISTORY] * 5), "--horizon", 3, "--n", 2).out
    assert "futures of 5 histories" in text and text.count("s4") == 1


def test_a_table_says_what_happens_and_why_it_ends(anhp: Path):
    text = fine("sample", anhp, "--horizon", 1000, "--n", 3, "--events", 2, "--top", 1).out
    assert "3 futures from 0 to 1000" in text and "with the last" in text and "exact, by" in text


def test_a_number_of_events_needs_no_horizon(anhp: Path):
    outcome = fine("sample", anhp, "--events", 5, "--n", 3)
    assert "3 futures from 0 until they have 5 events" in outcome.out and outcome.err == ""
    (found,) = fine("sample", anhp, "--events", 5, "--n", 3, "--json").json
    assert [(len(one["events"]), one["end"]) for one in found["futures"]] == [(5, "count")] * 3
    (far,) = fine("sample", anhp, "--events", 5, "--n", 3, "--horizon", found["horizon"], "--json").json
    assert far == found, "a horizon that is never reached"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--horizon", "-1"], "horizon = -1.0: expected a positive length of time"),
        (["--n", "2"], "say how far futures go: --horizon 10d, or --events 5"),
        (["--horizon", "1", "--n", "0"], "n = 0"),
        (["--horizon", "1", "--n", "100000000"], "from 1 to 1,000,000"),
        (["--horizon", "1", "--from", "2"], "there is no history"),
        (["--horizon", "1", "-o", "futures.txt"], "expected a name that ends in"),
        (["--horizon", "1", "--history", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(anhp: Path, arguments: list[str], said: str):
    assert said in refused("sample", anhp, *arguments)


def test_a_start_beyond_what_was_observed_is_said(anhp: Path, events):
    asked = fine("sample", anhp, "--history", events(HISTORY), "--horizon", 1, "--from", 9, "--json")
    assert "observed until 8" in asked.err and asked.json[0]["start"] == 9.0


def test_names_with_brackets_are_shown_as_they_are(tmp_path: Path):
    data = tmp_path / "odd.jsonl"
    lines = [
        json.dumps({"id": f"[/i]{row}", "times": [0.5 + row, 2.0 + row], "events": ["[/b]", "[red]x"], "t_end": 40.0})
        for row in range(12)
    ]
    data.write_text("\n".join(lines))
    fine("train", "--model", "poisson", "--data", data, "--out", tmp_path / "odd")
    text = fine("sample", tmp_path / "odd", "--history", data, "--sequence", "[/i]0", "--horizon", 400).out
    assert "sequence [/i]0" in text and ("[/b]" in text or "[red]x" in text)
