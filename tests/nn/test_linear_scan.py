"""The scan of a linear recurrence against a loop, in values and gradients, and where gates vanish."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foretell.nn.linear_scan import linear_scan

LENGTHS = [1, 2, 3, 12, 13, 17, 100, 400]


def drawn(length: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gates inside the unit disc, and inputs: [3, length, 4]."""
    random = torch.Generator().manual_seed(seed)
    gates = torch.randn(3, length, 4, generator=random, dtype=dtype)
    return gates / (0.5 + gates.abs()), torch.randn(3, length, 4, generator=random, dtype=dtype)


def loop(g: Tensor, b: Tensor) -> Tensor:
    x, found = torch.zeros_like(b[:, 0]), []
    for place in range(b.shape[1]):
        x = g[:, place] * x + b[:, place]
        found.append(x)
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_scan_and_its_gradients_are_those_of_a_loop(length: int, dtype: torch.dtype):
    inputs = [one.requires_grad_() for one in drawn(length, dtype)]
    random = torch.Generator().manual_seed(9)
    weights = torch.randn(3, length, 4, generator=random, dtype=dtype)
    found, expected = linear_scan(*inputs), loop(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    of_found, of_expected = (torch.autograd.grad((one * weights).sum().abs(), inputs) for one in (found, expected))
    for one, other in zip(of_found, of_expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("length", [3, 17, 100])
def test_gates_that_underflow_forget_and_leave_finite_gradients(length: int):
    g, b = (one.to(torch.complex64) for one in drawn(length, torch.complex128))
    g = (g * 1e-20).requires_grad_()
    found = linear_scan(g, b.requires_grad_())
    assert torch.equal(found, b)  # products of gates are 0 in float32, and single ones far below the inputs
    gradients = torch.autograd.grad(torch.view_as_real(found).sum(), [g, b])
    assert all(bool(torch.view_as_real(one).isfinite().all()) for one in gradients)


def test_what_is_later_moves_nothing_by_a_single_bit():
    g, b = drawn(100, torch.complex128)
    before = linear_scan(g, b)[:, :60]
    g[:, 60:], b[:, 60:] = 0.3, 7.0
    assert torch.equal(linear_scan(g, b)[:, :60], before)
