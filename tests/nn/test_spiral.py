"""Decaying rotations: values, gradients, and what is left of them where next to no time, or very much, has passed."""

from __future__ import annotations

import torch
from torch import Tensor

from foretell.nn.spiral import spiral


def drawn(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=random, dtype=torch.float64)

    return noise(5) + 0.1, 10.0 * noise(5) - 5.0, noise(2, 3, 1, 5) + 0.1, 4.0 * noise(2, 3, 4, 1)


def test_it_is_the_complex_exponential():
    decay, frequency, step, elapsed = drawn()
    expected = torch.exp(torch.complex(-decay, frequency) * step * elapsed)
    found = spiral(decay, frequency, step, elapsed)
    torch.testing.assert_close(torch.complex(found.real, found.imaginary), expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found.real_change, expected.real - 1.0, rtol=1e-11, atol=1e-14)


def test_its_gradients_are_those_of_differences():
    decay, frequency, step, elapsed = drawn(1)
    inputs = [one.requires_grad_() for one in (decay, frequency, step)]

    def parts(decay: Tensor, frequency: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        return tuple(spiral(decay, frequency, step, elapsed))

    assert torch.autograd.gradcheck(parts, inputs)


def test_the_change_keeps_its_digits_in_float32_where_next_to_no_time_has_passed():
    decay, frequency = torch.tensor([0.5]), torch.tensor([3.0])
    elapsed = torch.tensor([[1e-12], [1e-9], [1e-6], [1e-3]])
    exact = (
        torch.expm1(-0.5 * elapsed.double())
        - 2.0 * (torch.exp(-0.5 * elapsed.double())) * torch.sin(1.5 * elapsed.double()).square()
    )
    found = spiral(decay, frequency, torch.ones(4, 1), elapsed).real_change
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=0.0)


def test_values_and_gradients_are_finite_in_float32_after_very_long_times():
    decay, frequency, step = torch.tensor([0.5, 1e-3]), torch.tensor([300.0, 2.0]), torch.ones(3, 2)
    inputs = [one.requires_grad_() for one in (decay, frequency, step)]
    found = spiral(decay, frequency, step, torch.tensor([[1e2], [1e6], [1e9]]))
    gradients = torch.autograd.grad(torch.cat(list(found)).sum(), inputs)
    assert all(bool(one.isfinite().all()) for one in (*found, *gradients))
    assert float(found.real.detach()[1, 0]) == 0.0
