"""The score of early stopping: the same whether its points are looked at together or in parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.lang.program import Program
from foretell.models import base
from foretell.models.base import IntensityModel
from foretell.models.rules import rule_model as ruled
from foretell.models.rules.andtt import ANDTT
from foretell.train.likelihood_task import mean_log_likelihood
from tests.samples import randomise
from tests.train.small import exciting, small_model

RULES = """
:- event({0}). :- event({1}).
mood. {0} :- mood. {1} :- mood.
mood <- {0}. mood <- {1}.
"""


def of_rules() -> IntensityModel:
    data = exciting(3, 1)
    program = Program.from_text(RULES.format(*data.vocabulary.names), dim=3)
    made = ANDTT(program, data.vocabulary, dim=3, layers=1, dtype=torch.float64)
    made.ground(data)
    return randomise(made, 2)


@pytest.mark.parametrize("kind", ["anhp", "andtt"])
def test_points_in_parts_score_what_they_score_together(kind: str, monkeypatch: pytest.MonkeyPatch):
    data = exciting(3, 1)
    model = of_rules() if kind == "andtt" else small_model(data, dtype=torch.float64)
    together = mean_log_likelihood(model, data, 7)
    assert together == mean_log_likelihood(model, data, 7)
    gaps = sum(len(one) + 1 for one in data)
    monkeypatch.setitem(ruled.EVENTS_AT_A_TIME, "cpu", 2 * 3 * gaps)
    monkeypatch.setitem(base.QUERIES_AT_A_TIME, "cpu", 3 * gaps)
    monkeypatch.setattr("foretell.train.likelihood_task._fitting", lambda data, model, points: [np.arange(len(data))])
    apart = mean_log_likelihood(model, data, 7)
    assert apart == pytest.approx(together, rel=0.2)  # other batches draw other times
    monkeypatch.setitem(ruled.EVENTS_AT_A_TIME, "cpu", 1 << 30)
    monkeypatch.setitem(base.QUERIES_AT_A_TIME, "cpu", 1 << 30)
    assert mean_log_likelihood(model, data, 7) == pytest.approx(apart, rel=1e-12)
