"""Optimal transport and matching: against every alignment there is, and against scipy's assignment."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from foretell.evaluate import long_horizon
from foretell.evaluate.long_horizon import matched_ranks, transport_distances


def random_times(rng: np.random.Generator, most: int) -> np.ndarray:
    return np.sort(rng.random(rng.integers(0, most + 1)) * 10.0)


def every_alignment(one: np.ndarray, other: np.ndarray, cost: float) -> float:
    """The cheapest of all partial one-to-one matchings, crossing or not."""
    best = cost * (len(one) + len(other))
    for size in range(1, min(len(one), len(other)) + 1):
        for mine in itertools.combinations(range(len(one)), size):
            for yours in itertools.permutations(range(len(other)), size):
                moved = sum(abs(one[i] - other[j]) for i, j in zip(mine, yours, strict=True))
                best = min(best, moved + cost * (len(one) + len(other) - 2 * size))
    return best


def assignment(one: np.ndarray, other: np.ndarray, cost: float) -> float:
    n, m = len(one), len(other)
    table = np.zeros((n + m, n + m))
    table[:n, :m] = np.abs(one[:, None] - other[None, :])
    table[:n, m:], table[n:, :m] = cost, cost
    return float(table[linear_sum_assignment(table)].sum())


def test_the_distance_is_the_cheapest_of_all_alignments():
    rng = np.random.default_rng(0)
    pairs = [(random_times(rng, 4), random_times(rng, 4)) for _ in range(60)]
    costs = (0.05, 0.7, 3.0)
    found = transport_distances(pairs, costs)
    expected = [[every_alignment(one, other, cost) for cost in costs] for one, other in pairs]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_distance_is_that_of_an_assignment():
    rng = np.random.default_rng(1)
    pairs = [(random_times(rng, 25), random_times(rng, 25)) for _ in range(200)]
    found = transport_distances(pairs, (0.5,))[:, 0]
    np.testing.assert_allclose(found, [assignment(one, other, 0.5) for one, other in pairs], atol=1e-9)


def test_many_pairs_at_a_time_are_the_same_as_one_after_the_other(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(2)
    pairs = [(random_times(rng, 30), random_times(rng, 6)) for _ in range(150)]
    together = transport_distances(pairs, (0.2, 1.0))
    alone = np.concatenate([transport_distances([pair], (0.2, 1.0)) for pair in pairs])
    np.testing.assert_array_equal(together, alone)
    monkeypatch.setattr(long_horizon, "MOST_IN_A_STEP", 50)
    np.testing.assert_array_equal(together, transport_distances(pairs, (0.2, 1.0)))


def test_equal_sequences_are_at_distance_0_and_an_empty_one_costs_its_events():
    times = np.array([1.0, 2.0, 5.0])
    assert transport_distances([(times, times), (times, np.zeros(0))], (0.5,))[:, 0].tolist() == [0.0, 1.5]
    assert transport_distances([], (0.5,)).shape == (0, 1)


def largest_matching(predicted: np.ndarray, true: np.ndarray, delta: float) -> int:
    table = -(np.abs(predicted[:, None] - true[None, :]) <= delta).astype(float)
    return round(-table[linear_sum_assignment(table)].sum()) if table.size else 0


def test_every_prefix_of_predictions_is_matched_as_often_as_can_be():
    rng = np.random.default_rng(3)
    for _ in range(200):
        predicted, true = rng.permutation(random_times(rng, 9)), random_times(rng, 6)
        found = matched_ranks(predicted, true, 1.0)
        for stop in range(len(predicted) + 1):
            assert found[:stop].sum() == largest_matching(predicted[:stop], true, 1.0)


def test_an_earlier_match_gives_way_where_it_can():
    assert matched_ranks(np.array([2.0, 1.0]), np.array([1.5, 2.5]), 0.6).tolist() == [True, True]
    assert matched_ranks(np.array([2.0, 1.0]), np.array([1.5]), 0.6).tolist() == [True, False]
