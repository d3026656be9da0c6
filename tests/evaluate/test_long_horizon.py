"""Futures against what happened: scores by hand, average precision by its definition, starts that are fully watched."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.errors import ForetellError
from foretell.evaluate import long_horizon as precise
from foretell.evaluate.long_horizon import FutureOptions, FutureWindow, compare_futures, score_futures, starting_points
from foretell.models.classical.poisson import Poisson
from tests.samples import event_data


def window(true, *futures, sequence: int = 0) -> FutureWindow:
    """Events as pairs (time, type)."""

    def columns(events):
        events = sorted(events)
        return np.array([t for t, _ in events], dtype=float), np.array([k for _, k in events], dtype=np.int64)

    return FutureWindow(sequence, *columns(true), tuple(columns(one) for one in futures))


def random_window(rng: np.random.Generator, futures: int, sequence: int, types: int = 3) -> FutureWindow:
    def drawn():
        return [(float(t), int(rng.integers(types))) for t in rng.random(rng.integers(0, 7)) * 10.0]

    return window(drawn(), *(drawn() for _ in range(futures)), sequence=sequence)


def slow_t_map(windows: list[FutureWindow], delta: float, number: int) -> float:
    """By its definition, prediction by prediction: thresholds on the score, the largest matching at each."""
    from tests.evaluate.test_alignment import largest_matching

    kinds = sorted({int(k) for one in windows for k in one.types})
    found = []
    for kind in kinds:
        scores, total = [], 0
        for one in windows:
            total += int((one.types == kind).sum())
            others = [f for place, f in enumerate(one.futures) if place != number]
            scores.append(
                [
                    np.mean([(np.abs(t[k == kind] - time) <= delta).any() for t, k in others])
                    for time in one.futures[number][0]
                ]
            )
        levels = sorted({value for row in scores for value in row}, reverse=True)
        before, area = 0, 0.0
        for level in levels:
            hits = seen = 0
            for one, row in zip(windows, scores, strict=True):
                chosen = one.futures[number][0][np.asarray(row, dtype=float) >= level]
                seen += len(chosen)
                hits += largest_matching(chosen, one.times[one.types == kind], delta)
            area += (hits - before) * hits / seen
            before = hits
        found.append(area / total)
    return float(np.mean(found))


@pytest.mark.parametrize("sequences", [3, 30])
def test_t_map_is_what_its_definition_says(sequences):
    rng = np.random.default_rng(sequences)
    windows = [random_window(rng, 4, n) for n in range(sequences)]
    found = compare_futures(windows, sequences, FutureOptions(4, 10.0, 1.5))
    expected = np.mean([slow_t_map(windows, 1.5, number) for number in range(4)])
    assert found.t_map.value == pytest.approx(expected)
    assert found.t_map.low < found.t_map.value < found.t_map.high


def test_futures_that_are_the_truth_score_1_and_cost_nothing():
    truth = [(1.0, 0), (2.5, 1), (7.0, 0)]
    found = compare_futures(
        [window(truth, truth, truth, sequence=n) for n in range(25)], 25, FutureOptions(2, 10.0, 1.0)
    )
    assert found.t_map.value == found.t_map_weighted.value == 1.0
    assert found.transport[0].distance.value == 0.0 and found.transport[0].cost == 0.5


def test_futures_without_events_score_0_and_cost_every_event():
    found = compare_futures([window([(1.0, 0), (2.0, 1)], [], [])], 1, FutureOptions(2, 10.0, costs=(0.25, 3.0)))
    assert found.t_map.value == 0.0
    assert [one.distance.value for one in found.transport] == [0.5, 6.0]
    assert found.predicted_events == 0.0 and found.happened_events == 2.0


def test_nothing_happened_and_nothing_is_scored():
    found = compare_futures([window([], [(1.0, 0)], [])], 1, FutureOptions(2, 10.0))
    assert np.isnan(found.t_map.value) and found.transport[0].distance.value == pytest.approx(0.5)


def test_transport_is_by_hand_that_of_each_future_on_average():
    true = [(1.0, 0), (4.0, 1)]
    near, other = [(1.5, 0), (4.25, 1)], [(1.0, 1), (4.0, 1)]  # 0.75; the second: move nothing, insert 0@1, delete 1@1
    found = compare_futures([window(true, near, other)], 1, FutureOptions(2, 10.0, costs=(1.0,)))
    assert found.transport[0].distance.value == pytest.approx((0.75 + 2.0) / 2.0)


def test_only_the_first_events_are_transported():
    true, drawn = [(float(t), 0) for t in range(1, 9)], [(float(t), 0) for t in range(1, 4)]
    few = compare_futures([window(true, drawn, drawn)], 1, FutureOptions(2, 10.0, costs=(1.0,), steps=3))
    assert few.transport[0].distance.value == 0.0


def test_the_default_parameters_are_in_the_proportions_of_hotpp():
    asked = FutureOptions(10, 10.0)
    assert asked.window == 2.0 and asked.prices == (1.0,) and asked.steps == 10


def test_windows_follow_each_other_and_are_watched_to_their_end():
    data = event_data([([0.5, 1.0, 1.0, 4.0, 4.2, 8.5], [0] * 6), ([], [])], types=1, t_end=[10.0, 3.0])
    assert starting_points(data, 3.0) == [(0, 0), (0, 3)]
    assert starting_points(data, 1.4) == [(0, 0), (0, 3), (0, 5)]
    assert starting_points(data, 20.0) == []


def test_ties_are_all_history():
    data = event_data([([1.0, 1.0, 1.0, 2.0], [0] * 4)], types=1, t_end=4.0)
    assert starting_points(data, 2.0) == [(0, 2)]


def test_at_most_a_thousand_starts_are_chosen_evenly():
    data = event_data([(np.arange(0.5, 3000.0).tolist(), [0] * 3000)], types=1, t_end=3000.0)
    found = starting_points(data, 0.5)
    assert len(found) == 1000 and found[0] == (0, 0) and np.diff([event for _, event in found]).max() <= 4


def test_futures_of_the_true_process_expect_as_many_events_as_happen():
    """300 windows of 3 events; five standard errors are 0.5."""
    rng = np.random.default_rng(4)
    rows = []
    for _ in range(30):
        times = np.cumsum(rng.exponential(1.0, 60))
        rows.append((times[times < 40.0].tolist(), [0] * int((times < 40.0).sum())))
    data = event_data(rows, types=1, t_end=40.0)
    model = Poisson(data.vocabulary)
    with torch.no_grad():
        model.log_rate.fill_(0.0)
    model.longest = 40.0
    found = score_futures(model, data, FutureOptions(5, 3.0), seed=1)
    assert found.starts > 250 and abs(found.predicted_events - 3.0) < 0.25 and abs(found.happened_events - 3.0) < 0.55
    assert found.true_events == round(found.happened_events * found.starts)
    assert 0.0 < found.t_map.value < 1.0 and found.transport[0].distance.low > 0.0


def test_unpredicted_events_are_no_targets():
    from foretell.evaluate.long_horizon import _happened

    data = event_data([([1.0, 2.0, 3.0, 9.0], [0, 1, 0, 0])], types=2)
    times, types = _happened(data[0], 0, 5.0, np.array([False, True]))
    assert times.tolist() == [2.0] and types.tolist() == [0]


def test_replicates_of_t_map_are_drawn_some_at_a_time_and_the_cut_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(5)
    windows = [random_window(rng, 3, n) for n in range(25)]
    asked = FutureOptions(3, 10.0, 1.0)
    whole = compare_futures(windows, 25, asked)
    monkeypatch.setattr(precise, "AT_A_TIME", 7)
    assert compare_futures(windows, 25, asked).t_map == whole.t_map


@pytest.mark.slow
def test_intervals_of_t_map_cover_that_of_much_data_though_some_types_are_rare():
    """100 data sets of 50 windows against 3000 windows; standard error 0.022. Quantiles of plain replicates cover three times in four."""
    rng = np.random.default_rng(6)
    often = np.array([0.5, 0.25, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01])

    def drawn(sequence: int) -> FutureWindow:
        mean, favoured = rng.gamma(2.0, 2.0) + 0.5, rng.random(len(often)) * 10.0

        def events() -> list[tuple[float, int]]:
            kinds = rng.choice(len(often), p=often, size=rng.poisson(mean))
            near = np.clip(favoured[kinds] + rng.normal(size=len(kinds)), 0.0, 10.0)
            times = np.where(rng.random(len(kinds)) < 0.6, near, rng.random(len(kinds)) * 10.0)
            return list(zip(times.tolist(), kinds.tolist(), strict=True))

        return window(events(), *(events() for _ in range(5)), sequence=sequence)

    def scored(count: int):
        return compare_futures([drawn(n) for n in range(count)], count, FutureOptions(5, 10.0, 1.0))

    truth = scored(3000)
    inside = np.zeros(2)
    for _ in range(100):
        found = scored(50)
        pairs = (found.t_map, truth.t_map), (found.t_map_weighted, truth.t_map_weighted)
        inside += [one.low <= true.value <= one.high for one, true in pairs]
    assert (inside / 100 >= 0.84).all(), inside


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"n": 1, "horizon": 1.0}, "futures = 1: expected 2 or more"),
        ({"n": 2, "horizon": 0.0}, "horizon = 0.0: expected a time above 0"),
        ({"n": 2, "horizon": 1.0, "delta": -1.0}, "delta = -1.0"),
        ({"n": 2, "horizon": 1.0, "costs": (0.0,)}, "cost = 0.0"),
        ({"n": 2, "horizon": 1.0, "steps": 0}, "steps = 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(asked, message):
    with pytest.raises(ForetellError, match=message):
        FutureOptions(**asked)


def test_a_horizon_that_no_sequence_has_is_the_users_error():
    data = event_data([([1.0], [0])], types=1, t_end=2.0)
    with pytest.raises(ForetellError, match=r"no sequence of sample is watched so long"):
        score_futures(Poisson(data.vocabulary), data, FutureOptions(2, 5.0))
