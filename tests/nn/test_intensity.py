"""The softplus and its logarithm, where exponentials are ordinary and where they under- and overflow."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from foretell.nn.intensity import inverse_softplus, log_softplus, softplus

ORDINARY = [-30.0, -5.0, -1e-3, 0.0, 0.4, 3.0, 19.9, 20.1, 30.0, 39.0, 41.0]
EXTREME = [-1e9, -1e6, -1e4, -800.0, -110.0, -37.1, -36.9, 36.9, 100.0, 1e4, 1e6, 1e9]


def tensor(values: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def test_softplus_is_exact_to_the_last_digits_of_float64():
    expected = [math.log1p(math.exp(x)) for x in ORDINARY]
    torch.testing.assert_close(softplus(tensor(ORDINARY)), tensor(expected), rtol=1e-15, atol=0.0)


def test_the_logarithm_is_that_of_the_formula():
    expected = [math.log(math.log1p(math.exp(x))) for x in ORDINARY]
    torch.testing.assert_close(log_softplus(tensor(ORDINARY)), tensor(expected), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores_have_finite_logarithms_and_gradients(dtype: torch.dtype):
    x = tensor(EXTREME, dtype).requires_grad_()
    value = log_softplus(x)
    assert bool(value.isfinite().all())
    assert bool((value.diff() > 0.0).all())  # rising, so that no part of the range is flat
    value.sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all()) and bool((x.grad > 0.0).all())


def test_deep_in_the_left_tail_the_logarithm_is_the_score():
    x = tensor([-5e4, -1e5])
    assert torch.equal(log_softplus(x), x)


def test_there_is_no_step_where_the_formula_changes():
    left, right = log_softplus(tensor([-37.0 - 1e-9, -37.0 + 1e-9])).tolist()
    assert right - left == pytest.approx(2e-9, abs=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores_have_finite_gradients_without_the_logarithm(dtype: torch.dtype):
    x = tensor(EXTREME, dtype).requires_grad_()
    value = softplus(x)
    assert bool(value.isfinite().all()) and bool((value >= 0.0).all())
    value.sum().backward()
    assert x.grad is not None
    assert bool(((x.grad >= 0.0) & (x.grad <= 1.0)).all())


def test_gradients_are_those_of_the_values():
    x = tensor([-50.0, -38.0, -3.0, 0.1, 25.0]).requires_grad_()
    assert torch.autograd.gradcheck(softplus, (x,))
    assert torch.autograd.gradcheck(log_softplus, (x,))


@pytest.mark.parametrize("y", [1e-12, 1e-4, 0.3, 2.0, 50.0, 1e4])
def test_the_inverse_undoes_softplus(y: float):
    assert softplus(inverse_softplus(tensor([y]))).item() == pytest.approx(y, rel=1e-12)
