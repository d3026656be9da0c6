"""Functions of the time since an event on windows, as polynomials of time or of the logarithm of the elapsed time.

With `u` the time since the event and a shortest time `e`, the logarithmic variable is `x = log(u + e)`. A window is
`x = middle + half·s`, with Chebyshev's nodes in `s`. Models with several time scales are smooth in `x`: `exp(−u/s)` is one step and
`log(1 + u/s)` one bend, each about as wide as a factor of 2.7 in time. So a piece may be as long as the time that has passed before it.

Every function equals the polynomial through its values at `n + 1` nodes, up to `half^(n+1)/2^n` times the largest Taylor coefficient
of order `n + 1` on the window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from foretell.sampling.bounds.chebyshev import (
    PHASE,
    ROUNDED,
    SMALLEST,
    ChebyshevPiece,
    between,
    constant,
    decay,
    derivative_bounds,
    elapsed,
    places,
    point,
    tighter,
)
from foretell.sampling.bounds.curves import log1p, spiral

FALLS = (
    0.0,
    0.5,
    0.8,
)  # values of θ for which a Taylor coefficient of `exp(−eˣ)` is at most a constant times `exp(−θ eˣ)`


def place(times: Tensor, start: Tensor, end: Tensor, origin: Tensor | None) -> Tensor:
    """Return the positions of times in windows from `start` to `end`, from -1 to 1: in time, or in the logarithm of `t − origin`."""
    if origin is None:
        half = (end - start) / 2.0
        return ((times - (start + end) / 2.0) / half).clamp(-1.0, 1.0)
    before = start - origin
    share = torch.log1p((times - start) / before) / torch.log1p((end - start) / before)
    return (2.0 * share - 1.0).clamp(-1.0, 1.0)


class TimeWindows(Protocol):
    """Windows [...], each after an event; with degree 0 they are single times. `u` is the time since the event."""

    def range(self) -> tuple[Tensor, Tensor]:
        """Return `u` at the start and at the end of each window: [...] each."""
        ...

    def exponentials(self, rates: Tensor, since: Tensor | float = 0.0) -> ChebyshevPiece:
        """Return `exp(−rate·(u − since))` as a piece [..., F], for rates and `since` of shape [..., F]."""
        ...

    def logs(self, scales: Tensor) -> ChebyshevPiece:
        """Return `log(1 + u/s)` as a piece [..., F], for scales [F] that are at least the shortest time."""
        ...

    def waves(self, turns: Tensor, is_set: Tensor) -> tuple[ChebyshevPiece, ChebyshevPiece]:
        """Return sines and cosines of `2πu·turns`, pieces [..., F], for turns [F] per unit of time; 0 where `is_set` is 0."""
        ...


@dataclass(frozen=True)
class PlainWindows:
    """Windows whose pieces are polynomials of time."""

    centre: Tensor  # [...]: the middle of each window
    half: Tensor
    event: Tensor
    degree: int

    def range(self) -> tuple[Tensor, Tensor]:
        middle = self.centre - self.event
        return middle - self.half, middle + self.half

    def exponentials(self, rates: Tensor, since: Tensor | float = 0.0) -> ChebyshevPiece:
        shape = (*self.centre.shape, rates.shape[-1])
        rates = rates.expand(shape).unsqueeze(-1)
        centre, half, event = (one.unsqueeze(-1).expand(shape) for one in (self.centre, self.half, self.event))
        found = decay(centre, half, event + since, rates.clamp(min=0.0), self.degree)
        rises = rates < 0.0
        if bool(rises.any()):  # backwards in time, an increasing exponential decreases
            back = decay(-centre, half, -(event + since), (-rates).clamp(min=0.0), self.degree)
            v = torch.where(rises, back.v.flip(0), found.v)  # the nodes are symmetric
            found = ChebyshevPiece(v, torch.where(rises, back.remainder, found.remainder))
        return found.map(lambda part: part.squeeze(-1))

    def logs(self, scales: Tensor) -> ChebyshevPiece:
        wait = elapsed(self.centre, self.half, self.event, self.degree)
        return log1p(wait.map(lambda part: part.unsqueeze(-1).expand(*part.shape, len(scales))).times(1.0 / scales))

    def waves(self, turns: Tensor, is_set: Tensor) -> tuple[ChebyshevPiece, ChebyshevPiece]:
        turning = 2.0 * math.pi * turns.expand(*self.centre.shape, -1)
        still = torch.zeros_like(turning)
        cosines, sines = spiral(self.centre, self.half, self.event, still, turning, self.degree)
        return sines, cosines.times(is_set)


@dataclass(frozen=True)
class LogWindows:
    """Windows whose pieces are polynomials of `log(u + e)`."""

    shortest: float  # e
    reach: Tensor  # u + e at the nodes: [degree + 1, ...]
    half: Tensor  # [...]: half the length in the logarithm
    low: Tensor  # [...]: u + e at the start of the window
    high: Tensor
    rounded: Tensor  # [...]: rounding error of u

    @classmethod
    def of(cls, centre: Tensor, half: Tensor, event: Tensor, shortest: float, degree: int) -> LogWindows:
        """Make logarithmic windows from the windows `centre ± half` in time."""
        after = centre - event + shortest
        if not degree:
            return cls(shortest, after.unsqueeze(0), half, after, after, half)
        low = after - half
        in_log = 0.5 * torch.log1p(2.0 * half / low)
        at = places(degree, centre.device).view(-1, *[1] * centre.dim())
        rounded = PHASE * (centre.abs() + event.abs() + half + shortest) + 0.1 * ROUNDED * (after + half)
        return cls(shortest, low * torch.exp(in_log * (1.0 + at)), in_log, low, after + half, rounded)

    @property
    def degree(self) -> int:
        return len(self.reach) - 1

    def range(self) -> tuple[Tensor, Tensor]:
        return self.low - self.shortest, self.high - self.shortest

    def exponentials(self, rates: Tensor, since: Tensor | float = 0.0) -> ChebyshevPiece:
        """Use that the result is `exp(rate·(e + since))` times `exp(−q)` with `q = rate·eˣ`."""
        offset = rates * (self.shortest + since)
        v = torch.exp(offset - rates * self.reach.unsqueeze(-1))
        if not self.degree:
            return point(v[0])
        first, last = rates * self.low.unsqueeze(-1), rates * self.high.unsqueeze(-1)
        ends = torch.exp(offset - first), torch.exp(offset - last)
        high, low = torch.maximum(*ends), torch.minimum(*ends)
        whole, by_fall = _exponential_bounds(self.degree + 1)
        size, most = torch.maximum(first.abs(), last.abs()), torch.zeros_like(high)
        for one in reversed(whole):
            most = most * size + one
        most = most * high  # for either sign of the rate
        for fall, (alone, by_q) in zip(FALLS, by_fall, strict=True):
            here = torch.exp(offset - fall * first) * (by_q * last).clamp(max=alone)
            most = torch.where(rates > 0.0, torch.minimum(most, here), most)
        off = most * self._beyond().unsqueeze(-1)
        rounded = high * (ROUNDED * (1.0 + size) + 2.0 * self.rounded.unsqueeze(-1) * rates.abs()) + SMALLEST
        # The function is monotonic. Where this gives a better bound, the piece is anywhere between the first and the last value.
        plain = between(low, high, self.degree)
        lost = ~(off <= plain.remainder)
        return ChebyshevPiece(torch.where(lost, plain.v, v), torch.where(lost, plain.remainder, off) + rounded)

    def logs(self, scales: Tensor) -> ChebyshevPiece:
        """Use that the result is `softplus(x − log(s − e))` up to a constant, with the slope `(u + e)/(u + s)`."""
        v = torch.log1p((self.reach - self.shortest).unsqueeze(-1) / scales)
        if not self.degree:
            return point(v[0])
        rest = scales - self.shortest
        first, last = (one.unsqueeze(-1) / (one.unsqueeze(-1) + rest) for one in (self.low, self.high))
        steepest = torch.maximum(first * (1.0 - first), last * (1.0 - last))
        steepest = torch.where((first < 0.5) & (last > 0.5), 0.25, steepest)
        by_slope, alone = _sigmoid_bounds(self.degree)
        most = (steepest * (by_slope / (self.degree + 1))).clamp(max=alone / (self.degree + 1))
        ends = [torch.log1p((one - self.shortest).unsqueeze(-1) / scales) for one in (self.low, self.high)]
        rounded = 2.0 * self.rounded.unsqueeze(-1) / (self.low.unsqueeze(-1) + rest) + ROUNDED * (1.0 + ends[1])
        found = ChebyshevPiece(v, most * self._beyond().unsqueeze(-1) + rounded)
        return tighter(found, ends[0] - rounded, ends[1] + rounded)

    def waves(self, turns: Tensor, is_set: Tensor) -> tuple[ChebyshevPiece, ChebyshevPiece]:
        assert not bool(is_set.any()), "a wave turns ever more often in the logarithm of time"
        nothing = constant(self.low.new_zeros(*self.low.shape, len(turns)), self.degree)
        return nothing, nothing

    def _beyond(self) -> Tensor:
        """Return the factor between the largest Taylor coefficient of order degree + 1 and the error: [...]."""
        return self.half ** (self.degree + 1) * 0.5**self.degree


@lru_cache
def _sigmoid_bounds(order: int) -> tuple[float, float]:
    """Return bounds of the Taylor coefficient of this order of the logistic function: relative to the slope there, and absolute."""
    slope = Polynomial([0.0, 1.0, -1.0])
    return derivative_bounds(order, slope, slope, 0.0)[-1]


@lru_cache
def _exponential_bounds(order: int) -> tuple[list[float], list[tuple[float, float]]]:
    """Bound the Taylor coefficient of this order of `exp(−eˣ)`, which is `p(q) exp(−q)` with `q = eˣ`; p is found by differentiation.

    Return the absolute coefficients of p in ascending order. Also return two factors for each θ of `FALLS`: for q > 0 the coefficient is at
    most the first times `exp(−θ q)`, and at most the second times `q exp(−θ q)`. The derivative of `p(q) exp(−q)` is `q (p′ − p) exp(−q)`.
    """
    p, q = Polynomial([1.0]), Polynomial([0.0, 1.0])
    for _ in range(order):
        p = q * (p.deriv() - p)
    size = (1.0 + 1e-6) / math.factorial(order)
    by_fall = [(_largest(p, fall) * size, _largest(p // q, fall) * size) for fall in FALLS]
    return [abs(float(one)) * size for one in p.coef], by_fall


def _largest(p: Polynomial, fall: float) -> float:
    """Return the largest `|p(q)| exp((θ − 1) q)` for q ≥ 0, which is at 0 or at an extremum."""
    turns = (p.deriv() - (1.0 - fall) * p).roots().real.clip(min=0.0)  # other points are harmless
    at = np.concatenate([turns, [0.0]])
    return float((np.abs(p(at)) * np.exp((fall - 1.0) * at)).max())
