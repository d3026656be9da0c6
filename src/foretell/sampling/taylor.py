"""Taylor models: what a network does on a short window of time, as polynomials of time with proved remainders.

A quantity on the window `t = middle + half·s`, `-1 <= s <= 1`, is `Σ_k c_k s^k` up to `remainder`. Everything on the way from the time
features to the intensities depends on the one variable `s`, so that what cancels in the network cancels here too; plain intervals lose
that, and are hundreds of times too wide (docs/explanation/sampling.md). Operations are applied to the polynomials, and what they drop goes
into the remainder: products lose the powers above the degree, and functions the tail of their series, which a majorant series (one with
the absolute values of all coefficients) bounds. Where a series does not converge the remainder is infinite: the window must be shorter.

A Taylor model of degree 0 is the value at a point: it has no remainder, and none is computed. So a network that is written over Taylor
models once gives both its values and their bounds.

All is float64. Rounding is covered by widening every final bound by a relative 1e-9 (`upper`), some thousand times what operations on
float64 lose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from foretell.nn.intensity import softplus as nn_softplus

DEGREE = 3  # the cheapest for trained models: 2 needs more pieces, 6 twice the time for each
SLACK = 1e-9  # of everything that was summed up, for rounding
ROUNDED = 8.0 * 2.0**-53  # of a phase
NEAR_ZERO = 0.95  # of its middle value, that a denominator may swing


@dataclass(frozen=True)
class Taylor:
    c: Tensor  # float64 [degree + 1, ...]
    remainder: Tensor  # float64 [...], at least 0; infinite: nothing is known

    @property
    def degree(self) -> int:
        return len(self.c) - 1

    @property
    def shape(self) -> torch.Size:
        return self.remainder.shape

    def __add__(self, other: Taylor) -> Taylor:
        return Taylor(self.c + other.c, self.remainder + other.remainder)

    def plus(self, value: Tensor) -> Taylor:
        """With something added that does not change with time, and no more dimensions than this has."""
        return Taylor(torch.cat([self.c[:1] + value, self.c[1:]]), self.remainder)

    def __neg__(self) -> Taylor:
        return Taylor(-self.c, self.remainder)

    def __sub__(self, other: Taylor) -> Taylor:
        return Taylor(self.c - other.c, self.remainder + other.remainder)

    def times(self, factor: Tensor | float) -> Taylor:
        """Multiplied by something that does not change with time."""
        size = factor.abs() if isinstance(factor, Tensor) else abs(factor)
        return Taylor(self.c * factor, self.remainder * size)

    def __mul__(self, other: Taylor) -> Taylor:
        return _product(self, other)

    def through(self, matrix: Tensor, size: Tensor | None = None) -> Taylor:
        """`x @ matrix` for rows x [..., in] and a matrix [..., in, out] that does not change with time; `size` is its `abs()`, if known."""
        if self.degree == 0:
            return point(self.c[0] @ matrix)
        remainder = self.remainder @ (matrix.abs() if size is None else size)
        if matrix.dim() == 2:
            return Taylor(self.c @ matrix, remainder)
        rows = self.c.movedim(0, -3)  # side by side, so that the matrices are not repeated for every power
        out = rows.flatten(-3, -2) @ matrix
        c = out.unflatten(-2, rows.shape[-3:-1]).movedim(-3, 0)
        return Taylor(c, remainder)

    def sum(self, dim: int) -> Taylor:
        assert dim < 0
        return Taylor(self.c.sum(dim), self.remainder.sum(dim))

    def map(self, change: Callable[[Tensor], Tensor]) -> Taylor:
        """Rearranged: `change` moves, repeats or leaves out elements and does nothing to their values; dimensions count from the last."""
        return Taylor(change(self.c), change(self.remainder))

    def upper(self) -> Tensor:
        """No smaller than any value on the window."""
        even, odd = self.c[2::2], self.c[1::2]
        size = self.c.abs().sum(0) + self.remainder
        return self.c[0] + odd.abs().sum(0) + even.clamp(min=0.0).sum(0) + self.remainder + SLACK * size

    def lower(self) -> Tensor:
        return -(-self).upper()

    def spread(self) -> Tensor:
        """How far it can be from the middle value `c[0]`: [...]."""
        return self.c[1:].abs().sum(0) + self.remainder

    def at(self, s: Tensor) -> Tensor:
        """The polynomial's value, for tests and proposals."""
        out = torch.zeros_like(self.c[0] * s)
        for c in reversed(self.c.unbind(0)):
            out = out * s + c
        return out


def point(value: Tensor) -> Taylor:
    return Taylor(value[None], value.new_zeros(()).expand(value.shape))


def constant(value: Tensor, degree: int = DEGREE) -> Taylor:
    if degree == 0:
        return point(value)
    c = value.new_zeros(degree + 1, *value.shape)
    c[0] = value
    return Taylor(c, torch.zeros_like(value))


def between(low: Tensor, high: Tensor, degree: int = DEGREE) -> Taylor:
    """Somewhere from `low` to `high`, however it changes."""
    known = constant((low + high) / 2.0, degree)
    return Taylor(known.c, (high - low) / 2.0)


def waves(middle: Tensor, half: Tensor, frequency: Tensor, phase: Tensor, degree: int = DEGREE) -> Taylor:
    """`sin(frequency·t + phase)` on `middle ± half`: [..., F] from [...] and [F].

    The polynomial goes through the values at Chebyshev's nodes: the error is at most `x^(n+1) / ((n+1)! 2^n)` with `x = frequency·half`.
    """
    if degree == 0:
        return point(torch.sin((middle.unsqueeze(-1) * frequency + phase).remainder(2.0 * math.pi)))
    nodes, inverse = _chebyshev(degree, middle.device)
    swing = half.unsqueeze(-1) * frequency
    turns = (middle.unsqueeze(-1) * frequency + phase).remainder(2.0 * math.pi)
    values = torch.sin(turns + swing * nodes.view(-1, *[1] * swing.dim()))
    c = torch.tensordot(inverse, values, dims=1)
    off = torch.exp(
        (degree + 1) * torch.log(swing.clamp(min=1e-300)) - math.lgamma(degree + 2) - degree * math.log(2.0)
    )
    # A phase is rounded, here and wherever the wave's value is computed, by what float64 leaves of a large time.
    off = off + ROUNDED * (16.0 + (middle.abs() + half).unsqueeze(-1) * frequency)
    # A wave that turns too often to be followed is anywhere between -1 and 1.
    lost = off >= 1.0
    return Taylor(c.masked_fill(lost, 0.0), torch.where(lost, torch.ones_like(off), off))


@lru_cache
def _chebyshev(degree: int, device: torch.device) -> tuple[Tensor, Tensor]:
    nodes = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    inverse = np.linalg.inv(np.vander(nodes, increasing=True))
    return torch.from_numpy(nodes).to(device), torch.from_numpy(inverse).to(device)


def _convolve(a: Tensor, b: Tensor) -> Tensor:
    """The powers up to the degree of a product."""
    out = a[0] * b
    for i in range(1, len(a)):
        out[i:] += a[i] * b[: len(b) - i]
    return out


def _product(a: Taylor, b: Taylor) -> Taylor:
    if a.degree == 0:
        return point(a.c[0] * b.c[0])
    c = _convolve(a.c, b.c)
    size_a, size_b = a.c.abs(), b.c.abs()
    kept = _convolve(size_a, size_b).sum(0)
    whole_a, whole_b = size_a.sum(0), size_b.sum(0)
    dropped = (whole_a * whole_b - kept).clamp(min=0.0)
    remainder = dropped + whole_a * b.remainder + whole_b * a.remainder + a.remainder * b.remainder
    return Taylor(c, remainder)


def exp(x: Taylor) -> Taylor:
    """`e^x`: of `y' = x' y`. Its majorant is the same series of the absolute values, whose sum is `e^Σ|c|`."""
    if x.degree == 0:
        return point(torch.exp(x.c[0]))
    size = x.c.abs()
    y, most = _exp_series(x.c), _exp_series(size)
    top = torch.exp(x.c[0])
    swing = size[1:].sum(0)
    tail = (torch.exp(swing) - most.sum(0)).clamp(min=0.0)
    moved = torch.expm1(x.remainder) * torch.exp(swing)
    return Taylor(y * top, (tail + moved) * top)


def _exp_series(g: Tensor) -> Tensor:
    """Of `g - g_0`."""
    y = [torch.ones_like(g[0])]
    for k in range(1, len(g)):
        y.append(_weighted([i / k for i in range(1, k + 1)], g[1:], y))
    return torch.stack(y)


def inverse_power(x: Taylor, power: float) -> Taylor:
    """`x^-power` where `x` stays above 0; the majorant of `(1 + g)^-power` is `(1 - |g|)^-power`."""
    if x.degree == 0:
        return point(x.c[0] ** -power)
    top = x.c[0]
    g = x.c[1:] / top
    size = g.abs()
    y, most = [torch.ones_like(top)], [torch.ones_like(top)]
    for k in range(1, len(x.c)):
        weights = [(power * i + k - i) / k for i in range(1, k + 1)]
        y.append(-_weighted(weights, g, y))
        most.append(_weighted(weights, size, most))
    swing, moved = size.sum(0), x.remainder / top.abs()
    converges = (top > 0.0) & (swing + moved < NEAR_ZERO)
    left = (1.0 - swing).clamp(min=1e-3)
    tail = (left**-power - sum(most[1:], most[0])).clamp(min=0.0)
    tail = tail + power * moved * (left - moved).clamp(min=1e-3) ** (-power - 1.0)
    scale = top.abs() ** -power
    return Taylor(torch.stack(y) * scale, torch.where(converges, tail * scale, torch.inf))


def _weighted(weights: list[float], g: Tensor, y: list[Tensor]) -> Tensor:
    """`Σ_i weight_i g_i y_(k-i)` for the next `k`."""
    out = weights[0] * g[0] * y[-1]
    for i in range(1, len(weights)):
        out = out + weights[i] * g[i] * y[-1 - i]
    return out


def relu(x: Taylor) -> Taylor:
    """`max(x, 0)`: itself, nothing, or between two lines of one slope where the sign is not sure."""
    if x.degree == 0:
        return point(x.c[0].clamp(min=0.0))
    low, high = x.lower(), x.upper()
    slope = torch.where(low >= 0.0, 1.0, torch.where(high <= 0.0, 0.0, high / (high - low).clamp(min=1e-300)))
    gap = torch.where((low < 0.0) & (high > 0.0), -slope * low, 0.0)
    line = x.times(slope)
    return Taylor(line.plus(gap / 2.0).c, line.remainder + gap / 2.0)


def tanh(x: Taylor) -> Taylor:
    """By Taylor's series at the middle value; the next derivative is bounded everywhere."""
    if x.degree == 0:
        return point(torch.tanh(x.c[0]))
    return _composed(x, _tanh_series(x.c[0], x.degree), _tanh_bound(x.degree + 1), torch.tanh)


def softplus(x: Taylor) -> Taylor:
    """`log(1 + e^x)`; from the second on its derivatives are those of `(1 + tanh(x/2))/2`."""
    degree = x.degree
    if degree == 0:
        return point(nn_softplus(x.c[0]))
    inner = _tanh_series(x.c[0] / 2.0, degree - 1)
    series = [nn_softplus(x.c[0])]
    for k in range(1, degree + 1):
        half = inner[k - 1] / 2.0 ** (k - 1)
        series.append((half / 2.0 + (0.5 if k == 1 else 0.0)) / k)
    bound = _tanh_bound(degree) / 2.0 ** (degree + 1)
    return _composed(x, torch.stack(series), bound, nn_softplus)


def _composed(x: Taylor, series: Tensor, bound: float, exact: Callable[[Tensor], Tensor]) -> Taylor:
    """`Σ series_k (x - x_0)^k`, with the remainder of a function whose next derivative is at most `bound`.

    Where that is no better than the plain range of the (increasing) function, the range is taken.
    """
    g = Taylor(torch.cat([torch.zeros_like(x.c[:1]), x.c[1:]]), x.remainder)
    out = constant(series[-1], x.degree)
    for one in reversed(series[:-1].unbind(0)):
        product = out * g
        out = Taylor(torch.cat([product.c[:1] + one, product.c[1:]]), product.remainder)
    swing = x.spread()
    next_term = bound / math.factorial(len(series)) * swing ** len(series)
    found = Taylor(out.c, out.remainder + next_term)
    low, high = exact(x.lower()), exact(x.upper())
    plain = between(low, high, x.degree)
    better = ~(found.spread() <= (high - low))  # not a number counts as worse
    return Taylor(torch.where(better, plain.c, found.c), torch.where(better, plain.remainder, found.remainder))


def _tanh_series(middle: Tensor, degree: int) -> Tensor:
    """Coefficients at `middle`, of `y' = 1 - y²`."""
    y = [torch.tanh(middle)]
    for k in range(degree):
        square = sum((y[i] * y[k - i] for i in range(k + 1)), torch.zeros_like(middle))
        y.append(((1.0 if k == 0 else 0.0) - square) / (k + 1))
    return torch.stack(y)


@lru_cache
def _tanh_bound(order: int) -> float:
    """No smaller than any value of the derivative of tanh of that order: a polynomial of tanh, bounded on a fine grid with its slope."""
    polynomial = np.polynomial.Polynomial([0.0, 1.0])
    slope = np.polynomial.Polynomial([1.0, 0.0, -1.0])
    for _ in range(order):
        polynomial = polynomial.deriv() * slope
    grid = np.linspace(-1.0, 1.0, 200_001)
    steepest = float(np.abs(polynomial.deriv().coef).sum())
    return float(np.abs(polynomial(grid)).max() + steepest * 0.5e-5)
