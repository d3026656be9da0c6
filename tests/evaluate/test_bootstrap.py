"""The 95 % intervals: they cover the truth as often as they claim, and widen with what is uncertain.

Statistical tests are seeded. The bounds on a share of `n` repetitions lie five binomial standard errors and more from what is expected:
with another seed, each would fail for a correct interval with a probability below 1e-5.
"""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
import torch

from foretell.data.synthetic import PoissonProcess as Truth
from foretell.data.synthetic import simulate
from foretell.evaluate import bootstrap
from foretell.evaluate.bootstrap import (
    ENOUGH_SEQUENCES,
    REPLICATES,
    Estimate,
    Ratio,
    Resampling,
    estimates,
    replicates,
    resample_blocks,
    resample_sequences,
)
from foretell.evaluate.scores import evaluate
from foretell.models.attention.anhp import ANHP
from foretell.models.classical.poisson import Poisson
from tests.samples import random_data, randomise


def seed_from(rng: np.random.Generator) -> int:
    return int(rng.integers(2**62))


def mean_estimate(
    sums: np.ndarray,
    counts: np.ndarray,
    resampling: Resampling,
    *,
    variances: np.ndarray | None = None,
    root: bool = False,
) -> Estimate:
    """Of one ratio alone."""
    return estimates([Ratio(sums, counts, variances, root)], resampling)[0]


def test_intervals_cover_the_truth_as_often_as_they_say():
    """2000 data sets of 100 sequences of random lengths; the standard error of the share is 0.005."""
    rng = np.random.default_rng(1)
    resampling = resample_sequences(100, seed_from(rng))
    inside = 0
    for _ in range(2000):
        counts = rng.integers(1, 9, 100).astype(np.float64)
        sums = rng.normal(-1.5 * counts, np.sqrt(counts))
        estimate = mean_estimate(sums, counts, resampling)
        inside += estimate.low <= -1.5 <= estimate.high
    assert 0.915 < inside / 2000 < 0.98


def test_intervals_of_log_likelihoods_cover_that_of_infinite_data():
    """Under the true rates a Poisson process scores log λ − 1 an event; 300 data sets, standard error 0.013."""
    truth = Truth((0.6, 0.4))
    whole = simulate(truth, 300 * 30, 10.0, 2)
    model = Poisson(whole.vocabulary)
    with torch.no_grad():
        model.log_rate.copy_(torch.tensor(truth.rates, dtype=torch.float64).log())
    expected = 0.6 * np.log(0.6) + 0.4 * np.log(0.4) - 1.0
    inside = 0
    for place in range(300):
        data = whole.select(range(30 * place, 30 * place + 30))
        estimate = evaluate(model, data, times=False, seed=place).log_likelihood
        inside += estimate.low <= expected <= estimate.high
    assert 0.86 < inside / 300 < 0.995


def test_the_interval_of_a_mean_is_the_textbook_one():
    rng = np.random.default_rng(3)
    values = rng.normal(size=400)
    estimate = mean_estimate(values, np.ones(400), resample_sequences(400, seed_from(rng)))
    half = 1.96 * values.std() / 20.0
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.high - estimate.low == pytest.approx(2 * half, rel=0.12)


def test_twenty_sequences_are_enough_to_redraw_sequences_and_nineteen_are_not():
    for count, words in ((ENOUGH_SEQUENCES, "over sequences"), (ENOUGH_SEQUENCES - 1, "over blocks of 4 consecutive")):
        data = random_data(1, [3] * count)
        assert words in evaluate(Poisson(data.vocabulary), data, times=False).bootstrap


def test_blocks_are_consecutive_events_of_one_sequence():
    sequence = np.repeat([0, 1, 2], [27, 60, 38])
    resampling = resample_blocks(sequence, seed_from(np.random.default_rng(4)))
    assert resampling.block == 5 and resampling.unit == "events"
    assert resampling.weights.shape == (REPLICATES, 125)
    assert (resampling.weights.sum(1) == 125).all()
    assert resampling.weights.mean() == pytest.approx(1.0) and resampling.weights.mean(0).std() < 0.06
    near = np.mean(resampling.weights[:, 40] * resampling.weights[:, 41]) - 1.0
    across = np.mean(resampling.weights[:, 26] * resampling.weights[:, 27]) - 1.0
    assert near > 0.5, "neighbours are drawn together"
    assert abs(across) < 0.25, "but not across the border of two sequences"


def test_a_sequence_shorter_than_a_block_wraps_around():
    resampling = resample_blocks(np.repeat([0, 1], [1, 63]), seed_from(np.random.default_rng(5)))
    assert resampling.block == 4 and (resampling.weights.sum(1) == 64).all()
    assert set(np.unique(resampling.weights[:, 0])) <= {float(n) for n in range(0, 65)}


def test_blocks_widen_the_interval_of_events_that_come_in_runs():
    rng = np.random.default_rng(6)
    values = np.repeat(rng.normal(size=50), 10)  # ten equal events in a row
    blocks = resample_blocks(np.zeros(500, dtype=np.int64), seed_from(rng))
    single = resample_sequences(500, seed_from(rng))
    wide, narrow = (mean_estimate(values, np.ones(500), one) for one in (blocks, single))
    assert wide.high - wide.low > 1.6 * (narrow.high - narrow.low)


def test_the_variance_of_drawn_integrals_widens_the_interval():
    rng = np.random.default_rng(7)
    values, resampling = rng.normal(size=200), resample_sequences(200, seed_from(rng))
    plain = mean_estimate(values, np.ones(200), resampling)
    noisy = mean_estimate(values, np.ones(200), resampling, variances=np.full(200, 3.0))
    assert noisy.value == plain.value
    assert (noisy.high - noisy.low) / (plain.high - plain.low) == pytest.approx(2.0, rel=0.15)  # √(1 + 3)


def test_an_evaluation_with_noisy_draws_has_a_wider_interval_than_one_without():
    data = random_data(8, [6] * 40)
    model = randomise(ANHP(data.vocabulary, dim=4, dtype=torch.float64), seed=9, spread=2.0)
    model.time.set_range(1e-3, 10.0)
    noisy = evaluate(model, data, integral="uniform", points=1, times=False)
    settled = evaluate(model, data, integral="stratified", points=400, times=False)
    assert noisy.integral.standard_error is not None and settled.integral.standard_error is not None
    assert noisy.integral.standard_error > 10.0 * settled.integral.standard_error
    widths = [one.time_log_likelihood.high - one.time_log_likelihood.low for one in (noisy, settled)]
    assert widths[0] > 1.1 * widths[1]
    of_types = [one.type_log_likelihood.high - one.type_log_likelihood.low for one in (noisy, settled)]
    assert of_types[0] == pytest.approx(of_types[1], rel=0.2), "types have no integral to draw"


def test_a_root_mean_square_is_the_root_of_the_mean():
    rng = np.random.default_rng(10)
    errors = rng.normal(size=100) * 3.0
    estimate = mean_estimate(errors**2, np.ones(100), resample_sequences(100, seed_from(rng)), root=True)
    assert estimate.value == pytest.approx(np.sqrt((errors**2).mean()))
    assert estimate.low < estimate.value < estimate.high


def test_no_counts_give_no_number():
    rng = np.random.default_rng(11)
    estimate = mean_estimate(np.zeros(30), np.zeros(30), resample_sequences(30, seed_from(rng)))
    assert np.isnan([estimate.value, estimate.low, estimate.high]).all()


def test_units_without_events_carry_their_integral_into_the_mean():
    sums, counts = np.array([-3.0, -2.0, -1.0]), np.array([2.0, 0.0, 1.0])
    rng = np.random.default_rng(12)
    assert mean_estimate(sums, counts, resample_sequences(3, seed_from(rng))).value == -2.0


def test_weights_are_drawn_some_at_a_time_and_the_cut_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(13)
    for resampling in (resample_sequences(50, 3), resample_blocks(np.repeat([0, 1], [20, 30]), 3)):
        ratios = [Ratio(rng.normal(size=50), np.ones(50)), Ratio(rng.normal(size=50), np.ones(50), np.ones(50))]
        whole = replicates(ratios, resampling)
        monkeypatch.setattr(bootstrap, "AT_A_TIME", 50 * 7)
        parts = list(resampling.parts())
        assert max(map(len, parts)) == 7 and np.array_equal(np.concatenate(parts), resampling.weights)
        np.testing.assert_allclose(replicates(ratios, resampling), whole, rtol=1e-12, atol=1e-15)
        monkeypatch.undo()


def test_all_ratios_see_the_same_replicates():
    rng = np.random.default_rng(14)
    values = rng.normal(size=40)
    found = replicates([Ratio(values, np.ones(40)), Ratio(2.0 * values, np.ones(40))], resample_sequences(40, 1))
    np.testing.assert_allclose(found[:, 1], 2.0 * found[:, 0])


def test_many_estimates_at_once_are_those_of_one_after_the_other():
    rng = np.random.default_rng(15)
    resampling = resample_sequences(30, 2)
    some = np.zeros(30)
    some[:2] = 1.0  # in some replicates nothing is counted
    ratios = [Ratio(rng.random(30), np.ones(30)), Ratio(some, some), Ratio(some * 0.0, some * 0.0)]
    together = estimates(ratios, resampling)
    for found, one in zip(
        together, ratios[:2], strict=False
    ):  # products of other shapes may round the last digit otherwise
        alone = mean_estimate(one.sums, one.counts, resampling)
        assert astuple(found) == pytest.approx(astuple(alone), rel=1e-14)
    assert np.isnan(together[2].value) and together[1].value == 1.0
    assert estimates([], resampling) == []


def test_intervals_of_few_long_sequences_cover_the_truth_where_neighbours_are_alike():
    """Blocks: 200 data sets of 3 sequences of 400 values that follow each other with correlation 0.5; standard error 0.017."""
    rng = np.random.default_rng(16)
    sequence, inside = np.repeat(np.arange(3), 400), 0
    for place in range(200):
        noise = rng.normal(size=(3, 430))
        values = np.zeros((3, 430))
        for step in range(1, 430):
            values[:, step] = 0.5 * values[:, step - 1] + noise[:, step]
        found = mean_estimate(values[:, 30:].ravel(), np.ones(1200), resample_blocks(sequence, place))
        inside += found.low <= 0.0 <= found.high
    assert 0.82 < inside / 200 < 0.995


@pytest.mark.slow
def test_intervals_with_drawn_integrals_cover_the_truth():
    """Of 2000 data sets of 60 sequences whose sums have noise of known variance: at least as often as they say, since the noise of the
    draws is in the values and is drawn once more; standard error 0.005."""
    rng = np.random.default_rng(17)
    inside = 0
    for place in range(2000):
        counts = rng.integers(1, 9, 60).astype(np.float64)
        sums = rng.normal(-1.5 * counts, np.sqrt(counts)) + 0.7 * rng.normal(size=60)
        found = mean_estimate(sums, counts, resample_sequences(60, place), variances=np.full(60, 0.49))
        inside += found.low <= -1.5 <= found.high
    assert 0.92 < inside / 2000 < 0.99


@pytest.mark.slow
def test_intervals_of_errors_and_root_mean_squares_cover_those_of_infinite_data():
    """Of 400 data sets of 40 sequences of a Poisson process with rates 0.6 and 0.4 on [0, 30]; standard error 0.011.

    The error is 0.4. Long gaps are cut off, so the mean of `(gap − 1)²` over events is not that of Exp(1), which is 1: an event at `t` adds
    `∫_0^t (s − 1)² e^−s ds + (t − 1)² e^−t = 1 − 2t e^−t`, and over [0, T] that is `T − 2(1 − (T + 1) e^−T)`.
    """
    truth, end = Truth((0.6, 0.4)), 30.0
    whole = simulate(truth, 400 * 40, end, 18)
    model = Poisson(whole.vocabulary)
    with torch.no_grad():
        model.log_rate.copy_(torch.tensor(truth.rates, dtype=torch.float64).log())
    expected = np.sqrt(1.0 - 2.0 * (1.0 - (end + 1.0) * np.exp(-end)) / end)
    inside = np.zeros(2)
    for place in range(400):
        found = evaluate(model, whole.select(range(40 * place, 40 * place + 40)), seed=place)
        assert found.rmse is not None
        inside += [found.error_rate.low <= 0.4 <= found.error_rate.high, found.rmse.low <= expected <= found.rmse.high]
    assert 0.88 < inside[0] / 400 < 0.995 and 0.88 < inside[1] / 400 < 0.995, inside / 400
