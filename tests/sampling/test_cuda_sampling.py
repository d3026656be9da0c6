"""On a GPU: the same seed gives the futures of the CPU, whose random numbers it uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.sampling.core.futures import sample_futures, sample_next
from foretell.sampling.core.start import start_sampler
from tests.sampling.processes import MODELS, PAST

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("build", MODELS)
def test_futures_on_cuda_are_those_on_the_cpu(build):
    (there,) = sample_futures(build().to("cuda"), [PAST], n=6, horizon=5.0, seed=4)
    (here,) = sample_futures(build(), [PAST], n=6, horizon=5.0, seed=4)
    assert sum(len(one.events) for one in here.futures) > 20
    for one, other in zip(there.futures, here.futures, strict=True):
        assert one.events == other.events and one.end == other.end
        np.testing.assert_allclose(one.times, other.times, rtol=1e-9)
    assert there.to_json() == sample_futures(build().to("cuda"), [PAST], n=6, horizon=5.0, seed=4)[0].to_json()


@pytest.mark.parametrize("build", MODELS)
def test_next_events_on_cuda_are_those_on_the_cpu(build):
    (there,) = sample_next(build().to("cuda"), [PAST], n=200, horizon=5.0, seed=4)
    (here,) = sample_next(build(), [PAST], n=200, horizon=5.0, seed=4)
    assert there.events == here.events
    np.testing.assert_allclose(there.times, here.times, rtol=1e-9)


@pytest.mark.parametrize("build", MODELS)
def test_bounds_hold_on_cuda(build):
    sampler = start_sampler(build().to("cuda"), [PAST], [len(PAST)])
    start = torch.linspace(2.2, 9.0, 60, dtype=torch.float64, device="cuda")[None]
    bounds = sampler.bounds(start, start + 0.1)
    times = start[..., None] + 0.1 * torch.linspace(0.0, 1.0, 41, dtype=torch.float64, device="cuda")
    total = sampler.intensities(times.flatten(1)).sum(-1).view_as(times)
    assert bool((total <= bounds.upper[..., None]).all())
