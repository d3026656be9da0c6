"""Taylor models hold: whatever is computed with them contains what is computed at every point of the window."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foretell.sampling.taylor import (
    Taylor,
    between,
    constant,
    exp,
    inverse_power,
    relu,
    softplus,
    tanh,
    waves,
)

POINTS = torch.linspace(-1.0, 1.0, 201, dtype=torch.float64)
SIZES = [1e-3, 0.1, 0.7, 3.0]
DEGREES = [1, 3, 6]


def drawn(size: float, degree: int, seed: int, count: int = 400) -> Taylor:
    """Polynomials whose swing is about `size`, around middle values of about 1, with remainders."""
    random = torch.Generator().manual_seed(seed)
    c = torch.randn(degree + 1, count, generator=random, dtype=torch.float64)
    c[1:] *= size / degree
    remainder = 0.1 * size * torch.rand(count, generator=random, dtype=torch.float64)
    return Taylor(c, remainder)


def inside(x: Taylor, seed: int) -> Tensor:
    """Some function that `x` stands for, at the points: the polynomial, and a part of the remainder that keeps changing."""
    random = torch.Generator().manual_seed(seed)
    values = torch.stack([x.at(s) for s in POINTS])
    part = 2.0 * torch.rand(values.shape, generator=random, dtype=torch.float64).round() - 1.0
    return values + part * x.remainder


def check(found: Taylor, values: Tensor) -> None:
    slack = 1e-12 * (found.c.abs().sum(0) + values.abs().amax(0))
    off = torch.stack([found.at(s) for s in POINTS]) - values
    known = found.remainder.isfinite()
    assert known.any()
    assert bool(((off.abs() <= found.remainder + slack) | ~known).all())
    assert bool(((values <= found.upper()) & (values >= found.lower()) | ~known).all())


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("over", "plainly"),
    [(exp, torch.exp), (tanh, torch.tanh), (softplus, torch.nn.functional.softplus), (relu, torch.relu)],
    ids=["exp", "tanh", "softplus", "relu"],
)
def test_functions_contain_their_values(
    over: Callable[[Taylor], Taylor], plainly: Callable[[Tensor], Tensor], size: float, degree: int
):
    x = drawn(size, degree, seed=1)
    check(over(x), plainly(inside(x, seed=2)))


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("size", [1e-3, 0.1, 0.5])
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_inverse_powers_contain_their_values_or_say_that_nothing_is_known(power: float, size: float, degree: int):
    x = drawn(size, degree, seed=3)
    x = Taylor(torch.cat([x.c[:1].abs() + 0.05, x.c[1:]]), x.remainder)
    found = inverse_power(x, power)
    positive = x.lower() > 0.0
    assert bool((found.remainder[~positive] == torch.inf).all())
    check(found, inside(x, seed=4).clamp(min=1e-300) ** -power)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("size", SIZES)
def test_products_sums_and_matrices_contain_their_values(size: float, degree: int):
    x, y = drawn(size, degree, seed=5), drawn(size, degree, seed=6)
    at_x, at_y = inside(x, seed=7), inside(y, seed=8)
    check(x * y, at_x * at_y)
    check(x + y, at_x + at_y)
    check(x - y, at_x - at_y)
    check(x.times(-2.5).plus(torch.tensor(3.0, dtype=torch.float64)), -2.5 * at_x + 3.0)
    matrix = torch.randn(400, 7, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    check(x.through(matrix), at_x @ matrix)
    many = matrix.expand(2, 400, 7)
    rows = x.map(lambda part: part.expand(*part.shape[:-1], 400) if part.dim() == 1 else part)
    stacked = Taylor(rows.c.unsqueeze(1).unsqueeze(1).expand(-1, 2, 3, 400), rows.remainder.expand(2, 3, 400))
    check(stacked.through(many), (at_x @ matrix)[:, None, None].expand(-1, 2, 3, 7))


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("half", [1e-4, 0.03, 1.0, 40.0])
def test_waves_contain_sines_however_fast_they_turn(half: float, degree: int):
    frequency = torch.tensor([0.01, 1.0, 7.0, 300.0], dtype=torch.float64)
    phase = torch.tensor([0.0, 1.57, 0.3, 2.0], dtype=torch.float64)
    middle = torch.tensor([0.0, 12.3, 1e6], dtype=torch.float64)
    found = waves(middle, torch.full_like(middle, half), frequency, phase, degree)
    times = middle + half * POINTS[:, None]
    values = torch.sin(times[..., None] * frequency + phase)
    assert float(found.remainder.max()) <= 1.0 + 1e-6
    off = torch.stack([found.at(s) for s in POINTS]) - values
    assert bool((off.abs() <= found.remainder).all())  # rounding of phases as large as 3e8 included


def test_longer_series_are_tighter_on_short_windows():
    swings = {}
    for degree in (2, 4, 6):
        x = Taylor(torch.zeros(degree + 1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
        x.c[1] = 0.2
        swings[degree] = float(tanh(exp(x)).remainder)
    assert swings[6] < 0.05 * swings[4] < 0.05 * 0.1 * swings[2]


def test_a_point_is_exact_and_costs_no_remainder():
    value = torch.randn(5, dtype=torch.float64)
    x = constant(value, 0)
    found = softplus(tanh(exp(x)) * x)
    assert torch.equal(found.c[0], torch.nn.functional.softplus(torch.tanh(value.exp()) * value, threshold=40.0))
    assert not bool(found.remainder.any())


def test_a_range_is_kept_as_it_is():
    low, high = torch.tensor([-1.0, 0.5], dtype=torch.float64), torch.tensor([2.0, 0.5], dtype=torch.float64)
    found = between(low, high)
    assert torch.allclose(found.upper(), high) and torch.allclose(found.lower(), low)
