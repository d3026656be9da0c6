"""Points of integration, one by one: where they lie and what they weigh, against formulas in loops; and the loss that is made of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from foretell.batches.batch import Queries, make_batch
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.last_event.thp import THP
from foretell.objective.loglik import (
    Points,
    event_terms,
    in_parts,
    integral_terms,
    is_fused,
    log_likelihood,
    log_stratified,
    stratified,
    training_loss,
    uniform,
)
from tests.samples import event_data, random_data, randomise

DATA = event_data([([1.0, 4.0], [0, 1]), ([2.0], [2])])  # until 10: gaps of 1, 3, 6; and of 2, 8, and none
BATCH = make_batch(DATA, range(2))


@pytest.mark.parametrize(("most", "each"), [(12, [2, 2, 1]), (0, [1] * 5), (6, [1] * 5), (29, [4, 1]), (30, [5])])
def test_points_in_parts_are_some_of_every_gap(most, each):
    points = stratified(BATCH, 5, torch.Generator().manual_seed(0))
    parts = list(in_parts(points, 3, most))
    assert [part.weights.shape[1] // 3 for part in parts] == each
    times, weights = (
        torch.cat([read(part).unflatten(1, (3, -1)) for part in parts], dim=2).flatten(1)
        for read in (lambda part: part.queries.times, lambda part: part.weights)
    )
    assert torch.equal(times, points.queries.times) and torch.equal(weights, points.weights)


def test_points_of_one_gap_come_as_many_at_a_time_as_is_said():
    batch = make_batch(event_data([([], [])]), range(1))
    points = stratified(batch, 5, torch.Generator().manual_seed(0))
    assert [part.weights.shape[1] for part in in_parts(points, 1, 3)] == [3, 2]


@pytest.mark.parametrize("draws", [[0.25], [0.5], [0.75], [0.0], [0.3, 0.6], [0.1, 0.5, 0.9], [0.9, 0.1, 0.5, 0.7]])
def test_draws_over_the_logarithm_lie_and_weigh_as_the_formula_says(draws):
    """Half of them (of one: with probability 1/2) have the density `1/((u + s) log(1 + T/s))`, the others `1/T`."""
    short, count = 0.1, len(draws)
    given = torch.tensor(draws, dtype=torch.float64).expand(2, 3, count)
    points = log_stratified(BATCH, given, short)
    starts, lengths = ([0.0, 1.0, 4.0], [0.0, 2.0, 10.0]), ([1.0, 3.0, 6.0], [2.0, 8.0, 0.0])
    early = count // 2
    share = early / count if count > 1 else 0.5
    for row in range(2):
        for gap in range(3):
            start, length = starts[row][gap], lengths[row][gap]
            for number, draw in enumerate(draws):
                if count == 1:
                    is_early, place = draw < 0.5, 2 * draw if draw < 0.5 else 2 * draw - 1
                else:
                    is_early = number < early
                    place = (number + draw) / early if is_early else (number - early + draw) / (count - early)
                whole = math.log1p(length / short)
                wait = short * math.expm1(place * whole) if is_early else length * place
                weight = 0.0
                if length > 0.0:
                    weight = 1 / (count * (share / ((wait + short) * whole) + (1 - share) / length))
                at = (row, gap * count + number)
                if length > 0.0:
                    assert float(points.queries.times[at]) == pytest.approx(start + wait, abs=1e-12)
                assert float(points.weights[at]) == pytest.approx(weight, abs=1e-12)


def test_without_sequences_nothing_is_drawn():
    batch = make_batch(DATA, range(0))
    points = uniform(batch, torch.zeros(0, dtype=torch.long), torch.Generator().manual_seed(0))
    assert points.weights.shape == (0, 0)


def test_a_sequence_has_as_many_uniform_draws_as_it_is_given():
    points = uniform(BATCH, torch.tensor([2, 7]), torch.Generator().manual_seed(0))
    assert (points.weights > 0.0).sum(1).tolist() == [2, 7]
    assert points.weights.sum(1).tolist() == pytest.approx([10.0, 10.0])


def models() -> list[IntensityModel]:
    """Of a closed form; of one question for a gap's points and its end; of neither."""
    hawkes = randomise(Hawkes(DATA.vocabulary, decays=2), seed=3)
    with torch.no_grad():
        for parameter in hawkes.parameters():
            parameter.abs_()
    anhp = ANHP.preset("plain", DATA.vocabulary, dim=4, layers=1, dtype=torch.float64, coarse="none")
    thp = THP(DATA.vocabulary, dim=4, dtype=torch.float64)
    return [hawkes, *(randomise(one, seed=4) for one in (anhp, thp))]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.kind)
@pytest.mark.parametrize("kind", ["stratified", "uniform"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_the_loss_is_events_less_integrals_less_pseudo_events(model: IntensityModel, kind: str, rate: float):
    data = random_data(1, [4, 0, 3])
    batch = make_batch(data, range(3))
    generator = torch.Generator().manual_seed(5)
    points = stratified(batch, 3, generator) if kind == "stratified" else uniform(batch, batch.lengths + 2, generator)
    history = model.encode(model.collator.plan_batch(batch))
    with torch.no_grad():
        loss = training_loss(model, batch, points, rate)
        expected = float(integral_terms(model, history, batch, points).sum() - event_terms(model, history, batch).sum())
        logs = model.log_intensities(model.state(history, model.collator.plan_queries(batch, points.queries))).sum(-1)
        terms = log_likelihood(model, batch, points, history=history)
    assert float(loss.negative_log_likelihood) == pytest.approx(expected)
    assert float(loss.objective) == pytest.approx(expected - rate * float((logs * points.weights).sum()))
    assert float(terms.log_likelihood().sum()) == pytest.approx(-expected)
    inside = integral_terms(model, history, batch, points)
    for gap in range(batch.gap_counts.shape[1]):
        of_gap = torch.where(points.gap == gap, inside, 0.0).sum(1)
        assert torch.allclose(terms.gap_integral[:, gap], of_gap)


def test_without_points_the_loss_has_the_integral_in_closed_form():
    model, batch = models()[0], make_batch(random_data(1, [4, 0, 3]), range(3))
    history: Any = model.encode(model.collator.plan_batch(batch))
    exact: Any = model
    with torch.no_grad():
        for given in (None, history):
            loss = training_loss(model, batch, None, history=given)
            expected = (exact.exact_integral(history, batch) * batch.gap_counts).sum() - event_terms(
                model, history, batch
            ).sum()
            assert float(loss.objective) == float(loss.negative_log_likelihood) == pytest.approx(float(expected))


def test_kernels_are_asked_where_points_lie_gap_by_gap(monkeypatch):
    model: Any = models()[1]
    points, none, one = (
        stratified(make_batch(DATA, range(rows)), 2, torch.Generator().manual_seed(0)) for rows in (2, 0, 1)
    )
    scattered = Points(Queries.seeing(points.queries.times, points.gap.expand_as(points.weights)), points.weights)
    assert not is_fused(model, points)  # on a CPU
    monkeypatch.setattr(ANHP, "is_fused", lambda self: True)
    assert is_fused(model, points) and is_fused(model, one)
    assert not is_fused(model, scattered) and not is_fused(model, none)
    monkeypatch.setattr(
        ANHP, "fused_losses", lambda _, batch, times, weights, rate: (times.sum() + rate, weights.sum())
    )
    loss = training_loss(model, BATCH, points, 0.5)
    assert float(loss.objective) == pytest.approx(float(points.queries.times.sum()) + 0.5)
    assert float(loss.negative_log_likelihood) == pytest.approx(float(points.weights.sum()))


def test_a_history_that_is_given_is_used_by_a_model_with_kernels(monkeypatch):
    """What the caller has encoded keeps its gradients: the kernels would encode it anew."""
    model, points = models()[1], stratified(BATCH, 2, torch.Generator().manual_seed(0))
    monkeypatch.setattr(ANHP, "is_fused", lambda self: True)
    monkeypatch.setattr(ANHP, "fused_losses", lambda *_: pytest.fail("kernels were asked"))
    with torch.no_grad():
        history = model.encode(model.collator.plan_batch(BATCH))
        assert torch.isfinite(training_loss(model, BATCH, points, history=history).objective)
