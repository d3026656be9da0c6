"""p over seeds against scipy, the correction by Holm's method, and differences that come back from `results.json`."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.compare import CorrectedTest, Difference
from foretell.evaluate.permutation import PERMUTATIONS, PairedTest
from foretell.reproduce.model_difference import (
    ModelDifference,
    SeedDifference,
    correct,
    difference_from_json,
    seeds_p,
    student_p,
    student_quantile,
)


def difference(
    p: float, p_seeds: float | None = None, *, differing: int = 9, better: str | None = "a", **changes
) -> ModelDifference:
    test = PairedTest(0.5, p, 9, differing, PERMUTATIONS, False)
    about = ("log_likelihood", "log-likelihood", "nats", "a", "b", Estimate(0.5, 0.25, 1.0), 9)
    pooled = replace(Difference(*about, (CorrectedTest("sequences", test, 1.0),), better), **changes)
    return ModelDifference(pooled, {0: SeedDifference(0.5, 0.01), 1: SeedDifference(-0.1, 0.5)}, p_seeds)


@pytest.mark.parametrize("freedom", [1.0, 1.5, 2.0, 4.0, 7.3, 30.0])
@pytest.mark.parametrize("t", [0.0, 0.01, 0.5, 1.0, 3.0, 12.0, 400.0])
def test_students_tails_are_those_of_scipy(t, freedom):
    assert student_p(t, freedom) == pytest.approx(2.0 * stats.t.sf(t, freedom), rel=1e-5)


def test_students_quantile_is_that_of_scipy():
    for freedom in (1.0, 2.0, 4.0):
        assert student_quantile(0.95, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-4)


def test_seeds_are_compared_by_welchs_test():
    rng = np.random.default_rng(0)
    for one, other in ((5, 5), (3, 5), (2, 9)):
        first, second = rng.normal(0.0, 1.0, one), rng.normal(0.5, 3.0, other)
        expected = stats.ttest_ind(first, second, equal_var=False).pvalue
        assert seeds_p(first, second) == pytest.approx(expected, rel=1e-4)
        assert seeds_p(second, first) == pytest.approx(expected, rel=1e-4)


def test_a_model_without_chance_has_no_spread():
    first = [1.0, 1.2, 1.5]
    expected = stats.ttest_1samp(first, 0.7).pvalue
    assert seeds_p(first, [0.7], constant=(False, True)) == pytest.approx(expected, rel=1e-4)
    assert seeds_p([0.7], first, constant=(True, False)) == pytest.approx(expected, rel=1e-4)
    assert seeds_p(first, [0.7, 0.7, 0.7], constant=(False, True)) == pytest.approx(expected, rel=1e-4)


def test_a_single_fit_is_taken_to_have_the_spread_of_the_other_model():
    first = np.array([1.0, 1.2, 1.5])
    share = first.var(ddof=1)
    error = share / 3 + share
    freedom = error**2 / ((share / 3) ** 2 / 2 + share**2 / 2)
    expected = 2.0 * stats.t.sf((first.mean() - 0.7) / np.sqrt(error), freedom)
    assert seeds_p(first, [0.7]) == pytest.approx(expected, rel=1e-4)
    assert seeds_p([0.7], first) == pytest.approx(expected, rel=1e-4)


def test_without_spread_any_difference_is_beyond_it_and_of_single_fits_nothing_is_known():
    assert seeds_p([1.0, 1.0], [2.0, 2.0]) == 0.0 and seeds_p([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert seeds_p([1.0], [2.0]) is None and seeds_p([1.0], [2.0], constant=(True, True)) is None


def test_the_larger_p_is_corrected_by_holms_method():
    made = correct([difference(0.01, 0.001), difference(0.001, 0.02), difference(0.002, None)])
    # the larger ones are 0.01, 0.02 and 0.002: times 2, 1 and 3, and never less than one before
    assert [one.p_corrected for one in made] == pytest.approx([0.02, 0.02, 0.006])
    assert [one.p for one in made] == [0.01, 0.001, 0.002] and [one.p_larger for one in made] == [0.01, 0.02, 0.002]
    assert all(one.significant for one in made) and made[1].pooled.tests[0].over == "sequences"


def test_what_cannot_differ_is_left_out_of_the_family():
    made = correct([difference(0.02), difference(1.0, differing=0), difference(1.0, tests=())])
    assert [one.p_corrected for one in made] == [0.02, 1.0, 1.0] and [one.vacuous for one in made] == [
        False,
        True,
        True,
    ]
    assert made[2].p == 1.0 and not made[2].suspected


@pytest.mark.parametrize(("p", "significant"), [(0.0499, True), (0.05, False), (0.06, False), (0.0999, False)])
def test_the_level_is_one_in_twenty(p, significant):
    (one,) = correct([difference(p)])
    assert (one.significant, one.suspected) == (significant, significant)
    assert one.leader() == one.leader(significantly=False) == ("a" if significant else None)
    (seeds,) = correct([difference(0.001, p)])
    assert (seeds.significant, seeds.suspected) == (significant, True)


def test_cells_and_words():
    (one,) = correct([difference(0.0123, 0.0345)])
    assert one.cells() == ["+0.500", "0.012", "0.035", "0.035", "a", "1 of 2, 1"]
    assert one.p_words() == "p = 0.012, over seeds 0.035, corrected 0.035" and one.size() == "+0.500"
    (least,) = correct([difference(1e-5)])
    assert (
        least.cells()[:4] == ["+0.500", "< 0.00002", "–", "1e-05"] and least.p_words() == "p = 1e-05, corrected 1e-05"
    )
    share = replace(
        one,
        pooled=replace(one.pooled, kind="share", metric="error_rate", better="b", difference=Estimate(-0.125, -1, 0)),
    )
    assert share.size() == "-12.5 points" and share.cells()[0] == "−12.5"
    none = difference(1.0, tests=(), better=None)
    assert none.cells() == ["+0.500", "–", "–", "1", "–", "0 of 2, 0"]


def test_seeds_are_ahead_that_differ_as_the_whole_does():
    one = difference(0.01)
    seeds = {
        0: SeedDifference(0.0, 1.0),
        1: SeedDifference(0.2, None),
        2: SeedDifference(0.1, 0.0499),
        3: SeedDifference(0.1, 0.05),
    }
    assert replace(one, seeds=seeds).seeds_ahead() == "3 of 4, 1"
    less = replace(one.pooled, difference=Estimate(-0.5, -1.0, -0.25), better="b")
    assert replace(one, pooled=less).seeds_ahead() == "1 of 2, 0"


def test_a_difference_comes_back_from_its_file():
    (one,) = correct([difference(0.0123, 0.0345)])
    text = json.loads(json.dumps(one.to_json()))
    assert text["p_seeds"] == 0.0345 and text["significant"] is True and text["tests"][0]["p_holm"] == one.p_corrected
    assert text["seeds"] == {"0": {"difference": 0.5, "p": 0.01}, "1": {"difference": -0.1, "p": 0.5}}
    values = ([1.0, 1.4, 1.6], [0.9, 0.7, 0.4])
    back = difference_from_json(text, values, (False, False))
    assert back.p_seeds == seeds_p(*values) and back.seeds == one.seeds
    assert correct([back])[0].pooled.tests[0].test == one.pooled.tests[0].test
    assert replace(back.pooled, tests=()) == replace(one.pooled, tests=())
    assert difference_from_json(text, ([1.0, 1.4], [0.5]), (False, True)).p_seeds == seeds_p(
        [1.0, 1.4], [0.5], constant=(False, True)
    )


def test_titles_of_participants_and_exact_tests_come_back_too():
    (one,) = correct([difference(0.25)])
    text = one.to_json()
    text["tests"][0] |= {"exact": True, "units": 3, "differing": 0}
    for metric, title in (("participants all", "error of who"), ("participants kick(-P)", "error of who, kick(-P)")):
        back = difference_from_json({**text, "metric": metric}, ([1.0], [2.0]), (False, False))
        assert (back.pooled.title, back.pooled.kind) == (title, "share")
        assert back.pooled.tests[0].test.permutations == 7 and back.vacuous
    del text["tests"][0]["differing"]
    assert not difference_from_json(text, ([1.0], [2.0]), (False, False)).vacuous


def test_students_tail_is_a_probability_and_its_quantile_is_found_below_one():
    assert all(student_p(0.0, freedom) <= 1.0 for freedom in np.linspace(1.0, 40.0, 400))
    assert student_quantile(0.5, 4.0) == pytest.approx(stats.t.ppf(0.75, 4.0), rel=1e-4)


def test_a_published_difference_is_not_corrected_before_its_family_is_known():
    (one,) = correct([difference(0.01)])
    back = difference_from_json(json.loads(json.dumps(one.to_json())), ([1.0, 1.1], [0.9, 1.0]), (False, False))
    assert [test.corrected for test in back.pooled.tests] == [1.0]
    assert back.reversed().pooled.tests[0].test.difference == -back.pooled.tests[0].test.difference
