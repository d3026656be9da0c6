"""What scores of events are put together from: two halves of draws, uniform draws laid into gaps, parts of long sequences, rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from foretell.batches.batch import make_batch
from foretell.data import EventData
from foretell.evaluate import likelihood
from foretell.evaluate.likelihood import _GapIntegrals, _Integration, _joined, _uniform_gaps, score_events
from foretell.models.attention.anhp import ANHP
from foretell.models.classical.poisson import Poisson
from foretell.objective.loglik import uniform
from tests.samples import event_data, random_data, randomise

DATA = random_data(1, [4, 0, 9, 1, 6, 0, 2], ties=True)


def network() -> ANHP:
    model = ANHP.preset("plain", DATA.vocabulary, dim=4, layers=1, dtype=torch.float64, coarse="none")
    return randomise(model, seed=2)  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(("points", "halves"), [(1, (1, 1)), (2, (1, 1)), (5, (2, 3)), (6, (3, 3))])
def test_draws_come_in_two_halves(points, halves):
    assert _Integration("stratified", points).halves() == halves


@pytest.mark.parametrize("method", ["stratified", "uniform"])
@pytest.mark.parametrize("lengths", [[4, 0, 2], [0, 0], [1]])
def test_what_a_batch_draws_can_be_passed_over(method: Any, lengths):
    drawn, passed = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    batch = make_batch(random_data(1, lengths), range(len(lengths)))
    how = _Integration(method, 3)
    with torch.no_grad():
        model = network()
        how.gaps(model, model.encode(model.collator.plan_batch(batch)), batch, drawn)
    how.pass_over(np.array(lengths), passed)
    assert torch.equal(drawn.get_state(), passed.get_state())
    how.pass_over(np.array([], dtype=np.int64), passed)
    assert torch.equal(drawn.get_state(), passed.get_state())


def test_a_sequence_has_so_many_uniform_draws_for_every_event_and_as_many_without_events(monkeypatch):
    asked: list[list[int]] = []

    def seen(batch, points, generator):
        asked.append(points.tolist())
        return uniform(batch, points, generator)

    monkeypatch.setattr(likelihood, "uniform", seen)
    score_events(network(), random_data(1, [3, 0, 1]), integral="uniform", points=5)
    assert sorted(number for batch in asked for number in batch) == [5, 5, 15]


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_the_variance_of_uniform_draws_is_that_of_the_sequence_spread_over_its_gaps(count):
    batch = make_batch(event_data([([1.0, 4.0], [0, 1]), ([2.0], [2])]), range(2))
    drawn = uniform(batch, torch.tensor([count, 6]), torch.Generator().manual_seed(3))
    terms = drawn.queries.times.square() * drawn.weights
    found = _uniform_gaps(batch, drawn, terms)
    for row, number in enumerate((count, 6)):
        own = terms[row, :number].numpy()
        for gap in range(3):
            inside = sum(value for value, place in zip(own, drawn.gap[row, :number], strict=True) if place == gap)
            assert float(found.value[row, gap]) == pytest.approx(float(inside))
            if number > 1:  # of a single draw nothing is known
                of_sum = number * own.var(ddof=1)
                share = float(batch.gap_length[row, gap]) / 10.0
                assert float(found.variance[row, gap]) == pytest.approx(of_sum * share)


def test_parts_of_long_sequences_meet_in_a_gap_that_both_have():
    def gaps(*values: float) -> _GapIntegrals:
        one = torch.tensor([values], dtype=torch.float64)
        return _GapIntegrals(one, 10.0 * one, 100.0 * one)

    whole = _joined([gaps(1.0, 2.0, 0.0), gaps(3.0, 4.0), gaps(5.0, 6.0, 7.0)])
    assert whole.value.tolist() == [[1.0, 2.0, 3.0, 9.0, 6.0, 7.0]]
    assert whole.variance.tolist() == (10.0 * whole.value).tolist()
    assert whole.doubled.tolist() == (100.0 * whole.value).tolist()
    single = gaps(1.0, 2.0)
    assert _joined([single]) is single


def test_the_most_intense_event_is_what_is_predicted():
    data = event_data([([1.0, 2.0, 3.0], [1, 1, 0]), ([], [])])
    model = Poisson(data.vocabulary)
    model.fit_directly(data, None, lambda number, value: None)
    scores = score_events(model, data)
    assert scores.predicted_type.tolist() == [1, 1, 1, -1] and scores.type.tolist() == [1, 1, 0, -1]
    assert scores.event.tolist() == [0, 1, 2, -1]
    assert scores.log_predicted[:3] == pytest.approx(scores.log_intensity[:1].repeat(3))
    assert scores.used.points == 0 and scores.used.method == "closed form"


def test_the_variance_of_the_tail_is_in_the_row_of_the_last_event_and_all_of_it_adds_up():
    scores = score_events(network(), DATA, integral="stratified", points=4)
    last = np.append(scores.sequence[1:] != scores.sequence[:-1], True)
    assert scores.tail_variance[last].any() and not scores.tail_variance[~last].any()
    assert (scores.integral_variance >= scores.tail_variance).all()
    stated = scores.used.standard_error
    assert stated is not None
    assert float(np.sqrt(scores.integral_variance.sum())) / DATA.event_count == pytest.approx(stated)


def test_of_one_event_the_error_is_its_own():
    scores = score_events(network(), random_data(1, [1]), integral="stratified", points=4)
    assert scores.used.standard_error == pytest.approx(float(np.sqrt(scores.integral_variance.sum())))


def test_no_sequences_give_tables_without_rows():
    scores = score_events(network(), EventData([], DATA.vocabulary))
    names = (
        "sequence",
        "event",
        "time",
        "type",
        "integral",
        "tail",
        "tail_variance",
        "predicted_type",
        "log_predicted",
    )
    assert {name: len(getattr(scores, name)) for name in names} == dict.fromkeys(names, 0)
    assert all(len(column) == 0 for column in likelihood._no_rows().values())


def test_quadrature_that_moves_by_just_the_tolerance_has_settled(monkeypatch):
    moved = score_events(network(), DATA).used.doubling
    assert moved is not None and moved > 0.0
    monkeypatch.setattr(likelihood, "QUADRATURE_TOLERANCE", moved)
    assert score_events(network(), DATA).used.method == "quadrature"
    monkeypatch.setattr(likelihood, "QUADRATURE_TOLERANCE", 0.999 * moved)
    assert score_events(network(), DATA).used.fallback


def test_where_intensities_are_high_for_a_moment_four_times_as_many_are_drawn(monkeypatch):
    monkeypatch.setattr(ANHP, "short_time", property(lambda self: 0.01))
    used = score_events(network(), DATA, points=3).used
    assert (used.method, used.points, used.fallback) == ("stratified", 12, False)
    used = score_events(network(), DATA, integral="uniform", points=3).used
    assert (used.method, used.points) == ("uniform", 3)
