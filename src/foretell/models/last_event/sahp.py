"""The self-attentive Hawkes process, SAHP (Zhang et al. 2020), corrected: after an event each intensity decays to an asymptote.

`λ_e(t) = softplus(μ_e + (η_e − μ_e)·exp(−γ_e(t−s)))`, scaled by `τ_e`, goes from `η_e` to `μ_e`. Both are linear in the embedding of the
last event, at time `s`. The rate `γ_e = softplus(γ·[1; emb])`, scaled by `ν_e`, is positive. A `bos` at time 0 comes before the first
event. With these scales, the softplus is the same function in every unit of time, for rates of decay and for intensities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.models.last_event.last_event import Curves, LastEventModel, LastEventOptions
from foretell.models.registry import ModelSpec, register
from foretell.nn.intensity import inverse_softplus, softplus

LEVELS = ("mu", "eta", "gamma")
DECAY = 1.0  # the initial decay per mean gap


@dataclass(frozen=True)
class SahpOptions(LastEventOptions):
    """The options of all models of the last event."""


@register(
    ModelSpec(
        "sahp",
        "SAHP",
        SahpOptions,
        "a transformer embeds the last event, from which intensities decay",
        "Zhang et al. 2020, corrected",
    )
)
class SAHP(LastEventModel):
    """SAHP, the self-attentive Hawkes process: between events, intensities fall or rise exponentially.

    The embedding of the last event determines, for each type, a start, an asymptote and a decay:
    `λ_k(t) = softplus(μ + (η − μ) exp(−γ (t − s)))`.

    Zhang et al., "Self-Attentive Hawkes Process", ICML 2020.

    Example:
        >>> ft.SAHP(3, dim=16, layers=1).types
        3
    """

    encoding = "shifted"
    per_type = (*LEVELS, "tau", "nu")

    def _make_curves(self, generator: torch.Generator) -> None:
        self.w = nn.Parameter(torch.empty(3 * self.types, self.dim))  # of μ for all types, then η, then γ
        self.w_constant = nn.Parameter(torch.zeros(3 * self.types))
        self.log_nu = nn.Parameter(torch.zeros(self.types))
        with torch.no_grad():
            self.w.normal_(generator=generator).mul_(0.1 / math.sqrt(self.dim))
            self.w_constant[2 * self.types :] = float(inverse_softplus(torch.tensor(DECAY, dtype=torch.float64)))

    def start_at(self, rates: Tensor, embedding: Tensor) -> None:
        tau = self.log_tau.exp()
        level = inverse_softplus(rates / tau.double()).to(tau) * tau
        levels = slice(0, 2 * self.types)
        self.w_constant[levels] = level.repeat(2) - self.w[levels] @ embedding

    def elapsed(self, times: Tensor, since: Tensor) -> Tensor:
        return ((times - since).clamp(min=0.0) / self.time_scale).to(self.dtype)

    def curves(self, embedding: Tensor) -> Curves:
        """Return for each type the asymptote, the start minus the asymptote, and the decay."""
        scale = torch.cat([self.log_tau, self.log_tau, self.log_nu]).exp()
        scores = F.linear(embedding, self.w / scale[:, None], self.w_constant / scale)
        asymptote, start, decay = scores.split(self.types, dim=-1)
        return asymptote, start - asymptote, softplus(decay) * scale[2 * self.types :]

    def follow(self, curves: Curves, elapsed: Tensor) -> Tensor:
        asymptote, above, decay = curves
        return torch.addcmul(asymptote, above, torch.exp(-decay * elapsed))

    def _arrays_of_types(self) -> dict[str, Tensor]:
        whole = torch.cat([self.w_constant[:, None], self.w], dim=1) / self.time_scale
        scales = {"tau": self.log_tau.exp() / self.time_scale, "nu": self.log_nu.exp() / self.time_scale}
        return dict(zip(LEVELS, whole.split(self.types), strict=True)) | scales

    def _load_arrays_of_types(self, arrays: dict[str, Tensor]) -> None:
        whole = torch.cat([arrays[name] for name in LEVELS]) * self.time_scale
        self.w_constant.copy_(whole[:, 0])
        self.w.copy_(whole[:, 1:])
        for name, parameter in (("tau", self.log_tau), ("nu", self.log_nu)):
            parameter.copy_((arrays[name] * self.time_scale).log())
