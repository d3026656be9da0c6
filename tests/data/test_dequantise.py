"""Times on a grid are spread within it, in order, always the same way."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.data.dequantise import dequantise, grid_of
from foretell.data.loading import load
from foretell.train.config import DataOptions
from foretell.train.splits import load_splits
from tests.samples import event_data

ROWS = [([1.0, 1.0, 1.0, 4.0, 9.0], [0, 1, 2, 0, 1]), ([2.0, 3.0, 3.0], [2, 1, 0])]


def test_times_stay_in_their_cell_and_in_order_and_ties_are_counted():
    found = dequantise(event_data(ROWS))
    assert found.grid == 1.0 and found.ties == pytest.approx(3 / 6)
    for one, before in zip(found.data, event_data(ROWS), strict=True):
        assert (np.floor(one.times) == before.times).all()
        assert (np.diff(one.times) > 0.0).all()
        assert (one.types == before.types).all() and one.t_end >= one.times[-1]


def test_the_same_seed_spreads_alike_and_another_does_not():
    first, again, other = (dequantise(event_data(ROWS), seed=seed).data for seed in (0, 0, 1))
    assert (first[0].times == again[0].times).all()
    assert not (first[0].times == other[0].times).any()


def test_a_first_event_that_is_given_stays_where_it_is():
    data = event_data([([0.0, 0.0, 2.0], [0, 1, 2])], origin="first-event")
    times = dequantise(data).data[0].times
    assert times[0] == 0.0 and 0.0 < times[1] < 1.0


def test_data_on_no_grid_without_ties_stay_as_they_are_and_ties_alone_take_the_smallest_gap():
    data = event_data([([0.1234567891, 0.5111111113, 3.3333333339], [0, 1, 2])])
    assert grid_of(data) is None and dequantise(data).data is data
    tied = event_data([([0.1234567891, 0.1234567891, 0.5111111113], [0, 1, 2])])
    assert grid_of(tied) == pytest.approx(0.3876543222)


def test_shares_are_uniform():
    data = event_data([(list(np.repeat(np.arange(200.0), 5)), [0] * 1000)], t_end=200.0)
    moved = dequantise(data).data[0].times
    assert abs((moved - np.floor(moved)).mean() - 0.5) < 5 * np.sqrt(1 / 12 / 1000)


def test_a_run_may_ask_for_it(caplog: pytest.LogCaptureFixture):
    raw = load("robocup").train
    found = load_splits(DataOptions(path="robocup", dequantise=True)).train
    assert raw is not None and found is not None
    assert "spread evenly within a grid of 1" in caplog.text
    assert not (found[0].times == raw[0].times).all() and (np.floor(found[0].times) == raw[0].times).all()
