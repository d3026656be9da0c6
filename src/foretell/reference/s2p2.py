"""S2P2 from its equations (Chang et al. 2025, as docs/explanation/rivals.md states them): named arrays in, intensities out.

Each function is one equation, by recursion over the history and the layers. The arrays are those of `named_arrays()`, in float64;
gradients flow back to the tensors that they were made from. A complex number is a pair of reals in the last dimension. `w` and `τ` are in
the data's own unit; decays and frequencies are per `scale` of time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from foretell.reference.calendar import SlowCalendar
from foretell.reference.covariates import SlowCovariates, with_event, with_query
from foretell.reference.events import History

SMALL = 1e-5  # inside the square root of LayerNorm


@dataclass(frozen=True)
class SlowS2P2:
    arrays: Mapping[str, Tensor]
    types: Sequence[str]
    layers: int  # L
    width: int  # H
    scale: float  # the unit of time of decays
    covariates: SlowCovariates | None = None
    calendar: SlowCalendar | None = None
    memo: dict[tuple[object, ...], Tensor] = field(default_factory=dict, repr=False, compare=False)

    def intensity(self, type: str, time: float, history: History) -> Tensor:
        """Return `λ_k(t) = τ_k·softplus(w_k·[1; u_L(t)]/τ_k)`."""
        w, tau = self.arrays[f"intensity.{type}.w"], self.arrays[f"intensity.{type}.tau"]
        known = with_query(self.stream(self.layers, time, history), self.covariates, time, self.calendar)
        score = w[0] + (w[1:] * known).sum()
        return tau * torch.log1p(torch.exp(score / tau))

    def event_embedding(self, sequence: History, index: int, layer: int) -> Tensor:
        """Return the mark's vector (layer 0), or the output of a layer right after the event."""
        if layer == 0:
            return with_event(
                self.arrays[f"embed.{sequence[index].type}"], self.covariates, sequence[index], self.calendar
            )
        return self.stream_after(layer, sequence[: index + 1])

    # The output of each layer; that of layer 0 is zero

    def stream(self, layer: int, time: float, history: History) -> Tensor:
        """Return the output `u(t)` of a layer at a time after the history."""
        if layer == 0:
            return torch.zeros(self.width, dtype=torch.float64)
        return self.out(layer, self.state(layer, time, history), self.stream(layer - 1, time, history))

    def stream_after(self, layer: int, history: History) -> Tensor:
        """Return `u(t_i+)`, the output of a layer right after the last event."""
        if layer == 0:
            return torch.zeros(self.width, dtype=torch.float64)
        key = ("stream", layer, history)
        if key not in self.memo:
            below = self.stream_after(layer - 1, history)
            self.memo[key] = self.out(layer, self.state_after(layer, history), below)
        return self.memo[key]

    def out(self, layer: int, x: Tensor, u: Tensor) -> Tensor:
        """Return `LayerNorm(GELU(2 Re(C x) + D u) + u)`; the first layer has no `D`."""
        y = 2.0 * (self.complex(f"layer.{layer}.C") @ x).real
        if layer > 1:
            y = y + self.arrays[f"layer.{layer}.D"] * u
        mixed = y * 0.5 * (1.0 + torch.erf(y / math.sqrt(2.0))) + u
        centred = mixed - mixed.mean()
        normed = centred / torch.sqrt((centred * centred).mean() + SMALL)
        return normed * self.arrays[f"layer.{layer}.gain"] + self.arrays[f"layer.{layer}.bias"]

    # The state of each layer

    def state(self, layer: int, time: float, history: History) -> Tensor:
        """Return `x(t) = g x(t_i+) + (g − 1) B u(t)` with `g = exp(Λ Δ_i (t − t_i))`; the first layer has no `B`."""
        since = history[-1].time if history else 0.0
        rate = torch.complex(-self.arrays[f"layer.{layer}.decay"], self.arrays[f"layer.{layer}.frequency"])
        g = torch.exp(rate * self.step(layer, history) * ((time - since) / self.scale))
        x = g * self.state_after(layer, history)
        if layer > 1:
            u = self.stream(layer - 1, time, history)
            x = x + (g - 1.0) * (self.complex(f"layer.{layer}.B") @ u.to(torch.complex128))
        return x

    def state_after(self, layer: int, history: History) -> Tensor:
        """Return `x(t_i+) = x(t_i) + E a_{k_i}`, or `x_0` before the first event."""
        if not history:
            return self.complex(f"layer.{layer}.start")
        key = ("state", layer, history)
        if key not in self.memo:
            mark = with_event(self.arrays[f"embed.{history[-1].type}"], self.covariates, history[-1], self.calendar)
            jump = self.complex(f"layer.{layer}.E") @ mark.to(torch.complex128)
            self.memo[key] = self.state(layer, history[-1].time, history[:-1]) + jump
        return self.memo[key]

    def step(self, layer: int, history: History) -> Tensor:
        """Return `Δ_i = softplus(W u(t_i+) + b)`, or `softplus(b)` in the first layer and before the first event."""
        raw = self.arrays[f"layer.{layer}.step_bias"]
        if layer > 1 and history:
            raw = raw + self.arrays[f"layer.{layer}.step"] @ self.stream_after(layer - 1, history)
        return torch.log1p(torch.exp(raw))

    def complex(self, name: str) -> Tensor:
        return torch.view_as_complex(self.arrays[name].contiguous())
