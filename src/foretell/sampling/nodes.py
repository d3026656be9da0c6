"""What a quantity does on a short window of time, from its values at a few moments and a proof of how far it can be off between them.

On a window `t = middle + half·s`, `-1 <= s <= 1`, a quantity is the polynomial through its values at Chebyshev's nodes, up to `remainder`.
At the nodes nothing is ever off: the values are those of the network at these times. Whatever is linear treats values and remainders
alike. A curve `f` of a polynomial `p` is no polynomial; the one through its values at `n + 1` nodes is off by at most `2^-n` times the
largest `(n+1)`-th coefficient that `f(p(s + z))`, as a series of `z`, has anywhere on the window. Of `p` the largest coefficients are known
from its own, and of `f` from the range of `p`; the series of these bounds that one.

With one node, in the middle of a window without length, a quantity is just its value. All is float64. Rounding is covered where numbers
come in: each may be off by `ROUNDED` of its size at the least, which linear maps carry on with the sizes of all that they add up, so that
sums that cancel are known to be off by more. Final bounds are widened by a relative 1e-9 (`upper`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from foretell.nn.intensity import softplus as plain_softplus

DEGREE = 3  # the cheapest for trained models: with 2 there are more pieces, with 4 each takes longer
SLACK = 1e-9  # of everything that was summed up, for rounding
ROUNDED = 4e-14  # of every number: more than a sum of some hundred terms loses
PHASE = 8.0 * 2.0**-53  # of a phase
SMALLEST = 1e-300  # below it numbers lose their digits


@dataclass(frozen=True)
class Nodes:
    v: Tensor  # float64 [degree + 1, ...]: at the nodes
    remainder: Tensor  # float64 [...], at least 0; infinite or not a number: nothing is known

    @property
    def degree(self) -> int:
        return self.v.shape[0] - 1

    def __add__(self, other: Nodes) -> Nodes:
        return Nodes(self.v + other.v, self.remainder + other.remainder)

    def __mul__(self, other: Nodes) -> Nodes:
        value = self.v * other.v
        if not self.degree:
            return point(value[0])
        a, b = self.shape(), other.shape()
        met = sum((a.most[i - 1] * b.most[-i] for i in range(1, self.degree + 1)), torch.zeros_like(self.remainder))
        off = a.size * other.remainder + b.size * self.remainder + self.remainder * other.remainder
        return Nodes(value, met / 2.0**self.degree + off)

    def plus(self, value: Tensor) -> Nodes:
        """With something added that does not change with time."""
        if not self.degree:
            return point(self.v[0] + value)
        return Nodes(self.v + value, self.remainder + ROUNDED * value.abs())

    def times(self, factor: Tensor | float) -> Nodes:
        """Multiplied by something that does not change with time."""
        size = factor.abs() if isinstance(factor, Tensor) else abs(factor)
        return Nodes(self.v * factor, self.remainder * size)

    def through(self, matrix: Tensor) -> Nodes:
        """`x @ matrix` for rows x [..., in] and a matrix [..., in, out] that does not change with time."""
        return Nodes(self.v @ matrix, self.remainder @ matrix.abs()) if self.degree else point(self.v[0] @ matrix)

    def map(self, change: Callable[[Tensor], Tensor]) -> Nodes:
        """Rearranged: `change` moves, repeats or leaves out elements; dimensions count from the last."""
        return Nodes(change(self.v), change(self.remainder))

    def shape(self) -> Shape:
        """The polynomial, and how large its coefficients can be anywhere on the window."""
        c = _mixed(_inverse(self.degree, self.v.device), self.v)
        most = _mixed(_shifted(self.degree, self.v.device), c[1:].abs())
        return Shape(c, most[0], most[1:])

    def range_at(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """No larger and no smaller than the value at `s` from -1 to 1 (which may be off by 1e-11): [n, ...] at [n]."""
        shape = self.shape()
        s = s.view(-1, *[1] * (self.remainder.dim() - 1))
        *others, found = shape.c.unbind(0)
        for c in reversed(others):
            found = found * s + c
        off = shape.off(self.remainder)
        return found - off, found + off

    def upper(self) -> Tensor:
        """No smaller than any value on the window."""
        return self.shape().upper(self.remainder)

    def lower(self) -> Tensor:
        return self.shape().lower(self.remainder)


@dataclass(frozen=True)
class Shape:
    c: Tensor  # [degree + 1, ...]: powers of s
    swing: Tensor  # [...]: how far it can be from its middle value
    most: Tensor  # [degree, ...]: no first, second, … coefficient at any `s` is larger

    @property
    def size(self) -> Tensor:
        """No value of the polynomial is larger."""
        return self.c[0].abs() + self.swing

    def off(self, remainder: Tensor) -> Tensor:
        """How far a value can be from the polynomial's, which is rounded; what is nothing is nothing."""
        size = self.size + remainder
        return remainder + SLACK * size + SMALLEST * (size != 0.0).to(size.dtype)

    def upper(self, remainder: Tensor) -> Tensor:
        even, odd = self.c[2::2], self.c[1::2]
        return self.c[0] + odd.abs().sum(0) + even.clamp(min=0.0).sum(0) + self.off(remainder)

    def lower(self, remainder: Tensor) -> Tensor:
        even, odd = self.c[2::2], self.c[1::2]
        return self.c[0] - odd.abs().sum(0) + even.clamp(max=0.0).sum(0) - self.off(remainder)


def point(value: Tensor) -> Nodes:
    return Nodes(value.unsqueeze(0), _zero(value.device).expand(value.shape))


def constant(value: Tensor, degree: int) -> Nodes:
    return Nodes(value.expand(degree + 1, *value.shape), _zero(value.device).expand(value.shape))


def between(low: Tensor, high: Tensor, degree: int) -> Nodes:
    """Somewhere from `low` to `high`, however it changes."""
    return Nodes(((low + high) / 2.0).expand(degree + 1, *low.shape), (high - low) / 2.0)


def waves(middle: Tensor, half: Tensor, frequency: Tensor, phase: Tensor, degree: int) -> Nodes:
    """`sin(frequency·t + phase)` on `middle ± half`: [..., F] from [...] and [F]."""
    turns = (middle.unsqueeze(-1) * frequency + phase).remainder(2.0 * math.pi)
    if not degree:
        return point(torch.sin(turns))
    swing = half.unsqueeze(-1) * frequency
    at = places(degree, middle.device).view(-1, *[1] * swing.dim())
    off = swing ** (degree + 1) / (math.factorial(degree + 1) * 2.0**degree)
    # A phase is rounded, here and wherever the wave's value is computed, by what float64 leaves of a large time.
    off = off + ROUNDED + PHASE * (middle.abs() + half).unsqueeze(-1) * frequency
    # A wave that turns too often to be followed is anywhere between -1 and 1.
    lost = off >= 1.0
    v = torch.sin(turns + swing * at)
    if not bool(lost.any()):
        return Nodes(v, off)
    return Nodes(v.masked_fill(lost, 0.0), torch.where(lost, torch.ones_like(off), off))


def decay(middle: Tensor, half: Tensor, since: Tensor, rate: Tensor, degree: int) -> Nodes:
    """`exp(−rate·(t − since))` on `middle ± half`: [..., F] from [...] and rates [..., F], none of them below 0.

    A cell that drifts from `c` to its target is `decay(…).times(c − target).plus(target)`. Every derivative is largest where the window
    begins, so that the polynomial through `n + 1` values is off by at most `x^(n+1)/((n+1)! 2^n)` of the value there, `x = rate·half`.
    """
    if not degree:
        return point(torch.exp(-rate * (middle - since).unsqueeze(-1)))
    elapsed, swing = (middle - since).unsqueeze(-1), rate * half.unsqueeze(-1)
    at = places(degree, middle.device).view(-1, *[1] * swing.dim())
    high, low = torch.exp(swing - rate * elapsed), torch.exp(-swing - rate * elapsed)
    off = high * swing ** (degree + 1) * (1.0 / (math.factorial(degree + 1) * 2.0**degree))
    # The ends of a window are rounded, by what float64 leaves of a large time; so is the time that has passed.
    rounded = high * (ROUNDED + PHASE * rate * (middle.abs() + since.abs() + half).unsqueeze(-1)) + SMALLEST
    # It only falls: where that says more, it is anywhere between its first and its last value.
    plain = between(low, high, degree)
    lost = ~(off <= plain.remainder)  # what is not a number is lost, too
    v = torch.exp(-rate * elapsed - swing * at)
    return Nodes(torch.where(lost, plain.v, v), torch.where(lost, plain.remainder, off) + rounded)


def exp_off(p: Shape, remainder: Tensor) -> Tensor:
    """How far `e^x` can be from the polynomial through its values, where `x` is `p` up to a remainder."""
    most = p.most.unbind(0)
    degree = len(most)
    weighted = [i * one for i, one in enumerate(most, start=1)]
    series = [most[0]]  # from the first on; before it there is 1
    for k in range(2, degree + 2):
        found = weighted[k - 1] if k <= degree else None
        for i in range(1, min(k - 1, degree) + 1):
            term = weighted[i - 1] * series[k - i - 1]
            found = term if found is None else found + term
        assert found is not None
        series.append(found * (1.0 / k))
    largest = torch.exp(p.c[0] + p.swing)
    return largest * (series[-1] * 0.5**degree + torch.expm1(remainder))


def tanh(x: Nodes) -> Nodes:
    if not x.degree:
        return point(torch.tanh(x.v[0]))
    shape = x.shape()
    reach = shape.swing + x.remainder
    slope = 1.0 - torch.tanh((shape.c[0].abs() - reach).clamp(min=0.0)).square()
    # Every derivative is the slope times a polynomial of tanh, and is bounded by itself, too.
    bounds = [torch.clamp(slope * by_slope, max=alone) for by_slope, alone in _tanh_bounds(x.degree + 1)]
    # Far from 0 the slope is nothing, and the value is rounded all the same.
    return _curve(x, shape, torch.tanh, bounds, slope, (slope * reach + ROUNDED).clamp(max=2.0))


def softplus(x: Nodes) -> Nodes:
    """`log(1 + e^x)`."""
    if not x.degree:
        return point(plain_softplus(x.v[0]))
    shape = x.shape()
    reach = shape.swing + x.remainder
    slope = torch.sigmoid(shape.c[0] + reach)
    # The slope is σ(x), and its derivatives are σ times a polynomial of σ.
    bounds = [torch.clamp(slope * by_slope, max=alone) for by_slope, alone in _softplus_bounds(x.degree + 1)]
    return _curve(x, shape, plain_softplus, bounds, slope, slope * reach)


def power(x: Nodes, exponent: Tensor | float) -> Nodes:
    """`x^exponent` where `x` stays above 0; nothing is known elsewhere."""
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
    off = _beyond(bounds, shape.most) / 2.0**x.degree + bounds[0] * x.remainder + ROUNDED * v.amax(0)
    return Nodes(v, torch.where(low > 0.0, off, torch.inf))


def relu(x: Nodes) -> Nodes:
    """`max(x, 0)`: itself, nothing, or between two lines of one slope where the sign is not sure."""
    if not x.degree:
        return point(x.v[0].clamp(min=0.0))
    shape = x.shape()
    low, high = shape.lower(x.remainder), shape.upper(x.remainder)
    slope = torch.where(low >= 0.0, 1.0, torch.where(high <= 0.0, 0.0, high / (high - low).clamp(min=1e-300)))
    gap = torch.where((low < 0.0) & (high > 0.0), -slope * low, 0.0) / 2.0
    line = x.times(slope).plus(gap)
    return Nodes(line.v, line.remainder + gap)


def tighter(found: Nodes, low: Tensor, high: Tensor) -> Nodes:
    """What was found, or, where that says less, just a range that is known."""
    worse = ~(found.shape().swing + found.remainder <= high - low)  # what is not a number says less
    if not bool(worse.any()):
        return found
    plain = between(low, high, found.degree)
    return Nodes(torch.where(worse, plain.v, found.v), torch.where(worse, plain.remainder, found.remainder))


def unless_known(upper: Tensor) -> Tensor:
    """A bound, infinite where it is not a number."""
    return upper.nan_to_num(nan=math.inf, posinf=math.inf)


def _curve(
    x: Nodes, shape: Shape, curve: Callable[[Tensor], Tensor], bounds: Sequence[Tensor], slope: Tensor, most: Tensor
) -> Nodes:
    """A curve that is never further than `most` from its middle value.

    `bounds` are of its first, second, … coefficient anywhere within reach, and `slope` is the first of them.
    """
    off = _beyond(bounds, shape.most) * 0.5**x.degree + slope * x.remainder + ROUNDED
    lost = ~(off <= most)  # what is not a number is lost, too
    if not bool(lost.any()):
        return Nodes(curve(x.v), off)
    return Nodes(torch.where(lost, curve(shape.c[0]), curve(x.v)), torch.where(lost, most, off))


def _beyond(bounds: Sequence[Tensor], most: Tensor) -> Tensor:
    """The coefficient after the degree of `Σ_j bounds_j p^j`, where `most` are those of `p`, from the first on."""
    p = most.unbind(0)
    last = len(p) + 1
    powers = p  # of p^j: coefficients j … degree, and from p² on the one after
    out = None
    for j in range(2, last + 1):
        made = []
        for k in range(j, last + 1):
            # Coefficient k of p^j; those of p^(j-1) begin at j - 1.
            found = None
            for i in range(max(1, k - j + 2 - len(powers)), min(k - j + 1, last - 1) + 1):
                term = p[i - 1] * powers[k - i - j + 1]
                found = term if found is None else found + term
            assert found is not None
            made.append(found)
        powers = made
        term = bounds[j - 1] * powers[-1]
        out = term if out is None else out + term
    assert out is not None
    return out


def places(degree: int, device: torch.device) -> Tensor:
    """Chebyshev's nodes on [-1, 1]; a single one is in the middle."""
    return _places(degree).to(device)


@lru_cache
def _zero(device: torch.device) -> Tensor:
    return torch.zeros((), dtype=torch.float64, device=device)


@lru_cache
def _places(degree: int) -> Tensor:
    return torch.cos(math.pi * (torch.arange(degree + 1, dtype=torch.float64) + 0.5) / (degree + 1))


@lru_cache
def _inverse(degree: int, device: torch.device) -> Tensor:
    """From values at the nodes to powers of s."""
    return torch.from_numpy(np.linalg.inv(np.vander(_places(degree).numpy(), increasing=True))).to(device)


@lru_cache
def _shifted(degree: int, device: torch.device) -> Tensor:
    """Coefficient i of `p(s + z)` in z is at most `Σ_k binomial(k, i) |c_k|`, from i = 1 on, and before these `Σ_k |c_k|`."""
    orders = range(1, degree + 1)
    rows = [[1.0] * degree, *([float(math.comb(k, i)) for k in orders] for i in orders)]
    return torch.tensor(rows, dtype=torch.float64, device=device).view(degree + 1, degree)


@lru_cache
def _tanh_bounds(orders: int) -> list[tuple[float, float]]:
    """Of coefficients 1, 2, … of tanh anywhere: as a share of the slope there, and alone."""
    return _bounds(orders, Polynomial([1.0, 0.0, -1.0]), Polynomial([1.0, 0.0, -1.0]), -1.0)


@lru_cache
def _softplus_bounds(orders: int) -> list[tuple[float, float]]:
    return _bounds(orders, Polynomial([0.0, 1.0]), Polynomial([0.0, 1.0, -1.0]), 0.0)


def _bounds(orders: int, slope: Polynomial, moves: Polynomial, low: float) -> list[tuple[float, float]]:
    """Of a curve whose slope is a polynomial of some `y` from `low` to 1, where `y` itself moves as `moves` says."""
    share, bounds = Polynomial([1.0]), []
    for order in range(1, orders + 1):
        whole = share * slope  # the derivative of that order
        size = (1.0 + 1e-6) / math.factorial(order)
        bounds.append((_largest(share, low) * size, _largest(whole, low) * size))
        share = whole.deriv() * (moves // slope)
    return bounds


def _largest(polynomial: Polynomial, low: float) -> float:
    """From `low` to 1: at its turns or its ends."""
    turns = polynomial.deriv().roots() if polynomial.degree() > 1 else np.zeros(0)
    within = np.clip(turns.real, low, 1.0)  # of complex ones the real part does no harm
    return float(np.abs(polynomial(np.concatenate([within, [low, 1.0]]))).max())


@lru_cache
def overshoot(degree: int) -> float:
    """How much larger than all its values at the nodes a polynomial can be on the window."""
    grid = np.linspace(-1.0, 1.0, 20_001)
    powers = np.vander(grid, degree + 1, increasing=True)
    return float(np.abs(powers @ _inverse(degree, torch.device("cpu")).numpy()).sum(1).max() * (1.0 + 1e-6))


def _mixed(matrix: Tensor, values: Tensor) -> Tensor:
    return (matrix @ values.flatten(1)).view(len(matrix), *values.shape[1:])
