"""Simulated data follow their process, and `nll_true` is its likelihood.

The goodness-of-fit tests have seeds of their own and reject a right simulator with probability below 1e-6.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from foretell.data import load
from foretell.data.synthetic import HawkesProcess, PoissonProcess, Process, SelfCorrectingProcess, nll, simulate
from foretell.errors import ForetellError

FALSE_ALARM = 1e-6
TWO_TYPES = HawkesProcess([0.3, 0.1], [[[0.2, 1.0], [0.1, 0.0]], [[0.4, 0.5], [0.0, 2.0]]], [1.0, 8.0])
PROCESSES: dict[str, Process] = {
    "poisson": PoissonProcess((0.5, 1.5)),
    "hawkes": TWO_TYPES,
    "self-correcting": SelfCorrectingProcess(1.2, 0.7),
}


def test_poisson_counts_have_the_poisson_mean_and_variance() -> None:
    data = simulate(PoissonProcess((0.5, 1.5, 0.0)), 2000, 10.0, seed=1)
    counts = np.stack([np.bincount(one.types, minlength=3) for one in data])
    for column, mean in enumerate((5.0, 15.0)):
        total = counts[:, column].sum()
        low, high = stats.poisson.interval(1 - FALSE_ALARM, mean * len(data))
        assert low <= total <= high
        # the dispersion statistic of a Poisson sample is chi-squared
        spread = ((counts[:, column] - counts[:, column].mean()) ** 2).sum() / counts[:, column].mean()
        low, high = stats.chi2.interval(1 - FALSE_ALARM, len(data) - 1)
        assert low <= spread <= high
    assert counts[:, 2].sum() == 0


@pytest.mark.parametrize("name", PROCESSES)
def test_time_rescaling_makes_unit_exponentials_of_the_gaps(name: str) -> None:
    process = PROCESSES[name]
    data = simulate(process, 60, 80.0, seed=3)
    # a window cuts its last gap off; with the windows put end to end, rescaled events are one unit Poisson process
    rescaled = [np.cumsum(process.integrals(one.times, one.types, one.t_end)) for one in data]
    starts = np.cumsum([0.0, *(window[-1] for window in rescaled)])
    marks = np.concatenate([start + window[:-1] for start, window in zip(starts[:-1], rescaled, strict=True)])
    assert len(marks) > 1000
    assert stats.kstest(np.diff(marks), "expon").pvalue > FALSE_ALARM
    assert stats.kstest(marks / starts[-1], "uniform").pvalue > FALSE_ALARM


def test_a_wrong_process_does_not_pass_for_the_right_one() -> None:
    wrong = PoissonProcess((0.7, 0.7))
    data = simulate(TWO_TYPES, 60, 80.0, seed=3)
    residuals = np.concatenate([wrong.integrals(one.times, one.types, one.t_end)[:-1] for one in data])
    assert stats.kstest(residuals, "expon").pvalue < FALSE_ALARM


def test_types_of_a_hawkes_process_follow_their_intensities() -> None:
    data = simulate(TWO_TYPES, 60, 40.0, seed=5)
    expected = variance = seen = 0.0
    for one in data:
        for place, kind in enumerate(one.types.tolist()):
            each = _intensity(TWO_TYPES, one.times[:place], one.types[:place], one.times[place])
            share = each[0] / each.sum()
            expected, variance, seen = expected + share, variance + share * (1 - share), seen + (kind == 0)
    # a sum of martingale differences: normal to good accuracy at this size
    assert abs(seen - expected) / np.sqrt(variance) < stats.norm.isf(FALSE_ALARM / 2)


def _intensity(process: HawkesProcess, times: np.ndarray, types: np.ndarray, at: float) -> np.ndarray:
    """The definition, as loops."""
    total = np.array(process.mu)
    for time, kind in zip(times, types, strict=True):
        for place, decay in enumerate(process.beta):
            total = total + process.alpha[:, kind, place] * np.exp(-decay * (at - time))
    return total


def test_hawkes_integrals_and_intensities_agree_with_the_definition() -> None:
    one = simulate(TWO_TYPES, 1, 20.0, seed=8)[0]
    assert set(one.types.tolist()) == {0, 1}
    logs = TWO_TYPES.log_intensities(one.times, one.types)
    for place, kind in enumerate(one.types.tolist()):
        exact = _intensity(TWO_TYPES, one.times[:place], one.types[:place], one.times[place])[kind]
        assert logs[place] == pytest.approx(np.log(exact), rel=1e-12)
    borders = [0.0, *one.times.tolist(), one.t_end]
    integrals = TWO_TYPES.integrals(one.times, one.types, one.t_end)
    for place, (start, stop) in enumerate(pairwise(borders)):
        value, _ = quad(lambda at, n=place: _intensity(TWO_TYPES, one.times[:n], one.types[:n], at).sum(), start, stop)
        assert integrals[place] == pytest.approx(value, rel=1e-7, abs=1e-10)


def test_self_correcting_integrals_agree_with_the_definition() -> None:
    process = SelfCorrectingProcess(1.2, 0.7)
    one = simulate(process, 1, 10.0, seed=2)[0]
    borders = [0.0, *one.times.tolist(), one.t_end]
    for place, (start, stop) in enumerate(pairwise(borders)):
        value, _ = quad(lambda at, n=place: np.exp(1.2 * at - 0.7 * n), start, stop)
        assert process.integrals(one.times, one.types, one.t_end)[place] == pytest.approx(value, rel=1e-7)


@pytest.mark.parametrize("name", PROCESSES)
def test_every_sequence_carries_its_true_likelihood(name: str) -> None:
    for one in simulate(PROCESSES[name], 5, 20.0, seed=4):
        assert one.metadata["nll_true"] == nll(PROCESSES[name], one.times, one.types, one.t_end)


@pytest.mark.parametrize(
    ("folder", "process"),
    [
        ("synth_stationary_poisson", PoissonProcess((1.0,))),
        ("synth_hawkes1", HawkesProcess([0.2], [[0.8]], [1.0])),
        ("synth_hawkes2", HawkesProcess([0.2], [[[0.4, 8.0]]], [1.0, 20.0])),
        ("synth_self_correcting", SelfCorrectingProcess(1.0, 1.0)),
    ],
)
def test_the_true_likelihoods_of_published_simulations_are_reproduced(shared, folder: str, process: Process) -> None:
    # times are rounded to 1e-7 there, which moves the sharpest of these likelihoods by up to 1e-5
    for one in load(shared(folder)).test:
        assert nll(process, one.times, one.types, one.t_end) == pytest.approx(one.metadata["nll_true"], abs=1e-4)


def test_one_seed_gives_the_same_data_and_more_sequences_do_not_change_the_first() -> None:
    few, many = simulate(TWO_TYPES, 3, 20.0, seed=7), simulate(TWO_TYPES, 6, 20.0, seed=7)
    other = simulate(TWO_TYPES, 3, 20.0, seed=8)
    for place in range(3):
        np.testing.assert_array_equal(few[place].times, many[place].times)
    assert few[0].times.tolist() != other[0].times.tolist()


def test_simulating_leaves_the_global_random_state_alone() -> None:
    before = np.random.get_state()[1].tolist()
    simulate(TWO_TYPES, 2, 10.0, seed=0)
    assert np.random.get_state()[1].tolist() == before


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: PoissonProcess(()), "rates"),
        (lambda: PoissonProcess((0.0,)), "rates"),
        (lambda: PoissonProcess((-1.0, 2.0)), "rates"),
        (lambda: PoissonProcess((float("nan"),)), "finite"),
        (lambda: HawkesProcess([0.2], [[1.0]], [1.0]), "explodes"),
        (lambda: HawkesProcess([0.2, 0.1], [[0.1]], [1.0]), "shape"),
        (lambda: HawkesProcess([0.2], [[0.1]], [0.0]), "beta > 0"),
        (lambda: HawkesProcess([0.0], [[0.1]], [1.0]), "some mu"),
        (lambda: HawkesProcess([0.2], [[0.1], [0.1, 0.2]], [1.0]), "lists of equal lengths"),
        (lambda: SelfCorrectingProcess(0.0, 1.0), "expected numbers > 0"),
        (lambda: simulate(PoissonProcess((1.0,)), 0, 1.0, 0), "at least 1"),
        (lambda: simulate(PoissonProcess((1.0,)), 1, 0.0, 0), "t_end"),
    ],
)
def test_parameters_that_make_no_process_are_refused(make, reason: str) -> None:
    with pytest.raises(ForetellError, match=reason):
        make()
