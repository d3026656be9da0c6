"""Impossible events kept as history: they fire rules, have no intensity, and no score counts them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import foretell as ft
from foretell.errors import DataError
from foretell.evaluate.likelihood import score_events
from foretell.ground.impossible import settle_impossible
from foretell.objective.loglik import log_likelihood, quadrature, stratified, training_loss
from foretell.train.likelihood_task import sum_scored
from tests.ground.timelines import event_data

# `spark` lights the fire while it is not lit; `wind` does the same from outside, with the same parameters.
FIRE = ft.Program.from_text(
    ":- event(spark). :- event(burn). :- exogenous(wind).\n"
    "spark <- burn. burn :- fire.\nfire <- spark :: w. fire <- wind :: w.\n"
)


def model_of(program: ft.Program, data: ft.EventData) -> ft.ANDTT:
    model = ft.ANDTT(program, data.vocabulary, dim=3, layers=2, seed=4, dtype=torch.float64)
    model.ground(data)
    return model


def marked(*sequences: list[str]) -> ft.EventData:
    return settle_impossible(FIRE, event_data(*sequences), "exogenous").data


def test_an_event_kept_as_history_does_what_an_exogenous_one_does():
    impossible, outside = ["spark", "burn", "burn"], ["wind", "burn", "burn"]
    both = marked(impossible, outside)
    assert both[0].unscored is not None and both[0].unscored.tolist() == [True, False, False]
    model = model_of(FIRE, both)
    batch = model.collator.batch(both, [0, 1], unscored=model.unscored)
    assert batch.scored.tolist() == [2, 2]
    value = log_likelihood(model, batch, quadrature(batch, 5)).log_likelihood()
    torch.testing.assert_close(value[0], value[1], rtol=0, atol=1e-12)
    draws = torch.rand(2, 4, 1, dtype=torch.float64)
    draws[1] = draws[0]
    loss = training_loss(model, batch, stratified(batch, 1, None, draws))
    assert bool(loss.objective.isfinite())


def test_fit_and_evaluate_name_every_sequence_with_an_impossible_event():
    bad = event_data(["wind", "burn"], ["spark"], ["wind", "spark"])  # `spark` is added by `burn` alone
    fine = bad.select([0])
    for ask in (
        lambda: ft.fit(ft.ANDTT(FIRE, bad.vocabulary, dim=2, layers=1), bad),
        lambda: ft.fit(ft.ANDTT(FIRE, bad.vocabulary, dim=2, layers=1), fine, dev=bad),
        lambda: ft.evaluate(model_of(FIRE, fine), bad),
    ):
        with pytest.raises(DataError) as caught:
            ask()
        assert [problem.partition(":")[0] for problem in caught.value.problems] == [
            "sequence s1, event 1 at time 1",
            "sequence s2, event 2 at time 2",
        ]
        assert "`burn` " in str(caught.value)  # what is missing


def test_an_unmarked_impossible_event_is_an_error_even_after_a_marked_one_was_remembered():
    data = marked(["spark", "burn"])
    model = model_of(FIRE, data)
    plain = event_data(["spark", "burn"])
    with pytest.raises(DataError, match="`spark` happens, but the program makes it impossible"):
        model.ground(plain)


def test_only_scored_events_are_scored_counted_and_predicted():
    data = marked(["spark", "burn", "burn"], ["wind", "burn"], ["spark"])
    model = model_of(FIRE, data)
    found = score_events(model, data)
    assert found.scored.tolist() == [2, 1, 0]
    assert [(s, e) for s, e in zip(found.sequence.tolist(), found.event.tolist(), strict=True)] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (2, -1),
    ]
    assert np.isfinite(found.log_likelihood).all() and found.log_likelihoods[2] < 0.0
    assert sum_scored(data, np.arange(3), "all", model.unscored) == 3
    assert ft.evaluate(model, data, times=False).events == 3


@pytest.mark.parametrize(
    "made", [lambda v: ft.Poisson(v), lambda v: ft.ANHP(v, dim=2, layers=1)], ids=["poisson", "anhp"]
)
def test_models_without_rules_score_the_same_events(made: Any):
    data = marked(["spark", "burn", "burn"], ["spark", "burn"])
    model = made(data.vocabulary)
    ft.fit(model, data, epochs=1)
    assert ft.evaluate(model, data, times=False).events == 3
    if isinstance(model, ft.Poisson):
        rate = model.log_rate.detach().exp()[data.vocabulary.index("spark")]
        assert math.isclose(float(rate), 0.5 / 2000.0), "its events are history, so only the pseudo-count is left"
