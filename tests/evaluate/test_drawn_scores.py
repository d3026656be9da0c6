"""Scores from some of the possible events: what all of them give, within the standard errors that are told."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.errors import ForetellError
from foretell.evaluate.compare_drawn import compare_drawn
from foretell.evaluate.drawn_scores import drawn_scores
from foretell.evaluate.likelihood import score_events
from foretell.models.classical.poisson import Poisson
from foretell.objective.loglik import log_likelihood, quadrature
from foretell.train.fit import fit
from foretell.train.likelihood_task import scored_alike
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


def test_scores_from_all_possible_events_are_those_of_the_exact_integral():
    """Times alone are drawn: their estimate is within 4.4 standard errors (false-alarm rate 1e-5), and ranks are exact."""
    found, expected, data = model_pair("andtt", 0)
    some = data.select([0])
    whole = drawn_scores(found, some, None, points=40)
    batch = expected.collator.batch(some, [0], unscored=expected.unscored)
    exact = float(log_likelihood(expected, batch, quadrature(batch, 30)).log_likelihood().detach())
    assert abs(whole.log_likelihood.sum() - exact) < 4.4 * np.sqrt(whole.integral_variance.sum()) + 1e-6
    assert (whole.rank_variance == 0).all()
    assert np.array_equal(whole.rank, drawn_scores(found, some, 10_000).rank)
    assert whole.to_json()["downsample"] is None


def test_models_without_rules_are_scored_from_all_types():
    _, _, data = model_pair("andtt", 0)
    data = data.select([0, 1])
    model = Poisson(data.vocabulary)
    fit(model, data)
    found = drawn_scores(model, data, None)
    exact = score_events(model, data)
    real = exact.is_event
    assert found.log_likelihood.sum() == pytest.approx(exact.log_likelihood.sum(), rel=1e-12)
    rates = dict(zip(data.vocabulary.names, model.intensity(data[0], [0.1])[0].tolist(), strict=True))
    names = [data.vocabulary.names[kind] for kind in exact.type[real].tolist()]
    assert found.rank.tolist() == [1 + sum(one > rates[name] for one in rates.values()) for name in names]


def test_runs_are_compared_by_what_they_share():
    found, _, data = model_pair("andtt", 0)
    poisson, alike = Poisson(data.vocabulary), scored_alike(data, found)
    fit(poisson, alike)
    runs = [("rules", drawn_scores(found, data, 3)), ("Poisson", drawn_scores(poisson, alike, None))]
    compared = compare_drawn(runs)
    by_metric = {one.metric: one for one in compared.differences}
    for key in ("log_likelihood", "rank"):
        one, other = (scores.estimates()[key].value for _, scores in runs)
        assert by_metric[key].difference.value == pytest.approx(one - other)
        better = "rules" if (one > other) == (key == "log_likelihood") else "Poisson"
        assert by_metric[key].better == better
    assert any("3 of the possible events" in line for line in compared.lines())
    assert any("all possible events" in line for line in compared.lines())
    short = [runs[0], ("short", drawn_scores(poisson, alike.select([1]), None))]
    with pytest.raises(ForetellError, match="not the same ones"):
        compare_drawn(short)
