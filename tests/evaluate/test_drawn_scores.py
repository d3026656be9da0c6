"""Scores from some of the possible events: what all of them give, within the standard errors that are told."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.errors import ForetellError
from foretell.evaluate.drawn_scores import drawn_scores
from foretell.models.classical.poisson import Poisson
from foretell.objective.loglik import log_likelihood, quadrature
from tests.plan.product_cases import model_pair

SEEDS = 400


@pytest.mark.parametrize("seed", [0, 1])
def test_the_mean_of_many_draws_is_the_exact_log_likelihood(seed):
    """A z-test; the false-alarm rate is 1e-5 each (4.4 standard errors)."""
    found, expected, data = model_pair("andtt", seed)
    some = data.select([0])
    batch = expected.collator.batch(some, [0], unscored=expected.unscored)
    exact = float(log_likelihood(expected, batch, quadrature(batch, 30)).log_likelihood().detach())
    drawn = np.array([drawn_scores(found, some, 2, seed=one).log_likelihood.sum() for one in range(SEEDS)])
    assert abs(drawn.mean() - exact) < 4.4 * drawn.std() / np.sqrt(SEEDS) + 1e-6
    told = np.array([drawn_scores(found, some, 2, seed=one).integral_variance.sum() for one in range(50)])
    assert told.mean() == pytest.approx(drawn.var(), rel=0.6)


def test_ranks_are_exact_where_everything_is_drawn():
    found, expected, data = model_pair("andtt", 1)
    some = data.select([0])
    scores = drawn_scores(found, some, 10_000)
    intensities = expected.possible_intensities
    assert (scores.rank_variance == 0).all()
    history = some[0]
    for place, rank in zip(scores.event.tolist(), scores.rank.tolist(), strict=True):
        own = history.first(place)
        here = intensities(own, [history.times[place]])[0]
        mine = here[data.vocabulary.names[int(history.types[place])]]
        assert rank == 1 + sum(one > mine * (1 + 1e-12) for one in here.values())


def test_other_models_and_senseless_numbers_are_refused():
    found, _, data = model_pair("andtt", 1)
    with pytest.raises(ForetellError, match="downsample = 0"):
        drawn_scores(found, data, 0)
    with pytest.raises(ForetellError, match="made of rules"):
        drawn_scores(Poisson(data.vocabulary), data, 3)
