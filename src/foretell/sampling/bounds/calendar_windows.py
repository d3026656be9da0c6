"""Waves of the calendar on windows of time, as polynomials with proved remainders.

Within a window, local time is the moment plus one offset, unless the zone's offset changes inside the window. A wave of angular frequency
`ω` equals the polynomial through its values at `n + 1` nodes up to `(ω·half)^(n+1)/((n+1)! 2^n)`. If the local time differs by up to `m`
seconds from the one with a fixed offset, the error grows by at most `min(ω·m, 2)`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from foretell.nn.calendar import CalendarWaves
from foretell.sampling.bounds.chebyshev import PHASE, ROUNDED, ChebyshevPiece, places, point


def calendar_waves(phases: CalendarWaves, starts: Tensor, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
    """Return the features of a calendar on `middle ± half` [...] as a piece [..., width]; time 0 is at the moments `starts` [...]."""
    moments = phases.moments(starts, middle)
    if not degree:
        return point(phases(moments, torch.float64))
    # Rounding of moments: float64 has limited digits for the time since 1970 and for the time in the sequence.
    seconds = half * phases.calendar.seconds_per_unit
    rounded = PHASE * (moments.abs() + starts.abs() + seconds)
    around = phases.place(moments)
    first, last = phases.place(moments - seconds - rounded), phases.place(moments + seconds + rounded)
    astray = phases.moved[last] - phases.moved[first]
    speed = 2.0 * math.pi * phases.turns
    local = (moments + phases.offsets[around]).unsqueeze(-1)
    swing = seconds.unsqueeze(-1) * speed
    at = places(degree, middle.device).view(-1, *[1] * swing.dim())
    turns = (local * phases.turns).frac() * (2.0 * math.pi) + swing * at
    off = swing ** (degree + 1) * (1.0 / (math.factorial(degree + 1) * 2.0**degree))
    off = off + ROUNDED + speed * rounded.unsqueeze(-1) + (speed * astray.unsqueeze(-1)).clamp(max=2.0)
    # Where the error reaches 1, the only bound is that a wave is between -1 and 1.
    lost = ~(off < 1.0)
    off = torch.where(lost, torch.ones_like(off), off)
    v = torch.cat([turns.sin().masked_fill(lost, 0.0), turns.cos().masked_fill(lost, 0.0)], dim=-1)
    return ChebyshevPiece(v, torch.cat([off, off], dim=-1))


def changes_within(phases: CalendarWaves, starts: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """Return whether the zone's offset changes between `begin` and `end`: bool [...]. Bounds there are loose, however short the window."""
    first, last = (phases.moments(starts, one) for one in (begin, end))
    rounded = PHASE * (first.abs() + starts.abs() + last.abs())
    return phases.place(last + rounded) > phases.place(first - rounded)
