"""Periods of gaps: found where there are some, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.models.attention.anhp import ANHP
from foretell.models.gap_periods import gap_periods


def data_of(gaps: np.ndarray, unit: float = 1.0) -> EventData:
    times = unit * np.cumsum(gaps)
    return EventData([EventSequence(times, np.zeros(len(times), int), times[-1])], Vocabulary.of_size(1))


def by_day(seed: int, noise: float = 0.08) -> np.ndarray:
    """Half of the gaps are some whole days, give or take a few hours; the others minutes."""
    draw = np.random.default_rng(seed)
    days = draw.geometric(0.1, 2000) + noise * draw.standard_normal(2000)
    return np.where(draw.random(2000) < 0.5, np.abs(days), draw.exponential(0.01, 2000))


def test_whole_days_are_found() -> None:
    (day, *_) = gap_periods(data_of(by_day(0)), 6)
    assert day == pytest.approx(1.0, rel=0.01)


def test_the_period_is_in_the_unit_of_the_data() -> None:
    one, other = (gap_periods(data_of(by_day(1), unit), 3) for unit in (1.0, 86400.0))
    np.testing.assert_allclose(other, 86400.0 * np.array(one), rtol=1e-9)


@pytest.mark.parametrize("kind", ["exponential", "lognormal", "pareto", "uniform", "gamma"])
def test_smooth_gaps_have_no_period(kind: str) -> None:
    """With the stated chance of 1e-6 per data set, 20 sets of each kind have none."""
    draw = np.random.default_rng(3)
    make = {
        "exponential": lambda: draw.exponential(1.0, 3000),
        "lognormal": lambda: draw.lognormal(0.0, 2.0, 3000),
        "pareto": lambda: draw.pareto(1.2, 3000),
        "uniform": lambda: draw.uniform(0.0, 1.0, 3000),
        "gamma": lambda: draw.gamma(4.0, 1.0, 3000),
    }[kind]
    assert [gap_periods(data_of(make()), 6) for _ in range(20)] == [()] * 20


def test_the_grid_of_times_is_no_period() -> None:
    draw = np.random.default_rng(4)
    assert gap_periods(data_of(draw.geometric(0.02, 3000).astype(float)), 6) == ()


def test_few_gaps_tell_nothing() -> None:
    assert gap_periods(data_of(by_day(5)[:150]), 6) == ()


def test_a_model_keeps_the_periods_of_its_data() -> None:
    data = data_of(by_day(6))
    model = ANHP(data.vocabulary, dim=8)
    model.prepare(data)
    assert model.elapsed.periods[0] == pytest.approx(1.0, rel=0.01)
    again = ANHP.from_spec(model.spec(), model.vocabulary)
    assert again.elapsed.periods == model.elapsed.periods
