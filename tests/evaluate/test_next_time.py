"""The expected time of the next event: closed form, scipy's quadrature and brute force all agree with the march of panels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate

from foretell.data import EventData
from foretell.evaluate.next_time import UNDEFINED_ABOVE, gauss_kronrod, predict_next_times
from foretell.evaluate.scores import score
from foretell.models.anhp import ANHP
from foretell.models.base import IntensityModel, Queries
from foretell.models.batch import make_batch
from foretell.models.hawkes import Hawkes
from foretell.models.poisson import Poisson
from tests.samples import event_data, random_data, randomise


def poisson(data: EventData, rates: list[float]) -> Poisson:
    model = Poisson(data.vocabulary)
    with torch.no_grad():
        model.log_rate.copy_(torch.tensor(rates, dtype=torch.float64).log())
    return model


def hawkes(data: EventData, mu: float, alpha: float, beta: float) -> Hawkes:
    model = Hawkes(data.vocabulary, decays=1)
    with torch.no_grad():
        model.mu.fill_(mu)
        model.alpha.fill_(alpha)
        model.beta.fill_(beta)
    return model


def previous_times(data: EventData) -> np.ndarray:
    return np.concatenate([np.concatenate([[0.0], one.times[:-1]]) for one in data if len(one)])


@pytest.mark.parametrize("rates", [[0.2, 0.3, 0.5], [40.0, 1.0, 9.0], [1e4, 1.0, 1.0], [1e-3, 1e-2, 0.3]])
def test_a_poisson_process_expects_the_next_event_after_one_over_its_rate(rates: list[float]):
    data = random_data(1, [5, 0, 8])
    found = predict_next_times(poisson(data, rates), data)
    np.testing.assert_allclose(found.predicted - previous_times(data), 1.0 / sum(rates), rtol=2e-6)
    assert (found.no_event < 1e-6).all()


ONE = event_data([([0.5, 0.7, 2.0, 6.0], [0] * 4)], types=1)


@pytest.mark.parametrize(("mu", "alpha", "beta"), [(0.3, 0.8, 1.5), (1.0, 30.0, 50.0), (0.05, 0.5, 0.6)])
def test_a_hawkes_process_expects_what_scipy_integrates(mu: float, alpha: float, beta: float):
    found = predict_next_times(hawkes(ONE, mu, alpha, beta), ONE)
    times = ONE[0].times
    for place, predicted in enumerate(found.predicted):
        last = times[place - 1] if place else 0.0
        excited = sum(alpha * math.exp(-beta * (last - s)) for s in times[:place])

        def survival(u: float, excited: float = excited) -> float:
            return math.exp(-mu * u - excited * -math.expm1(-beta * u) / beta)

        expected = integrate.quad(survival, 0.0, 1.0 / beta, epsabs=1e-12)[0]
        expected += integrate.quad(survival, 1.0 / beta, np.inf, epsabs=1e-12, limit=200)[0]
        assert predicted - last == pytest.approx(expected, rel=1e-5)


def anhp(data: EventData, m: float, **options: Any) -> ANHP:
    model = randomise(ANHP(data.vocabulary, dim=6, dtype=torch.float64, **options), seed=3)
    model.time.set_range(m, 10.0)
    model.time_scale = 0.7
    return model


@torch.no_grad()
def brute_force(model: IntensityModel, data: EventData, sequence: int, event: int) -> float:
    """The mean by two hundred thousand trapezoids."""
    batch = make_batch(data, [sequence])
    start = float(batch.gap_start[0, event])
    times = torch.linspace(start, start + 60.0, 200_001, dtype=torch.float64)[None]
    history, rates = model.encode(batch), []
    for chunk in times.split(50_000, dim=1):
        rates.append(model.total(model.state(history, Queries.seeing(chunk, torch.full(chunk.shape, event)))))
    rate = torch.cat(rates, dim=1)[0].numpy()
    hazard = integrate.cumulative_trapezoid(rate, times[0].numpy(), initial=0.0)
    assert hazard[-1] > 16.0, "the window must hold nearly all of the density"
    return start + float(integrate.trapezoid(np.exp(-hazard), times[0].numpy()))


@pytest.mark.parametrize(
    ("m", "options"), [(0.5, {}), (0.01, {"layers": 1}), (0.5, {"coarse": "none", "bos": True, "heads": 2})]
)
def test_an_anhp_expects_what_brute_force_finds(m: float, options: dict[str, Any]):
    data = random_data(4, [5, 2], ties=True)
    model = anhp(data, m, **options)
    found = predict_next_times(model, data)
    for row in (0, 3, 6):
        expected = brute_force(model, data, int(found.sequence[row]), int(found.event[row]))
        assert found.predicted[row] == pytest.approx(expected, rel=2e-5)


def test_predictions_do_not_depend_on_the_batch_they_are_made_in():
    data = random_data(5, [7, 1, 4, 0, 9])
    model = anhp(data, 0.3)
    whole = predict_next_times(model, data)
    for place in range(len(data)):
        alone = predict_next_times(model, data.select([place]))
        np.testing.assert_allclose(alone.predicted, whole.predicted[whole.sequence == place], rtol=1e-6)


def test_predictions_do_not_look_at_the_event_they_predict():
    first = event_data([([1.0, 2.0, 3.0], [0, 1, 2])])
    second = event_data([([1.0, 2.0, 7.5], [0, 1, 0])])
    model = anhp(first, 0.3)
    one, two = predict_next_times(model, first), predict_next_times(model, second)
    np.testing.assert_allclose(one.predicted, two.predicted, rtol=1e-5)


def test_what_never_happens_is_the_mass_that_the_excitement_leaves_over():
    """With hardly any base rate, after one event nothing more happens with probability exp(−α/β)."""
    model = hawkes(ONE, 1e-9, 2.0, 1.0)
    found = predict_next_times(model, ONE)
    assert found.no_event[0] == pytest.approx(1.0, abs=1e-2)
    assert found.no_event[1] == pytest.approx(math.exp(-2.0), rel=1e-4)
    assert np.isnan(found.predicted[found.no_event > UNDEFINED_ABOVE]).all()


def test_events_without_an_expected_time_are_counted_and_left_out_of_the_rmse():
    many = np.sort(np.random.default_rng(0).uniform(1.0, 1.5, 12)).tolist()
    data = event_data([([1.0, *many], [0] * 13)], types=1)
    model = hawkes(data, 1e-9, 2.0, 1.0)
    scored = score(model, data)
    assert scored.times is not None
    fine = scored.times.no_event <= UNDEFINED_ABOVE
    assert 0 < fine.sum() < 13
    assert scored.evaluation.undefined_times == int((~fine).sum())
    errors = scored.times.predicted[fine] - scored.events.time[fine]
    assert scored.evaluation.rmse is not None
    assert scored.evaluation.rmse.value == pytest.approx(math.sqrt((errors**2).mean()))


def test_where_no_expected_time_exists_there_is_no_rmse():
    evaluation = score(hawkes(ONE, 1e-9, 0.1, 1.0), ONE).evaluation
    assert evaluation.undefined_times == 4
    assert evaluation.rmse is not None and math.isnan(evaluation.rmse.value)
    assert evaluation.to_json()["rmse"] == {"value": None, "low": None, "high": None}


def test_a_burst_as_short_as_the_shortest_gaps_is_followed():
    """For a ten-thousandth of the usual gap the intensity is 5000: a march in wide panels would step over it."""
    data = event_data([([0.5, 0.5001, 2.0, 6.0], [0] * 4)], types=1)
    found = predict_next_times(hawkes(data, 0.5, 5e3, 1e4), data)
    assert found.predicted[1] - 0.5 == pytest.approx(2.0 * math.exp(-0.5), rel=1e-3)


def test_the_rule_integrates_polynomials_and_their_running_integrals():
    rule = gauss_kronrod(torch.device("cpu"))
    for degree in range(15):
        power = rule.nodes**degree
        assert float(rule.kronrod @ power) == pytest.approx(1.0 / (degree + 1), rel=1e-13)
        expected = rule.nodes ** (degree + 1) / (degree + 1)
        torch.testing.assert_close(rule.cumulative @ power, expected, rtol=1e-11, atol=1e-13)
        if degree <= 13:
            assert float(rule.gauss @ power) == pytest.approx(1.0 / (degree + 1), rel=1e-13)


def test_the_window_decides_which_events_are_predicted():
    found = predict_next_times(hawkes(ONE, 0.5, 0.5, 1.0), ONE, window="events-2-to-I")
    assert found.event.tolist() == [1, 2, 3]
