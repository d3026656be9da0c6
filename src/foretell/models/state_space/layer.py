"""A diagonal linear system with complex states that decays and rotates between events, and the layer of S2P2 (Chang et al. 2025).

States are [..., 2P], all real parts before all imaginary ones. Time is in units of the model. The equations of a query are written once,
for tensors and `ChebyshevPiece`. Equations: docs/explanation/rivals.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.models.attention.layers import Dropout
from foretell.nn.intensity import inverse_softplus, softplus
from foretell.nn.linear_scan import linear_scan
from foretell.nn.spiral import spiral
from foretell.sampling.bounds.values import Value, gelu, halves, layer_norm, linear, side_by_side

HIPPO_DECAY = 0.5  # minus the real part of all eigenvalues of the normal part of HiPPO-LegS
SMALL_START = 1e-3  # initial size of the state before the first event


@dataclass(frozen=True)
class Rotation(Generic[Value]):
    """`g = exp(Λ Δ u)`, [..., P], by which a state decays and rotates in the time `u` since the last event."""

    real: Value
    imaginary: Value
    real_change: Value  # the real part of `g − 1`


@dataclass(frozen=True)
class LayerStates:
    """The states and steps of a layer at the start and right after each event."""

    state: Tensor  # [B, N + 1, 2P]
    step: Tensor  # Δ: [B, N + 1, P]


class LinearSystem(nn.Module):
    """`x(t) = g x(s+) + (g − 1) B u(t)` with `g = exp(Λ Δ (t − s))`, and output `2 Re(C x)`. `B` may be None."""

    log_decay: nn.Parameter  # [P]
    frequency: nn.Parameter  # [P]
    C: nn.Parameter  # [H, P, 2]
    B: nn.Parameter | None  # [P, H, 2]

    def rotation(self, step: Tensor, elapsed: Tensor) -> Rotation[Tensor]:
        """Return `g` for steps [..., P] and elapsed times [..., 1]."""
        return Rotation(*spiral(self.log_decay.exp(), self.frequency, step, elapsed))

    def moved(self, g: Rotation[Value], state: Tensor, pushed: Value | None) -> Value:
        """Return `x(t)`, [..., 2P], from the state right after the last event [..., 2P] and the input since then."""
        real, imaginary = state.chunk(2, dim=-1)
        turned = g.real * real + g.imaginary * -imaginary, g.real * imaginary + g.imaginary * real
        return side_by_side(turned) if pushed is None else side_by_side(turned) + pushed

    def pushed(self, g: Rotation[Value], below: Value | None) -> Value | None:
        """Return the input `(g − 1) B u(t)`, [..., 2P]; None in the first layer."""
        if self.B is None or below is None:
            return None
        real, imaginary = halves(linear(below, _by_parts(self.B)))
        return side_by_side(
            (
                g.real_change * real + -(g.imaginary * imaginary),
                g.real_change * imaginary + g.imaginary * real,
            )
        )

    def read_out(self, state: Value) -> Value:
        """Return `2 Re(C x)`, [..., H], of states [..., 2P]."""
        return linear(state, 2.0 * torch.cat([self.C[..., 0], -self.C[..., 1]], dim=1))


class StateSpaceLayer(LinearSystem):
    """`x(t) = g x(t_i+) + (g − 1) B u(t)`, `x(t_i+) = x(t_i) + E a`, `u' = LayerNorm(GELU(2 Re(C x) + D u) + u)`.

    The first layer has no layer below it: no `B`, no `D`, and constant steps.

    Args:
        width: H, the size of the vectors between layers.
        states: P, the number of complex components of a state.
        first: whether it is the first layer.
    """

    def __init__(self, width: int, states: int, first: bool) -> None:
        super().__init__()
        self.width, self.states, self.first = width, states, first
        self.log_decay = nn.Parameter(torch.empty(states))
        self.frequency = nn.Parameter(torch.empty(states))
        self.E = nn.Parameter(torch.empty(states, width, 2))
        self.C = nn.Parameter(torch.empty(width, states, 2))
        self.start = nn.Parameter(torch.empty(states, 2))
        self.step_bias = nn.Parameter(torch.empty(states))
        self.B = None if first else nn.Parameter(torch.empty(states, width, 2))
        self.D = None if first else nn.Parameter(torch.empty(width))
        self.step = None if first else nn.Parameter(torch.empty(states, width))
        self.norm = nn.LayerNorm(width)

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Set initial eigenvalues (normal part of HiPPO-LegS, in conjugate pairs) and matrices (Glorot, in its eigenbasis)."""
        frequencies, basis = hippo(self.states)
        self.log_decay.fill_(math.log(HIPPO_DECAY))
        self.frequency.copy_(torch.from_numpy(frequencies))
        inverse = torch.from_numpy(basis.conj().T.copy())  # the basis is unitary
        glorot = math.sqrt(2.0 / (self.states + self.width))
        for matrix in (self.E, self.B):
            if matrix is not None:
                real = torch.randn(self.states, self.width, generator=generator, dtype=torch.float64) * glorot
                matrix.copy_(torch.view_as_real(inverse @ real.to(inverse.dtype)))
        real = torch.randn(self.width, self.states, generator=generator, dtype=torch.float64) * glorot
        self.C.copy_(torch.view_as_real(real.to(inverse.dtype) @ torch.from_numpy(basis)))
        self.start.normal_(generator=generator).mul_(SMALL_START)
        self.step_bias.fill_(float(inverse_softplus(torch.tensor(1.0, dtype=torch.float64))))
        if self.D is not None and self.step is not None:
            self.D.normal_(generator=generator)
            self.step.normal_(generator=generator).mul_(1.0 / math.sqrt(self.width))

    # Steps and jumps

    def first_step(self) -> Tensor:
        """Return `Δ_0`, the step before the first event: [P]."""
        return softplus(self.step_bias)

    def step_after(self, below: Tensor | None) -> Tensor:
        """Return `Δ` after events, [..., P] or in the first layer [P], from the output of the layer below right after each [..., H]."""
        if self.step is None or below is None:
            return self.first_step()
        return softplus(F.linear(below, self.step, self.step_bias))

    def jumps(self, marks: Tensor) -> Tensor:
        """Return `E a`, [..., 2P], for vectors of marks [..., H]."""
        return F.linear(marks, _by_parts(self.E))

    def first_state(self) -> Tensor:
        """Return `x_0`: [2P]."""
        return self.start.t().flatten()

    # A query

    def out(self, state: Value, below: Value | None, drop: Dropout) -> Value:
        """Return the layer's output, [..., H], from its state [..., 2P] and the output of the layer below [..., H]."""
        y = self.read_out(state)
        if below is None or self.D is None:
            return layer_norm(self.norm, drop(gelu(y)))
        return layer_norm(self.norm, drop(gelu(y + below * self.D)) + below)

    # Events

    def read(
        self,
        elapsed: Tensor,
        jumps: Tensor,
        below: Tensor | None,
        drop: Dropout,
        carried: Sequence[Tensor] | None = None,
    ) -> tuple[LayerStates, Tensor]:
        """Read all events of some sequences: gaps [B, N], jumps [B, N, 2P], and the layer below just before and right after: [2, B, N, H].

        Return the states for queries, and the layer's output: [2, B, N, H]. `carried` has the state [B, 2P] and step [B, P] to start from,
        instead of those before the first event.
        """
        rows, events = elapsed.shape
        first = self.first_step().expand(rows, 1, -1)
        step = first.expand(-1, events + 1, -1)
        if carried is not None and below is not None:
            first = carried[1].unsqueeze(1)
        if below is not None:
            step = torch.cat([first, self.step_after(below[1])], dim=1)
        g = self.rotation(step[:, :-1], elapsed.unsqueeze(-1))
        pushed = self.pushed(g, None if below is None else below[0])
        start = self.first_state().expand(rows, 1, -1) if carried is None else carried[0].unsqueeze(1)
        gates = F.pad(torch.complex(g.real, g.imaginary), (0, 0, 1, 0))  # nothing precedes the start
        entering = torch.cat([start, jumps if pushed is None else jumps + pushed], dim=1)
        after = linear_scan(gates, torch.complex(*entering.chunk(2, dim=-1)))
        after = torch.cat([after.real, after.imag], dim=-1)
        before = self.moved(g, after[:, :-1], pushed)
        above = self.out(torch.stack([before, after[:, 1:]]), below, drop)
        return LayerStates(after, step), above


def _by_parts(matrix: Tensor) -> Tensor:
    """Return a complex matrix [P, H, 2] as a real one [2P, H]."""
    return matrix.movedim(-1, 0).flatten(0, 1)


def hippo(states: int) -> tuple[np.ndarray, np.ndarray]:
    """Return frequencies [P] of the normal part of the HiPPO-LegS matrix of size P, and their eigenvectors [P, P].

    Its eigenvalues are `−½ ± iω`. All P are kept, as in the authors' code. The alternative, one of each pair from a matrix of twice the
    size, has frequencies up to four times as high and scores up to 0.3 nats per event less on dev (`experiments/field`).
    """
    size = np.arange(states)
    root = np.sqrt(2.0 * size + 1.0)
    skew = -0.5 * np.sign(size[:, None] - size[None, :]) * root[:, None] * root[None, :]
    frequencies, basis = np.linalg.eigh(skew * -1j)  # i times a skew-symmetric matrix is Hermitian
    turn = np.exp(-1j * np.angle(basis[-1]))  # makes the last components real: equal on all machines
    return frequencies, basis * turn
