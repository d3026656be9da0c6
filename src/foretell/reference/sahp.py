"""SAHP from its equations: `λ_e(t) = τ log(1 + exp((μ + (η − μ) exp(−γ(t−s)))/τ))`, with the embedding of the last event, at time `s`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.reference.events import History
from foretell.reference.transformer import SlowEncoder, scaled_softplus, with_one


@dataclass(frozen=True)
class SlowSAHP:
    encoder: SlowEncoder
    types: Sequence[str]

    def intensity(self, type: str, time: float, history: History) -> Tensor:
        """Return the intensity; before the first event, the last event is `bos` at time 0."""
        embedding = with_one(self.encoder.at_query(history))
        last = history[-1].time if history else 0.0
        mu, eta, gamma, tau, nu = (
            self.encoder.arrays[f"intensity.{type}.{name}"] for name in ("mu", "eta", "gamma", "tau", "nu")
        )
        asymptote, start = torch.dot(mu, embedding), torch.dot(eta, embedding)
        decay = scaled_softplus(torch.dot(gamma, embedding), nu)
        curve = asymptote + (start - asymptote) * torch.exp(-decay * (time - last))
        return scaled_softplus(curve + self.encoder.clocked(list(self.types).index(type), time, tau), tau)
