"""A Hawkes process inside an A-NHP: a fitted term of past events in each intensity, times a learned gain.

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
    """The Hawkes term of every intensity right after each event, from that event and all earlier ones; and the times of the events."""

    raised: Tensor  # [B, N, J, K]
    times: Tensor  # float64 [B, N]


class HawkesPart(nn.Module):
    """The fixed `α` and `β` as buffers, and the learned gain."""

    alpha: Tensor  # [K, K, J]: from the second type to the first
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
        """Return `β`: float64 [J]."""
        return self.log_beta.double().exp()

    @torch.no_grad()
    def follow(self, times: Tensor, types: Tensor) -> Excitation:
        """Return the excitation after each event, at times float64 [B, N]. Types from K on (padding, `bos`) excite nothing."""
        count, decays = len(self.alpha), self.decays
        table = torch.cat([self.alpha.permute(1, 2, 0).flatten(1), self.alpha.new_zeros(1, decays * count)])
        added = lookup(table, types.clamp(max=count))  # [B, N, J·K]
        passed = torch.diff(times, dim=1, prepend=times[:, :1])
        gates = torch.exp(-passed.unsqueeze(-1) * self.rates()).to(added.dtype).repeat_interleave(count, dim=-1)
        return Excitation(linear_scan(gates, added).unflatten(-1, (decays, count)), times)

    @torch.no_grad()
    def at(self, past: Excitation, times: Tensor, place: Tensor) -> Tensor:
        """Return `h`, [B, Q, K], at times float64 [B, Q] that see the events up to `place` [B, Q]."""
        rows = torch.arange(len(times), device=times.device)[:, None]
        elapsed = (times - past.times[rows, place]).clamp(min=0.0)
        left = torch.exp(-elapsed.unsqueeze(-1) * self.rates()).to(past.raised.dtype)  # [B, Q, J]
        return (left.unsqueeze(-2) @ past.raised[rows, place]).squeeze(-2)

    def gains(self, embedding: Value, base: Tensor) -> Value:
        """Return `1 + tanh(½ g_e·[1; emb])` of every type, [..., K], from an embedding minus its base vector."""
        half = affine(embedding, 0.5 * self.gain, 0.5 * (self.gain_constant + self.gain @ base))
        return tanh(half) + torch.ones_like(self.gain_constant)
