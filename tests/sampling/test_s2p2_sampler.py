"""Bounds of an S2P2 hold whatever its weights and however long the windows, and are as tight as pays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.data import EventSequence, Vocabulary
from foretell.models.state_space.s2p2 import S2P2
from foretell.sampling.core.futures import sample_futures, sample_next
from foretell.sampling.core.start import start_sampler
from tests.samples import randomise
from tests.sampling.test_bounds import broken, histories, outside


def stirred(size: float, seed: int, layers: int = 2, turns: float = 1.0) -> S2P2:
    """With random parameters; `turns` makes frequencies larger."""
    model = randomise(S2P2(Vocabulary.of_size(3), dim=6, layers=layers, states=4, dtype=torch.float64), seed, size)
    model.time_scale = 0.7
    with torch.no_grad():
        for layer in model.layer_list():
            layer.frequency.mul_(turns)
    return model


def fresh(seed: int) -> S2P2:
    """As training starts from, with louder intensities."""
    model = S2P2(Vocabulary.of_size(3), dim=16, layers=2, states=4, dtype=torch.float64, seed=seed)
    with torch.no_grad():
        model.w.mul_(5.0)
        model.w_constant.fill_(-0.5)
    return model


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("turns", [1.0, 30.0])
@pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
def test_no_intensity_of_a_random_model_is_outside_its_bounds(size: float, turns: float, layers: int):
    tried = 0
    for seed in range(3):
        wrong, count = broken(stirred(size, seed, layers, turns), histories(6, seed), 60, 66, seed)
        assert wrong == 0
        tried += count
    assert tried * 12 > 800_000  # all cases together


def test_bounds_hold_as_events_are_taken_in():
    count, draw = 5, np.random.default_rng(8)
    pasts = histories(count, seed=7)
    sampler = start_sampler(stirred(1.0, 3), pasts, [len(one) for one in pasts])
    now = torch.full((count,), 10.0, dtype=torch.float64)
    for _ in range(30):
        now = now + torch.from_numpy(draw.exponential(0.2, count))
        sampler.append(now, torch.from_numpy(draw.integers(-1, 3, count)))
        start = now[:, None] + torch.from_numpy(draw.uniform(0.0, 1.0, (count, 4)))
        length = torch.from_numpy(10.0 ** draw.uniform(-3.0, 0.0, (count, 4)))
        times = start[..., None] + length[..., None] * torch.linspace(0.0, 1.0, 40, dtype=torch.float64)
        rates = sampler.intensities(times.flatten(1)).unflatten(1, times.shape[1:])
        assert outside(sampler.bounds(start, start + length), start, length, times, rates) == 0


def test_windows_that_begin_at_the_last_event_have_bounds_that_hold():
    """Where decays are fastest, and from windows of no length to those that go on for ever."""
    model, pasts = stirred(2.0, 3), histories(8, seed=3)
    sampler = start_sampler(model, pasts, [len(one) for one in pasts])
    since = torch.tensor([one.times[-1] if len(one) else 0.0 for one in pasts], dtype=torch.float64)
    start = since[:, None].expand(8, 40)
    length = torch.cat([torch.zeros(1), 10.0 ** torch.linspace(-9.0, 6.0, 39)]).double()
    bounds = sampler.bounds(start, start + length)
    times = start[..., None] + length[:, None] * torch.linspace(0.0, 1.0, 61, dtype=torch.float64)
    total = sampler.intensities(times.flatten(1)).sum(-1).view_as(times)
    assert bool((total <= bounds.upper[..., None]).all())
    assert bool(bounds.upper.isfinite().all())


def test_on_a_window_that_nothing_is_known_of_the_last_layer_norm_still_bounds_the_scores():
    """With weights of all signs, no score is beyond what a vector of length √H without a mean can make of them."""
    model, pasts = stirred(1.0, 5, turns=1e9), histories(6, seed=3)
    sampler = start_sampler(model, pasts, [len(one) for one in pasts])
    start = torch.full((6, 1), 10.0, dtype=torch.float64)
    bounds = sampler.bounds(start, start + 50.0)
    norm = model.layer_list()[-1].norm
    weights = model.w * norm.weight
    swing = model.dim**0.5 * (weights - weights.mean(-1, keepdim=True)).norm(dim=-1)
    tau = model.log_tau.exp()
    most = tau * torch.nn.functional.softplus((model.w_constant + model.w @ norm.bias + swing) / tau)
    expected = float(most.sum().detach()) / model.time_scale
    assert bounds.upper.flatten().tolist() == pytest.approx([expected] * 6, rel=1e-6)


def test_times_as_large_as_unix_time_do_not_break_bounds():
    model, late = stirred(1.0, 2), 1.7e9
    past = EventSequence(late + np.array([0.5, 0.7, 3.1]), np.array([0, 1, 1]), late + 4.0, "late")
    sampler = start_sampler(model, [past], [3])
    start = (late + 4.0 + 0.03 * torch.arange(60, dtype=torch.float64))[None]
    bounds = sampler.bounds(start, start + 0.03)
    times = start[..., None] + 0.03 * torch.linspace(0.0, 1.0, 31, dtype=torch.float64)
    total = sampler.intensities(times.flatten(1)).sum(-1).view_as(times)
    assert bool((total <= bounds.upper[..., None]).all())


@pytest.mark.parametrize("large", [1e3, 1e6])
def test_rounding_of_scores_that_cancel_does_not_break_bounds(large: float):
    model = stirred(0.5, 4)
    with torch.no_grad():
        model.w.mul_(large)
        model.w_constant.copy_(-(model.w * 0.01).sum(1))
    pasts = histories(4, seed=7)
    sampler = start_sampler(model, pasts, [len(one) for one in pasts])
    start = torch.linspace(10.0, 30.0, 30, dtype=torch.float64).expand(4, 30)
    length = 10.0 ** torch.linspace(-12.0, 1.0, 30, dtype=torch.float64)
    bounds = sampler.bounds(start, start + length)
    times = start[..., None] + length[:, None] * torch.linspace(0.0, 1.0, 41, dtype=torch.float64)
    total = sampler.intensities(times.flatten(1)).sum(-1).view_as(times)
    assert bool((total <= bounds.upper[..., None]).all())


def test_bounds_are_tight_on_windows_of_a_hundredth_of_the_models_unit():
    pasts = histories(8, seed=3)
    sampler = start_sampler(fresh(1), pasts, [len(one) for one in pasts])
    start = torch.linspace(10.0, 12.0, 20, dtype=torch.float64).expand(8, 20)
    bounds = sampler.bounds(start, start + 0.01)
    times = start[..., None] + 0.01 * torch.linspace(0.0, 1.0, 21, dtype=torch.float64)
    most = sampler.intensities(times.flatten(1)).sum(-1).view_as(times).amax(-1)
    assert float((bounds.upper / most).quantile(0.9)) < 1.05


def test_futures_make_few_bounds_and_loose_ones():
    past = histories(1, seed=5)[0]
    (found,) = sample_futures(fresh(2), [past], n=10, horizon=1e9, events=20, seed=1)
    cost = found.cost
    assert cost.accepted == 200
    assert cost.bounds / cost.accepted < 3.0
    assert cost.pieces / cost.accepted < 10.0
    assert cost.proposals / cost.accepted < 100.0


def test_thousands_of_draws_from_one_past_share_many_bounds_and_tight_ones():
    past = histories(1, seed=5)[0]
    (found,) = sample_next(fresh(2), [past], n=20_000, horizon=1e9, seed=1)
    cost = found.cost
    assert cost.accepted == 20_000
    assert cost.pieces < 5_000
    assert cost.proposals / cost.accepted < 2.0
