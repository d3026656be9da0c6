"""Sampler of THP and SAHP: bounds from both ends of a window hold for weights of any size, and are as tight as the window is short."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from foretell.data import EventSequence, Vocabulary
from foretell.models.last_event.last_event import LastEventModel
from foretell.models.last_event.sahp import SAHP
from foretell.models.last_event.thp import THP
from foretell.sampling.core.futures import sample_futures
from foretell.sampling.core.start import start_sampler
from tests.sampling.processes import PAST, sahp, thp

OPTIONS: list[dict[str, Any]] = [{}, {"heads": 3, "layers": 1}, {"layer_norm": False}, {"feed_forward": 0}]


@pytest.fixture(params=[THP, SAHP], ids=lambda cls: cls.title)
def cls(request: pytest.FixtureRequest) -> type[LastEventModel]:
    return request.param


def stirred(cls: type[LastEventModel], size: float, seed: int, options: dict[str, Any]) -> LastEventModel:
    model = cls(Vocabulary.of_size(3), dim=6, dtype=torch.float64, seed=seed, **options)
    model.time.set_range(0.05, 20.0)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=random, dtype=torch.float64))
    return model


def histories(count: int, seed: int) -> list[EventSequence]:
    draw = np.random.default_rng(seed)
    return [
        EventSequence(np.sort(draw.uniform(0.0, 10.0, n)), draw.integers(0, 3, n), 10.0, str(row))
        for row, n in enumerate(draw.integers(0, 25, count))
    ]


def above(model: LastEventModel, pasts: list[EventSequence], start: torch.Tensor, length: torch.Tensor) -> int:
    """How many times in windows, their ends among them, have an intensity above the bound of their window."""
    sampler = start_sampler(model, pasts, [len(one) for one in pasts])
    bounds = sampler.bounds(start, start + length)
    share = torch.rand(*start.shape, 66, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    times = start[..., None] + length[..., None] * share
    times[..., 0], times[..., 1] = start, start + length
    total = sampler.intensities(times.flatten(1)).sum(-1).view_as(times)
    return int((total > bounds.upper[..., None]).sum())


@pytest.mark.parametrize("size", [0.3, 2.0, 10.0])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_intensity_of_a_random_model_is_above_its_bound(
    cls: type[LastEventModel], options: dict[str, Any], size: float
):
    for seed in range(4):
        draw = torch.Generator().manual_seed(seed)
        start = 10.0 + 20.0 * torch.rand(6, 100, generator=draw, dtype=torch.float64)
        length = 10.0 ** (4.5 * torch.rand(6, 100, generator=draw, dtype=torch.float64) - 4.0)
        assert above(stirred(cls, size, seed, options), histories(6, seed), start, length) == 0


@pytest.mark.parametrize("large", [1e3, 1e8])
def test_rounding_of_large_levels_that_cancel_does_not_break_bounds(cls: type[LastEventModel], large: float):
    """Asymptotes far below and starts far above, or levels far below and slopes that reach them: scores are small differences."""
    model = stirred(cls, 0.3, 2, {})
    pasts = [EventSequence(np.array([1.0, 2.0]), np.array([0, 1]), 2.0, "p")]
    with torch.no_grad():
        if isinstance(model, THP):
            model.w_constant.sub_(large)
            model.w_elapsed.fill_(large)  # the score is small at twice the last event's time
        else:
            assert isinstance(model, SAHP)
            model.w_constant[:3] -= large
            model.w_constant[3:6] += large
            model.w_constant[6:] = 1.0
            model.w[6:] = 0.0
            model.log_nu.zero_()
    crossing = 4.0 if isinstance(model, THP) else 2.0 + float(np.log(2.0)) / float(np.log1p(np.e))
    start = crossing + torch.linspace(-1e-6, 1e-6, 200, dtype=torch.float64)[None]
    length = (10.0 ** torch.linspace(-15.0, -6.0, 200, dtype=torch.float64))[None]
    assert above(model, pasts, start, length) == 0


def test_times_as_large_as_unix_time_do_not_break_bounds(cls: type[LastEventModel]):
    late = 1.7e9
    past = EventSequence(late + np.array([0.5, 0.7, 3.1]), np.array([0, 1, 1]), late + 4.0, "late")
    start = (late + 4.0 + 0.03 * torch.arange(60, dtype=torch.float64))[None]
    assert above(stirred(cls, 1.0, 2, {}), [past], start, torch.full_like(start, 0.03)) == 0


def test_bounds_are_tight_on_short_windows(cls: type[LastEventModel]):
    pasts = histories(8, seed=3)
    sampler = start_sampler(stirred(cls, 0.3, 1, {}), pasts, [len(one) for one in pasts])
    start = torch.linspace(10.0, 12.0, 20, dtype=torch.float64).expand(8, 20)
    bounds = sampler.bounds(start, start + 0.02)
    assert float((bounds.upper / bounds.middle).max()) < 1.05


@pytest.mark.parametrize("build", [thp, sahp])
def test_few_proposals_and_bounds_are_needed(build):
    (found,) = sample_futures(build(), [PAST], n=20, horizon=30.0, seed=6)
    assert found.cost.accepted > 300
    assert (found.cost.proposals + found.cost.bounds) / found.cost.accepted < 5.0


def test_one_more_event_costs_one_more_row(cls: type[LastEventModel]):
    """Tables grow by halves, so that most events find room; what was written before stays as it is."""
    model = stirred(cls, 0.3, 1, {})
    pasts = histories(3, seed=4)
    sampler = start_sampler(model, pasts, [len(one) for one in pasts])
    before = [(keys.clone(), values.clone()) for keys, values in sampler.past]  # pyright: ignore[reportAttributeAccessIssue]
    rows = max(len(one) for one in pasts) + 1
    sampler.append(torch.full((3,), 11.0, dtype=torch.float64), torch.tensor([0, -1, 2]))
    sampler.append(torch.full((3,), 12.0, dtype=torch.float64), torch.tensor([1, -1, 0]))
    for sequence, past in enumerate(pasts):
        seen = len(past) + 1
        for (keys, values), (old_keys, old_values) in zip(sampler.past, before, strict=True):  # pyright: ignore[reportAttributeAccessIssue]
            assert torch.equal(keys[sequence, :seen], old_keys[sequence, :seen])
            assert torch.equal(values[sequence, :seen], old_values[sequence, :seen])
            assert keys.shape[1] in (rows, rows + 16)
    assert sampler.rows.tolist() == [len(past) + 1 + 2 * (sequence != 1) for sequence, past in enumerate(pasts)]  # pyright: ignore[reportAttributeAccessIssue]
