"""Time rescaling: residuals of the right model are Exp(1), however short the sequences; the test of that is the textbook's.

Statistical tests are seeded. With another seed, a correct implementation would fail each of their bounds with a probability below 1e-5.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from foretell.data.synthetic import HawkesProcess as HawkesTruth
from foretell.data.synthetic import PoissonProcess as Truth
from foretell.data.synthetic import simulate
from foretell.evaluate.calibration import (
    kolmogorov_p,
    kolmogorov_tail,
    ks_distance,
    rescaling_test,
    residual_variances,
    residuals,
    uniform,
)
from foretell.evaluate.likelihood import score_events
from foretell.models.classical.poisson import Poisson
from tests.samples import event_data


def poisson(data, *rates: float) -> Poisson:
    model = Poisson(data.vocabulary)
    with torch.no_grad():
        model.log_rate.copy_(torch.tensor(rates, dtype=torch.float64).log())
    return model


def test_a_residual_is_the_integral_since_the_event_before():
    data = event_data([([1.0, 4.0, 4.5], [0, 1, 0])], types=2, t_end=6.0)
    np.testing.assert_allclose(residuals(score_events(poisson(data, 0.5, 0.25), data)), [0.75, 2.25, 0.375])


def test_what_is_left_of_a_sequence_goes_on_in_the_next_one():
    data = event_data([([1.0], [0]), ([], []), ([2.0, 3.0], [0, 0])], types=1, t_end=[5.0, 3.0, 9.0])
    found = residuals(score_events(poisson(data, 0.5), data))
    np.testing.assert_allclose(found, [0.5, 0.5 * (4.0 + 3.0 + 2.0), 0.5])


def test_the_variance_of_a_residual_is_that_of_the_gaps_it_is_made_of():
    data = event_data([([1.0, 2.0], [0, 0]), ([], []), ([2.0, 3.0], [0, 0])], types=1, t_end=[5.0, 3.0, 9.0])
    scored = score_events(poisson(data, 0.5), data)
    assert scored.event.tolist() == [0, 1, -1, 0, 1]
    drawn = replace(
        scored,
        integral_variance=np.array([0.1, 0.2 + 0.03, 0.07, 0.4, 0.5 + 0.06]),
        tail_variance=np.array([0.0, 0.03, 0.07, 0.0, 0.06]),
    )
    np.testing.assert_allclose(residual_variances(drawn), [0.1, 0.2, 0.03 + 0.07 + 0.4, 0.5])


def test_unscored_events_do_not_cut_a_residual():
    from foretell.data import EventData, EventSequence

    plain = event_data([([1.0, 2.0, 4.0], [0, 0, 0])], types=1, t_end=5.0)
    marked = EventSequence(plain[0].times, plain[0].types, 5.0, "0", unscored=np.array([False, True, False]))
    data = EventData([marked], plain.vocabulary)
    events = score_events(poisson(data, 1.0), data)
    np.testing.assert_allclose(residuals(events), [1.0, 3.0])
    np.testing.assert_allclose(events.tail, [0.0, 1.0])


@pytest.mark.parametrize("length", [0.7, 3.0, 40.0])
def test_residuals_of_the_true_process_are_exponential_even_in_very_short_sequences(length):
    """About 3000 events; in sequences of 0.7 events each, cut-off gaps would bias the mean by half without what goes on."""
    truth = Truth((0.6, 0.4))
    data = simulate(truth, int(3000 / length), length, 7)
    found = residuals(score_events(poisson(data, *truth.rates), data))
    assert stats.kstest(found, "expon").pvalue > 1e-5
    assert abs(found.mean() - 1.0) < 5.0 / math.sqrt(len(found))
    assert rescaling_test(found).p_value == pytest.approx(stats.kstest(found, "expon").pvalue, abs=1e-3)


def test_p_values_are_uniform_under_the_true_process():
    """300 data sets of about 60 events in 12 sequences."""
    truth = Truth((0.6, 0.4))
    whole = simulate(truth, 300 * 12, 5.0, 3)
    model = poisson(whole, *truth.rates)
    found = [
        rescaling_test(residuals(score_events(model, whole.select(range(12 * n, 12 * n + 12))))).p_value
        for n in range(300)
    ]
    assert stats.kstest(found, "uniform").pvalue > 1e-5


def test_a_wrong_model_is_found_out():
    truth = HawkesTruth((0.3,), ((0.7,),), 2.0)
    data = simulate(truth, 30, 60.0, 5)
    rate = data.event_count / (30 * 60.0)
    found = rescaling_test(residuals(score_events(poisson(data, rate), data)))
    assert found.p_value < 1e-6 and found.mean == pytest.approx(1.0, rel=0.02), (
        "the rate is right, the clustering is not"
    )
    fast = rescaling_test(residuals(score_events(poisson(data, 2.0 * rate), data)))
    assert fast.mean == pytest.approx(2.0, rel=0.02)


def test_the_distance_is_that_of_scipy():
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 300):
        places = rng.random(count)
        assert ks_distance(places) == pytest.approx(stats.kstest(places, "uniform").statistic, abs=1e-15)


def test_the_limit_distribution_is_that_of_scipy():
    for x in np.linspace(0.05, 4.0, 200):
        assert kolmogorov_tail(x) == pytest.approx(stats.kstwobign.sf(x), abs=1e-13)


@pytest.mark.parametrize(("count", "within"), [(10, 3e-3), (100, 2e-4), (10_000, 1e-5)])
def test_p_is_that_of_the_exact_distribution_up_to_what_is_stated(count, within):
    for distance in np.linspace(0.5 / count, 4.0 / math.sqrt(count), 300):
        assert abs(kolmogorov_p(distance, count) - stats.kstwo.sf(distance, count)) < within


def test_a_very_large_distance_has_a_p_above_0():
    assert 0.0 < kolmogorov_p(0.9, 10_000) < 1e-100


def test_no_residuals_have_no_p():
    found = rescaling_test(np.zeros(0))
    assert found.residuals == 0 and math.isnan(found.p_value) and math.isnan(found.ks)


def test_places_are_probabilities_of_an_earlier_event():
    np.testing.assert_allclose(uniform(np.array([0.0, math.log(2.0), 50.0])), [0.0, 0.5, 1.0])
