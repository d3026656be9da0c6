"""Panels and the march of them: integrals of polynomials, places that are reached, and a density that is accounted for to the last."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate

from foretell.data import EventData
from foretell.evaluate.next_event_density import Horizon, NextEventDensity, Places, Tolerance, gauss_kronrod, march
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from tests.contract.members import MEMBERS, Member
from tests.samples import event_data, random_data, randomise

RULE = gauss_kronrod(torch.device("cpu"))


def test_the_rule_integrates_polynomials_and_their_running_integrals():
    for degree in range(15):
        power = RULE.nodes**degree
        assert float(RULE.kronrod @ power) == pytest.approx(1.0 / (degree + 1), rel=1e-13)
        expected = RULE.nodes ** (degree + 1) / (degree + 1)
        torch.testing.assert_close(RULE.cumulative @ power, expected, rtol=1e-11, atol=1e-13)
        if degree <= 13:
            assert float(RULE.gauss @ power) == pytest.approx(1.0 / (degree + 1), rel=1e-13)


@pytest.mark.parametrize("power", [0, 1, 4, 9])
def test_the_place_where_an_integral_reaches_a_size_is_found(power: int):
    sizes = torch.tensor([1e-4, 0.02, 0.37, 0.5, 0.999, 1.0], dtype=torch.float64)
    values = ((power + 1) * RULE.nodes**power).expand(len(sizes), 15)
    torch.testing.assert_close(RULE.reaching(values, sizes), sizes ** (1.0 / (power + 1)), rtol=1e-6, atol=1e-12)


def from_the_ends(model: IntensityModel, data: EventData, care: Tolerance, *levels: float) -> NextEventDensity:
    """From the end of every sequence."""
    batch = model.collator.batch(data, range(len(data)))
    places = Places(batch.t_end[:, None], batch.lengths[:, None], torch.ones(len(data), 1, dtype=torch.bool))
    return march(model, batch, model.encode(batch), places, Horizon(1e-4, 1000.0), care, levels)


CLOSE = Tolerance(1e-7, 0.0)
DATA = random_data(3, [5, 0, 9], t_end=10.0)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_whatever_happens_next_and_nothing_at_all_make_one(member: Member):
    found = from_the_ends(member.build(), DATA, Tolerance(1e-5, 1.0 / 8.0))
    total = found.masses.double().sum(-1) + found.survival
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-9, atol=1e-9)


def test_quantiles_of_a_hawkes_process_are_those_of_its_closed_form():
    model = Hawkes(DATA.vocabulary, decays=1)
    with torch.no_grad():
        model.mu.fill_(0.1)
        model.alpha.fill_(0.3)
        model.beta.fill_(0.8)
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    found = from_the_ends(model, DATA, CLOSE, *levels)
    for row, sequence in enumerate(DATA):
        excited = 3 * 0.3 * float(np.exp(-0.8 * (sequence.t_end - sequence.times)).sum())
        for level, time in zip(levels, found.quantiles[row, 0].tolist(), strict=True):
            hazard = 0.3 * time + excited * -math.expm1(-0.8 * time) / 0.8
            assert -math.expm1(-hazard) == pytest.approx(level, abs=1e-8)


@pytest.mark.parametrize("lasting", [0.5, 3.0, 8.0, 12.0])
def test_where_nothing_may_happen_ever_again_the_mean_is_of_what_does_happen(lasting: float):
    """`S = exp(−a(1 − e^−u))` falls to `exp(−a)` and stays there: the horizon must not get into the mean."""
    data = event_data([([1.0], [0])], types=1, t_end=1.0)
    model = Hawkes(data.vocabulary, decays=1)
    with torch.no_grad():
        model.mu.fill_(1e-15)
        model.alpha.fill_(lasting)
        model.beta.fill_(1.0)
    never = math.exp(-lasting)
    tail = integrate.quad(lambda u: math.exp(-lasting * -math.expm1(-u)) - never, 0.0, 60.0, epsabs=1e-13, limit=200)[0]
    for care, digits in ((CLOSE, 1e-6), (Tolerance(1e-3, 1.0 / 16.0), 2e-3)):
        found = from_the_ends(model, data, care)
        assert float(found.survival) == pytest.approx(never, rel=1e-3 if care is not CLOSE else 1e-6)
        assert float(found.mean) == pytest.approx(tail / (1.0 - never), rel=digits)
        assert float(found.error) < digits * float(found.mean) * 10.0


def test_a_level_that_is_never_reached_has_no_quantile():
    model = Hawkes(DATA.vocabulary, decays=1)
    with torch.no_grad():
        model.mu.fill_(1e-12)
        model.alpha.fill_(1.0)
        model.beta.fill_(1.0)
    found = from_the_ends(model, DATA, CLOSE, 0.01, 0.9999)
    for row in range(len(DATA)):
        assert torch.isnan(found.quantiles[row, 0]).tolist() == [
            bool(1 - found.survival[row, 0] < q) for q in (0.01, 0.9999)
        ]
    assert torch.isnan(found.quantiles[1]).all(), "nothing excites the empty sequence"


def test_marches_that_go_on_alone_find_what_they_find_together():
    """Most arrive early, and the ranks are closed; the order and the company make no difference."""
    data = random_data(2, [12, 3, 8, 12])
    model = randomise(ANHP.preset("plain", data.vocabulary, dim=5, bos=True, heads=2, dtype=torch.float64), seed=8)
    model.time.set_range(0.05, 10.0)
    batch = model.collator.batch(data, range(4))
    start, seen = batch.gap_start, torch.arange(13).expand(4, 13)
    history, horizon = model.encode(batch), Horizon(1e-3, 1000.0)
    exist = seen <= batch.lengths[:, None]
    whole = march(model, batch, history, Places(start, seen, exist, gap_by_gap=True), horizon, CLOSE, (0.5,))
    few = exist & (torch.rand(4, 13, generator=torch.Generator().manual_seed(0)) < 0.2)
    assert few.sum() > 3
    part = march(model, batch, history, Places(start, seen, few), horizon, CLOSE, (0.5,))
    for one, two in ((whole.mean, part.mean), (whole.survival, part.survival), (whole.quantiles, part.quantiles)):
        torch.testing.assert_close(one[few], two[few], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(whole.masses[few], part.masses[few], rtol=1e-6, atol=1e-8)
    assert not part.mean[~few].any() and not part.masses[~few].any()
