"""What an A-NDTT remembers between questions: it never changes an answer, it is bounded, and copies and pickles do without it."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from foretell.batches import rule_collator as andtt_plans
from foretell.batches import timelines as andtt_histories
from foretell.batches.batch import Queries
from foretell.data import EventData
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.objective.loglik import log_likelihood, quadrature
from foretell.train.fit import fit
from tests.asking import state_at
from tests.ground.timelines import event_data
from tests.samples import randomise

LETTERS = """
:- event(say).
letter(a). letter(b). letter(c).
mood.
mood <- say(X) :: heard(X).
say(X) :- mood, letter(X) :: said(X).
"""


def letters(*sequences: list[str]) -> tuple[ANDTT, EventData]:
    data = event_data(*sequences)
    model = ANDTT(Program.from_text(LETTERS, dim=2), data.vocabulary, dim=2, layers=1, dtype=torch.float64)
    model.ground(data)
    randomise(model, 3)
    return model, data


def value(model: ANDTT, data: EventData) -> torch.Tensor:
    batch = model.collator.batch(data, range(len(data)))
    return log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood()


def test_a_model_that_met_new_values_in_between_goes_on_learning():
    data = event_data(["say(a)", "say(a)"], ["say(c)", "say(b)"])
    train, other = EventData([data[0]], data.vocabulary), EventData([data[1]], data.vocabulary)
    model = ANDTT(Program.from_text(LETTERS, dim=2), data.vocabulary, dim=2, layers=1)
    before = fit(model, train, None, epochs=2, batch=1)
    with torch.no_grad():
        assert torch.isfinite(value(model, other)).all()
    after = fit(model, train, None, epochs=2, batch=1)
    assert after.best >= before.best


def test_padding_that_stands_elsewhere_is_another_question():
    model, data = letters(["say(a)", "say(b)"])
    batch = model.collator.batch(data, [0])
    times = torch.tensor([[0.5, 1.5, 1.6]], dtype=torch.float64)
    found = {}
    for seen in ([0, 9, 1], [0, 1, 9]):
        queries = Queries.seeing(times, torch.tensor([seen]))
        found[tuple(seen)] = model.total(state_at(model, batch, queries))[0]
    alone = letters(["say(a)", "say(b)"])[0]
    queries = Queries.seeing(times, torch.tensor([[0, 1, 9]]))
    other = alone.collator.batch(data, [0])
    torch.testing.assert_close(found[0, 1, 9], alone.total(state_at(alone, other, queries))[0])


def test_what_is_remembered_is_bounded_and_questions_at_odd_times_are_not(monkeypatch: pytest.MonkeyPatch):
    model, data = letters(["say(a)", "say(b)", "say(a)"], ["say(b)"], ["say(c)", "say(c)"])
    monkeypatch.setattr(andtt_plans, "KEPT_SLOTS", 60)
    monkeypatch.setattr(andtt_histories, "KEPT_SLOTS", 60)
    expected = [value(model, EventData([one], data.vocabulary)) for one in data]
    assert 0 < len(model.collator.plans) < 3
    for one, wanted in zip(data, expected, strict=True):
        torch.testing.assert_close(value(model, EventData([one], data.vocabulary)), wanted)
    torch.testing.assert_close(value(model, data), torch.cat(expected))
    assert model.histories._slots.size <= 60
    known = len(model.collator.plans)
    model.intensity(data[0], [0.3, 0.9])
    assert len(model.collator.plans) == known


def test_a_copy_and_a_pickle_give_the_same_numbers():
    model, data = letters(["say(a)", "say(b)"], ["say(c)"])
    expected = value(model, data)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(value(other, data), expected)
