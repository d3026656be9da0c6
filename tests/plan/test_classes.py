"""Which slots are alike without looking back: those with the same fact, proofs and bodies, and no others."""

from __future__ import annotations

import numpy as np

from foretell.plan import deduction as classes
from foretell.plan.deduction import classes_of

# Slots 0, 1: fact 1, without proofs. 2, 3: fact 2 by proof 7 from 0, 1. 4: fact 2 by proofs 7 and 8, from 1. 5: fact 3.
FACT = np.array([1, 1, 2, 2, 2, 3])
LEVEL = np.array([0, 0, 1, 1, 1, 0])
INSTANCE = np.array([7, 7, 7, 8])
HEAD = np.array([2, 3, 4, 4])
BODY = np.array([[0], [1], [1], [5]])


def test_slots_with_the_same_proofs_from_alike_bodies_are_one_class():
    number, representative = classes_of(FACT, LEVEL, INSTANCE, HEAD, BODY)
    assert number[0] == number[1] and number[2] == number[3]
    assert len(set(number[[0, 2, 4, 5]].tolist())) == 4 == len(representative)
    np.testing.assert_array_equal(number[representative], np.arange(4))


def test_the_order_of_proofs_does_not_matter_and_the_place_of_a_body_does():
    swapped = [3, 2, 1, 0]
    one, _ = classes_of(FACT, LEVEL, INSTANCE, HEAD, BODY)
    other, _ = classes_of(FACT, LEVEL, INSTANCE[swapped], HEAD[swapped], BODY[swapped])
    np.testing.assert_array_equal(one, other)
    fact, level = np.array([1, 2, 3, 3]), np.array([0, 0, 1, 1])
    number, _ = classes_of(fact, level, np.array([4, 4]), np.array([2, 3]), np.array([[0, 1], [1, 0]]))
    assert number[2] != number[3]


def test_slots_that_only_seem_alike_are_not_shared(monkeypatch):
    calls = iter([np.zeros(6, dtype=np.uint64), np.arange(6, dtype=np.uint64)])
    monkeypatch.setattr(classes, "_sums", lambda *given: next(calls))
    number, representative = classes_of(FACT, LEVEL, INSTANCE, HEAD, BODY)
    np.testing.assert_array_equal(number, np.arange(6))
    np.testing.assert_array_equal(representative, np.arange(6))


def test_no_slots_are_no_classes():
    nothing = np.zeros(0, dtype=np.int64)
    number, representative = classes_of(nothing, nothing, nothing, nothing, np.zeros((0, 0), dtype=np.int64))
    assert len(number) == len(representative) == 0
