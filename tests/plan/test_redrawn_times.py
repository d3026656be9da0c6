"""A model of rules that was trained on times drawn afresh scores the same under an integral that it never saw."""

from __future__ import annotations

import pytest
import torch

from foretell.data import EventData
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.objective.loglik import log_likelihood, stratified
from foretell.train.fit import Fit, fit
from foretell.train.step import Stepper
from tests.train.small import exciting, options

BURSTS = """
:- event({0}). :- event({1}).
mood.
{0} :- mood. {1} :- mood.
mood <- {0}. mood <- {1}.
{0} <- {0}. {1} <- {1}.
"""


def trained(train: EventData) -> tuple[ANDTT, Fit]:
    """With waves that are short enough to hit single times."""
    program = Program.from_text(BURSTS.format(*train.vocabulary.names), dim=8)
    sizes = {"dim": 8, "layers": 1, "time_dim": 12, "shortest_wave": 1e-3}
    model = ANDTT.preset("plain", program, train.vocabulary, **sizes)
    return model, fit(model, train, None, options(epochs=60, batch=8, lr=0.02, patience=0, cool=0, seed=1))


def independent(model: ANDTT, train: EventData) -> float:
    batch = model.collator.batch(train, range(len(train)))
    with torch.no_grad():
        value = log_likelihood(model, batch, stratified(batch, 100, torch.Generator().manual_seed(99)))
    return float(value.log_likelihood().sum()) / int(batch.scored.sum())


def test_what_was_trained_on_redrawn_times_scores_the_same_under_an_independent_integral():
    train = exciting(8, 4, 12.0)
    model, result = trained(train)
    late = [record["train"] for record in result.records[-15:]]
    assert independent(model, train) == pytest.approx(sum(late) / len(late), abs=0.15)


def test_what_was_trained_on_times_held_fixed_does_not(monkeypatch: pytest.MonkeyPatch):
    train = exciting(8, 4, 12.0)
    call = Stepper.__call__
    monkeypatch.setattr(Stepper, "__call__", lambda self, batch, number: call(self, batch, 0))
    model, result = trained(train)
    assert result.best > independent(model, train) + 0.5
