"""The expected time of the next event: closed form, scipy's quadrature and brute force all agree with the march of panels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate

from foretell.batches.batch import Queries
from foretell.data import EventData
from foretell.evaluate.next_event_density import Tolerance
from foretell.evaluate.next_time import AGAIN, AGAIN_ABOVE, QUICK, UNDEFINED_ABOVE, predict_next_times
from foretell.evaluate.scores import score
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from tests.asking import state_at
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
    model = randomise(ANHP.preset("plain", data.vocabulary, dim=6, dtype=torch.float64, **options), seed=3)
    model.time.set_range(m, 10.0)
    model.time_scale = 0.7
    return model


@torch.no_grad()
def brute_force(model: IntensityModel, data: EventData, sequence: int, event: int) -> float:
    """The mean by two hundred thousand trapezoids."""
    batch = model.collator.batch(data, [sequence])
    start = float(batch.gap_start[0, event])
    times = torch.linspace(start, start + 60.0, 200_001, dtype=torch.float64)[None]
    history, rates = model.encode(batch), []
    for chunk in times.split(50_000, dim=1):
        rates.append(
            model.total(state_at(model, batch, Queries.seeing(chunk, torch.full(chunk.shape, event)), history))
        )
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


@pytest.mark.parametrize("m", [0.5, 0.05])
def test_of_two_cares_the_closer_one_finds_more_digits(m: float):
    data = random_data(4, [9, 5])
    model = anhp(data, m)
    close = predict_next_times(model, data, cares=(Tolerance(tolerance=1e-8, finest=0.0),))
    wait = close.predicted - previous_times(data)
    for cares, digits in (((QUICK, AGAIN), 1e-3), ((Tolerance(1e-6, 0.0),), 1e-6)):
        found = predict_next_times(model, data, cares=cares)
        assert (np.abs(found.predicted - close.predicted) <= digits * wait).all()


def rough(data: EventData) -> ANHP:
    """Intensities that wiggle by a factor of a few, on all scales down to a ten-thousandth of the usual wait."""
    model = randomise(ANHP.preset("plain", data.vocabulary, dim=12, dtype=torch.float64), seed=5, spread=0.9)
    model.time.set_range(2e-5, 10.0)
    return model


def test_where_the_intensity_wiggles_on_all_scales_the_reported_error_is_honest():
    """An error is a sum of many that are as likely up as down, so it should behave as a standard deviation does."""
    data = random_data(7, [24, 18])
    model = rough(data)
    quick = predict_next_times(model, data, cares=(Tolerance(1e-4, 1.0 / 8.0),))
    close = predict_next_times(model, data, cares=(Tolerance(1e-4, 1.0 / 1024.0),))
    wait = close.predicted - previous_times(data)
    assert np.median(quick.error / wait) > 1e-3, "the case is rough"
    rough_there = quick.event > 0  # with no event to attend to, intensities are constant
    assert np.median(close.error[rough_there] / quick.error[rough_there]) < 0.3
    off_by, said = np.abs(quick.predicted - close.predicted), np.hypot(quick.error, close.error)
    missed = off_by[rough_there] / said[rough_there]
    assert np.mean(missed > 2.0) < 0.15 and np.sqrt(np.mean(missed**2)) < 2.0


def test_predictions_that_are_off_by_much_are_made_again_with_more_care():
    data = random_data(7, [24, 18])
    model = rough(data)
    coarse, finer = Tolerance(1e-4, 1.0), Tolerance(1e-4, 1.0 / 128.0)
    once = predict_next_times(model, data, cares=(coarse,))
    again = predict_next_times(model, data, cares=(coarse, finer))
    fine = predict_next_times(model, data, cares=(finer,))
    wait = once.predicted - previous_times(data)
    redone = once.error > AGAIN_ABOVE * wait
    assert 3 < redone.sum() < len(redone), "there must be some of both"
    # Where a piece is cut depends on sums that another grouping of queries rounds otherwise.
    np.testing.assert_allclose(again.predicted[redone], fine.predicted[redone], rtol=1e-6)
    assert np.median(np.abs(once.predicted - fine.predicted)[redone] / wait[redone]) > 1e-3
    np.testing.assert_array_equal(again.predicted[~redone], once.predicted[~redone])
    np.testing.assert_array_equal(again.event, once.event)


def test_the_intensity_is_looked_at_a_bounded_number_of_times_however_much_it_wiggles(monkeypatch: pytest.MonkeyPatch):
    data = random_data(7, [24, 18])
    model, asked = rough(data), []
    monkeypatch.setattr(
        model, "intensities", lambda state: asked.append(state[..., 0].numel()) or ANHP.intensities(model, state)
    )
    predict_next_times(model, data, cares=(QUICK,))
    assert sum(asked) < 700 * data.event_count


def test_the_median_is_where_half_of_the_density_is():
    data = random_data(1, [5, 0, 8])
    found = predict_next_times(poisson(data, [0.2, 0.3, 0.5]), data)
    np.testing.assert_allclose(found.median - previous_times(data), math.log(2.0), rtol=1e-9)


def test_there_is_no_median_where_more_than_half_never_happens():
    found = predict_next_times(hawkes(ONE, 1e-9, 0.5, 1.0), ONE)
    never = found.no_event > 0.5
    assert 0 < never.sum() < 4 and np.array_equal(np.isnan(found.median), never)


@torch.no_grad()
def test_the_type_without_the_time_is_the_one_with_the_largest_share_of_the_density():
    """By ten thousand trapezoids; at no one time need that type be the most intense."""
    data = random_data(6, [7, 5])
    model = anhp(data, 0.3)
    found = predict_next_times(model, data)
    assert found.type_without_time.dtype == np.int32
    for sequence, event, kind in zip(found.sequence, found.event, found.type_without_time, strict=True):
        batch = model.collator.batch(data, [int(sequence)])
        start = float(batch.gap_start[0, event])
        times = torch.linspace(start, start + 60.0, 10_001, dtype=torch.float64)[None]
        seen = torch.full(times.shape, int(event))
        rates = model.intensities(state_at(model, batch, Queries.seeing(times, seen)))[0].numpy()
        hazard = integrate.cumulative_trapezoid(rates.sum(1), times[0].numpy(), initial=0.0)
        shares = integrate.trapezoid(rates * np.exp(-hazard)[:, None], times[0].numpy(), axis=0)
        best = np.sort(shares)[::-1]
        assert shares[kind] == best[0] or best[0] - shares[kind] < 1e-4


def test_predictions_do_not_depend_on_how_many_are_made_side_by_side(monkeypatch: pytest.MonkeyPatch):
    """A sequence that is too long to be looked at as a whole is looked at in pieces."""
    data = random_data(5, [30, 4, 11])
    model = anhp(data, 0.3)
    whole = predict_next_times(model, data)
    monkeypatch.setattr(ANHP, "queries_at_a_time", 70)
    pieces = predict_next_times(model, data)
    np.testing.assert_array_equal(pieces.event, whole.event)
    np.testing.assert_allclose(pieces.predicted, whole.predicted, rtol=1e-6)
    np.testing.assert_allclose(pieces.median, whole.median, rtol=1e-6)
    np.testing.assert_array_equal(pieces.type_without_time, whole.type_without_time)


def test_no_sequences_give_no_predictions():
    found = predict_next_times(hawkes(ONE, 0.5, 0.5, 1.0), ONE.select([]))
    assert all(len(column) == 0 for column in (found.sequence, found.predicted, found.median, found.type_without_time))


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


def test_the_window_decides_which_events_are_predicted():
    found = predict_next_times(hawkes(ONE, 0.5, 0.5, 1.0), ONE, window="events-2-to-I")
    assert found.event.tolist() == [1, 2, 3]
