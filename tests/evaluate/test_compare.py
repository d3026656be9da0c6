"""Comparing runs: what differs is found, what does not is not, and only scores of the same events are compared."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from foretell.data import EventData, Vocabulary
from foretell.data.synthetic import PoissonProcess as Truth
from foretell.data.synthetic import simulate
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Units
from foretell.evaluate.compare import ComparedRun, compare, holm, in_words
from foretell.evaluate.likelihood import EventScores
from foretell.evaluate.metrics import by_functor, functors_of
from foretell.evaluate.permutation import PairedTest, compare_values
from foretell.evaluate.scores import ScoredModel, ScoringOptions, score
from foretell.models.classical.poisson import Poisson
from tests.samples import event_data

TRUTH = Truth((0.6, 0.4))


def with_events(scored: ScoredModel, events: EventScores) -> ScoredModel:
    return replace(scored, record=replace(scored.record, events=events))


def contender(name: str, data: EventData, *rates: float, times: bool = False) -> ComparedRun:
    model = Poisson(data.vocabulary)
    with torch.no_grad():
        model.log_rate.copy_(torch.tensor(rates, dtype=torch.float64).log())
    return ComparedRun(name, score(model, data, ScoringOptions(times=times)), data)


@pytest.fixture(scope="module")
def data() -> EventData:
    return simulate(TRUTH, 30, 8.0, 1)


def test_a_better_model_is_found_and_said_in_plain_words(data: EventData):
    found = compare([contender("wrong", data, 0.1, 2.0), contender("right", data, 0.6, 0.4)], permutations=999)
    one = found.differences[0]
    assert (one.metric, one.better, one.significant) == ("log_likelihood", "right", True)
    values = [run.log_likelihood.value for run in found.evaluations]
    assert one.difference.value == pytest.approx(values[0] - values[1]) and one.difference.high < 0.0
    assert [test.over for test in one.tests] == ["events", "sequences"]
    assert one.verdict().startswith("right is better than wrong in log-likelihood, by ")
    assert "nats per event (p < 0." in one.verdict() and "over sequences)" in one.verdict()


def test_a_run_does_not_differ_from_itself(data: EventData):
    found = compare([contender("one", data, 0.6, 0.4), contender("two", data, 0.6, 0.4)], permutations=99)
    for one in found.differences:
        assert one.better is None and not one.significant and one.difference.value == 0.0
        assert one.verdict().startswith("one and two do not differ in ")
        assert all(test.test.p_value == 1.0 for test in one.tests)


def test_a_difference_that_may_be_luck_is_called_that(data: EventData):
    found = compare([contender("one", data, 0.6, 0.4), contender("two", data, 0.601, 0.4)], permutations=99)
    assert found.differences[0].verdict().startswith("no significant difference between one and two in log-likelihood")


def test_lower_errors_are_better(data: EventData):
    found = compare([contender("a", data, 0.6, 0.4), contender("b", data, 0.4, 0.6)], permutations=999)
    by_metric = {one.metric: one for one in found.differences}
    assert by_metric["error_rate"].better == "a" and by_metric["error_rate"].difference.value < 0.0
    assert "percentage points" in by_metric["error_rate"].verdict()


def test_times_are_compared_where_both_runs_can_tell_them(data: EventData):
    one, two = contender("a", data, 0.6, 0.4, times=True), contender("b", data, 0.1, 0.1, times=True)
    times = one.scored.times
    assert times is not None
    missing = times.no_event.copy()
    missing[:5] = 0.5
    record = replace(one.scored.record, times=replace(times, no_event=missing))
    odd = replace(one, scored=replace(one.scored, record=record))
    found = {item.metric: item for item in compare([odd, two], permutations=99).differences}
    assert found["rmse"].events == data.event_count - 5 and found["rmse"].better == "a"
    assert found["rmse"].verdict("days").count("days") == 1


def test_all_pairs_of_few_runs_and_the_best_with_each_of_many(data: EventData):
    rates = [(0.6, 0.4), (0.9, 0.4), (0.3, 0.2), (2.0, 1.0), (0.2, 0.9)]
    runs = [contender(f"run{n}", data, *rate) for n, rate in enumerate(rates)]
    few = {(one.first, one.second) for one in compare(runs[:3], "events", permutations=9).differences}
    assert few == {("run0", "run1"), ("run0", "run2"), ("run1", "run2")}
    many = {(one.first, one.second) for one in compare(runs, "events", permutations=9).differences}
    assert many == {("run0", f"run{n}") for n in range(1, 5)}


def test_few_sequences_are_not_exchanged():
    data = simulate(TRUTH, 5, 20.0, 2)
    runs = [contender("a", data, 0.6, 0.4), contender("b", data, 0.5, 0.5)]
    found = compare(runs, permutations=99)
    assert [test.over for test in found.differences[0].tests] == ["events"]
    assert found.untested is not None and "5 sequences cannot show anything" in found.untested
    with pytest.raises(ForetellError, match="no test over sequences"):
        compare(runs, "sequences")


def test_holm_is_the_textbook_one():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []
    assert holm([0.01, 0.04], family=4) == pytest.approx([0.04, 0.12]), "as the smallest of four, and no less"


def test_corrected_p_raises_false_alarms_no_more_often_than_once_in_twenty():
    """400 families of 5 tests without any difference; five standard errors above 0.05 are 0.105."""
    rng = np.random.default_rng(3)
    alarms = sum(min(holm(rng.random(5).tolist())) < 0.05 for _ in range(400))
    assert 0 < alarms / 400 < 0.105


def test_to_choose_the_best_of_many_runs_raises_no_more_false_alarms():
    """40 times 20 runs that differ by chance alone. Corrected for the 19 pairs of the best of them alone, p would be too small.

    Only the log-likelihood differs (and with it the part of types): for four metrics, its p is corrected four times too much.
    """
    data = event_data([([1.0], [0])] * 40, types=1)
    plain = contender("run", data, 0.1)
    nothing, rng, alarms, repeats = np.zeros(40), np.random.default_rng(5), 0, 40
    for _ in range(repeats):
        runs = []
        for place in range(20):
            events = replace(
                plain.scored.events, log_intensity=rng.normal(size=40), log_total=nothing, integral=nothing
            )
            events = replace(events, tail=nothing)
            runs.append(replace(plain, name=f"run{place}", scored=with_events(plain.scored, events)))
        found = compare(runs, "events", permutations=4500)
        of_likelihood = [one for one in found.differences if one.metric == "log_likelihood"]
        assert len(of_likelihood) == 19 and found.comparisons == 2 * 190  # times and errors do not differ
        alarms += any(one.tests[0].corrected < 2 * 0.05 for one in of_likelihood)
    assert alarms / repeats < 0.13


def test_over_sequences_p_is_uniform_though_events_of_a_sequence_are_alike():
    """600 pairs of models that differ by chance, the same in all events of a sequence; over events there would be false alarms."""
    rng = np.random.default_rng(4)
    sequence = np.repeat(np.arange(15), 10)
    found: dict[str, list[float]] = {"sequences": [], "events": []}
    for place in range(600):
        first = np.repeat(rng.normal(size=15), 10)
        for over, values in found.items():
            test = compare_values(first, np.zeros(150), sequence, over, permutations=499, seed=place)  # type: ignore[arg-type]
            values.append(test.p_value)
    assert stats.kstest(found["sequences"], "uniform").pvalue > 1e-5
    assert np.mean(np.asarray(found["events"]) < 0.05) > 0.3 and min(found["events"]) > 0.0


def test_p_is_shown_as_what_is_known_of_it():
    drawn = PairedTest(0.1, 1e-5, 500, 500, 99_999, False)
    assert in_words(1e-5, drawn) == "< 0.00002" and in_words(9e-5, drawn) == "< 0.0001"
    assert in_words(0.0123, replace(drawn, p_value=0.0041)) == "= 0.012"
    assert in_words(0.25, replace(drawn, p_value=0.25, exact=True)) == "= 0.25"


def test_scores_of_different_events_are_not_compared(data: EventData):
    one = contender("one", data, 0.6, 0.4)
    with pytest.raises(ForetellError, match="scored on 30 and 29 sequences"):
        compare([one, contender("two", data.select(range(29)), 0.6, 0.4)])
    moved = replace(
        one, name="two", scored=with_events(one.scored, replace(one.scored.events, time=one.scored.events.time + 1))
    )
    with pytest.raises(ForetellError, match="one and two are scored on different events"):
        compare([one, moved])
    with pytest.raises(ForetellError, match="needs two or more"):
        compare([one])
    marked = [type(s)(s.times, s.types, s.t_end, s.id, s.metadata, np.arange(len(s)) == 0) for s in data]
    fewer = contender("two", EventData(marked, data.vocabulary, data.origin, data.name), 0.6, 0.4)
    with pytest.raises(ForetellError, match="takes as history"):
        compare([one, fewer])


def test_types_are_compared_by_name_and_not_by_number():
    data = event_data([([1.0, 2.0], [0, 1])] * 6, types=2)
    turned = EventData(
        [type(s)(s.times, 1 - s.types, s.t_end, s.id) for s in data], Vocabulary(("b", "a")), data.origin, data.name
    )
    found = compare([contender("one", data, 0.3, 0.1), contender("two", turned, 0.1, 0.3)], permutations=9)
    assert found.differences[0].difference.value == pytest.approx(0.0, abs=1e-12)


def test_functors_add_up_to_the_whole():
    names = ("pass(a,b)", "pass(b,a)", "kick(a)", "Nice Question")
    data = event_data([([1.0, 2.0, 3.0, 4.0, 5.0], [0, 1, 2, 0, 3])] * 4, types=4)
    data = EventData(data.sequences, Vocabulary(names), data.origin, data.name)
    run = contender("one", data, 0.4, 0.3, 0.2, 0.1)
    units = Units(run.scored.events.sequence, len(data))
    found = by_functor([run.scored.metrics()], run.scored.events.type, names, units)
    assert [(one.functor, one.events) for one in found] == [("pass", 12), ("'Nice Question'", 4), ("kick", 4)]
    whole = sum(one.events * one.scores["log_likelihood"][0].value for one in found) / 20
    assert whole == pytest.approx(run.scored.evaluation.log_likelihood.value)
    for one in found:
        estimate = one.scores["log_likelihood"][0]
        assert estimate.low <= estimate.value <= estimate.high
    assert found[0].to_json()["events"] == 12
    assert functors_of(["a", "f(x)", "f(y,z)"]) == (["a", "f"], pytest.approx([0, 1, 1]))


def test_the_json_is_plain(data: EventData):
    found = compare([contender("one", data, 0.6, 0.4), contender("two", data, 0.5, 0.5)], permutations=99).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found.keys() == {"runs", "differences", "by_functor", "significance", "permutations", "comparisons"}
    assert found["runs"][0]["run"] == "one" and found["differences"][0]["tests"][0]["over"] == "events"


def test_a_score_in_which_no_two_runs_differ_is_no_comparison(data: EventData):
    """With one type, the error of the type and its log-likelihood are 0 for every model: p is corrected for the others alone."""
    one_type = simulate(Truth((0.6,)), 30, 8.0, 1)
    found = compare([contender("a", one_type, 0.6), contender("b", one_type, 1.2)], permutations=999)
    by_metric = {one.metric: one for one in found.differences}
    vacuous = {name for name, one in by_metric.items() if not any(test.test.differing for test in one.tests)}
    assert vacuous == {"type_log_likelihood", "error_rate"} and found.comparisons == 2
    for test in by_metric["log_likelihood"].tests:
        assert test.corrected == pytest.approx(2.0 * test.test.p_value)
    assert all(test.corrected == 1.0 for name in vacuous for test in by_metric[name].tests)
    two_types = compare([contender("a", data, 0.6, 0.4), contender("b", data, 0.3, 0.9)], permutations=999)
    assert two_types.comparisons == 4


@pytest.mark.parametrize(("corrected", "significant"), [(0.0499, True), (0.05, False), (0.0999, False)])
def test_significance_is_at_one_in_twenty_over_all_units_asked_for(
    data: EventData, corrected: float, significant: bool
):
    found = compare([contender("a", data, 0.6, 0.4), contender("b", data, 0.3, 0.9)], permutations=99)
    first, second = found.differences[0].tests
    one = replace(found.differences[0], tests=(replace(first, corrected=corrected), replace(second, corrected=0.01)))
    assert one.significant is significant and found.to_json()["significance"] == 0.05
    assert replace(one, tests=()).significant is False
