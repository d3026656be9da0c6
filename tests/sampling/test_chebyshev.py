"""Polynomials through nodes with remainders: no curve of anything that they stand for is ever outside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.nn.intensity import softplus as plain_softplus
from foretell.nn.pool import pool as plain_pool
from foretell.sampling.bounds.chebyshev import (
    ChebyshevPiece,
    between,
    constant,
    decay,
    exp_off,
    overshoot,
    places,
    point,
    power,
    relu,
    softplus,
    spectral_norm,
    tanh,
    waves,
)
from foretell.sampling.bounds.curves import gelu, inverse, log1p, normalised, spiral
from foretell.sampling.bounds.values import affine, pool, side_by_side

ALL = 150  # quantities that are looked at together
WINDOW = torch.linspace(-1.0, 1.0, 101, dtype=torch.float64)


class Something:
    """Quantities that are known up to a remainder, and what one of those that fit really does."""

    def __init__(
        self, seed: int, degree: int, *, size: float, remainder: float = 0.1, shape: tuple[int, ...] = (ALL,)
    ) -> None:
        draw = torch.Generator().manual_seed(seed)

        def noise(*of: int) -> Tensor:
            return torch.randn(*of, *shape, generator=draw, dtype=torch.float64)

        falling = (0.5 ** torch.arange(degree + 1)).view(-1, *[1] * len(shape))
        c = noise(degree + 1) * falling * size
        c[0] *= 2.0
        self.left = noise().abs() * remainder * (noise() > 0.0)
        frequency, phase = noise() * 3.0, noise()
        self.nodes = ChebyshevPiece(_at(c, places(degree, c.device)), self.left)
        wiggle = torch.sin(frequency * WINDOW.view(-1, *[1] * len(shape)) * 4.0 + phase)
        self.true = _at(c, WINDOW) + self.left * wiggle  # [times, ...]


def _at(c: Tensor, s: Tensor) -> Tensor:
    where = s.view(-1, *[1] * (c.dim() - 1))
    out = torch.zeros_like(c[0] * where)
    for one in reversed(c.unbind(0)):
        out = out * where + one
    return out


def _polynomial(a: Tensor) -> Tensor:
    """On the window, from coefficients of Chebyshev polynomials."""
    return sum(
        (one * torch.cos(k * WINDOW.acos()).view(-1, *[1] * one.dim()) for k, one in enumerate(a.unbind(0))),
        torch.zeros(()),
    )


def holds(found: ChebyshevPiece, true: Tensor) -> Tensor:
    """That the truth is within the remainder of the polynomial, and within the bounds; says how wide the remainders are."""
    inside = _polynomial(found.series())
    away = (true - inside).abs()
    assert bool((away <= found.remainder * (1.0 + 1e-9) + 1e-9).all())
    assert bool((true <= found.upper()).all())
    assert bool((true >= found.lower()).all())
    return found.remainder


CURVES: dict[str, tuple[Callable[[ChebyshevPiece], ChebyshevPiece], Callable[[Tensor], Tensor]]] = {
    "tanh": (tanh, torch.tanh),
    "softplus": (softplus, plain_softplus),
    "relu": (relu, torch.relu),
    "gelu": (gelu, F.gelu),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("degree", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [0.01, 0.3, 2.0, 20.0])
def test_a_curve_is_within_its_remainder(name: str, degree: int, size: float):
    curve, plain = CURVES[name]
    for seed in range(5):
        one = Something(seed, degree, size=size, remainder=size / 5.0)
        holds(curve(one.nodes), plain(one.true))


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [0.01, 0.3, 2.0])
def test_an_exponential_is_within_what_it_is_off_by(degree: int, size: float):
    for seed in range(5):
        one = Something(seed, degree, size=size, remainder=size / 5.0)
        off = exp_off(one.nodes.shape(), one.nodes.remainder)
        holds(ChebyshevPiece(one.nodes.v.exp(), off), one.true.exp())


@pytest.mark.parametrize("exponent", [0.3, 0.5, 1.7, 3.0, -0.5, -1.0])
@pytest.mark.parametrize("degree", [1, 3, 5])
def test_a_power_is_within_its_remainder_where_its_base_stays_above_0(exponent: float, degree: int):
    one = Something(1, degree, size=0.4, remainder=0.05)
    lifted = one.nodes.plus(torch.tensor(2.0, dtype=torch.float64))
    found, above = power(lifted, exponent), (one.true + 2.0).amin(0) > 0.0
    known = found.remainder.isfinite()
    assert int(known.sum()) > ALL / 3
    assert not bool((known & ~above).any())
    holds(ChebyshevPiece(found.v[:, known], found.remainder[known]), (one.true[:, known] + 2.0) ** exponent)


@pytest.mark.parametrize("degree", [1, 3, 5])
@pytest.mark.parametrize("size", [0.1, 0.4, 1.0])
def test_a_logarithm_is_within_its_remainder_where_its_argument_stays_above_minus_1(degree: int, size: float):
    one = Something(1, degree, size=size, remainder=0.05)
    lifted, true = one.nodes.plus(torch.tensor(0.5, dtype=torch.float64)), one.true + 0.5
    found, above = log1p(lifted), true.amin(0) > -1.0
    known = found.remainder.isfinite()
    assert int(known.sum()) > ALL / 4
    assert not bool((known & ~above).any())
    holds(ChebyshevPiece(found.v[:, known], found.remainder[known]), torch.log1p(true[:, known]))


def test_a_logarithm_over_many_orders_of_size_is_at_least_within_its_range():
    line = torch.tensor([[5.0], [4.999]], dtype=torch.float64) * 10.0 ** torch.arange(0, 9)
    nodes = ChebyshevPiece(_at(line, places(1, line.device)), torch.zeros(9, dtype=torch.float64))
    holds(log1p(nodes), torch.log1p(_at(line, WINDOW)))
    assert float(log1p(nodes).remainder.max()) < 12.0


@pytest.mark.parametrize("degree", [1, 3])
def test_gelu_is_within_its_remainder_around_every_place_and_loses_little_far_from_0(degree: int):
    middles = torch.linspace(-12.0, 12.0, 481, dtype=torch.float64)
    for half in (0.05, 0.5, 3.0):
        line = torch.stack([middles, torch.full_like(middles, half), *[torch.zeros_like(middles)] * (degree - 1)])
        nodes = ChebyshevPiece(_at(line, places(degree, middles.device)), torch.full_like(middles, 0.01))
        found = gelu(nodes)
        for shift in (-0.01, 0.0, 0.01):
            holds(found, F.gelu(_at(line, WINDOW) + shift))
        assert float(found.remainder.max()) <= 1.13 * (half + 0.02)
        if half < 3.0:
            assert float(found.remainder[middles < -8.0].max()) < 1e-6
            assert float(found.remainder[middles > 8.0].max()) < 0.01 + 1e-4


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_a_product_is_within_its_remainder(degree: int):
    for seed in range(10):
        one, other = Something(seed, degree, size=1.0), Something(seed + 100, degree, size=1.0)
        holds(one.nodes * other.nodes, one.true * other.true)


@pytest.mark.parametrize("beta", [1.1, 1.5, 3.0, 8.0])
@pytest.mark.parametrize("size", [0.02, 0.3, 2.0])
def test_a_pool_is_within_its_remainder(beta: float, size: float):
    segment = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
    exponents = torch.full((3,), beta, dtype=torch.float64)
    for seed in range(5):
        one = Something(seed, 3, size=size, remainder=size / 10.0, shape=(len(segment), 7, 4))
        true = torch.stack([plain_pool(now.flatten(1), segment, 3, exponents).view(3, 7, 4) for now in one.true])
        holds(pool(one.nodes, segment, 3, exponents), true)


def test_a_pool_of_entries_far_from_0_is_followed_and_not_just_bounded():
    segment, beta = torch.tensor([0, 0]), torch.tensor([2.0], dtype=torch.float64)
    one = Something(0, 3, size=0.05, remainder=0.0, shape=(2, 50, 1))
    lifted = ChebyshevPiece(one.nodes.v + 3.0, one.nodes.remainder)
    found = pool(lifted, segment, 1, beta)
    assert float(found.remainder.max()) < 1e-2 * float(lifted.shape().swing.max())


@pytest.mark.parametrize("degree", [1, 3, 6])
def test_waves_are_within_their_remainder_even_if_they_turn_often(degree: int):
    middle, half = torch.tensor([5.0, 1e6]).double(), torch.tensor([0.7, 0.7]).double()
    frequency, phase = torch.tensor([0.01, 1.0, 40.0]).double(), torch.tensor([0.0, 1.0, 2.0]).double()
    when = middle + half * WINDOW[:, None]
    true = torch.sin(when.unsqueeze(-1) * frequency + phase)
    found = waves(middle, half, frequency, phase, degree)
    assert bool((found.remainder[:, 2] == 1.0).all())
    inside = _polynomial(found.series())
    assert bool(((true - inside).abs() <= found.remainder + 1e-9).all())


@pytest.mark.parametrize("degree", [1, 3, 6])
@pytest.mark.parametrize("since", [0.0, 4.2, 1.7e9])
def test_decays_are_within_their_remainder_however_fast_they_are(degree: int, since: float):
    draw = torch.Generator().manual_seed(0)
    passed, half = (10.0 ** (6.0 * torch.rand(2, 60, generator=draw, dtype=torch.float64) - 4.0)).unbind(0)
    rate = 10.0 ** (9.0 * torch.rand(60, 8, generator=draw, dtype=torch.float64) - 5.0)
    rate[0, 0] = 0.0
    start = torch.full_like(half, since)
    middle = start + passed + half
    when = middle + half * WINDOW[:, None]
    true = torch.exp(-rate * (when - start).unsqueeze(-1))
    found = decay(middle, half, start, rate, degree)
    holds(found, true)
    # Wherever a window is short enough for the curve to be followed, it is.
    slow = (rate * half.unsqueeze(-1) < 0.1) & (rate * middle.unsqueeze(-1) < 100.0)
    assert bool(slow.any())
    assert bool(((found.remainder / found.v.amax(0))[slow] <= 1.2 * 0.1 ** (degree + 1) / 2.0**degree).all())


def test_a_decay_is_just_its_value_at_a_point_and_at_the_nodes():
    since, rate = torch.tensor([1.0]).double(), torch.tensor([[0.5, 2.0]]).double()
    middle, half = torch.tensor([2.0]).double(), torch.tensor([0.1]).double()
    found = decay(middle, torch.zeros_like(half), since, rate, 0)
    torch.testing.assert_close(found.v[0], torch.exp(-rate))
    when = middle + half * places(3, rate.device)
    torch.testing.assert_close(
        decay(middle, half, since, rate, 3).v[:, 0],
        torch.exp(-rate * (when - since).unsqueeze(-1)),
        rtol=1e-14,
        atol=0.0,
    )


@pytest.mark.parametrize("degree", [1, 3, 6])
@pytest.mark.parametrize("since", [0.0, 4.2, 1.7e9])
def test_decaying_rotations_are_within_their_remainder_however_fast_they_turn(degree: int, since: float):
    draw = torch.Generator().manual_seed(0)
    passed, half = (10.0 ** (6.0 * torch.rand(2, 60, generator=draw, dtype=torch.float64) - 4.0)).unbind(0)
    passed[:5] = 0.0
    rate, frequency = (10.0 ** (7.0 * torch.rand(2, 60, 8, generator=draw, dtype=torch.float64) - 5.0)).unbind(0)
    frequency = frequency * torch.where(torch.rand(60, 8, generator=draw) < 0.5, -1.0, 1.0)
    rate[0, 0] = 0.0
    start = torch.full_like(half, since)
    middle = start + passed + half
    elapsed = ((middle - start) + half * WINDOW[:, None]).unsqueeze(-1)
    true = torch.exp(torch.complex(-rate, frequency) * elapsed)
    for found, part in zip(spiral(middle, half, start, rate, frequency, degree), (true.real, true.imag), strict=True):
        holds(found, part)
    # Wherever a window is short enough for the curve to be followed, it is.
    speed = torch.hypot(rate, frequency)
    slow = (speed * half.unsqueeze(-1) < 0.1) & (rate * (middle - start).unsqueeze(-1) < 100.0)
    assert bool(slow.any())
    share = found.remainder / torch.exp(-rate * (middle - start).unsqueeze(-1))
    rounding = 1e-14 * speed * middle.unsqueeze(-1)
    assert bool((share <= 1.2 * 0.1 ** (degree + 1) / 2.0**degree + rounding)[slow].all())


@pytest.mark.parametrize("name", CURVES)
def test_at_a_point_a_curve_is_just_its_value(name: str):
    curve, plain = CURVES[name]
    value = torch.linspace(-50.0, 50.0, 101, dtype=torch.float64)
    found = curve(point(value))
    assert torch.equal(found.v[0], plain(value))
    assert not found.remainder.any()


@pytest.mark.parametrize("name", CURVES)
def test_values_at_the_nodes_are_those_of_the_curve(name: str):
    curve, plain = CURVES[name]
    one = Something(3, 3, size=0.05, remainder=0.0)
    off = one.nodes.plus(torch.tensor(0.5, dtype=torch.float64))
    sure = off.lower() > 0.0  # away from where a relu bends
    torch.testing.assert_close(curve(off).v[:, sure], plain(off.v)[:, sure], rtol=1e-12, atol=0.0)


def test_remainders_shrink_with_the_window_by_the_power_of_the_degree():
    for degree in (2, 3, 4):
        wide, narrow = (
            tanh(
                ChebyshevPiece(
                    _at(
                        torch.tensor([[0.3], [h], *[[0.0]] * (degree - 1)]).double(),
                        places(degree, torch.device("cpu")),
                    ),
                    torch.zeros(1).double(),
                )
            )
            for h in (0.2, 0.1)
        )
        assert float(wide.remainder / narrow.remainder) == pytest.approx(2.0 ** (degree + 1), rel=0.3)


def test_of_a_saturated_curve_little_is_lost():
    """Where tanh is flat, its derivatives are small, too."""
    one = Something(5, 3, size=0.5, remainder=0.0)
    away = one.nodes.plus(torch.tensor(12.0, dtype=torch.float64))
    assert float(tanh(away).remainder.max()) < 1e-4


def test_small_intensities_are_bounded_relative_to_themselves():
    one = Something(6, 3, size=0.05, remainder=0.0)
    low = one.nodes.plus(torch.tensor(-40.0, dtype=torch.float64))
    found = softplus(low)
    assert float((found.upper() / found.shape().centre).max()) < 1.5


def test_intensities_that_underflow_are_within_their_bounds():
    line = torch.linspace(-760.0, -740.0, 201, dtype=torch.float64)
    steep = torch.stack([line, torch.full_like(line, 0.3), torch.zeros_like(line), torch.zeros_like(line)])
    nodes = ChebyshevPiece(_at(steep, places(3, line.device)), torch.zeros_like(line))
    holds(softplus(nodes), plain_softplus(_at(steep, WINDOW)))


def test_what_is_not_known_stays_unknown():
    nothing = ChebyshevPiece(torch.zeros(4, 2).double(), torch.tensor([torch.inf, torch.nan]).double())
    assert tanh(nothing).remainder[0] == 2.0  # but for the range of the curve
    assert bool((~(softplus(nothing).upper() < torch.inf)).all())


def test_constants_and_ranges_are_the_same_at_all_nodes():
    value = torch.tensor([1.5, -2.0]).double()
    assert torch.equal(constant(value, 3).v, value.expand(4, 2))
    found = between(value - 1.0, value + 1.0, 3)
    torch.testing.assert_close(found.upper(), value + 1.0)
    torch.testing.assert_close(found.lower(), value - 1.0)


@pytest.mark.parametrize("degree", [1, 2, 3, 6])
def test_no_polynomial_overshoots_its_nodes_by_more(degree: int):
    c = torch.linalg.inv(torch.vander(places(degree, torch.device("cpu")), increasing=True))
    signs = torch.sign(torch.randn(degree + 1, 5000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    most = _at(c @ signs, WINDOW).abs().amax()
    assert 0.9 * overshoot(degree) <= float(most) <= overshoot(degree)


# Rows, of which it is known how long what they are off by can be


def rows(seed: int, degree: int, size: float, remainder: float, length: float) -> Something:
    """Rows of 12 that use up what they may be off by in the Euclidean norm, a share of the norm of their remainders."""
    one = Something(seed, degree, size=size, remainder=remainder, shape=(20, 12))
    whole = one.left.norm(dim=-1, keepdim=True) * length
    away = one.true - _polynomial(one.nodes.series())
    away = away * (whole / away.norm(dim=-1, keepdim=True).clamp(min=1e-300)).clamp(max=1.0)
    one.true = _polynomial(one.nodes.series()) + away
    one.nodes = ChebyshevPiece(one.nodes.v, one.nodes.remainder, whole)
    return one


def holds_as_rows(found: ChebyshevPiece, true: Tensor) -> None:
    holds(found, true)
    away = (true - _polynomial(found.series())).norm(dim=-1, keepdim=True)
    assert found.length is not None
    assert bool((away <= found.off_length() * (1.0 + 1e-9) + 1e-9).all())


@pytest.mark.parametrize("degree", [1, 3, 4, 6])
@pytest.mark.parametrize("size", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("length", [0.05, 0.6])
def test_what_rows_are_off_by_is_no_longer_than_is_told(degree: int, size: float, length: float):
    matrix = torch.randn(7, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for seed in range(4):
        one = rows(seed, degree, size, size / 5.0, length)
        other = rows(seed + 10, degree, size, size / 5.0, length)
        holds_as_rows(tanh(one.nodes), torch.tanh(one.true))
        holds_as_rows(gelu(one.nodes), F.gelu(one.true))
        holds_as_rows(affine(one.nodes, matrix, matrix[:, 0]), F.linear(one.true, matrix, matrix[:, 0]))
        holds_as_rows(one.nodes + other.nodes, one.true + other.true)
        holds_as_rows(one.nodes * other.nodes, one.true * other.true)
        holds_as_rows(one.nodes.times(matrix[0]), one.true * matrix[0])
        holds_as_rows(side_by_side([one.nodes, other.nodes]), torch.cat([one.true, other.true], -1))
        narrow = one.nodes.map(lambda part: part[..., :1])
        holds_as_rows(other.nodes * narrow, other.true * one.true[..., :1])


@pytest.mark.parametrize("degree", [1, 3, 4, 6])
@pytest.mark.parametrize("size", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("remainder", [0.0, 0.02, 0.5])
def test_a_normalised_row_is_within_its_remainder(degree: int, size: float, remainder: float):
    """Rows that hardly move, rows whose variance may vanish on the way, and rows far from 0."""
    for seed in range(4):
        one = rows(seed, degree, size, remainder * size, 0.5)
        for more, eps in ((0.0, 1e-5), (torch.linspace(-1.0, 1.0, 12).double(), 1e-5), (1e6, 1e-5), (0.0, 1e-12)):
            lifted = one.nodes.plus(torch.as_tensor(more, dtype=torch.float64).expand(12))
            holds_as_rows(normalised(lifted, eps), F.layer_norm(one.true + more, (12,), eps=eps))
    assert float(normalised(one.nodes, 1e-5).off_length().max()) <= 12**0.5 * (1.0 + 1e-8)


def test_a_normalised_row_that_moves_little_is_followed_however_many_components_it_has():
    one = rows(0, 3, 1e-3, 1e-9, 0.2)
    still = one.nodes.plus(torch.linspace(-1.0, 1.0, 12).double())
    assert float(normalised(still, 1e-5).off_length().max()) < 2e-5


@pytest.mark.parametrize("degree", [1, 3, 4, 6])
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_an_inverse_is_within_its_remainder(degree: int, size: float):
    for seed in range(4):
        one = Something(seed, degree, size=size, remainder=size / 20.0)
        lifted = one.nodes.plus(torch.tensor(5.0 * size, dtype=torch.float64))
        positive = (one.true + 5.0 * size).amin(0) >= 0.0
        found = inverse(lifted)
        true = 1.0 / (1.0 + one.true + 5.0 * size)
        holds(ChebyshevPiece(found.v[:, positive], found.remainder[positive]), true[:, positive])


def test_a_spectral_norm_is_never_too_small_and_hardly_too_large():
    draw = torch.Generator().manual_seed(0)
    shapes = ((1, 1), (5, 5), (32, 64), (64, 32), (100, 100))
    drawn = [torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in shapes]
    for matrix in [*drawn, torch.eye(100).double(), 1e-200 * drawn[2], 1e150 * drawn[2]]:
        largest = float(torch.linalg.svdvals(matrix)[0])
        assert largest <= float(spectral_norm(matrix)) <= 1.16 * largest
    assert float(spectral_norm(torch.zeros(3, 4).double())) < 1e-200
