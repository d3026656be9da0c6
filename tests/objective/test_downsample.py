"""Down-sampled possible events: loss and gradient on average those of all events, drawn anew for every step, and again when repeated."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.batches.batch import Batch, Sample
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.classical.poisson import Poisson
from foretell.models.rules.andtt import ANDTT
from foretell.objective.loglik import Points, quadrature, training_loss
from foretell.train.step import StepOptions, Stepper
from tests.ground.timelines import event_data
from tests.samples import randomise

FAIR = """
:- event(buy). :- event(leave).
person(a). person(b). person(c). thing(x). thing(y).
in_shop(P) <- bos, person(P).
!in_shop(P) <- leave(P).
buy(P,T) :- in_shop(P), person(P), thing(T).
leave(P) :- in_shop(P), person(P).
thing(T) <- buy(_,T).
"""
EVENTS = ["buy(a,x)", "buy(b,y)", "leave(a)", "buy(c,x)", "leave(b)", "buy(c,y)"]
DRAWS = 600
Z = 5.5  # of a normal deviate: a false alarm in 4e-8 of cases


def fair() -> tuple[ANDTT, Batch, Points]:
    data = event_data(EVENTS, EVENTS[:2])
    model = ANDTT(Program.from_text(FAIR, dim=3), data.vocabulary, dim=3, layers=2, dtype=torch.float64)
    model.ground(data)
    randomise(model, 5)
    batch = model.collator.batch(data, [0, 1])
    return model, batch, quadrature(batch, 2)


def gradient(model: ANDTT, loss: torch.Tensor) -> torch.Tensor:
    parameters = [one for one in model.parameters() if one.requires_grad]
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat(
        [torch.zeros(p.numel()).double() if g is None else g.flatten() for p, g in zip(parameters, found, strict=True)]
    )


@pytest.mark.parametrize("pseudo_rate", [0.0, 0.3])
def test_loss_and_gradient_are_on_average_those_of_all_possible_events(pseudo_rate: float):
    model, batch, points = fair()
    whole = training_loss(model, batch, points, pseudo_rate).objective
    wanted = torch.cat([whole.detach()[None], gradient(model, whole)])
    found = []
    for seed in range(DRAWS):
        loss = training_loss(model, batch, points, pseudo_rate, sample=Sample(2, np.random.default_rng(seed))).objective
        found.append(torch.cat([loss.detach()[None], gradient(model, loss)]))
    drawn = torch.stack(found)
    error = drawn.std(0) / DRAWS**0.5
    assert error[0] > 0
    assert ((drawn.mean(0) - wanted).abs() <= Z * error + 1e-9).all()


def test_as_many_as_are_possible_are_all_of_them():
    model, batch, points = fair()
    whole = training_loss(model, batch, points).objective
    sample = Sample(9, np.random.default_rng(0))
    assert training_loss(model, batch, points, sample=sample).objective.item() == whole.item()


def test_a_step_draws_its_own_events_and_draws_them_again_when_it_is_repeated():
    model, batch, _ = fair()
    stepper = Stepper(model, 0.0, StepOptions(integral="quadrature", downsample=2, points=2, seed=1))
    losses = [float(stepper(batch, number)) for number in (0, 1, 2, 0)]
    assert losses[0] == losses[3] and len(set(losses)) == 3


def test_threads_do_not_change_what_is_drawn():
    model, batch, _ = fair()
    before = torch.get_num_threads()
    losses = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            stepper = Stepper(model, 0.0, StepOptions(integral="quadrature", downsample=2, piece=1, seed=1))
            losses.append(float(stepper(batch, 4)))
    finally:
        torch.set_num_threads(before)
    assert losses[0] == losses[1]


def test_a_model_without_rules_refuses():
    with pytest.raises(ForetellError, match="down-sampling of possible events is for models made of rules, not for"):
        Stepper(Poisson(3), 1e-3, StepOptions(downsample=2))
