"""A Hawkes process inside an A-NHP: what past events add to each intensity, as a fit by maximum likelihood says, times a learned gain.

`h_e(t) = Σ_j Σ_s α_{e,f(s),j} exp(−β_j(t−s))` over the events of type `f(s)` at times `s`; `α` and `β` are fitted before training and stay
as they are. The network adds `(1 + tanh(½ g_e·[1; emb]))·h_e(t)` to its own intensity, a gain from 0 to 2 that starts at 1, so
that with few data the model stays close to the Hawkes process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from foretell.nn.linear_scan import linear_scan
from foretell.nn.lookup import lookup
from foretell.sampling.bounds.values import Value, affine, tanh

if TYPE_CHECKING:
    from foretell.models.classical.hawkes import Hawkes


@dataclass(frozen=True)
class Excitation:
    """After each event: what it and all earlier ones add to every intensity just then, and when that was."""

    raised: Tensor  # [B, N, J, K]
    times: Tensor  # float64 [B, N]


class HawkesPart(nn.Module):
    """`α` and `β` as buffers, and the gain."""

    alpha: Tensor  # [K, K, J]: what raises each type
    log_beta: Tensor  # [J]

    def __init__(self, types: int, decays: int, dim: int) -> None:
        super().__init__()
        self.decays = decays
        self.register_buffer("alpha", torch.zeros(types, types, decays))
        self.register_buffer("log_beta", torch.zeros(decays))
        self.gain = nn.Parameter(torch.zeros(types, dim))
        self.gain_constant = nn.Parameter(torch.zeros(types))

    def take(self, hawkes: Hawkes) -> None:
        with torch.no_grad():
            self.alpha.copy_(hawkes.alpha)
            self.log_beta.copy_(hawkes.beta.log())

    def check_state(self) -> None:
        if bool((self.alpha < 0.0).any()):
            raise ValueError("alpha has numbers below 0")

    def rates(self) -> Tensor:
        """`β`: float64 [J]."""
        return self.log_beta.double().exp()

    @torch.no_grad()
    def follow(self, times: Tensor, types: Tensor) -> Excitation:
        """Along events at times float64 [B, N]; types from K on excite nothing."""
        count, decays = len(self.alpha), self.decays
        table = torch.cat([self.alpha.permute(1, 2, 0).flatten(1), self.alpha.new_zeros(1, decays * count)])
        added = lookup(table, types.clamp(max=count))  # [B, N, J·K]
        passed = torch.diff(times, dim=1, prepend=times[:, :1])
        gates = torch.exp(-passed.unsqueeze(-1) * self.rates()).to(added.dtype).repeat_interleave(count, dim=-1)
        return Excitation(linear_scan(gates, added).unflatten(-1, (decays, count)), times)

    @torch.no_grad()
    def at(self, past: Excitation, times: Tensor, place: Tensor) -> Tensor:
        """`h` at times float64 [B, Q] that see the events up to `place` [B, Q]: [B, Q, K]."""
        rows = torch.arange(len(times), device=times.device)[:, None]
        elapsed = (times - past.times[rows, place]).clamp(min=0.0)
        left = torch.exp(-elapsed.unsqueeze(-1) * self.rates()).to(past.raised.dtype)  # [B, Q, J]
        return (left.unsqueeze(-2) @ past.raised[rows, place]).squeeze(-2)

    def gains(self, embedding: Value, base: Tensor) -> Value:
        """`1 + tanh(½ g_e·[1; emb])` of every type, from an embedding that is counted from its base vector: [..., K]."""
        half = affine(embedding, 0.5 * self.gain, 0.5 * (self.gain_constant + self.gain @ base))
        return tanh(half) + torch.ones_like(self.gain_constant)
