"""Next events of an RMTPP are drawn by inverting its integral: exact for rising, falling and constant intensities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from foretell.models.recurrent.rmtpp import RMTPP
from foretell.sampling.core.futures import sample_futures, sample_next
from foretell.sampling.core.sampler import InverseSampler
from foretell.sampling.core.start import start_sampler
from tests.sampling.processes import PAST, rmtpp

FALSE_ALARM = 1e-6
SLOPES = [1.5, 1e-13, 0.0, -1e-13, -0.8, -40.0]


def sloped(slope: float) -> RMTPP:
    model = rmtpp()
    model.time_scale = 0.7
    with torch.no_grad():
        model.slope.fill_(slope)
    return model


@pytest.mark.parametrize("slope", SLOPES)
def test_the_integral_up_to_an_inverted_time_is_the_mass(slope: float):
    sampler = start_sampler(sloped(slope), [PAST] * 5, [4] * 5)
    assert isinstance(sampler, InverseSampler)
    start, mass = torch.full((5,), 2.2, dtype=torch.float64), torch.tensor([1e-12, 1e-3, 0.02, 0.4, 3.0]).double()
    end = sampler.invert(start, mass)
    place, weight = (torch.from_numpy(one) for one in np.polynomial.legendre.leggauss(60))
    for row in end.isfinite().nonzero().flatten().tolist():
        half = (end[row] - start[row]) / 2.0
        times = (start[row] + half * (1.0 + place)).expand(5, -1)
        integral = float((sampler.intensities(times)[row].sum(-1) * weight).sum() * half)
        assert integral == pytest.approx(float(mass[row]), rel=1e-9, abs=1e-15)


def test_a_mass_that_a_falling_intensity_never_has_is_never_reached():
    sampler = start_sampler(sloped(-0.8), [PAST], [4])
    assert isinstance(sampler, InverseSampler)
    start = torch.tensor([2.2], dtype=torch.float64)
    rate = float(sampler.intensities(start[:, None]).sum())
    whole = rate * 0.7 / 0.8
    assert math.isinf(float(sampler.invert(start, torch.tensor([whole * 1.0001], dtype=torch.float64))))
    assert math.isfinite(float(sampler.invert(start, torch.tensor([whole * 0.9999], dtype=torch.float64))))


@pytest.mark.parametrize("slope", SLOPES)
def test_next_times_have_their_law_and_are_missing_as_often_as_they_should(slope: float):
    """The integral up to the next event is exponential, cut off where all of it is used up."""
    n, horizon, model = 4000, 4.0, sloped(slope)
    (found,) = sample_next(model, [PAST], n=n, horizon=horizon, seed=3)
    sampler = start_sampler(model, [PAST], [4])
    assert isinstance(sampler, InverseSampler)
    start = torch.tensor([2.2], dtype=torch.float64)
    rate = float(sampler.intensities(start[:, None]).sum())

    def mass(length: np.ndarray) -> np.ndarray:
        w = slope / 0.7
        return rate * length if abs(w) < 1e-9 else rate * np.expm1(w * length) / w

    whole = float(mass(np.array(horizon)))
    some = int(found.found.sum())
    assert stats.binomtest(some, n, -math.expm1(-whole)).pvalue > FALSE_ALARM
    if some:
        used = -np.expm1(-mass(found.times[found.found] - 2.2)) / -math.expm1(-whole)
        assert stats.kstest(used, "uniform").pvalue > FALSE_ALARM


def test_types_come_as_often_as_the_softmax_says_whenever_they_come():
    n, model = 6000, sloped(0.4)
    (found,) = sample_next(model, [PAST], n=n, horizon=1e6, seed=5)
    assert found.found.all()
    rates = model.intensity(PAST, [2.2])[0]
    names = np.array(found.events)
    late = found.times > np.median(found.times)
    for part in (late, ~late):
        counts = [int((names[part] == name).sum()) for name in model.vocabulary.names]
        assert stats.chisquare(counts, rates / rates.sum() * part.sum()).pvalue > FALSE_ALARM


def test_an_event_costs_one_proposal_and_no_bound():
    (found,) = sample_futures(sloped(0.3), [PAST], n=10, horizon=1e9, events=20, seed=1)
    assert found.cost.accepted == found.cost.proposals == 200 and found.cost.bounds == 0
