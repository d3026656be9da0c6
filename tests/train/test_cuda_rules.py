"""Models of rules on a GPU: the numbers of the CPU, by kernels or without, captured or not, in launches that do not grow with a game."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from foretell.batches.batch import Batch
from foretell.data import EventData, EventSequence, load
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.nn import range_attention as module
from foretell.nn.range_attention import range_attention, range_tiles
from foretell.objective.loglik import stratified, training_loss
from foretell.train.likelihood_task import mean_log_likelihood
from foretell.train.step import StepOptions, Stepper

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DATA = load("robocup")
CUDA = torch.device("cuda")


def model(dim: int = 16, dtype: torch.dtype = torch.float32) -> ANDTT:
    made = ANDTT(Program.named("robocup", dim=dim), DATA.vocabulary, dim=dim, layers=2, dtype=dtype)
    made.prepare(DATA.train)
    return made


def start(made: ANDTT, events: int) -> Batch:
    whole = DATA.train[0]
    piece = EventSequence(whole.times[:events], whole.types[:events], float(whole.times[events]), "start")
    return made.collator.batch(EventData([piece], DATA.vocabulary), [0], device=made.device)


def loss_and_gradients(made: ANDTT, batch: Batch) -> list[torch.Tensor]:
    draws = torch.linspace(0.1, 0.9, batch.gap_start.numel(), dtype=torch.float64, device=batch.times.device)
    made.zero_grad()
    loss = training_loss(made, batch, stratified(batch, 1, None, draws.view(1, -1, 1))).objective
    loss.backward()
    return [loss.detach().cpu(), *(p.grad.cpu().clone() for p in made.parameters() if p.grad is not None)]


def test_loss_and_gradients_on_cuda_are_those_on_the_cpu():
    made = model(dtype=torch.float64)
    there = loss_and_gradients(made, start(made, 150))
    here = loss_and_gradients(made.to(CUDA), start(made, 150))
    for a, b in zip(there, here, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


def test_log_likelihoods_on_cuda_are_those_on_the_cpu():
    made = model(dtype=torch.float64)
    on_cpu = mean_log_likelihood(made, DATA.dev, 2)
    assert mean_log_likelihood(made.to(CUDA), DATA.dev, 2) == pytest.approx(on_cpu, rel=1e-10)


@pytest.mark.parametrize(("wide", "deep"), [(9, 4), (16, 16), (72, 32), (136, 64), (200, 96)])
@pytest.mark.parametrize("seed", range(3))
def test_kernels_attend_as_plain_products_do(seed: int, wide: int, deep: int, monkeypatch: pytest.MonkeyPatch):
    draw = np.random.default_rng(seed)
    ends = np.sort(draw.integers(0, 701, size=(5000, 2)), axis=1)
    ends = ends[np.argsort(ends[:, 0])]
    rows = draw.integers(0, 900, 5000)
    tiles = range_tiles(ends[:, 0], ends[:, 1], 700, device=CUDA, rows=rows, queries=900)
    generator = torch.Generator().manual_seed(seed)
    x, k, v = (torch.randn(n, d, generator=generator).to(CUDA) for n, d in ((900, wide), (700, wide), (700, deep)))
    x *= wide**-0.5 * (1.0 + 9.0 * (seed == 2))  # also with large logits
    weight = torch.randn(900, deep, generator=generator).to(CUDA)
    found = {}
    for kernels in (True, False):
        if not kernels:
            monkeypatch.setattr(module, "runs_by_kernels", lambda *given: False)
        given = [one.double() if not kernels else one for one in (x, k, v)]
        for one in given:
            one.requires_grad_()
        out = range_attention(given[0], given[1], given[2], tiles)
        found[kernels] = [out.detach(), *torch.autograd.grad((out * weight).sum(), given)]
    for a, b in zip(found[True], found[False], strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2e-4, atol=2e-5 * float(b.abs().max()))


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_kernels_are_safe_with_logits_of_any_size(size: float):
    tiles = range_tiles(np.array([0, 0]), np.array([2, 0]), 2, device=CUDA)
    x = torch.tensor([[1.0] * 16, [1.0] * 16], device=CUDA, requires_grad=True)
    k = torch.tensor([[size / 16] * 16, [(size - 1.0) / 16] * 16], device=CUDA, requires_grad=True)
    v = torch.tensor([[1.0] * 4, [3.0] * 4], device=CUDA, requires_grad=True)
    found = range_attention(x, k, v, tiles)
    found.sum().backward()
    share = torch.sigmoid(torch.tensor(1.0))
    expected = share * 1.0 + (1.0 - share) * 3.0 if size > 0 else torch.tensor(0.0)
    torch.testing.assert_close(found[0, 0].detach().cpu(), expected, rtol=1e-2, atol=1e-6)
    assert not found[1].any()
    assert all(t.grad is not None and torch.isfinite(t.grad).all() for t in (x, k, v))


def test_captured_steps_are_the_eager_ones_also_for_several_games_in_turn():
    losses = {}
    for capture in (False, True):
        made = model(dtype=torch.float64).to(CUDA)
        batches = [made.collator.batch(DATA.train, rows, device=CUDA) for rows in ([0], [1, 0])]
        stepper = Stepper(made, 1e-3, StepOptions(capture=capture))
        losses[capture] = [float(stepper(batches[number % 2], number)) for number in range(6)]
    assert losses[True] == pytest.approx(losses[False], rel=1e-9)
    assert len(set(losses[True])) == 6


def launches(events: int) -> int:
    made = model(32).to(CUDA)
    stepper, batch = Stepper(made, 1e-3, StepOptions(capture=False)), start(made, events)
    for number in range(3):
        stepper(batch, number)
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        stepper(batch, 3)
        torch.cuda.synchronize()
    return sum(one.device_type == DeviceType.CUDA for one in seen.events())


def test_a_step_takes_as_many_launches_for_a_long_game_as_for_a_short_one():
    short, long = launches(400), launches(1335)
    assert long <= 1000
    assert abs(long - short) <= 0.2 * long


def test_down_sampled_steps_learn_on_cuda():
    made = model().to(CUDA)
    stepper, batch = Stepper(made, 1e-2, StepOptions(downsample=5)), start(made, 300)
    losses = [float(stepper(batch, number)) for number in range(30)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
