"""NDTT and S2-NDTT on a GPU: the numbers of the CPU, and steps that are taken one by one and not captured."""

from __future__ import annotations

import pytest
import torch

from foretell.batches.batch import Batch
from foretell.data import EventData, EventSequence, load
from foretell.lang.program import Program
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.objective.loglik import stratified, training_loss
from foretell.train.step import StepOptions, Stepper

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DATA = load("robocup")
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def model(dtype: torch.dtype = torch.float32, kind: type[NDTT] | type[S2NDTT] = NDTT) -> NDTT | S2NDTT:
    assert DATA.train is not None
    made = kind(Program.named("robocup", dim=16), DATA.vocabulary, dim=16, dtype=dtype)
    made.prepare(DATA.train)
    return made


def starts(made: NDTT | S2NDTT, events: int) -> Batch:
    assert DATA.train is not None
    pieces = [
        EventSequence(one.times[:events], one.types[:events], float(one.times[events]), one.id) for one in DATA.train
    ]
    return made.collator.batch(EventData(pieces, DATA.vocabulary), range(len(pieces)), device=made.device)


def loss_and_gradients(made: NDTT | S2NDTT, batch: Batch) -> list[torch.Tensor]:
    draws = torch.linspace(0.1, 0.9, batch.gap_start.numel(), dtype=torch.float64, device=batch.times.device)
    made.zero_grad()
    points = stratified(batch, 1, None, draws.view(*batch.gap_start.shape, 1))
    loss = training_loss(made, batch, points).objective
    loss.backward()
    return [loss.detach().cpu(), *(p.grad.cpu().clone() for p in made.parameters() if p.grad is not None)]


@pytest.mark.parametrize("kind", [NDTT, S2NDTT])
def test_loss_and_gradients_on_cuda_are_those_on_the_cpu(kind: type[NDTT] | type[S2NDTT]):
    made = model(torch.float64, kind)
    there = loss_and_gradients(made, starts(made, 120))
    here = loss_and_gradients(made.to(CUDA), starts(made, 120))
    for one, other in zip(there, here, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_steps_on_cuda_are_those_on_the_cpu_and_none_is_captured():
    losses = []
    for device in (CPU, CUDA):
        made = model(torch.float64).to(device)
        stepper = Stepper(made, 1e-3, StepOptions(integral="quadrature", points=2))
        losses.append([float(stepper(starts(made, 60), number)) for number in range(4)])
        assert not stepper.executor.graphs
    assert losses[0] == pytest.approx(losses[1], rel=1e-7) and losses[0][-1] < losses[0][0]
