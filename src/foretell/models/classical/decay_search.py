"""The decay rate `β_j` that maximises a Hawkes likelihood once events are shared out: waiting times and causes in, `β_j` out.

What `β_j` changes of the expected log-likelihood is

    g(β) = −β·W − Σ_i c_i ∫_{a_i}^{a_i + w_i} exp(−β s) ds,

where `W` is the time that passed between events and what caused them, and cause `i` was watched for `w_i` from `a_i` after it. `g`
is concave: its maximum is where `h(β) = Σ_i c_i ∫ s exp(−β s) ds`, which falls, has come down to `W`. Finding that root, and not
comparing values of `g`, which is flat at its top, settles to rounding: data in another unit of time give the same decays.
"""

from __future__ import annotations

import torch
from torch import Tensor

REACH = 1.0  # how far log β may move at once
STEPS = 60  # that bisection alone needs to settle
SETTLED = 1e-14  # a change of log β that is rounding


def waiting_and_slope(beta: Tensor, causes: Tensor, after: Tensor, watched: Tensor) -> tuple[Tensor, Tensor]:
    """`h(β)` and `−dh/dlog β`, both by way of an incomplete gamma function, which loses no digits where `β·w` is small.

    Args:
        beta: Decays, [J].
        causes: The weight `c` of each cause under each decay, [n, J].
        after: `a` of each cause, [n].
        watched: `w` of each cause, [n].
    """
    after, spans = after[:, None], watched[:, None] * beta
    left = causes * torch.exp(-after * beta)
    second = torch.special.gammainc(torch.full_like(spans, 2.0), spans)
    third = second - spans**2 * torch.exp(-spans) / 2.0  # only the slope has it: it may lose digits
    once, twice, thrice = -torch.expm1(-spans), second / beta, 2.0 * third / beta**2
    waiting = (left * (after * once + twice)).sum(0) / beta
    slope = (left * (after * (after * once + 2.0 * twice) + thrice)).sum(0)
    return waiting, slope


def best_decays(waited: Tensor, causes: Tensor, after: Tensor, watched: Tensor, around: Tensor) -> Tensor:
    """The maximum of `g` within a factor e of the decays `around`, by Newton's method on `log h − log W`, kept within a bracket.

    Args:
        waited: `W` of each decay, [J].
        causes: The weight of each cause under each decay, [n, J].
        after: How long after each cause it begins to be watched, [n].
        watched: For how long, [n].
        around: The decays to start from, [J].
    """
    point = around.log()
    low, high = point - REACH, point + REACH
    for _ in range(STEPS):
        beta = point.exp()
        waiting, slope = waiting_and_slope(beta, causes, after, watched)
        excess = waiting.log() - waited.log()  # above 0: the maximum is higher
        low, high = torch.where(excess > 0.0, point, low), torch.where(excess > 0.0, high, point)
        newton = point + excess * waiting / slope
        inside = (newton >= low) & (newton <= high)  # False for what is not a number
        moved = torch.where(inside, newton, (low + high) / 2.0)
        settled = bool((moved - point).abs().max() <= SETTLED)
        point = moved
        if settled:
            break
    return torch.where((waited > 0.0) | (causes.sum(0) > 0.0), point.exp(), around)
