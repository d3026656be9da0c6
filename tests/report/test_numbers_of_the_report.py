"""The numbers behind the charts: groups, confusions, fit, waiting times, and moments of a model of rules."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.data.synthetic import PoissonProcess, simulate
from foretell.evaluate.explain import explain
from foretell.evaluate.likelihood import score_events
from foretell.evaluate.next_time import waiting_times
from foretell.evaluate.predict import QUANTILES
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.report.sections.fit import OTHERS, calibration_of, confusion_of, fit_of, group_events
from foretell.report.sections.sequence import MOST_POSSIBLE, course, grid_of, moments_of
from foretell.train.fit import fit
from tests.evaluate.test_explain import DATA, MODEL
from tests.samples import event_data, random_data, randomise

WORDS = Vocabulary(("pass(a,b)", "pass(b,a)", "kick(a)", "kick(b)", "free text", "rare(a)"))


# --- Groups


def test_few_types_stand_for_themselves_the_most_frequent_first_and_what_never_occurs_is_left_out():
    found = group_events(WORDS, np.array([1, 0, 5, 2, 2, 0]), most=8)
    assert (found.kind, found.names) == ("type", ("kick(a)", "free text", "kick(b)", "pass(a,b)"))
    assert found.place("kick(b)") == 2 and found.place("rare(a)") == -1


def test_many_types_are_gathered_by_functor_and_the_rare_ones_together():
    found = group_events(WORDS, np.array([4, 4, 3, 2, 1, 1]), most=5)
    assert (found.kind, found.names) == ("functor", ("pass", "kick", "free text", "rare"))
    few = group_events(WORDS, np.array([4, 4, 3, 2, 1, 1]), most=3)
    assert few.names == ("pass", "kick", OTHERS)
    assert few.places(WORDS).tolist() == [0, 0, 1, 1, 2, 2]


def test_types_of_a_single_functor_are_not_thrown_together():
    names = Vocabulary(tuple(f"watch({name})" for name in "abcd"))
    found = group_events(names, np.array([1, 2, 3, 4]), most=3)
    assert (found.kind, found.names) == ("type", ("watch(d)", "watch(c)", OTHERS))
    assert found.places(names).tolist() == [2, 2, 1, 0]


def test_a_functor_that_is_called_others_is_no_group_of_the_rest():
    names = Vocabulary(("others", "a", "b", "c"))
    found = group_events(names, np.array([9, 3, 2, 1]), most=3)
    assert found.names == ("others", "a", OTHERS) and found.places(names).tolist() == [0, 1, 2, 2]


# --- Confusions


def test_confusions_count_what_happened_by_what_was_expected():
    data = event_data([([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 2])])
    scores = score_events(fitted(data), data)
    scores = replace(scores, predicted_type=np.array([0, 1, 1, 0], dtype=np.int32))
    found = confusion_of(scores, data.vocabulary)
    assert found.grouping.names == ("a", "b", "c")
    assert found.counts.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert found.shares.sum(1) == pytest.approx([1.0, 1.0, 1.0])


def test_a_type_that_is_expected_and_never_happens_has_a_column():
    data = event_data([([1.0, 2.0], [0, 0])])
    scores = replace(score_events(fitted(data), data), predicted_type=np.array([0, 2], dtype=np.int32))
    found = confusion_of(scores, data.vocabulary)
    assert found.grouping.names == ("a", "c") and found.counts.tolist() == [[1, 1], [0, 0]]


def fitted(data: EventData) -> Poisson:
    model = Poisson(data.vocabulary)
    fit(model, data, None)
    return model


# --- FitCurves and calibration


def poisson_data(seed: int, sequences: int = 40) -> EventData:
    return simulate(PoissonProcess(np.array([0.7, 0.3])), sequences, 20.0, seed)


def test_a_right_model_stays_in_the_band_and_its_curves_near_the_diagonal():
    data = poisson_data(0)
    found = fit_of(score_events(fitted(data), data))
    assert found is not None and found.holds and found.test.p_value > 0.01
    assert found.test.residuals == data.event_count == int(found.tenths.sum())
    assert np.abs(found.surplus).max() <= found.test.ks + 1.0 / data.event_count
    middle = found.expected < 2.0
    assert ((found.observed >= found.lowest) & (found.observed <= found.highest))[middle].all()


def test_a_model_of_another_rate_leaves_the_band():
    data = poisson_data(1)
    found = fit_of(
        replace(scores := score_events(fitted(data), data), integral=2.0 * scores.integral, tail=2.0 * scores.tail)
    )
    assert found is not None and not found.holds and found.test.mean == pytest.approx(2.0, rel=0.1)


def test_a_right_model_covers_what_it_says():
    data = poisson_data(2, sequences=200)
    found = calibration_of(score_events(fitted(data), data), data)
    assert found is not None
    for level in (0.5, 0.9):
        estimate = found.coverage(level)
        assert estimate.low - 0.01 <= level <= estimate.high + 0.01


def test_without_events_there_is_nothing_to_fit():
    data = event_data([([], [])])
    scores = score_events(fitted(event_data([([1.0], [0])])), data)
    assert fit_of(scores) is None and calibration_of(scores, data) is None


# --- Waiting times and intensities


def test_the_waits_of_a_poisson_process_are_those_of_an_exponential():
    data = poisson_data(3, sequences=2)
    model = fitted(data)
    rate = float(model.intensity(data[0], [1.0]).sum())
    waits = waiting_times(model, data, 0, [0, 1, len(data[0])])
    assert waits == pytest.approx(np.tile([-math.log1p(-q) / rate for q in QUANTILES], (3, 1)), rel=1e-6)


def test_the_wait_after_an_event_does_not_know_what_came_later():
    data = random_data(0, [6])
    model = randomise(Hawkes(data.vocabulary), seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    early = EventData([EventSequence(data[0].times[:3], data[0].types[:3], 10.0, "0")], data.vocabulary)
    whole, cut = (waiting_times(model, one, 0, [0, 3]) for one in (data, early))
    assert whole == pytest.approx(cut, rel=1e-3)  # panels begin on each sequence's own scale


def test_half_of_the_mass_lies_below_the_median_wait():
    data = random_data(1, [5])
    model = randomise(Hawkes(data.vocabulary), seed=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    (wait,) = waiting_times(model, data, 0, [5], (0.5,))[:, 0]
    last = float(data[0].times[-1])
    grid = np.linspace(last, last + wait, 20001)[1:]
    passed = float(model.intensity(data[0], grid).sum(1).mean()) * wait
    assert 1.0 - math.exp(-passed) == pytest.approx(0.5, abs=2e-3)


def test_groups_add_up_to_the_total_for_models_with_rules_and_without():
    for model, data in ((MODEL, DATA), (fitted(DATA), DATA)):
        grouping = group_events(data.vocabulary, data.type_counts(), 3)
        times = grid_of(data[0].times, 0.0, data[0].t_end)
        total, groups = course(model, data[0], times, grouping)
        assert groups.sum(0) == pytest.approx(total) and (total > 0).any()


def test_both_sides_of_every_event_are_on_the_grid():
    grid = grid_of(np.array([1.0, 3.0]), 0.5, 3.0)
    assert grid[0] == 0.5 and grid[-1] == 3.0 and {1.0, np.nextafter(1.0, 2.0), 3.0} <= set(grid.tolist())


# --- Moments


def test_a_moment_agrees_with_an_explanation_of_the_same_time():
    found = moments_of(MODEL, DATA[0])
    assert found is not None
    names = found["names"]
    nothing, *others = found["frames"]
    assert (nothing["possible"], nothing["total"], nothing["events"]) == (0, 0, [])  # before anybody came in
    for frame in others:
        explained = explain(MODEL, DATA[0], frame["t"])
        assert frame["seen"] == explained.seen and frame["possible"] == len(explained.intensities)
        assert frame["total"] == pytest.approx(explained.total)
        shown = {names[name]: value for name, value, _ in frame["events"]}
        highest = dict(list(explained.intensities.items())[:MOST_POSSIBLE])
        assert highest.keys() <= shown.keys()
        assert all(shown[name] == pytest.approx(value) for name, value in highest.items())


def test_the_attention_behind_an_event_is_that_of_its_explanation():
    found = moments_of(MODEL, DATA[0])
    assert found is not None
    names, frame = found["names"], found["frames"][-1]
    assert any(heads for _, _, heads in frame["events"])
    for event, _, heads in frame["events"]:
        explained = explain(MODEL, DATA[0], frame["t"], names[event])
        told = {
            (fact.fact, one.text, round(one.effect or 0.0, 9)): one
            for fact in explained.facts
            for one in fact.contributions
            if one.attention
        }
        assert bool(heads) == bool(told), names[event]
        for fact, rule, effect, layers in heads:
            one = told[names[fact], names[rule], round(effect, 9)]
            for (kept, attended, rest), attention in zip(layers, one.attention, strict=True):
                assert kept == pytest.approx(attention.kept, abs=1e-3)
                assert rest + len(attended) == len(attention.additions)
                first = attention.additions[0]
                assert attended[0] == [first.event_index, pytest.approx(first.weight, abs=1e-3)]


def test_facts_come_and_go_as_the_database_has_them():
    found = moments_of(MODEL, DATA[0])
    assert found is not None
    names = found["names"]
    from foretell.ground.replay import replay

    (timeline, *_) = replay(MODEL.program, DATA).timelines
    text, is_event = timeline.grounding.text, timeline.grounding.is_event
    for place, frame in enumerate(found["frames"]):
        told = {names[fact] for fact in found["always"]}
        told |= {names[fact] for fact, start, stop in found["facts"] if start <= place < stop}
        state = timeline.state_at(frame["t"])
        assert told == {text(fact) for fact in timeline.facts_at(state) if not is_event(fact)}


def test_moments_may_begin_later_and_be_fewer_and_say_of_how_many_they_are():
    whole, some = moments_of(MODEL, DATA[0]), moments_of(MODEL, DATA[0], start=float(DATA[0].times[1]), most=2)
    assert whole is not None and some is not None
    assert [frame["t"] for frame in some["frames"]] == [frame["t"] for frame in whole["frames"]][1:3]
    assert some["of"] == whole["of"] - 1 and len(whole["frames"]) == whole["of"]
    assert moments_of(MODEL, DATA[0], start=1e9) is None


def test_no_further_moment_is_begun_when_time_is_up():
    found = moments_of(MODEL, DATA[0], seconds=0.0)
    assert found is not None and len(found["frames"]) == 1
