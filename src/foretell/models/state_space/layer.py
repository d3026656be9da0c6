"""A diagonal linear system with complex states that decays and turns between events, and the layer of S2P2 (Chang et al. 2025) made of it.

States are [..., 2P], all real parts before all imaginary ones; time comes in units of the model. What a query asks of a layer is written
once, over tensors and `ChebyshevPiece`. Equations: docs/explanation/rivals.md.
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

HIPPO_DECAY = 0.5  # of all eigenvalues of the normal part of HiPPO-LegS
SMALL_START = 1e-3  # size of the state before the first event, when training begins


@dataclass(frozen=True)
class Rotation(Generic[Value]):
    """`g = exp(Λ Δ u)`, by which a state shrinks and turns in the time `u` since the last event: [..., P]."""

    real: Value
    imaginary: Value
    real_change: Value  # of `g − 1`


@dataclass(frozen=True)
class LayerStates:
    """What a layer knows right after the start and after each event."""

    state: Tensor  # [B, N + 1, 2P]
    step: Tensor  # Δ: [B, N + 1, P]


class LinearSystem(nn.Module):
    """`x(t) = g x(s+) + (g − 1) B u(t)` with `g = exp(Λ Δ (t − s))`, read as `2 Re(C x)`; `B` may be missing."""

    log_decay: nn.Parameter  # [P]
    frequency: nn.Parameter  # [P]
    C: nn.Parameter  # [H, P, 2]
    B: nn.Parameter | None  # [P, H, 2]

    def rotation(self, step: Tensor, elapsed: Tensor) -> Rotation[Tensor]:
        """`g` for steps [..., P] and elapsed times [..., 1]."""
        return Rotation(*spiral(self.log_decay.exp(), self.frequency, step, elapsed))

    def moved(self, g: Rotation[Value], state: Tensor, pushed: Value | None) -> Value:
        """`x(t)` from the state right after the last event [..., 2P] and what was pushed in since: [..., 2P]."""
        real, imaginary = state.chunk(2, dim=-1)
        turned = g.real * real + g.imaginary * -imaginary, g.real * imaginary + g.imaginary * real
        return side_by_side(turned) if pushed is None else side_by_side(turned) + pushed

    def pushed(self, g: Rotation[Value], below: Value | None) -> Value | None:
        """`(g − 1) B u(t)`: [..., 2P]; None in the first layer."""
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
        """`2 Re(C x)` of states [..., 2P]: [..., H]."""
        return linear(state, 2.0 * torch.cat([self.C[..., 0], -self.C[..., 1]], dim=1))


class StateSpaceLayer(LinearSystem):
    """`x(t) = g x(t_i+) + (g − 1) B u(t)`, `x(t_i+) = x(t_i) + E a`, `u' = LayerNorm(GELU(2 Re(C x) + D u) + u)`.

    The first layer has nothing below it: no `B`, no `D`, and steps that do not depend on a stream.

    Args:
        width: H, the components of a stream.
        states: P, the complex components of a state.
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
        """Eigenvalues of the normal part of HiPPO-LegS, which come in conjugate pairs; matrices by Glorot, in its eigenbasis."""
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
        """`Δ_0`, before the first event: [P]."""
        return softplus(self.step_bias)

    def step_after(self, below: Tensor | None) -> Tensor:
        """`Δ` after events, from the stream below right after each [..., H]: [..., P], or [P] in the first layer."""
        if self.step is None or below is None:
            return self.first_step()
        return softplus(F.linear(below, self.step, self.step_bias))

    def jumps(self, marks: Tensor) -> Tensor:
        """`E a` for vectors of marks [..., H]: [..., 2P]."""
        return F.linear(marks, _by_parts(self.E))

    def first_state(self) -> Tensor:
        """`x_0`: [2P]."""
        return self.start.t().flatten()

    # A query

    def out(self, state: Value, below: Value | None, drop: Dropout) -> Value:
        """The next stream from a state [..., 2P] and the stream below [..., H]: [..., H]."""
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
        """All events of some sequences, from gaps [B, N], jumps [B, N, 2P] and the stream below just before and right after: [2, B, N, H].

        What is kept for queries comes back, and the stream above: [2, B, N, H]. `carried`: the state [B, 2P] and the step [B, P] to go on
        from, in place of those before the first event.
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
        gates = F.pad(torch.complex(g.real, g.imaginary), (0, 0, 1, 0))  # nothing comes before the start
        entering = torch.cat([start, jumps if pushed is None else jumps + pushed], dim=1)
        after = linear_scan(gates, torch.complex(*entering.chunk(2, dim=-1)))
        after = torch.cat([after.real, after.imag], dim=-1)
        before = self.moved(g, after[:, :-1], pushed)
        above = self.out(torch.stack([before, after[:, 1:]]), below, drop)
        return LayerStates(after, step), above


def _by_parts(matrix: Tensor) -> Tensor:
    """A complex matrix [P, H, 2] as a real one [2P, H]."""
    return matrix.movedim(-1, 0).flatten(0, 1)


def hippo(states: int) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies [P] of the normal part of the HiPPO-LegS matrix of size P, and their eigenvectors [P, P].

    Its eigenvalues are `−½ ± iω`. All of them are kept, as the authors do: one of each pair of a matrix twice as large, with frequencies up
    to four times as high, scores up to 0.3 nats per event less on dev (`experiments/field`).
    """
    size = np.arange(states)
    root = np.sqrt(2.0 * size + 1.0)
    skew = -0.5 * np.sign(size[:, None] - size[None, :]) * root[:, None] * root[None, :]
    frequencies, basis = np.linalg.eigh(skew * -1j)  # i times a skew-symmetric matrix is Hermitian
    turn = np.exp(-1j * np.angle(basis[-1]))  # last components become real, so that it is the same on all machines
    return frequencies, basis * turn
