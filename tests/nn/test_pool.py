"""The pool over proofs: its formula, its limits, and gradients that are finite where the true ones are not."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.nn.pool import at_least_one, pool


def _formula(x: torch.Tensor, beta: float) -> torch.Tensor:
    summed = (x.sign() * x.abs() ** beta).sum(0)
    return summed.sign() * summed.abs() ** (1.0 / beta)


@given(st.integers(0, 10**6), st.floats(1.0, 6.0), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_segments_are_pooled_by_the_formula(seed: int, beta: float, rows: int) -> None:
    x = torch.randn(rows + 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    segment = torch.tensor([0] * rows + [1] * 2)
    found = pool(x, segment, 2, torch.tensor([beta, 1.0], dtype=torch.float64))
    torch.testing.assert_close(found[0], _formula(x[:rows], beta), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[1], x[rows:].sum(0), rtol=1e-12, atol=1e-12)


def test_one_row_is_itself_and_a_large_exponent_gives_the_largest() -> None:
    x = torch.tensor([[0.3, -2.0], [-0.5, 1.0]], dtype=torch.float64)
    alone = pool(x, torch.tensor([0, 1]), 2, torch.tensor([3.0, 7.0], dtype=torch.float64))
    torch.testing.assert_close(alone, x)
    most = pool(x, torch.tensor([0, 0]), 1, torch.tensor([900.0], dtype=torch.float64))
    torch.testing.assert_close(most, torch.tensor([[-0.5, -2.0]], dtype=torch.float64), rtol=1e-2, atol=1e-2)


def test_gradients_are_those_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    beta = torch.tensor([1.0, 1.7, 3.2], dtype=torch.float64, requires_grad=True)
    segment = torch.tensor([0, 0, 1, 1, 1, 2])
    assert torch.autograd.gradcheck(lambda x, beta: pool(x, segment, 3, beta), (x, beta), atol=1e-6)


def test_gradients_are_finite_at_zero_and_where_the_sum_cancels() -> None:
    for rows in ([[0.0]], [[0.0], [0.0]], [[1.0], [-1.0]], [[1e-300], [2e-300]], [[1e300], [-1e300]]):
        for exponent in (1.0, 1.5, 4.0):
            x = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
            beta = torch.tensor([exponent], dtype=torch.float64, requires_grad=True)
            found = pool(x, torch.zeros(len(rows), dtype=torch.long), 1, beta)
            found.sum().backward()
            assert torch.isfinite(found).all()
            assert x.grad is not None and torch.isfinite(x.grad).all()
            assert beta.grad is not None and torch.isfinite(beta.grad).all()


def test_an_exponent_of_one_is_exact_and_can_leave_it() -> None:
    b = torch.tensor([0.0, -0.3, 0.5], dtype=torch.float64, requires_grad=True)
    beta = at_least_one(b)
    assert beta.tolist() == [1.0, 1.0, 1.5]
    (-beta.sum()).backward()
    assert b.grad is not None and b.grad.tolist() == [-1.0, -1.0, -1.0]
    b.grad = None
    at_least_one(b).sum().backward()
    assert b.grad is not None and b.grad.tolist() == [0.0, 0.0, 1.0]
