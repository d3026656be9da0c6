"""One difference between two runs: the rows that count, the better one, and which runs may be compared at all."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate, Units
from foretell.evaluate.compare import (
    FEWEST_SEQUENCES,
    CorrectedTest,
    Difference,
    _of_functors,
    _wider,
    check_comparable,
    compare,
    compared_pairs,
    difference_of,
    in_words,
    ways_of,
)
from foretell.evaluate.metrics import Metric
from foretell.evaluate.permutation import PairedTest

NAMES = ("one", "other")
SEQUENCE = np.repeat(np.arange(8), 2)
ROWS = len(SEQUENCE)


def metric(values: Any, counts: Any = None, kind: Any = "nats", key: str = "log_likelihood") -> Metric:
    counts = np.ones(ROWS) if counts is None else np.asarray(counts, dtype=float)
    return Metric(key, key, kind, np.asarray(values, dtype=float), counts, root=kind == "time")


def difference(one: Metric, other: Metric) -> Difference:
    return difference_of(NAMES, one, other, Units(SEQUENCE, 8), ["events"], permutations=99)


def test_times_count_where_both_runs_can_tell_them():
    rng = np.random.default_rng(0)
    values, others = rng.uniform(1.0, 2.0, (2, ROWS)) ** 2
    here, there = np.ones(ROWS), np.ones(ROWS)
    here[0], there[1], there[2], here[2] = 0.0, 0.0, 0.0, 0.0
    one, other = metric(values * here, here, "time", "rmse"), metric(others * there, there, "time", "rmse")
    found, both = difference(one, other), slice(3, None)
    assert found.events == found.tests[0].test.units == ROWS - 3
    assert found.difference.value == pytest.approx(np.sqrt(values[both].mean()) - np.sqrt(others[both].mean()))
    same = difference(one, one)
    assert (same.difference.value, same.difference.low, same.difference.high, same.better) == (0.0, 0.0, 0.0, None)


def test_rows_without_an_event_are_units_where_one_of_the_two_has_an_integral():
    counts = np.ones(ROWS)
    counts[:3] = 0.0
    values, others = np.full(ROWS, -1.0), np.full(ROWS, -2.0)
    values[:3], others[:3] = (-0.5, 0.0, 0.0), (0.0, -0.25, 0.0)
    found = difference(metric(values, counts), metric(others, counts))
    assert found.tests[0].test.units == ROWS - 1 and found.events == ROWS - 3
    assert found.difference.value == pytest.approx((values.sum() - others.sum()) / (ROWS - 3))


def test_rows_in_which_both_are_right_are_units_too():
    wrong = np.zeros(ROWS)
    wrong[:3] = 1.0
    found = difference(
        metric(wrong, kind="share", key="error_rate"), metric(np.zeros(ROWS), kind="share", key="error_rate")
    )
    assert (found.tests[0].test.units, found.tests[0].test.differing) == (ROWS, 3)


def test_an_interval_lies_on_both_sides_of_its_difference():
    one, other = np.random.default_rng(0).normal(size=(2, ROWS))
    found, turned = difference(metric(one), metric(other)).difference, difference(metric(other), metric(one)).difference
    assert found.low < found.value < found.high
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))


@pytest.mark.parametrize(("shift", "better"), [(0.5, "one"), (-0.5, "other"), (0.0, None)])
def test_the_better_run_has_more_nats_and_smaller_errors(shift, better):
    values = np.linspace(1.0, 2.0, ROWS)
    assert difference(metric(values + shift), metric(values)).better == better
    errors = metric(values + shift, kind="time", key="rmse"), metric(values, kind="time", key="rmse")
    assert difference(*errors[::-1]).better == {"one": "one", "other": "other", None: None}[better]


def test_where_no_row_counts_nothing_is_tested():
    none = metric(np.zeros(ROWS), np.zeros(ROWS))
    found = difference(none, none)
    assert found.tests == () and found.events == 0 and found.better is None


def verdict_of(*corrected: float) -> str:
    test = PairedTest(0.5, 0.01, 10, 10, 99, True)
    tests = tuple(CorrectedTest(way, test, p) for way, p in zip(("events", "sequences"), corrected, strict=False))  # pyright: ignore[reportArgumentType]
    one = Difference("log_likelihood", "log-likelihood", "nats", *NAMES, Estimate(0.5, 0.4, 0.6), 10, tests, "one")
    return one.verdict()


def test_a_p_of_just_one_in_twenty_is_not_significant():
    assert verdict_of(0.05).startswith("no significant difference")
    assert verdict_of(0.05, 0.05).startswith("no significant difference")
    assert "over sequences alone" in verdict_of(0.05, 0.049) and "over events alone" in verdict_of(0.049, 0.05)
    assert verdict_of(0.049, 0.049).startswith("one is better than other")


def test_tests_over_sequences_need_six():
    assert ways_of("both", FEWEST_SEQUENCES) == (["events", "sequences"], None)
    ways, said = ways_of("both", FEWEST_SEQUENCES - 1)
    assert ways == ["events"] and said is not None and "5 sequences" in said
    assert ways_of("sequences", FEWEST_SEQUENCES)[0] == ["sequences"]


def test_four_runs_are_compared_all_with_all_and_five_with_the_best():
    runs = [[metric(np.full(ROWS, float(-abs(place - 2))))] for place in range(5)]
    assert len(compared_pairs(runs[:4])) == 6
    assert compared_pairs(runs) == [(2, 0), (2, 1), (2, 3), (2, 4)]


def run_of(name: str, metrics: list[Metric] | None = None, names: tuple[str, str] = ("a", "b"), **events: Any) -> Any:
    data = EventData.from_names([list(names)] * 8, [[1.0, 2.0]] * 8)
    columns = {
        "sequence": SEQUENCE,
        "event": np.tile([0, 1], 8),
        "time": np.tile([1.0, 2.0], 8),
        "type": np.tile([0, 1], 8),
        "is_event": np.ones(ROWS, dtype=bool),
    }
    made = [metric(np.linspace(-2.0, -1.0, ROWS))] if metrics is None else metrics
    evaluation = SimpleNamespace(window="all")
    scored = SimpleNamespace(events=SimpleNamespace(**columns | events), metrics=lambda: made, evaluation=evaluation)
    return SimpleNamespace(name=name, scored=scored, data=data)


def test_runs_of_other_events_are_refused():
    check_comparable([run_of("x"), run_of("y")])
    for other, said in (
        (run_of("y", event=np.tile([0, 2], 8)), "16 and 16 events of the same data"),
        (run_of("y", sequence=SEQUENCE[::-1]), "16 and 16 events of the same data"),
        (run_of("y", names=("a", "c")), "different events"),
        (run_of("y", type=np.tile([0, -1], 8)), "different events"),
        (run_of("y", time=np.tile([1.0, 3.0], 8)), "different events"),
    ):
        with pytest.raises(ForetellError, match=said):
            check_comparable([run_of("x"), other])


def test_runs_without_a_name_for_the_same_events_may_be_compared():
    unnamed = np.tile([0, -1], 8)
    check_comparable([run_of("x", type=unnamed), run_of("y", type=unnamed)])


def test_one_run_of_three_that_was_scored_in_another_way_is_refused():
    twice = [metric(np.zeros(ROWS)), metric(np.ones(ROWS), kind="time", key="rmse")]
    for runs in ([run_of("x"), run_of("y"), run_of("z", twice)], [run_of("x"), run_of("y", twice), run_of("z")]):
        with pytest.raises(ForetellError, match="scored in different ways"):
            compare(runs, permutations=9)


def test_the_mean_absolute_error_is_shown_but_not_tested():
    rng = np.random.default_rng(0)
    keys = (("log_likelihood", "nats"), ("rmse", "time"), ("mae", "time"))
    runs = [run_of(name, [metric(rng.uniform(1, 2, ROWS), kind=kind, key=key) for key, kind in keys]) for name in "xy"]
    found = compare(runs, permutations=9)
    assert [one.metric for one in found.differences] == ["log_likelihood", "rmse"]
    assert found.comparisons == 2 and found.untested is None
    assert replace(found, names=("p", "q")).names == ("p", "q")


def test_p_is_below_a_number_only_where_no_pattern_came_near():
    test = PairedTest(0.5, 0.01, 70, 70, 99, False)
    assert in_words(0.01, test) == "< 0.02"
    assert in_words(0.02, replace(test, p_value=0.02)) == "= 0.02"
    assert in_words(0.01, replace(test, exact=True)) == "= 0.01"


def test_of_five_runs_ten_pairs_were_looked_at_to_show_four():
    assert (_wider(2, 1), _wider(4, 6), _wider(5, 4)) == (1.0, 1.0, 2.5)


def test_main_scores_are_taken_apart_by_functor_and_patterns_all_together():
    keys = ("log_likelihood", "mae", "unknown", "participants pass(+P)", "participants kick(+P)", "participants all")
    metrics = [metric(np.zeros(ROWS), key=key) for key in keys]
    assert [one.key for one in _of_functors(metrics)] == ["log_likelihood", "participants all"]
    assert [one.key for one in _of_functors(metrics[:4])] == ["log_likelihood", "participants pass(+P)"]
