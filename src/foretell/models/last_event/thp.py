"""The transformer Hawkes process, THP (Zuo et al. 2020), corrected: `λ_e(t) = softplus(w_e·[1; (t−s)/s; emb(f,s)])`, scaled by `τ_e`.

`f` is the last event, at time `s`; in the denominator, `s` is at least `m`, the shortest unit of the time embedding. A `bos` at time 0
comes before the first event.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.data import EventData
from foretell.models.last_event.last_event import Curves, LastEventModel, LastEventOptions
from foretell.models.registry import ModelSpec, register
from foretell.nn.intensity import inverse_softplus


@dataclass(frozen=True)
class ThpOptions(LastEventOptions):
    """The options of all models of the last event."""


@register(
    ModelSpec(
        "thp",
        "THP",
        ThpOptions,
        "a transformer embeds the last event; intensities follow a line",
        "Zuo et al. 2020, corrected",
    )
)
class THP(LastEventModel):
    """THP, the transformer Hawkes process: between events, the argument of softplus is linear in time.

    `λ_k(t) = softplus(α_k (t − s)/s + w_k · h + b_k)`, where h is the embedding of the last event, at time s.

    Zuo et al., "Transformer Hawkes Process", ICML 2020.

    Example:
        >>> ft.THP(3, dim=16, layers=1).types
        3
    """

    encoding = "time"
    per_type = ("w", "tau")
    unit_names = ("m", "M", "time_scale", "elapsed_scale")

    def _make_curves(self, generator: torch.Generator) -> None:
        self.w = nn.Parameter(torch.empty(self.types, self.dim))
        self.w_constant = nn.Parameter(torch.zeros(self.types))
        self.w_elapsed = nn.Parameter(torch.zeros(self.types))
        # The divisor of `w_elapsed`. A first gap may be a thousand times `m`, other gaps hundredths of their `s`. Without a divisor, the
        # gradient of this parameter would be far larger than all others.
        self.elapsed_scale = 1.0
        with torch.no_grad():
            self.w.normal_(generator=generator).mul_(0.1 / math.sqrt(self.dim))

    def prepare(self, data: EventData) -> None:
        super().prepare(data)
        self.elapsed_scale = max(_elapsed_size(data, self.time.m), 1.0)

    def start_at(self, rates: Tensor, embedding: Tensor) -> None:
        tau = self.log_tau.exp()
        level = inverse_softplus(rates / tau.double()).to(tau) * tau
        self.w_constant.copy_(level - self.w @ embedding)
        self.w_elapsed.zero_()

    def elapsed(self, times: Tensor, since: Tensor) -> Tensor:
        return ((times - since).clamp(min=0.0) / since.clamp(min=self.time.m)).to(self.dtype)

    def curves(self, embedding: Tensor) -> Curves:
        tau = self.log_tau.exp()
        level = F.linear(embedding, self.w / tau[:, None], self.w_constant / tau)
        return level, self.w_elapsed / (tau * self.elapsed_scale)

    def follow(self, curves: Curves, elapsed: Tensor) -> Tensor:
        level, slope = curves
        return torch.addcmul(level, slope, elapsed)

    def _arrays_of_types(self) -> dict[str, Tensor]:
        slope = self.w_elapsed[:, None] / self.elapsed_scale
        whole = torch.cat([self.w_constant[:, None], slope, self.w], dim=1)
        return {"w": whole / self.time_scale, "tau": self.log_tau.exp() / self.time_scale}

    def _load_arrays_of_types(self, arrays: dict[str, Tensor]) -> None:
        w = arrays["w"] * self.time_scale
        self.w_constant.copy_(w[:, 0])
        self.w_elapsed.copy_(w[:, 1] * self.elapsed_scale)
        self.w.copy_(w[:, 2:])
        self.log_tau.copy_((arrays["tau"] * self.time_scale).log())


def _elapsed_size(data: EventData, m: float) -> float:
    """Return the root mean square of `(t − s)/s` at the ends of the scored gaps."""
    first = 1 if data.origin == "first-event" else 0
    squares, count = 0.0, 0
    for sequence in data:
        last = np.concatenate([[0.0], sequence.times])[first:]
        end = np.append(sequence.times, sequence.t_end)[first:]
        squares += float((((end - last) / np.maximum(last, m)) ** 2).sum())
        count += len(last)
    return math.sqrt(squares / max(count, 1))
