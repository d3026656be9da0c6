"""GELU, exponentials and logarithms of a `ChebyshevPiece`, and decaying rotations, with remainders that hold on the whole window.

A curve of a piece needs a bound of every Taylor coefficient `|f⁽ⁿ⁾|/n!` on the range that the piece can reach; `curve_piece` does the rest.
The curves with closed recurrences (tanh, softplus, powers, relu) are in `chebyshev`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.sampling.bounds.chebyshev import (
    PHASE,
    ROUNDED,
    SLACK,
    SMALLEST,
    ChebyshevPiece,
    coefficient_beyond,
    curve_piece,
    exp_off,
    places,
    point,
    polynomial_shape,
    tighter,
)

FALLS = (0.0, 0.25, 0.4)  # values of θ for which a Taylor coefficient of GELU is at most a constant times `exp(−θ x²)`
FAR = 40.0  # beyond ±FAR, GELU's slope is 0 or 1 in float64
TURN = math.sqrt(2.0)  # the slope of GELU is largest here, and smallest at −TURN


def gelu(x: ChebyshevPiece) -> ChebyshevPiece:
    """Return `x Φ(x)` with the normal distribution function `Φ`: exact GELU."""
    if not x.degree:
        return point(F.gelu(x.v[0]))
    shape = x.shape()
    reach = shape.swing + x.remainder
    slope = _gelu_slope(shape.centre - reach, shape.centre + reach)
    nearest = (shape.centre.abs() - reach).clamp(min=0.0).square()
    falls = [torch.exp(-fall * nearest) for fall in FALLS[1:]]
    bounds: list[Tensor] = []
    for anywhere, *shares in _gelu_bounds(x.degree + 1):
        bound = (falls[0] * shares[0]).clamp_(max=anywhere)
        bounds.append(torch.minimum(bound, falls[1] * shares[1]))
    return curve_piece(x, shape, F.gelu, bounds, slope, slope * reach + ROUNDED)


def exp(x: ChebyshevPiece) -> ChebyshevPiece:
    """Return `e^x`; where its polynomial gives a worse bound, a value anywhere between the lowest and the highest one."""
    if not x.degree:
        return point(torch.exp(x.v[0]))
    shape = x.shape()
    found = ChebyshevPiece(torch.exp(x.v), exp_off(shape, x.remainder))
    low, high = torch.exp(shape.lower(x.remainder)), torch.exp(shape.upper(x.remainder))
    return tighter(found, low * (1.0 - ROUNDED), high * (1.0 + ROUNDED))


def log1p(x: ChebyshevPiece) -> ChebyshevPiece:
    """Return `log(1 + x)` for `x` above -1; the remainder is infinite elsewhere."""
    if not x.degree:
        return point(torch.log1p(x.v[0]))
    shape = x.shape()
    low, high = shape.lower(x.remainder), shape.upper(x.remainder)
    known = low > -1.0
    steepest = 1.0 / (1.0 + low).clamp(min=1e-300)
    bounds = [steepest**j / j for j in range(1, x.degree + 2)]
    v = torch.log1p(x.v.clamp(min=-1.0 + 1e-15))
    rounded = ROUNDED * v.abs().amax(0)
    off = coefficient_beyond(bounds[1:], shape.most) / 2.0**x.degree + bounds[0] * x.remainder + rounded
    # The function increases. Where this gives a better bound, the piece is anywhere between the lowest and the highest value.
    range_low, range_high = torch.log1p(low.clamp(min=-1.0 + 1e-15)), torch.log1p(high.clamp(min=-1.0 + 1e-15))
    found = tighter(ChebyshevPiece(v, off), range_low - rounded, range_high + rounded)
    return ChebyshevPiece(found.v, torch.where(known, found.remainder, torch.inf))


def normalised(x: ChebyshevPiece, eps: float) -> ChebyshevPiece:
    """Return `(x − mean)/√(variance + eps)` of rows [..., D].

    Bounds are for whole rows, as root mean squares. Let `A_i` bound the i-th Taylor coefficient of the centred row anywhere, and `A_0` its
    size. The coefficients of the variance are at most those of `(Σ A_i zⁱ)²`. The inverse root of a function that starts at `q` or more has
    coefficients no larger than those of `(1 − y)^(-1/2)/√q`. The product of this series and the row's bounds the result.
    If the row has an error vector `r`, the result's error is at most `|r|/√q`: this map has no larger slope in any direction.
    """
    size = x.v.shape[-1]
    centred = x.v - x.v.mean(-1, keepdim=True)
    v = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    if not x.degree:
        return point(v[0])
    root = math.sqrt(size)
    series = torch.linalg.vector_norm(ChebyshevPiece(centred, x.remainder).series(), dim=-1, keepdim=True)
    shape = polynomial_shape(series / root)
    off = x.off_length() / root
    least = (shape.centre - shape.swing) * (1.0 - SLACK)
    below = least.clamp(min=0.0).square() + eps
    row = [shape.size, *shape.most.unbind(0)]
    last = x.degree + 1
    moves = [
        sum((row[i] * row[k - i] for i in range(max(0, k - x.degree), min(k, x.degree) + 1)), torch.zeros_like(below))
        / below
        for k in range(1, last + 1)
    ]
    inverse = [torch.ones_like(below)]
    for k in range(1, last + 1):
        terms = (moves[i - 1] * inverse[k - i] * ((k - 0.5 * i) / k) for i in range(1, k + 1))
        inverse.append(sum(terms, torch.zeros_like(below)))
    beyond = sum((row[i] * inverse[last - i] for i in range(last)), torch.zeros_like(below)) / below.sqrt()
    carried = off / ((least - off).clamp(min=0.0).square() + eps).sqrt()
    rounded = ROUNDED * (1.0 + x.v.abs().amax((0, -1)).unsqueeze(-1) / below.sqrt())
    length = root * (beyond * 0.5**x.degree + carried + rounded)
    lost = ~(length <= root)  # a normalised row has at most length √D
    if bool(lost.any()):
        v, length = v.masked_fill(lost, 0.0), length.masked_fill(lost, root * (1.0 + SLACK))
    return ChebyshevPiece(v, length.expand(x.remainder.shape), length)


def inverse(x: ChebyshevPiece) -> ChebyshevPiece:
    """Return `1/(1 + x)` for `x` of at least 0."""
    if not x.degree:
        return point(1.0 / (1.0 + x.v[0]))
    shape = x.shape()
    low, high = 1.0 + shape.lower(x.remainder), 1.0 + shape.upper(x.remainder)
    safe = low.clamp(min=1e-300)  # the polynomial itself may be below 0
    bounds = [safe ** -(j + 1.0) for j in range(1, x.degree + 2)]
    off = coefficient_beyond(bounds[1:], shape.most) / 2.0**x.degree + bounds[0] * x.remainder + ROUNDED
    found = ChebyshevPiece(1.0 / (1.0 + x.v), torch.where(low > 0.0, off, torch.inf))
    low, high = low.nan_to_num(nan=1.0).clamp(min=1.0), high.nan_to_num(nan=torch.inf).clamp(min=1.0)
    return tighter(found, 1.0 / high - ROUNDED, 1.0 / low + ROUNDED)


def _gelu_slope(low: Tensor, high: Tensor) -> Tensor:
    """Return the largest `|Φ(x) + x φ(x)|` from `low` to `high`, which is at an end or at ±√2."""
    ends = [_slope(end.clamp(-FAR, FAR)).abs() for end in (low, high)]
    most = torch.maximum(*ends)
    for turn in (-TURN, TURN):
        value = abs(float(_slope(torch.tensor(turn, dtype=torch.float64)))) * (1.0 + 1e-12)
        most = torch.where((low < turn) & (high > turn), most.clamp(min=value), most)
    return most


def _slope(x: Tensor) -> Tensor:
    return torch.special.ndtr(x) + x * torch.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


@lru_cache
def _gelu_bounds(orders: int) -> list[tuple[float, ...]]:
    """Return the largest `|f⁽ⁿ⁾(x)| exp(θ x²)/n!` over all x, for coefficients n = 2, 3, … of GELU and each θ of `FALLS`.

    `f″ = φ(x)(2 − x²)`; if a derivative is `φ q`, the next is `φ (q′ − x q)`. So `φ q exp(θ x²)` has its extrema at `q′ = (1 − 2θ) x q`.
    """
    q, found = Polynomial([2.0, 0.0, -1.0]), []
    x = Polynomial([0.0, 1.0])
    for order in range(2, orders + 1):
        found.append(tuple(_largest(q, fall) / math.factorial(order) for fall in FALLS))
        q = q.deriv() - x * q
    return found


def _largest(q: Polynomial, fall: float) -> float:
    turns = (q.deriv() - (1.0 - 2.0 * fall) * Polynomial([0.0, 1.0]) * q).roots().real  # other points are harmless
    sizes = np.abs(q(turns)) * np.exp((fall - 0.5) * turns**2) / math.sqrt(2.0 * math.pi)
    return float(sizes.max()) * (1.0 + 1e-6)


def spiral(
    middle: Tensor, half: Tensor, since: Tensor, rate: Tensor, frequency: Tensor, degree: int
) -> tuple[ChebyshevPiece, ChebyshevPiece]:
    """Return the real and imaginary parts of `exp((−rate + i·frequency)(t − since))` on `middle ± half`: [..., F] each, rates at least 0.

    The n-th derivative is at most `|−rate + i·frequency|ⁿ` times the modulus, which is largest at the start of the window. So the
    polynomial through `n + 1` values has an error of at most `x^(n+1)/((n+1)! 2^n)` times that modulus, `x = |−rate + i·frequency|·half`.
    """
    elapsed, half = (middle - since).unsqueeze(-1), half.unsqueeze(-1)
    if not degree:
        size, angle = torch.exp(-rate * elapsed), frequency * elapsed
        return point(size * torch.cos(angle)), point(size * torch.sin(angle))
    passed = elapsed + half * places(degree, middle.device).view(-1, *[1] * rate.dim())
    speed, high = torch.hypot(rate, frequency), torch.exp(rate * (half - elapsed))
    off = high * (speed * half) ** (degree + 1) * (1.0 / (math.factorial(degree + 1) * 2.0**degree))
    # The ends of a window and the elapsed time are rounded, because float64 has limited digits for a large time.
    rounded = high * (ROUNDED + PHASE * speed * ((middle.abs() + since.abs()).unsqueeze(-1) + half)) + SMALLEST
    # If it turns too often within the window, the only bound is the disc with the largest modulus.
    lost = ~(off <= high)
    size = torch.exp(-rate * passed).masked_fill(lost, 0.0)
    remainder, angle = torch.where(lost, high, off) + rounded, frequency * passed
    return ChebyshevPiece(size * torch.cos(angle), remainder), ChebyshevPiece(size * torch.sin(angle), remainder)
