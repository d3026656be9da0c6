"""Bounds of a quantity on a short window of time: values at a few times, and a proved bound of the error between them.

On a window `t = middle + half·s`, `-1 <= s <= 1`, a quantity is the polynomial through its values at Chebyshev's nodes, up to `remainder`.
The error at the nodes is 0: there the values are those of the network. Linear maps apply to values and remainders alike. A curve `f` of a
polynomial `p` is not a polynomial; the polynomial through its values at `n + 1` nodes has an error of at most `2^-n` times the largest
`(n+1)`-th coefficient of `f(p(s + z))`, as a series in `z`, for any `s`. That coefficient is bounded in terms of the Taylor coefficients
of `p` and `f`: for `p` they are bounded on the whole window, for `f` on the range of `p`.

With one node, in the middle of a window of length 0, a quantity is just its value. All numbers are float64. Rounding is added to the
remainder where numbers enter: at least `ROUNDED` times their size. Linear maps add up these errors with the absolute sizes of all terms, so
that a sum whose terms cancel gets a larger error. Final bounds are widened by a relative 1e-9 (`upper`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.polynomial import Polynomial, chebyshev
from torch import Tensor

from foretell.nn.intensity import softplus as plain_softplus

DEGREE = 3  # the fastest for trained models: 2 needs more pieces, and with 4 each piece takes longer
SLACK = 1e-9  # relative allowance for rounding in sums
ROUNDED = 4e-14  # relative error of every number; more than a sum of some hundred terms loses
PHASE = 8.0 * 2.0**-53  # relative rounding error of a phase
SMALLEST = 1e-300  # float64 loses digits below this


@dataclass(frozen=True)
class ChebyshevPiece:
    v: Tensor  # float64 [degree + 1, ...]: values at the nodes
    remainder: Tensor  # float64 [...], at least 0: bound of the error between the nodes; no bound is known if it is infinite or NaN
    length: Tensor | None = None  # float64 [..., 1]: bound of the Euclidean norm of a row (last dimension) of errors

    @property
    def degree(self) -> int:
        return self.v.shape[0] - 1

    def off_length(self) -> Tensor:
        """Return a bound of the Euclidean norm of a row of errors: [..., 1]."""
        found = torch.linalg.vector_norm(self.remainder, dim=-1, keepdim=True)
        return found if self.length is None else torch.fmin(found, self.length)

    def __add__(self, other: ChebyshevPiece | Tensor) -> ChebyshevPiece:
        if isinstance(other, Tensor):
            return self.plus(other)
        known = self.length is not None or other.length is not None
        length = self.off_length() + other.off_length() if known else None
        return ChebyshevPiece(self.v + other.v, self.remainder + other.remainder, length)

    def __neg__(self) -> ChebyshevPiece:
        return ChebyshevPiece(-self.v, self.remainder, self.length)

    def __sub__(self, other: Tensor) -> ChebyshevPiece:
        return self.plus(-other)

    def __mul__(self, other: ChebyshevPiece | Tensor) -> ChebyshevPiece:
        if isinstance(other, Tensor):
            return self.times(other)
        value = self.v * other.v
        if not self.degree:
            return point(value[0])
        a, b = self.shape(), other.shape()
        met = sum((a.most[i - 1] * b.most[-i] for i in range(1, self.degree + 1)), torch.zeros_like(self.remainder))
        off = torch.addcmul(met / 2.0**self.degree, a.size, other.remainder)
        most, length = b.size + other.remainder, self.length
        if length is not None:
            length = torch.linalg.vector_norm(off, dim=-1, keepdim=True) + length * most.amax(-1, keepdim=True)
        return ChebyshevPiece(value, torch.addcmul(off, most, self.remainder), length)

    def plus(self, value: Tensor) -> ChebyshevPiece:
        """Return the piece plus a value that is constant in time."""
        if not self.degree:
            return point(self.v[0] + value)
        rounded, length = ROUNDED * value.abs(), self.length
        if length is not None:
            length = length + torch.linalg.vector_norm(rounded.expand_as(self.remainder), dim=-1, keepdim=True)
        return ChebyshevPiece(self.v + value, self.remainder + rounded, length)

    def times(self, factor: Tensor | float) -> ChebyshevPiece:
        """Return the piece times a factor that is constant in time."""
        size = factor.abs() if isinstance(factor, Tensor) else abs(factor)
        length = self.length
        if length is not None:
            length = length * (size.amax(-1, keepdim=True) if isinstance(size, Tensor) and size.dim() else size)
        return ChebyshevPiece(self.v * factor, self.remainder * size, length)

    def through(self, matrix: Tensor) -> ChebyshevPiece:
        """Return `x @ matrix` for rows x [..., in] and a matrix [..., in, out] that is constant in time."""
        if not self.degree:
            return point(self.v[0] @ matrix)
        v, remainder = self.v @ matrix, self.remainder @ matrix.abs()
        if self.length is None or matrix.dim() > 2:
            return ChebyshevPiece(v, remainder)
        columns = torch.linalg.vector_norm(matrix, dim=0)
        return ChebyshevPiece(v, torch.fmin(remainder, self.length * columns), self.length * spectral_norm(matrix))

    def map(self, change: Callable[[Tensor], Tensor]) -> ChebyshevPiece:
        """Apply `change`, which moves, repeats or drops elements. It must count dimensions from the last one."""
        return ChebyshevPiece(change(self.v), change(self.remainder))

    def shape(self) -> PolynomialShape:
        """Return bounds of the polynomial's values and coefficients anywhere on the window."""
        return polynomial_shape(self.series())

    def series(self) -> Tensor:
        """Return the coefficients of Chebyshev polynomials: [degree + 1, ...]."""
        return _mixed(_inverse(self.degree, self.v.device), self.v)

    def curves(self) -> PolynomialCurves:
        """Return the polynomials with bounds of their error, which hold on the whole window."""
        return PolynomialCurves(self.series(), self.shape().off(self.remainder))

    def upper(self) -> Tensor:
        """Return an upper bound of the values on the window: [...]."""
        return self.shape().upper(self.remainder)

    def lower(self) -> Tensor:
        return self.shape().lower(self.remainder)


@dataclass(frozen=True)
class PolynomialCurves:
    """Polynomials, and bounds of the distance between the true values and these."""

    series: Tensor  # [degree + 1, ...]: coefficients of Chebyshev polynomials
    off: Tensor  # [...]

    def map(self, change: Callable[[Tensor], Tensor]) -> PolynomialCurves:
        return PolynomialCurves(change(self.series), change(self.off))

    def range_at(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return lower and upper bounds [n, ...] of the values at positions `s` [n], from -1 to 1 (with a tolerance of 1e-11)."""
        s = s.view(-1, *[1] * (self.off.dim() - 1))
        first, *others = self.series.unbind(0)
        found, before, twice = torch.zeros_like(first), torch.zeros_like(first), 2.0 * s
        for a in reversed(others):  # Clenshaw's recurrence
            found, before = torch.addcmul(a - before, twice, found), found
        found = torch.addcmul(first - before, s, found)
        return found - self.off, found + self.off


@dataclass(frozen=True)
class PolynomialShape:
    """Bounds of a polynomial. On the window no Chebyshev polynomial exceeds 1, and its derivatives are largest at the end (Markov)."""

    centre: Tensor  # [...]: about the mean of the polynomial
    swing: Tensor  # [...]: the largest distance from `centre`
    most: Tensor  # [degree, ...]: bounds of the first, second, … Taylor coefficient at any `s`

    @property
    def size(self) -> Tensor:
        """A bound of the polynomial's absolute value: [...]."""
        return self.centre.abs() + self.swing

    def off(self, remainder: Tensor) -> Tensor:
        """Return a bound of the distance between a value and the polynomial's, with rounding; 0 where both are 0."""
        size = self.size + remainder
        return remainder + SLACK * size + SMALLEST * (size != 0.0).to(size.dtype)

    def upper(self, remainder: Tensor) -> Tensor:
        return self.centre + self.swing + self.off(remainder)

    def lower(self, remainder: Tensor) -> Tensor:
        return self.centre - self.swing - self.off(remainder)


def polynomial_shape(series: Tensor) -> PolynomialShape:
    """Compute the shape from coefficients of Chebyshev polynomials [degree + 1, ...], which are overwritten."""
    most = _mixed(_steepest(len(series) - 1, series.device), series[1:].abs_())
    return PolynomialShape(series[0], most[0], most[1:])


def point(value: Tensor) -> ChebyshevPiece:
    return ChebyshevPiece(value.unsqueeze(0), _zero(value.device).expand(value.shape))


def constant(value: Tensor, degree: int) -> ChebyshevPiece:
    return ChebyshevPiece(value.expand(degree + 1, *value.shape), _zero(value.device).expand(value.shape))


def between(low: Tensor, high: Tensor, degree: int) -> ChebyshevPiece:
    """Return a piece whose value may be anything from `low` to `high` at any time."""
    return ChebyshevPiece(((low + high) / 2.0).expand(degree + 1, *low.shape), (high - low) / 2.0)


def waves(middle: Tensor, half: Tensor, frequency: Tensor, phase: Tensor, degree: int) -> ChebyshevPiece:
    """Return `sin(frequency·t + phase)` on `middle ± half` as a piece [..., F], from [...] and [F]."""
    turns = (middle.unsqueeze(-1) * frequency + phase).remainder(2.0 * math.pi)
    if not degree:
        return point(torch.sin(turns))
    swing = half.unsqueeze(-1) * frequency
    at = places(degree, middle.device).view(-1, *[1] * swing.dim())
    off = _power(swing, degree + 1) * (1.0 / (math.factorial(degree + 1) * 2.0**degree))
    # A phase is rounded, here and where the model computes the wave, because float64 has limited digits for a large time.
    off = off + ROUNDED + PHASE * (middle.abs() + half).unsqueeze(-1) * frequency
    # If a wave turns too often within the window, the only bound is that it is between -1 and 1.
    lost = off >= 1.0
    v = torch.sin(turns + swing * at)
    if not bool(lost.any()):
        return ChebyshevPiece(v, off)
    return ChebyshevPiece(v.masked_fill(lost, 0.0), torch.where(lost, torch.ones_like(off), off))


def elapsed(middle: Tensor, half: Tensor, since: Tensor, degree: int) -> ChebyshevPiece:
    """Return `t − since` on `middle ± half` as a piece [...]."""
    if not degree:
        return point(middle - since)
    at = places(degree, middle.device).view(-1, *[1] * middle.dim())
    rounded = (PHASE + ROUNDED) * (middle.abs() + since.abs() + half)
    return ChebyshevPiece((middle - since) + half * at, rounded)


def decay(middle: Tensor, half: Tensor, since: Tensor, rate: Tensor, degree: int) -> ChebyshevPiece:
    """Return `exp(−rate·(t − since))` on `middle ± half` as a piece [..., F], from [...] and rates [..., F] that are at least 0.

    A cell that drifts from `c` to its target is `decay(…).times(c − target).plus(target)`. Every derivative is largest at the start of the
    window, so the polynomial through `n + 1` values has an error of at most `x^(n+1)/((n+1)! 2^n)` times the value there, `x = rate·half`.
    """
    if not degree:
        return point(torch.exp(-rate * (middle - since).unsqueeze(-1)))
    elapsed, swing = (middle - since).unsqueeze(-1), rate * half.unsqueeze(-1)
    at = places(degree, middle.device).view(-1, *[1] * swing.dim())
    high, low = torch.exp(swing - rate * elapsed), torch.exp(-swing - rate * elapsed)
    off = high * _power(swing, degree + 1) * (1.0 / (math.factorial(degree + 1) * 2.0**degree))
    # The ends of a window and the elapsed time are rounded, because float64 has limited digits for a large time.
    rounded = high * (ROUNDED + PHASE * rate * (middle.abs() + since.abs() + half).unsqueeze(-1)) + SMALLEST
    # The function decreases. Where this gives a better bound, the piece is anywhere between the first and the last value.
    plain = between(low, high, degree)
    lost = ~(off <= plain.remainder)  # true for NaN, too
    v = torch.exp(-rate * elapsed - swing * at)
    return ChebyshevPiece(torch.where(lost, plain.v, v), torch.where(lost, plain.remainder, off) + rounded)


def exp_off(p: PolynomialShape, remainder: Tensor) -> Tensor:
    """Return a bound of the distance between `e^x` and the polynomial through its values, where `x` is `p` up to `remainder`."""
    most = p.most.unbind(0)
    degree = len(most)
    series = [most[0]]  # coefficients 1, 2, …; coefficient 0 is 1
    for k in range(2, degree + 2):  # k·c_k = Σ_i i·p_i·c_{k−i}, with c the coefficients of the result
        found = most[k - 1] if k <= degree else torch.zeros_like(most[0])
        for i in range(1, min(k - 1, degree) + 1):
            found = torch.addcmul(found, most[i - 1], series[k - i - 1], value=i / k)
        series.append(found)
    upper = (p.centre + p.swing).add_(remainder).exp_()
    # `e^(p + r) − e^p` is at most `1 − e^(-r)` (or r) times the largest `e^(p + r)`. All values at the nodes are below that maximum.
    share = torch.add(remainder, series[-1], alpha=0.5**degree).add_(ROUNDED).clamp_(max=1.0 + overshoot(degree))
    return share.mul_(upper)


def tanh(x: ChebyshevPiece) -> ChebyshevPiece:
    if not x.degree:
        return point(torch.tanh(x.v[0]))
    shape = x.shape()
    reach = shape.swing + x.remainder
    slope = 1.0 - _tanh((shape.centre.abs() - reach).clamp(min=0.0)).square()
    # Every derivative is the slope times a polynomial of tanh, and also has a bound that does not depend on the slope.
    bounds = [torch.clamp(slope * by_slope, max=alone) for by_slope, alone in _tanh_bounds(x.degree + 1)[1:]]
    # Far from 0 the slope vanishes, but the value is still rounded.
    return curve_piece(x, shape, _tanh, bounds, slope, (slope * reach + ROUNDED).clamp(max=2.0))


def softplus(x: ChebyshevPiece) -> ChebyshevPiece:
    """`log(1 + e^x)`."""
    if not x.degree:
        return point(plain_softplus(x.v[0]))
    shape = x.shape()
    reach = shape.swing + x.remainder
    slope = torch.sigmoid(shape.centre + reach)
    # The slope is σ(x), and its derivatives are σ times a polynomial of σ.
    bounds = [torch.clamp(slope * by_slope, max=alone) for by_slope, alone in _softplus_bounds(x.degree + 1)[1:]]
    return curve_piece(x, shape, plain_softplus, bounds, slope, slope * reach + SMALLEST)


def power(x: ChebyshevPiece, exponent: Tensor | float) -> ChebyshevPiece:
    """Return `x^exponent` for `x` above 0; the remainder is infinite where `x` may not be positive."""
    if not x.degree:
        return point(x.v[0] ** exponent)
    shape = x.shape()
    low, high = shape.lower(x.remainder), shape.upper(x.remainder)
    safe = low.clamp(min=1e-300)
    bounds, factor = [], 1.0
    for j in range(1, x.degree + 2):
        factor = factor * (exponent - (j - 1)) / j
        size = factor.abs() if isinstance(factor, Tensor) else abs(factor)
        bounds.append(size * torch.maximum(safe ** (exponent - j), high ** (exponent - j)))
    v = x.v.clamp(min=1e-300) ** exponent
    off = coefficient_beyond(bounds[1:], shape.most) / 2.0**x.degree + bounds[0] * x.remainder + ROUNDED * v.amax(0)
    return ChebyshevPiece(v, torch.where(low > 0.0, off, torch.inf))


def relu(x: ChebyshevPiece) -> ChebyshevPiece:
    """Return `max(x, 0)`: `x`, 0, or, where the sign is not certain, a line with an error that covers both."""
    if not x.degree:
        return point(x.v[0].clamp(min=0.0))
    shape = x.shape()
    low, high = shape.lower(x.remainder), shape.upper(x.remainder)
    slope = torch.where(low >= 0.0, 1.0, torch.where(high <= 0.0, 0.0, high / (high - low).clamp(min=1e-300)))
    gap = torch.where((low < 0.0) & (high > 0.0), -slope * low, 0.0) / 2.0
    line = x.times(slope).plus(gap)
    return ChebyshevPiece(line.v, line.remainder + gap)


def tighter(found: ChebyshevPiece, low: Tensor, high: Tensor) -> ChebyshevPiece:
    """Return the computed piece, or the range `low` to `high` where that is narrower."""
    worse = ~(found.remainder <= 0.5 * (high - low))  # true if the remainder is NaN
    return ranged(found, worse, low, high) if bool(worse.any()) else found


def ranged(found: ChebyshevPiece, where: Tensor, low: Tensor, high: Tensor) -> ChebyshevPiece:
    """Return the computed piece, with the range `low` to `high` instead where `where` is true."""
    plain = between(low, high, found.degree)
    v, remainder = torch.where(where, plain.v, found.v), torch.where(where, plain.remainder, found.remainder)
    length = None if found.length is None else found.length.masked_fill(where.any(-1, keepdim=True), torch.inf)
    return ChebyshevPiece(v, remainder, length)


def unless_known(upper: Tensor) -> Tensor:
    """Return the bound, with infinity in place of NaN."""
    return upper.nan_to_num(nan=math.inf, posinf=math.inf)


def curve_piece(
    x: ChebyshevPiece,
    shape: PolynomialShape,
    curve: Callable[[Tensor], Tensor],
    bounds: Sequence[Tensor],
    slope: Tensor,
    most: Tensor,
) -> ChebyshevPiece:
    """Return the piece of a curve of `x` that is never further than `most` from its value at the centre.

    `slope` bounds the first Taylor coefficient of the curve anywhere within reach, `bounds` the second and later ones.
    """
    beyond = coefficient_beyond(bounds, shape.most).mul_(0.5**x.degree).add_(ROUNDED)
    off = torch.addcmul(beyond, slope, x.remainder)
    length = None
    if x.length is not None:
        length = x.length * slope.amax(-1, keepdim=True) + torch.linalg.vector_norm(beyond, dim=-1, keepdim=True)
    lost = ~(off <= most)  # true for NaN, too
    if not bool(lost.any()):
        return ChebyshevPiece(curve(x.v), off, length)
    if length is not None:  # no bound of a row's norm is left once an element is lost
        length = length.masked_fill(lost.any(-1, keepdim=True), torch.inf)
    return ChebyshevPiece(torch.where(lost, curve(shape.centre), curve(x.v)), torch.where(lost, most, off), length)


def coefficient_beyond(bounds: Sequence[Tensor], most: Tensor) -> Tensor:
    """Return a bound of coefficient degree + 1 of `Σ_{j≥2} bounds_j p^j`, where `most` bounds the coefficients of `p` from the first on."""
    p = most.unbind(0)
    last = len(p) + 1
    powers = p  # coefficients j … degree of p^j, and from p² on one more
    out = torch.zeros_like(p[0])
    for j in range(2, last + 1):
        made = []
        for k in range(j, last + 1):
            # Coefficient k of p^j; the coefficients of p^(j-1) begin at j - 1.
            first, *others = range(max(1, k - j + 2 - len(powers)), min(k - j + 1, last - 1) + 1)
            found = p[first - 1] * powers[k - first - j + 1]
            for i in others:
                found.addcmul_(p[i - 1], powers[k - i - j + 1])
            made.append(found)
        powers = made
        out.addcmul_(bounds[j - 2], powers[-1])
    return out


def _tanh(x: Tensor) -> Tensor:
    """Return tanh with an error of `ROUNDED`, in half the time of `torch.tanh`."""
    return torch.sigmoid(2.0 * x).mul_(2.0).sub_(1.0)


def places(degree: int, device: torch.device) -> Tensor:
    """Return Chebyshev's nodes on [-1, 1]: [degree + 1]; a single node is in the middle."""
    return _places(degree).to(device)


@lru_cache
def _zero(device: torch.device) -> Tensor:
    return torch.zeros((), dtype=torch.float64, device=device)


@lru_cache
def _places(degree: int) -> Tensor:
    return torch.cos(math.pi * (torch.arange(degree + 1, dtype=torch.float64) + 0.5) / (degree + 1))


@lru_cache
def _inverse(degree: int, device: torch.device) -> Tensor:
    """Return the matrix from values at the nodes to coefficients of Chebyshev polynomials."""
    return torch.from_numpy(np.linalg.inv(chebyshev.chebvander(_places(degree).numpy(), degree))).to(device)


@lru_cache
def _steepest(degree: int, device: torch.device) -> Tensor:
    """Return coefficient i of `T_k(1 + z)` in z, its maximum over the window, for k ≥ 1; row i = 0 is the maximum of `T_k` itself."""
    each = [[0.0] * k + [1.0] for k in range(1, degree + 1)]
    rows = [
        [chebyshev.chebval(1.0, chebyshev.chebder(one, i)) / math.factorial(i) for one in each]
        for i in range(degree + 1)
    ]
    return torch.tensor(rows, dtype=torch.float64, device=device).view(degree + 1, degree)


@lru_cache
def _tanh_bounds(orders: int) -> list[tuple[float, float]]:
    """Return bounds of Taylor coefficients 1, 2, … of tanh at any point: relative to the slope there, and absolute."""
    return derivative_bounds(orders, Polynomial([1.0, 0.0, -1.0]), Polynomial([1.0, 0.0, -1.0]), -1.0)


@lru_cache
def _softplus_bounds(orders: int) -> list[tuple[float, float]]:
    return derivative_bounds(orders, Polynomial([0.0, 1.0]), Polynomial([0.0, 1.0, -1.0]), 0.0)


def derivative_bounds(orders: int, slope: Polynomial, moves: Polynomial, low: float) -> list[tuple[float, float]]:
    """Return bounds of Taylor coefficients 1, 2, … of a curve at any point: relative to its slope there, and absolute.

    The slope is a polynomial in a variable `y` from `low` to 1; the polynomial `moves` is the derivative of `y`.
    """
    share, bounds = Polynomial([1.0]), []
    for order in range(1, orders + 1):
        whole = share * slope  # the derivative of that order
        size = (1.0 + 1e-6) / math.factorial(order)
        bounds.append((_largest(share, low) * size, _largest(whole, low) * size))
        share = whole.deriv() * (moves // slope)
    return bounds


def _largest(polynomial: Polynomial, low: float) -> float:
    """Return the largest absolute value of a polynomial from `low` to 1, which is at a root of its derivative or at an end."""
    turns = polynomial.deriv().roots() if polynomial.degree() > 1 else np.zeros(0)
    within = np.clip(turns.real, low, 1.0)  # the real part of a complex root is a harmless extra point
    return float(np.abs(polynomial(np.concatenate([within, [low, 1.0]]))).max())


@lru_cache
def overshoot(degree: int) -> float:
    """Return by which factor a polynomial on the window can exceed all its values at the nodes."""
    grid = np.linspace(-1.0, 1.0, 20_001)
    return float(
        np.abs(chebyshev.chebvander(grid, degree) @ _inverse(degree, torch.device("cpu")).numpy()).sum(1).max()
        * (1.0 + 1e-6)
    )


def spectral_norm(matrix: Tensor) -> Tensor:
    """Return an upper bound of the largest singular value; for a hundred rows it is at most a tenth too large.

    The bound is `(Σ σ³²)^(1/32)` over the singular values σ, from the Frobenius norm of a power of the matrix.
    """
    if not matrix.numel():
        return torch.linalg.matrix_norm(matrix)
    largest = matrix.abs().amax((-2, -1), keepdim=True).clamp(min=SMALLEST)  # squares of small numbers would underflow
    norm = torch.linalg.matrix_norm(matrix / largest, keepdim=True).clamp(min=SMALLEST)
    shrunk, size = matrix / largest / norm, (largest * norm)[..., 0, 0]
    gram = shrunk @ shrunk.mT if matrix.shape[-2] < matrix.shape[-1] else shrunk.mT @ shrunk
    for _ in range(3):
        gram = gram @ gram
    return size * torch.linalg.matrix_norm(gram) ** 0.0625 * (1.0 + SLACK)


def _mixed(matrix: Tensor, values: Tensor) -> Tensor:
    return (matrix @ values.flatten(1)).view(len(matrix), *values.shape[1:])


def _power(x: Tensor, exponent: int) -> Tensor:
    """Return `x^exponent` by repeated products, which is faster than `x ** exponent`."""
    found = x if exponent % 2 else None
    while exponent := exponent // 2:
        x = x * x
        if exponent % 2:
            found = x if found is None else found * x
    assert found is not None
    return found
