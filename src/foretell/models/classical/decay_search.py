"""Find the decay rates `β_j` that maximise a Hawkes likelihood, given how much each event caused of later ones.

The part of the expected log-likelihood that depends on `β_j` is

    g(β) = −β·W − Σ_i c_i ∫_{a_i}^{a_i + w_i} exp(−β s) ds,

where `W` is the total weighted time between events and their causes, and cause `i` is observed for a time `w_i` that starts `a_i` after it.
`g` is concave. Its maximum is where the decreasing `h(β) = Σ_i c_i ∫ s exp(−β s) ds` equals `W`. Finding this root is more precise than
comparing values of `g`, which is flat at its top. So data in another unit of time give the same decays.
"""

from __future__ import annotations

import torch
from torch import Tensor

REACH = 1.0  # the largest change of log β in one call
STEPS = 60  # enough for bisection alone to converge
SETTLED = 1e-14  # a smaller change of log β is rounding


def waiting_and_slope(beta: Tensor, causes: Tensor, after: Tensor, watched: Tensor) -> tuple[Tensor, Tensor]:
    """Return `h(β)` and `−dh/dlog β`, by an incomplete gamma function, which loses no digits where `β·w` is small.

    Args:
        beta: Decays, [J].
        causes: The weight `c` of each cause under each decay, [n, J].
        after: `a` of each cause, [n].
        watched: `w` of each cause, [n].
    """
    after, spans = after[:, None], watched[:, None] * beta
    left = causes * torch.exp(-after * beta)
    second = torch.special.gammainc(torch.full_like(spans, 2.0), spans)
    third = second - spans**2 * torch.exp(-spans) / 2.0  # may lose digits, but only the slope uses it
    once, twice, thrice = -torch.expm1(-spans), second / beta, 2.0 * third / beta**2
    waiting = (left * (after * once + twice)).sum(0) / beta
    slope = (left * (after * (after * once + 2.0 * twice) + thrice)).sum(0)
    return waiting, slope


def best_decays(waited: Tensor, causes: Tensor, after: Tensor, watched: Tensor, around: Tensor) -> Tensor:
    """Return the decays that maximise `g` within a factor e of `around`, by Newton's method on `log h − log W` inside a bracket.

    Args:
        waited: `W` of each decay, [J].
        causes: The weight of each cause under each decay, [n, J].
        after: The time from each cause to the start of its observation, [n].
        watched: How long each cause is observed, [n].
        around: The decays to start from, [J].
    """
    point = around.log()
    low, high = point - REACH, point + REACH
    for _ in range(STEPS):
        beta = point.exp()
        waiting, slope = waiting_and_slope(beta, causes, after, watched)
        excess = waiting.log() - waited.log()  # above 0: the maximum is at a larger β
        low, high = torch.where(excess > 0.0, point, low), torch.where(excess > 0.0, high, point)
        newton = point + excess * waiting / slope
        inside = (newton >= low) & (newton <= high)  # False for NaN
        moved = torch.where(inside, newton, (low + high) / 2.0)
        settled = bool((moved - point).abs().max() <= SETTLED)
        point = moved
        if settled:
            break
    return torch.where((waited > 0.0) | (causes.sum(0) > 0.0), point.exp(), around)
