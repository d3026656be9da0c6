"""Calibration: a right model's intervals hold as often as they say, wrong ones are told; types likewise.

Statistical tests are seeded. With another seed, a correct implementation would fail each of their bounds with a probability below 1e-5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.data import EventData
from foretell.data.synthetic import PoissonProcess as Truth
from foretell.data.synthetic import simulate
from foretell.evaluate.bootstrap import NOTHING, Estimate, Units
from foretell.evaluate.calibration import LEVELS, calibrate
from foretell.evaluate.likelihood import score_events
from foretell.evaluate.scores import ScoringOptions, evaluate, score
from foretell.models.attention.anhp import ANHP
from foretell.models.classical.poisson import Poisson
from tests.samples import event_data, random_data, randomise

TRUTH = Truth((0.7, 0.3))


def poisson(data: EventData, *rates: float) -> Poisson:
    model = Poisson(data.vocabulary)
    with torch.no_grad():
        model.log_rate.copy_(torch.tensor(rates, dtype=torch.float64).log())
    return model


def calibrated(model, data):
    events = score_events(model, data)
    units = Units(events.sequence, len(data))
    return calibrate(events, units, units.resampling(0))


def test_a_right_model_covers_every_level_within_its_interval_or_nearly():
    """About 4000 events; five standard errors of a share are at most 0.04."""
    data = simulate(TRUTH, 400, 10.0, 1)
    found = calibrated(poisson(data, *TRUTH.rates), data)
    assert [one.level for one in found.times] == list(LEVELS)
    for one in found.times:
        assert abs(one.coverage.value - one.level) < 0.04
        assert one.coverage.low <= one.coverage.value <= one.coverage.high


def test_coverage_is_that_of_the_intervals_themselves():
    data = event_data([([0.1, 1.0, 3.0, 3.01], [0, 0, 0, 0])], types=1, t_end=4.0)
    gaps, rate = np.diff([0.0, 0.1, 1.0, 3.0, 3.01]), 0.8
    found = calibrated(poisson(data, rate), data)
    for one in found.times:
        low, high = (-np.log1p(-(1.0 + side * one.level) / 2.0) / rate for side in (-1.0, 1.0))
        assert one.coverage.value == pytest.approx(np.mean((gaps > low) & (gaps < high)))


def test_a_model_that_is_too_fast_or_too_slow_covers_too_little():
    data = simulate(TRUTH, 200, 10.0, 2)
    for factor in (0.2, 5.0):
        found = calibrated(poisson(data, 0.7 * factor, 0.3 * factor), data)
        assert found.coverage(0.5).high < 0.5 and found.coverage(0.9).high < 0.9


def test_types_are_right_as_often_as_they_are_probable():
    data = simulate(TRUTH, 400, 10.0, 3)
    found = calibrated(poisson(data, *TRUTH.rates), data)
    (only,) = found.types
    assert (only.low, only.high) == (0.7, 0.8) and only.probability == pytest.approx(0.7)
    assert only.events == sum(len(one) for one in data) and abs(only.right.value - 0.7) < 0.04
    assert found.type_error == pytest.approx(abs(only.right.value - 0.7))
    sure = calibrated(poisson(data, 0.97, 0.03), data)
    assert sure.type_error == pytest.approx(0.97 - sure.types[0].right.value) and sure.type_error > 0.2


def test_draws_of_the_integral_widen_the_intervals_of_coverage():
    data = random_data(8, [6] * 40)
    model = randomise(ANHP(data.vocabulary, dim=4, dtype=torch.float64), seed=9, spread=2.0)
    model.time.set_range(1e-3, 10.0)
    noisy = score(model, data, ScoringOptions(integral="uniform", points=1, times=False))
    nothing = np.zeros(len(noisy.events.event))
    exact = replace(noisy.events, integral_variance=nothing, tail_variance=nothing)
    units = Units(exact.sequence, len(data))
    without = calibrate(exact, units, units.resampling(0))
    with_draws = noisy.evaluation.calibration
    assert with_draws.coverage(0.5).value == without.coverage(0.5).value
    widths = [one.coverage(0.5).high - one.coverage(0.5).low for one in (with_draws, without)]
    assert widths[0] > 1.1 * widths[1]


def test_intervals_of_coverage_stay_among_the_shares_that_there_are():
    """Few events of large variance: the noise of draws alone would carry the ends of intervals below 0 and above 1."""
    data = random_data(8, [2] * 3)
    model = randomise(ANHP(data.vocabulary, dim=4, dtype=torch.float64), seed=9, spread=2.0)
    noisy = score(model, data, ScoringOptions(integral="uniform", points=1, times=False)).events
    ones, units = np.ones(len(noisy.event)), Units(noisy.sequence, len(data))
    # In the middle of what was predicted, every level covers an event; far out, none does.
    drawn = [
        replace(noisy, integral=ones * wait, tail=0.0 * ones, integral_variance=ones) for wait in (np.log(2.0), 9.0)
    ]
    found = [one.coverage for events in drawn for one in calibrate(events, units, units.resampling(0)).times]
    assert max(one.high for one in found) == 1.0 and min(one.low for one in found) == 0.0
    assert {one.value for one in found} == {0.0, 1.0}
    assert Estimate(0.5, -0.1, 1.2).clipped(0.0, 1.0) == Estimate(0.5, 0.0, 1.0)
    assert Estimate(0.5, 0.4, 0.6).clipped(0.0, 1.0) == Estimate(0.5, 0.4, 0.6)
    assert np.isnan(NOTHING.clipped(0.0, 1.0).low) and np.isnan(NOTHING.clipped(0.0, 1.0).high)


@pytest.mark.slow
def test_intervals_of_coverage_cover_the_level():
    """Of 300 data sets of 40 sequences; standard error of the share 0.013."""
    whole = simulate(TRUTH, 300 * 40, 8.0, 4)
    model = poisson(whole, *TRUTH.rates)
    inside = 0
    for place in range(300):
        found = evaluate(model, whole.select(range(40 * place, 40 * place + 40)), times=False).calibration.coverage(0.5)
        inside += found.low <= 0.5 <= found.high
    assert 0.87 < inside / 300 < 0.995
