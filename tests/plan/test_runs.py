"""Slices and sorted arrays, against loops."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.plan.int_arrays import ByKey, below, sorted_once, spread, without


def test_slices_are_spread_out_in_order_and_empty_ones_give_nothing():
    place, row = spread(np.asarray([5, 9, 0, 2]), np.asarray([2, 0, 1, 3]))
    assert place.tolist() == [0, 0, 2, 3, 3, 3]
    assert row.tolist() == [5, 6, 0, 2, 3, 4]


def test_a_key_gives_all_its_values_in_the_order_they_came():
    lists = ByKey(np.asarray([2, 0, 2, 3]), np.asarray([10, 20, 30, 40]), 5)
    place, value = lists.expand(np.asarray([2, 1, 3, 2]))
    assert place.tolist() == [0, 0, 2, 3, 3]
    assert value.tolist() == [10, 30, 40, 10, 30]


@pytest.mark.parametrize("seed", range(30))
def test_sorted_arrays_are_compared_as_loops_would(seed: int):
    rng = np.random.default_rng(seed)
    one, other = (np.sort(rng.integers(0, 30, rng.integers(0, 60))) for _ in range(2))
    assert below(one, other).tolist() == [sum(key < limit for key in one) for limit in other]
    assert sorted_once(rng.permutation(one)).tolist() == sorted(set(one.tolist()))
    assert without(one, other).tolist() == [value for value in one.tolist() if value not in other.tolist()]
