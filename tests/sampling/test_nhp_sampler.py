"""Bounds of an NHP hold whatever its weights and however long the windows, and are tight enough for a handful of proposals per event."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.data import EventSequence, Vocabulary
from foretell.models.recurrent.nhp import NHP
from foretell.models.recurrent.nhp_sampler import Cell
from foretell.sampling.core.futures import sample_futures
from foretell.sampling.core.start import start_sampler
from tests.samples import randomise
from tests.sampling.test_bounds import broken, histories


def stirred(size: float, seed: int, dim: int = 6) -> NHP:
    model = NHP(Vocabulary.of_size(3), dim=dim, dtype=torch.float64, seed=seed)
    model.time_scale = 0.7
    return randomise(model, seed, size)


@pytest.mark.parametrize("size", [0.3, 1.0, 3.0, 10.0])
def test_no_intensity_of_a_random_model_is_above_its_bound(size: float):
    tried = 0
    for seed in range(6):
        above, count = broken(stirred(size, seed), histories(6, seed), 60, 66, seed)
        assert above == 0
        tried += count
    assert tried > 100_000


@pytest.mark.parametrize("large", [1e3, 1e6])
def test_rounding_of_scores_that_cancel_does_not_break_bounds(large: float):
    """Weights of the intensity that are large and of both signs, on memories that hardly move."""
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


def test_rounding_of_scores_of_saturated_memories_does_not_break_bounds():
    """Where `tanh` is flat nothing moves, and sums of large weights that cancel are rounded all the same."""
    for seed, (dim, types) in enumerate([(33, 1), (96, 3), (200, 7)] * 4):
        draw = torch.Generator().manual_seed(seed)
        model = NHP(Vocabulary.of_size(types), dim=dim, dtype=torch.float64)
        memory = torch.randn(1, dim, generator=draw, dtype=torch.float64).sign() * 40.0
        output = torch.rand(1, dim, generator=draw, dtype=torch.float64)
        h = output * memory.tanh()
        with torch.no_grad():
            model.w.copy_(torch.randn(types, dim, generator=draw, dtype=torch.float64) * 1e8)
            model.w.sub_((model.w @ h.T) * h / h.square().sum())
        sampler = start_sampler(model, [EventSequence(np.empty(0), np.empty(0, dtype=np.int32), 1.0)], [0])
        sampler.cell = Cell(memory, memory, torch.ones_like(memory), output, memory.new_zeros(1))
        start = torch.linspace(1.0, 2.0, 5, dtype=torch.float64)[None]
        upper = sampler.bounds(start, start + 0.1).upper
        for part in (0.0, 0.3, 1.0):
            for one in range(5):  # one time is multiplied in another order than many
                found = sampler.intensities(start[:, one : one + 1] + 0.1 * part).sum()
                assert float(found) <= float(upper[0, one])


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


def test_times_as_large_as_unix_time_do_not_break_bounds():
    model, late = stirred(1.0, 2), 1.7e9
    past = EventSequence(late + np.array([0.5, 0.7, 3.1]), np.array([0, 1, 1]), late + 4.0, "late")
    sampler = start_sampler(model, [past], [3])
    start = (late + 4.0 + 0.03 * torch.arange(60, dtype=torch.float64))[None]
    bounds = sampler.bounds(start, start + 0.03)
    times = start[..., None] + 0.03 * torch.linspace(0.0, 1.0, 31, dtype=torch.float64)
    total = sampler.intensities(times.flatten(1)).sum(-1).view_as(times)
    assert bool((total <= bounds.upper[..., None]).all())


def test_bounds_are_tight_on_windows_of_a_tenth_of_the_models_unit():
    model, pasts = stirred(0.6, 1), histories(8, seed=3)
    sampler = start_sampler(model, pasts, [len(one) for one in pasts])
    start = torch.linspace(10.0, 12.0, 20, dtype=torch.float64).expand(8, 20)
    bounds = sampler.bounds(start, start + 0.07)
    times = start[..., None] + 0.07 * torch.linspace(0.0, 1.0, 21, dtype=torch.float64)
    most = sampler.intensities(times.flatten(1)).sum(-1).view_as(times).amax(-1)
    assert float((bounds.upper / most).quantile(0.9)) < 1.05


@pytest.mark.parametrize("size", [0.3, 1.0])
def test_an_event_costs_a_handful_of_proposals_and_windows(size: float):
    past = histories(1, seed=5)[0]
    (found,) = sample_futures(stirred(size, 5, dim=16), [past], n=10, horizon=1e9, events=20, seed=1)
    cost = found.cost
    assert cost.accepted == 200
    assert (cost.proposals + cost.bounds) / cost.accepted < 6.0
    assert cost.pieces / cost.accepted < 20.0
