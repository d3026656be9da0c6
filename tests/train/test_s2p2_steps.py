"""Training steps of an S2P2: whole batches, pieces, threads and units all give the same gradients; a captured step is the eager one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from foretell.batches.batch import Batch, make_batch
from foretell.models.state_space.s2p2 import S2P2
from foretell.train.fit import fit
from foretell.train.step import PieceLimits, StepOptions, Stepper
from tests.train.small import exciting, in_unit, options

TRAIN, DEV = exciting(12, 3), exciting(6, 4)


def made(dtype: torch.dtype = torch.float64) -> S2P2:
    model = S2P2(TRAIN.vocabulary, dim=6, layers=2, states=3, seed=2, dtype=dtype)
    model.prepare(TRAIN)
    return model


def gradients(limits: PieceLimits | None, threads: int = 1, **more: Any) -> list[torch.Tensor]:
    stepper = Stepper(made(), 1e-3, StepOptions(points=2, clip=0.0, pseudo_rate=0.1, **more))
    stepper.executor.threads = threads
    if limits is not None:
        stepper._limits = lambda batch: limits
    stepper(make_batch(TRAIN, range(len(TRAIN))), 0)
    return [parameter.grad.clone() for parameter in stepper.parameters if parameter.grad is not None]


@pytest.mark.parametrize("integral", ["quadrature", "stratified"])
def test_queries_in_pieces_over_one_encoded_history_give_the_gradient_of_the_whole(integral: Any):
    whole, cut = (gradients(PieceLimits(1 << 20, asked), integral=integral) for asked in (1 << 20, 70))
    assert len(whole) == len(list(made().parameters())) and all(bool(one.any()) for one in whole)
    for one, other in zip(whole, cut, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-12)


def test_sequences_in_pieces_and_in_threads_give_the_gradient_of_the_whole():
    whole = gradients(None, integral="quadrature")
    for threads in (1, 2):
        cut = gradients(PieceLimits(90, 90), threads=threads, integral="quadrature")
        for one, other in zip(whole, cut, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("c", [60.0, 1.0 / 86400.0])
def test_training_on_rescaled_data_gives_the_same_curve_up_to_the_units(c: float):
    def curve(factor: float) -> np.ndarray:
        train, dev = in_unit(TRAIN, factor), in_unit(DEV, factor)
        model = S2P2(train.vocabulary, dim=6, layers=2, states=3, dtype=torch.float64)
        found = fit(model, train, dev, options(dtype="float64", pseudo_count=0.5, decay=0.1))
        return np.array([[record["train"], record["dev"]] for record in found.records])

    plain = curve(1.0)
    assert np.ptp(plain[:, 0]) > 1e-3, "it learned nothing"
    np.testing.assert_allclose(curve(c), plain - math.log(c), rtol=0.0, atol=1e-7)


def on_cuda(batch: Batch) -> Batch:
    return Batch(*(tensor.cuda() for tensor in batch.tensors()), rules=None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_captured_step_learns_what_an_uncaptured_one_does_and_what_a_cpu_does(dtype: torch.dtype):
    batch = make_batch(TRAIN, range(len(TRAIN)))
    found = []
    for device, capture in (("cpu", False), ("cuda", False), ("cuda", True)):
        model = made(dtype).to(device)
        stepper = Stepper(model, 1e-2, StepOptions(integral="quadrature", points=3, capture=capture))
        there = on_cuda(batch) if device == "cuda" else batch
        losses = [float(stepper(there, number)) for number in range(6)]
        assert bool(stepper.executor.graphs) == capture
        found.append((losses, {name: one.detach().cpu().clone() for name, one in model.named_parameters()}))
    exact = dtype == torch.float64
    for losses, parameters in found[1:]:
        # Adam divides by the size of gradients, so that what rounding does to tiny ones grows from step to step.
        assert losses[:3] == pytest.approx(found[0][0][:3], rel=1e-9 if exact else 1e-4)
        assert losses == pytest.approx(found[0][0], rel=1e-6 if exact else 1e-4)
        for name, value in parameters.items():
            torch.testing.assert_close(
                value, found[0][1][name], rtol=1e-4 if exact else 2e-2, atol=1e-5 if exact else 1e-3
            )
