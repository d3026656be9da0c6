"""Held-out log-likelihood event by event: it adds up, loses nothing, and its three integrals agree within their stated errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from foretell.batches.batch import make_batch
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate import likelihood
from foretell.evaluate.likelihood import QUADRATURE_TOLERANCE, score_events
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.capabilities import ExactIntegral
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.objective.loglik import Points, log_likelihood, quadrature
from tests.samples import event_data, random_data, random_rows, randomise

DATA = random_data(1, [4, 0, 9, 1, 6, 0, 2], ties=True)
FIRST = event_data([([0.0, *times], [1, *kinds]) for times, kinds in random_rows(2, [4, 0, 5])], origin="first-event")


def smooth_anhp() -> ANHP:
    model = randomise(ANHP.preset("plain", 3, dim=4, layers=2, dtype=torch.float64, coarse="none"), seed=2)
    model.vocabulary = DATA.vocabulary
    model.time.set_range(2.0, 10.0)
    return model


def hawkes() -> Hawkes:
    model = randomise(Hawkes(DATA.vocabulary, decays=2), seed=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    return model


def wild_anhp() -> ANHP:
    """Waves a thousand times shorter than the gaps, and weights large enough to follow them: no quadrature settles."""
    model = randomise(ANHP.preset("plain", DATA.vocabulary, dim=4, layers=1, dtype=torch.float64), seed=4, spread=2.0)
    model.time.set_range(1e-3, 10.0)
    return model


MODELS = {"poisson": lambda: randomise(Poisson(DATA.vocabulary), seed=5), "hawkes": hawkes, "anhp": smooth_anhp}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> IntensityModel:
    return MODELS[request.param]()


@torch.no_grad()
def by_sequence(model: IntensityModel, data: EventData, window: Any = "all", nodes: int = 10) -> np.ndarray:
    batch = make_batch(data, range(len(data)), window=window)
    points = None if isinstance(model, ExactIntegral) else quadrature(batch, nodes)
    return log_likelihood(model, batch, points).log_likelihood().numpy()


@pytest.mark.parametrize("window", ["all", "events-2-to-I"])
@pytest.mark.parametrize("data", [DATA, FIRST], ids=["window", "first-event"])
def test_rows_add_up_to_the_log_likelihood_of_each_sequence(model: IntensityModel, data: EventData, window: Any):
    scores = score_events(model, data, window=window)
    expected = by_sequence(model, data, window)
    summed = np.bincount(scores.sequence, weights=scores.log_likelihood, minlength=len(data))
    np.testing.assert_allclose(summed, expected, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(scores.log_likelihoods, expected, rtol=1e-9, atol=1e-10)


def test_time_and_type_add_up_to_the_whole(model: IntensityModel):
    scores = score_events(model, DATA)
    np.testing.assert_allclose(
        scores.time_log_likelihood + scores.type_log_likelihood, scores.log_likelihood, rtol=1e-12, atol=1e-12
    )
    assert (scores.type_log_likelihood <= 1e-12).all()


def test_every_scored_event_has_a_row_in_the_order_of_the_data(model: IntensityModel):
    scores = score_events(model, DATA)
    expected = [(n, i) for n, one in enumerate(DATA) for i in range(len(one))]
    real = scores.is_event
    assert list(zip(scores.sequence[real].tolist(), scores.event[real].tolist(), strict=True)) == expected
    np.testing.assert_array_equal(scores.time[real], np.concatenate([one.times for one in DATA]))
    np.testing.assert_array_equal(scores.type[real], np.concatenate([one.types for one in DATA]))
    assert (np.diff(scores.sequence) >= 0).all()


def test_a_sequence_without_events_keeps_its_integral(model: IntensityModel):
    scores = score_events(model, DATA)
    bare = ~scores.is_event
    assert scores.sequence[bare].tolist() == [1, 5]
    assert (scores.tail[bare] > 0.0).all() and (scores.log_intensity[bare] == 0.0).all()
    np.testing.assert_allclose(-scores.tail[bare], by_sequence(model, DATA)[[1, 5]], rtol=1e-9)
    assert scores.scored.tolist() == [4, 0, 9, 1, 6, 0, 2]


def test_the_tail_is_in_the_row_of_the_last_event_alone(model: IntensityModel):
    scores = score_events(model, DATA)
    last = np.array([scores.event[i] == len(DATA[scores.sequence[i]]) - 1 for i in range(len(scores.event))])
    assert (scores.tail[last] > 0.0).all() and (scores.tail[~last] == 0.0).all()


def test_the_first_event_is_not_scored_where_the_clock_starts_at_it(model: IntensityModel):
    scores = score_events(model, FIRST)
    assert scores.scored.tolist() == [4, 0, 5]
    assert 0 not in scores.event.tolist()
    assert scores.event.tolist().count(-1) == 1, "what follows the one event of the second sequence still counts"


def test_the_other_window_scores_neither_the_first_event_nor_the_tail():
    model = Poisson(event_data([([], [])], types=1).vocabulary)
    with torch.no_grad():
        model.log_rate.fill_(np.log(0.5))
    scores = score_events(model, event_data([([2.0, 3.0, 5.0], [0, 0, 0])], types=1), window="events-2-to-I")
    assert scores.event.tolist() == [1, 2]
    np.testing.assert_allclose(scores.integral, [0.5, 1.0])
    assert scores.tail.tolist() == [0.0, 0.0]
    assert scores.log_likelihoods.tolist() == pytest.approx([2 * np.log(0.5) - 1.5])


def test_closed_forms_are_used_where_there_are_some():
    assert score_events(hawkes(), DATA).used.method == "closed form"


def test_quadrature_says_how_far_it_moved_when_doubled():
    used = score_events(smooth_anhp(), DATA, points=3).used
    fine = score_events(smooth_anhp(), DATA, points=12).used
    assert used.method == fine.method == "quadrature" and used.points == 3
    assert used.doubling is not None and fine.doubling is not None
    assert 0.0 < used.doubling <= QUADRATURE_TOLERANCE and fine.doubling < used.doubling / 10.0
    assert used.standard_error is None and not used.fallback


@pytest.mark.parametrize("nodes", [2, 3, 6])
@torch.no_grad()
def test_the_difference_reported_is_that_between_n_and_2n_nodes_in_every_gap(nodes: int):
    model, batch = smooth_anhp(), make_batch(DATA, range(len(DATA)))
    once, twice = (log_likelihood(model, batch, quadrature(batch, n)).gap_integral for n in (nodes, 2 * nodes))
    expected = float((once - twice).abs().sum()) / DATA.event_count
    assert score_events(model, DATA, points=nodes).used.doubling == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("method", ["stratified", "uniform"])
@pytest.mark.parametrize("seed", range(3))
def test_draws_agree_with_quadrature_within_their_standard_error(method: Any, seed: int):
    """Five standard errors: a false alarm of 6e-7 a case if they are normal; the seeds are fixed."""
    model = smooth_anhp()
    exact = by_sequence(model, DATA, nodes=30).sum() / DATA.event_count
    scores = score_events(model, DATA, integral=method, points=20, seed=seed)
    assert scores.used.method == method and scores.used.standard_error is not None
    error = scores.log_likelihoods.sum() / DATA.event_count - exact
    assert 0.0 < abs(error) < 5.0 * scores.used.standard_error


@pytest.mark.parametrize("method", ["stratified", "uniform"])
def test_the_standard_error_is_that_of_repeated_draws(method: Any):
    """Ratio of variances over 60 repetitions; outside [0.4, 2.5] with a probability below 1e-5 under a chi-squared law."""
    model = smooth_anhp()
    found = [score_events(model, DATA, integral=method, points=6, seed=seed) for seed in range(60)]
    values = np.array([scores.log_likelihoods.sum() / DATA.event_count for scores in found])
    stated = np.array([scores.used.standard_error for scores in found], dtype=np.float64)
    assert 0.4 < values.var(ddof=1) / (stated**2).mean() < 2.5


def test_the_same_seed_draws_the_same():
    model = smooth_anhp()
    one, two, other = (score_events(model, DATA, integral="stratified", seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(one.integral, two.integral) and not np.array_equal(one.integral, other.integral)


def test_where_quadrature_does_not_settle_draws_take_its_place_and_it_is_said():
    model = wild_anhp()
    scores = score_events(model, DATA)
    assert scores.used.fallback and scores.used.method == "stratified"
    assert scores.used.doubling is not None and scores.used.doubling > QUADRATURE_TOLERANCE
    assert scores.used.standard_error is not None and scores.used.standard_error > 0.0
    assert (scores.integral_variance > 0.0).any()
    exact = score_events(model, DATA, integral="stratified", points=4000, seed=1)
    error = (scores.log_likelihoods.sum() - exact.log_likelihoods.sum()) / DATA.event_count
    assert abs(error) < 5.0 * scores.used.standard_error


@pytest.mark.parametrize(("moved", "settled"), [(0.9e-3, True), (1.1e-3, False), (0.05, False)])
def test_quadrature_counts_as_settled_up_to_a_thousandth_of_a_nat_an_event(moved, settled, monkeypatch):
    def moving(model, history, batch, *, nodes):
        found = by_quadrature(model, history, batch, nodes=nodes)
        share = moved * DATA.event_count / len(DATA) / found.value.shape[1]
        return replace(found, doubled=found.value + share)

    by_quadrature = likelihood._by_quadrature
    monkeypatch.setattr(likelihood, "_by_quadrature", moving)
    scores = score_events(smooth_anhp(), DATA)
    assert scores.used.doubling == pytest.approx(moved) and scores.used.fallback is not settled
    assert scores.used.method == ("quadrature" if settled else "stratified")


@torch.no_grad()
def test_the_variance_of_stratified_draws_is_that_of_their_mean(monkeypatch):
    """Of an intensity `t` over a gap of length 1, one draw in each half has the variance 1/96; the mean of two such sets, 1/192.

    10,000 gaps: the mean of their estimated variances has a standard error of 1.4 %; five of them are allowed.
    """
    data = event_data([([], [])] * 10_000, t_end=1.0)
    batch = make_batch(data, range(len(data)))
    monkeypatch.setattr(likelihood, "_summed", lambda model, history, batch, points: _of_time(points))
    generator = torch.Generator().manual_seed(0)
    found = likelihood._by_draws(smooth_anhp(), None, batch, method="stratified", points=4, generator=generator)
    assert float(found.variance.mean()) == pytest.approx(1.0 / 192.0, rel=0.07)
    assert float(found.value.var()) == pytest.approx(1.0 / 192.0, rel=0.07)
    assert float(found.value.mean()) == pytest.approx(0.5, abs=0.003)


def _of_time(points: Points) -> torch.Tensor:
    return (points.queries.times * points.weights).sum(1, keepdim=True)


def test_no_points_are_refused():
    with pytest.raises(ForetellError, match="points = 0: expected 1 or more"):
        score_events(smooth_anhp(), DATA, points=0)


def test_one_point_a_gap_is_enough_for_draws():
    used = score_events(smooth_anhp(), DATA, integral="stratified", points=1).used
    assert used.standard_error is not None and np.isfinite(used.standard_error)


def test_no_sequences_give_no_rows():
    assert len(score_events(hawkes(), EventData([], DATA.vocabulary)).event) == 0


def test_progress_is_told_up_to_the_last_sequence():
    told: list[tuple[int, int]] = []
    score_events(hawkes(), DATA, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (7, 7)
