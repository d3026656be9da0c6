"""An S2P2 in float32 where gaps are from a millionth of the mean gap to a million times it: finite, and what float64 says."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from foretell.batches.batch import make_batch
from foretell.data import EventData
from foretell.models.state_space.s2p2 import S2P2
from foretell.objective.loglik import log_likelihood, quadrature, training_loss
from tests.samples import event_data


def spread_data(seed: int, late: float = 0.0) -> EventData:
    """Sequences whose gaps are log-uniform from 1e-6 to 1e6."""
    random = np.random.default_rng(seed)
    rows = []
    for length in (60, 35):
        gaps = 10.0 ** random.uniform(-6.0, 6.0, length)
        rows.append(((late + gaps.cumsum()).tolist(), random.integers(0, 3, length).tolist()))
    return event_data(rows, t_end=late + max(times[-1] for times, _ in rows) + 1.0)


def pair(seed: int) -> tuple[S2P2, S2P2]:
    """One model in both precisions, with the same numbers."""
    single = S2P2(3, seed=seed, dim=16, layers=3, states=8)
    with torch.no_grad():
        single.w.mul_(10.0)
    return single, copy.deepcopy(single).double()


def gradients(model: S2P2, data: EventData) -> dict[str, Tensor]:
    batch = make_batch(data, range(len(data)))
    loss = training_loss(model, batch, quadrature(batch, 3)).objective
    assert bool(loss.isfinite())
    names = dict(model.named_parameters())
    return dict(zip(names, torch.autograd.grad(loss, list(names.values())), strict=True))


@pytest.mark.parametrize("late", [0.0, 1.7e9])
def test_terms_are_finite_and_those_of_float64(late: float):
    data = spread_data(1, late)
    batch = make_batch(data, range(len(data)))
    found, expected = (log_likelihood(model, batch, quadrature(batch, 3)) for model in pair(2))
    torch.testing.assert_close(found.event_log, expected.event_log, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.gap_integral, expected.gap_integral, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("seed", [3, 4])
def test_gradients_are_finite_and_those_of_float64(seed: int):
    single, double = pair(seed)
    found, expected = gradients(single, spread_data(seed)), gradients(double, spread_data(seed))
    for name, gradient in found.items():
        assert bool(gradient.isfinite().all()), name
        off = (gradient.double() - expected[name]).norm() / expected[name].norm()
        assert float(off) < 2e-3, name


def test_gates_that_hardly_decay_and_turn_fast_leave_finite_gradients():
    single, _ = pair(5)
    with torch.no_grad():
        for layer in single.layer_list():
            layer.log_decay.fill_(-14.0)
            layer.frequency.mul_(100.0)
    assert all(bool(one.isfinite().all()) for one in gradients(single, spread_data(5)).values())
