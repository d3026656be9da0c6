"""Training, scores, predictions and samples from fixed seeds are what they were."""

from __future__ import annotations

import pytest

from tests.frozen.cases import CASES
from tests.frozen.numbers import MOST_SHOWN, compute, differences, read

FROZEN = read()


def test_every_case_is_frozen():
    assert list(FROZEN) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_what_they_were(name: str):
    assert list(differences(compute(name), FROZEN[name]))[:MOST_SHOWN] == []


def test_a_changed_number_is_noticed():
    frozen = {"parameters": {"tensors": {"w": {"shape": [2], "sum": 0.5, "size": 3.0}}}, "samples": {"times": [2.0]}}
    moved = {
        "parameters": {"tensors": {"w": {"shape": [2], "sum": 0.5 + 1e-11, "size": 3.0}}},
        "samples": {"times": [2.0]},
    }
    assert list(differences(moved, frozen))
    assert list(differences({**frozen, "samples": {"times": [2.0 + 1e-8]}}, frozen))
    assert not list(differences({**frozen, "samples": {"times": [2.0 + 1e-10]}}, frozen))
