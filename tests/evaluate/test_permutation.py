"""The paired permutation test: right under the null, powerful under a shift, exact where that is cheap, and never 0.

Statistical tests are seeded. With another seed, a correct test would fail each of their bounds with a probability below 1e-5.
"""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from scipy import stats

from foretell.data.synthetic import PoissonProcess as Truth
from foretell.data.synthetic import simulate
from foretell.errors import ForetellError
from foretell.evaluate import permutation
from foretell.evaluate.bootstrap import Units
from foretell.evaluate.compare import difference_of
from foretell.evaluate.likelihood import EventScores, score_events
from foretell.evaluate.metrics import EventRecord, Metric, metrics_of
from foretell.evaluate.patterns import Guesses
from foretell.evaluate.permutation import (
    compare_values,
    permutation_test,
)
from foretell.models.classical.poisson import Poisson


def brute_force(first: np.ndarray, second: np.ndarray) -> float:
    """Every way to exchange the scores of units, one after the other."""
    found = abs(np.mean(first - second))
    means = []
    for exchanged in itertools.product((False, True), repeat=len(first)):
        one = np.where(exchanged, second, first)
        other = np.where(exchanged, first, second)
        means.append(abs(np.mean(one - other)))
    return float(np.mean(np.asarray(means) >= found - 1e-12))


def guesses(wrong: list[bool], pattern: str = "pass(+P,-Q)", shift: int = 0) -> Guesses:
    count = len(wrong)
    sequence = np.arange(count) // 2
    return Guesses(pattern, sequence, np.arange(count) + shift, np.asarray(wrong), np.full(count, 3))


@pytest.mark.parametrize("units", [1, 2, 5, 9])
@pytest.mark.parametrize("whole_numbers", [False, True])
def test_enumeration_is_every_way_to_exchange_scores(units, whole_numbers):
    rng = np.random.default_rng(units)
    for _ in range(20):
        first, second = rng.normal(size=(2, units)) if not whole_numbers else rng.integers(0, 3, (2, units)) / 1.0
        found = permutation_test(first, second, permutations=2**units)
        assert found.exact
        assert found.p_value == pytest.approx(brute_force(first, second), abs=1e-12)


def test_the_unit_of_scores_does_not_move_p():
    """Patterns of the same sum are found among sums that rounding sets apart, however large these are."""
    whole = np.random.default_rng(4).integers(-5, 6, 8).astype(float)
    for unit in (1.0, 1e6 / 3.0, 1e8 / 7.0, 1e-7):
        assert permutation_test(whole * unit, np.zeros(8)).p_value == brute_force(whole, np.zeros(8)), unit


def test_one_pattern_is_drawn_where_one_is_asked_for():
    assert permutation_test(np.arange(70.0), np.zeros(70), permutations=1).permutations == 1


def test_the_difference_of_a_single_row_is_its_own():
    assert compare_values(np.array([1.5]), np.array([1.0]), np.array([0])).difference == 0.5


def test_patterns_are_enumerated_when_there_are_no_more_than_would_be_drawn():
    first, second = np.random.default_rng(0).normal(size=(2, 6))
    assert permutation_test(first, second, permutations=64).exact
    assert permutation_test(first, second, permutations=64).permutations == 63  # and the one found
    drawn = permutation_test(first, second, permutations=63)
    assert not drawn.exact and drawn.permutations == 63


def test_drawn_patterns_come_to_the_exact_p():
    """Standard error of the share below 0.0012."""
    first, second = np.random.default_rng(4).normal(size=(2, 17))
    exact = permutation_test(first, second, permutations=2**17)
    drawn = permutation_test(first, second, permutations=2**17 - 1)
    assert exact.exact and not drawn.exact
    assert drawn.p_value == pytest.approx(exact.p_value, abs=0.006)


def test_p_is_uniform_when_the_models_are_exchangeable():
    """4000 pairs of samples whose units differ in scale; Kolmogorov-Smirnov, and the share of false alarms at 5 %."""
    rng = np.random.default_rng(1)
    scale = rng.exponential(size=40) ** 3
    found = []
    for place in range(4000):
        shared, first, second = rng.standard_t(3, size=(3, 40)) * scale
        found.append(permutation_test(shared + first, shared + second, permutations=499, seed=place).p_value)
    assert stats.kstest(found, "uniform").pvalue > 1e-5
    assert abs(np.mean(np.asarray(found) <= 0.05) - 0.05) < 5 * np.sqrt(0.05 * 0.95 / 4000)


def test_a_shift_is_found_though_units_differ_more_than_models():
    rng = np.random.default_rng(2)
    shared = 10.0 * rng.normal(size=200)
    second = shared + 0.5 * rng.normal(size=200)
    first = shared + 0.5 * rng.normal(size=200) + 0.3
    found = permutation_test(first, second, permutations=9999)
    assert found.p_value < 0.001
    assert found.difference == pytest.approx(np.mean(first - second))
    assert stats.ttest_ind(first, second).pvalue > 0.3  # without pairs there is nothing to see


def test_the_order_of_models_changes_only_the_sign():
    rng = np.random.default_rng(3)
    for units in (7, 50):
        first, second = rng.normal(size=(2, units))
        one, other = (permutation_test(a, b, permutations=999) for a, b in ((first, second), (second, first)))
        assert one.difference == -other.difference
        assert one.p_value == other.p_value


def test_p_is_never_0():
    found = permutation_test(np.arange(100) + 5.0, np.arange(100), permutations=99)
    assert found.p_value == 1 / 100
    exact = permutation_test(np.arange(5) + 5.0, np.arange(5), permutations=32)
    assert exact.p_value == 2 / 32  # the pattern found, and its mirror image


def test_models_that_never_differ_are_not_told_apart():
    found = permutation_test([1.0, 2.0], [1.0, 2.0])
    assert (found.p_value, found.difference, found.units, found.differing) == (1.0, 0.0, 2, 0)


def test_units_that_do_not_differ_do_not_move_p():
    first, second = np.random.default_rng(5).normal(size=(2, 8))
    alone = permutation_test(first, second)
    among = permutation_test(np.r_[first, np.ones(1000)], np.r_[second, np.ones(1000)])
    assert among.exact and among.p_value == alone.p_value
    assert among.units == 1008 and among.differing == 8
    assert among.difference == pytest.approx(alone.difference * 8 / 1008)


def test_a_seed_gives_the_same_p_and_another_seed_another():
    first, second = np.random.default_rng(6).normal(size=(2, 60))
    found = [permutation_test(first, second, permutations=999, seed=seed).p_value for seed in (0, 0, 1, 2, 3)]
    assert found[0] == found[1]
    assert len(set(found)) > 1


def test_memory_is_bounded_and_the_cut_changes_nothing(monkeypatch):
    first, second = np.random.default_rng(7).normal(size=(2, 64))
    few, seven = np.random.default_rng(8).normal(size=(2, 7))
    monkeypatch.setattr(permutation, "AT_A_TIME", 64 * 5)
    cut = permutation_test(first, second, permutations=999)
    cut_exact = permutation_test(few, seven, permutations=128)
    largest = max(len(part) for part in permutation._drawn_sums(first, 999, np.random.default_rng(0)))
    monkeypatch.undo()
    assert largest == 5
    assert cut_exact == permutation_test(few, seven, permutations=128)
    assert cut == permutation_test(first, second, permutations=999)


@pytest.mark.parametrize("units", [1, 64, 65, 600])
@pytest.mark.parametrize("at_a_time", [1, 64 * 10 * 3, 1 << 26])
def test_drawn_sums_are_those_of_every_sign_by_itself(monkeypatch, units, at_a_time):
    """A unit's sign is a bit of the numbers that are drawn: eight units a byte, the highest bit first."""
    monkeypatch.setattr(permutation, "AT_A_TIME", at_a_time)
    signed, count = np.random.default_rng(9).normal(size=units), 11
    parts = list(permutation._drawn_sums(signed, count, np.random.default_rng(10)))
    words = int(np.ceil(units / 64))
    drawn = np.random.default_rng(10).integers(2**64, size=(count, words), dtype=np.uint64).view(np.uint8)
    signs = 1.0 - 2.0 * np.unpackbits(drawn, axis=1)[:, :units]
    assert np.concatenate(parts) == pytest.approx(signs @ signed)
    rows = min(max(1, at_a_time // (64 * words)), count)
    assert [len(part) for part in parts] == [min(rows, count - start) for start in range(0, count, rows)]


def test_all_sums_are_made_some_at_a_time(monkeypatch):
    for units, at_a_time, lengths in ((2, 64 * 2 * 2, [2, 1]), (2, 64 * 2 * 3, [3]), (1, 64, [1]), (2, 1, [1, 1, 1])):
        monkeypatch.setattr(permutation, "AT_A_TIME", at_a_time)
        assert [len(part) for part in permutation._all_sums(np.ones(units))] == lengths


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([1.0, 2.0], [1.0], "2 scores of the first model and 1 of the second"),
        ([1.0, float("nan")], [1.0, 2.0], "first model: unit 1 is nan"),
        ([1.0, 2.0], [float("-inf"), 2.0], "second model: unit 0 is -inf"),
        ([], [], "no scores"),
        ([[1.0]], [[2.0]], r"the shape \[1, 1\]"),
        (["a"], [1.0], "expected a list of numbers"),
    ],
)
def test_scores_that_cannot_be_compared_are_the_users_error(first, second, message):
    with pytest.raises(ForetellError, match=message):
        permutation_test(first, second)


@pytest.mark.parametrize("options", [{"permutations": 0}, {"seed": -1}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ForetellError, match="expected"):
        permutation_test([1.0], [2.0], **options)


@pytest.fixture(scope="module")
def scored():
    """Two Poisson models of one data set: the true rates, and wrong ones."""
    data = simulate(Truth((0.6, 0.4)), 12, 8.0, 1)
    found = []
    for rates in ((0.6, 0.4), (0.9, 0.5)):
        model = Poisson(data.vocabulary)
        with torch.no_grad():
            model.log_rate.copy_(torch.tensor(rates, dtype=torch.float64).log())
        found.append(score_events(model, data))
    return found


def compared(first, second, over="events", **options):
    """By the log-likelihood of every row; the difference is in nats per event."""
    values = first.log_likelihood, second.log_likelihood
    return compare_values(*values, first.sequence, over, events=int(first.is_event.sum()), **options)


def test_over_events_the_units_add_up_to_the_difference_an_event(scored):
    right, wrong = scored
    found = compared(right, wrong)
    events = int(right.is_event.sum())
    assert found.units == events
    assert found.difference == pytest.approx((right.log_likelihoods.sum() - wrong.log_likelihoods.sum()) / events)
    assert found.p_value == permutation_test(right.log_likelihood, wrong.log_likelihood).p_value


def test_over_sequences_the_difference_is_the_same_and_the_units_are_fewer(scored):
    right, wrong = scored
    found = compared(right, wrong, "sequences")
    assert found.units == 12 and found.exact
    assert found.difference == pytest.approx(compared(right, wrong).difference)
    assert found.p_value == pytest.approx(brute_force(right.log_likelihoods, wrong.log_likelihoods))


def metric_of(record: EventRecord, key: str) -> Metric:
    return next(one for one in metrics_of(record) if one.key == key)


def test_errors_of_the_next_type_are_compared(scored):
    right, _ = scored
    never = replace(right, predicted_type=right.type)
    one, other = (metric_of(EventRecord(events), "error_rate") for events in (never, right))
    found = difference_of(("never", "right"), one, other, Units(right.sequence, 12), ["events", "sequences"])
    assert found.difference.value == pytest.approx(-np.mean(right.predicted_type != right.type))
    assert found.tests[0].test.p_value < 0.001 and found.better == "never"
    assert found.tests[1].test.difference == pytest.approx(found.tests[0].test.difference)


def test_participants_are_compared_over_all_patterns_together(scored):
    """Ten rows of four sequences; two patterns ask about them, none about both."""
    sequence, event = np.repeat([0, 1, 2, 3], [4, 2, 2, 2]), np.array([0, 1, 8, 9, 2, 3, 4, 5, 6, 7])
    columns = {one.name: getattr(scored[0], one.name)[:10] for one in fields(EventScores) if one.name != "used"}
    events = replace(scored[0], **columns | {"sequence": sequence, "event": event})
    first = (guesses([False] * 8), guesses([True] * 2, "kick(-P)", 8))
    second = (guesses([True] * 6 + [False] * 2), guesses([True] * 2, "kick(-P)", 8))
    one, other = (metric_of(EventRecord(events, None, some), "participants all") for some in (first, second))
    found = difference_of(("first", "second"), one, other, Units(events.sequence, 4), ["events", "sequences"])
    assert found.difference.value == pytest.approx(-0.6)
    test = found.tests[0].test
    assert (test.units, test.differing, test.p_value) == (10, 6, 2 / 64)
    assert found.tests[1].test.p_value == 2 / 8


def test_units_that_are_none_and_no_scores_are_errors(scored):
    right, _ = scored
    with pytest.raises(ForetellError, match="no scores"):
        compare_values(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))
    with pytest.raises(ForetellError, match="over = 'games'"):
        compared(right, right, "games")
