"""Futures from the end of a long history: those of the end alone, told on the clock of the whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from foretell.data import Clock, EventSequence
from foretell.data.clock import NO_CLOCK
from foretell.models.attention.anhp import ANHP
from foretell.sampling.core.futures import sample_futures
from foretell.sampling.core.recent import RecentHistory, recent_histories
from tests.cli.invoking import fine
from tests.samples import random_data, randomise
from tests.train.small import folder_of

DATA = random_data(4, [30, 3])


def test_the_last_events_are_kept_and_the_clock_begins_with_the_one_before():
    whole = DATA[0]
    found = RecentHistory.of(whole, 5, NO_CLOCK)
    assert found.left_out == 25 and found.zero == whole.times[24]
    np.testing.assert_array_equal(found.sequence.times + found.zero, whole.times[25:])
    np.testing.assert_array_equal(found.sequence.types, whole.types[25:])
    assert found.sequence.t_end == whole.t_end - found.zero
    earlier = RecentHistory.of(whole, 5, NO_CLOCK, start=float(whole.times[9]))
    assert earlier.left_out == 5 and len(earlier.sequence) == 25  # what comes later stays, and is not seen
    short = DATA[1]
    assert RecentHistory.of(short, 5, NO_CLOCK).sequence is short


def test_futures_come_back_on_the_clock_of_the_whole():
    model = randomise(ANHP(DATA.vocabulary, dim=4, layers=1), 3, 0.3)
    recent = recent_histories(list(DATA), 5, NO_CLOCK)
    found = sample_futures(model, [one.sequence for one in recent], horizon=3.0, n=2)
    back = [one.back(futures) for one, futures in zip(recent, found, strict=True)]
    for one, moved, before in zip(recent, back, found, strict=True):
        assert moved.start == pytest.approx(DATA[0].t_end) and moved.horizon == pytest.approx(DATA[0].t_end + 3.0)
        for future, own in zip(moved.futures, before.futures, strict=True):
            np.testing.assert_array_equal(future.times, own.times + one.zero)


def test_the_command_looks_at_the_end_alone(tmp_path: Path):
    folder = folder_of(tmp_path / "data", t_end=40.0)
    fine("train", "--model", "anhp", "--data", folder, "--out", tmp_path / "run", "--epochs", 1, "--no-floors")
    asked = "sample", tmp_path / "run", "--history", folder, "--horizon", 4, "--sequence", 0, "--json"
    (cut,) = json.loads(fine(*asked, "--history-events", 2).out)
    (whole,) = json.loads(fine(*asked).out)
    assert (cut["start"], cut["horizon"]) == (pytest.approx(whole["start"]), pytest.approx(whole["horizon"]))
    assert cut["futures"] != whole["futures"]
    (all_of_it,) = json.loads(fine(*asked, "--history-events", 10_000).out)
    assert all_of_it == whole


def test_absolute_times_stay_what_they_are():
    one = random_data(4, [6])[0]
    dated = EventSequence(one.times, one.types, one.t_end, "a", start=1_700_000_000_000_000_000)
    clock = Clock("days", 86_400.0)
    found = RecentHistory.of(dated, 2, clock).sequence
    for time, before in zip(found.times.tolist(), dated.times[4:].tolist(), strict=True):
        assert clock.iso(time, found.start) == clock.iso(before, dated.start)
