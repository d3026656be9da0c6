"""The search for the decays of a Hawkes process against quadrature of the gain that it maximises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from foretell.models.classical.decay_search import best_decays, waiting_and_slope


def causes_of(seed: int, count: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of causes under two decays, when they begin to be watched, and for how long; some not at all."""
    random = np.random.default_rng(seed)
    after = np.where(random.random(count) < 0.5, 0.0, random.exponential(0.5, count))
    watched = np.where(random.random(count) < 0.1, 0.0, random.exponential(3.0, count))
    return tuple(torch.from_numpy(one) for one in (random.random((count, 2)), after, watched))  # type: ignore[return-value]


def slow_integral(power: int, beta: float, after: float, watched: float) -> float:
    """`∫ s^power exp(−β s) ds` over what is watched, by Gauss-Legendre quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    s = after + watched * (nodes + 1.0) / 2.0
    return float((weights * s**power * np.exp(-beta * s)).sum() * watched / 2.0)


@pytest.mark.parametrize("seed", range(5))
def test_waiting_and_its_slope_are_the_integrals_they_stand_for(seed: int) -> None:
    causes, after, watched = causes_of(seed)
    beta = torch.tensor([0.3, 2.0], dtype=torch.float64)
    waiting, slope = waiting_and_slope(beta, causes, after, watched)
    for column, one in enumerate(beta.tolist()):
        rows = list(zip(causes[:, column].tolist(), after.tolist(), watched.tolist(), strict=True))
        assert waiting[column].item() == pytest.approx(
            sum(c * slow_integral(1, one, a, w) for c, a, w in rows), rel=1e-11
        )
        assert slope[column].item() == pytest.approx(
            one * sum(c * slow_integral(2, one, a, w) for c, a, w in rows), rel=1e-11
        )


@pytest.mark.parametrize("seed", range(20))
def test_no_decay_in_reach_gains_more_than_the_one_found(seed: int) -> None:
    causes, after, watched = causes_of(seed)
    waited = torch.from_numpy(np.random.default_rng(seed + 100).uniform(1.0, 20.0, 2))
    around = torch.tensor([0.4, 1.5], dtype=torch.float64)
    found = best_decays(waited, causes, after, watched, around)
    grid = around * torch.linspace(-1.0, 1.0, 401, dtype=torch.float64).exp()[:, None]

    def gain(beta: Tensor) -> Tensor:
        within = torch.exp(-after[:, None] * beta) * -torch.expm1(-watched[:, None] * beta) / beta
        return -beta * waited - (causes * within).sum(0)

    best = torch.stack([gain(row) for row in grid]).max(0).values
    assert bool((gain(found) >= best - 1e-12).all())
    assert bool((found.log() - around.log()).abs().max() <= 1.0 + 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_decay_found_is_the_same_in_every_unit_of_time(seed: int) -> None:
    causes, after, watched = causes_of(seed)
    waited = torch.from_numpy(np.random.default_rng(seed + 100).uniform(1.0, 20.0, 2))
    around = torch.tensor([0.4, 1.5], dtype=torch.float64)
    one = best_decays(waited, causes, after, watched, around)
    for unit in (60.0, 86400.0, 1e-3):
        other = best_decays(waited * unit, causes / unit, after * unit, watched * unit, around / unit)
        torch.testing.assert_close(other * unit, one, rtol=1e-13, atol=0.0)


def test_a_decay_that_nothing_speaks_for_moves_as_far_as_it_may_or_stays() -> None:
    one = torch.ones(1, dtype=torch.float64)
    none, around = 0.0 * one, 2.0 * one
    assert best_decays(none, one[None], none, one, around).item() == pytest.approx(2.0 * math.e)
    assert best_decays(one, none[None], none, one, around).item() == pytest.approx(2.0 / math.e)
    assert best_decays(none, none[None], none, one, around).item() == 2.0
