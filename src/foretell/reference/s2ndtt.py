"""S2-NDTT from its equations (docs/explanation/rivals.md): NDTT's program and deductions, with the states of S2P2 instead of its cells.

This module has only the differences from `reference.ndtt`: the state of a fact, its transition and its output.
Parameters besides those of deductions and intensities, for `L` layers of `P` complex states:

| name                                       | shape                | what                                                  |
|--------------------------------------------|----------------------|-------------------------------------------------------|
| `add.NAME.G`                               | 3·L·P × (1 + body)   | layer by layer: real and imaginary part of the jump, step |
| `add.NAME.beta`                            | scalar               | pool exponent of `<-` (>= 1)                          |
| `state.FUNCTOR.LAYER.decay`, `.frequency`  | P                    | `Λ = −decay + i·frequency`, per unit of the model's time |
| `state.FUNCTOR.LAYER.B`                    | P × head × 2         | input matrix, from the deduced part to the state      |
| `state.FUNCTOR.LAYER.C`                    | head × P × 2         | output matrix of the state                            |
| `state.FUNCTOR.LAYER.step_bias`            | P                    | bias of steps                                         |

A complex number is a pair of reals in the last dimension. LAYER starts at 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

import foretell.reference.ndtt as ndtt
from foretell.reference.database import Fact, Instantiation
from foretell.reference.ruled import R, beta_name, pool


@dataclass(frozen=True)
class Settings(ndtt.Settings):
    layers: int = 1
    states: int = 1

    @property
    def model(self) -> type[ndtt.CellModel]:
        return StateModel

    def gate_rows(self, head: int) -> int:
        return 3 * self.layers * self.states

    def functor_shapes(self, functor: str, dim: int) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in range(1, self.layers + 1):
            prefix, plain = f"state.{functor}.{layer}", (self.states,)
            shapes |= {f"{prefix}.{name}": plain for name in ("decay", "frequency", "step_bias")}
            shapes |= {f"{prefix}.B": (self.states, dim, 2), f"{prefix}.C": (dim, self.states, 2)}
        return shapes if dim else {}


@dataclass(frozen=True)
class Held:
    """A fact's state right after its last addition."""

    x: list[Tensor]  # complex [P], per layer
    step: list[Tensor]  # Δ, [P] per layer
    since: float  # s


@dataclass(frozen=True)
class StateModel(ndtt.CellModel):
    def with_cell(self, fact: Fact, deduced: Tensor, time: float, state: int) -> Tensor:
        """Return the output of the last layer."""
        return self.drift(fact, self.cells[state][fact], deduced, time)[1]

    def drift(self, fact: Fact, held: Held, deduced: Tensor, time: float) -> tuple[list[Tensor], Tensor]:
        """Return the states at a time, and the output of the last layer; the input `u_0` is the deduced part at that time.

        `x_ℓ(t) = g x_ℓ(s+) + (g − 1) B_ℓ u_{ℓ−1}(t)` with `g = exp(Λ_ℓ Δ_ℓ (t − s))`. The output of a layer is
        `u_ℓ = u_{ℓ−1} + GELU(2 Re(C_ℓ x_ℓ))`, without GELU for the last layer.
        """
        layers = self.layers()
        stream, states = deduced, []
        for layer in range(1, layers + 1):
            prefix = f"state.{fact[0]}.{layer}"
            rate = torch.complex(-self.parameters[f"{prefix}.decay"], self.parameters[f"{prefix}.frequency"])
            g = torch.exp(rate * held.step[layer - 1] * ((time - held.since) / self.settings.time_scale))
            pushed = self.complex(f"{prefix}.B") @ stream.to(torch.complex128)
            x = g * held.x[layer - 1] + (g - 1.0) * pushed
            y = 2.0 * (self.complex(f"{prefix}.C") @ x).real
            stream = stream + (y if layer == layers else y * 0.5 * (1.0 + torch.erf(y / math.sqrt(2.0))))
            states.append(x)
        return states, stream

    def moved(self, fact: Fact, old: Held | None, by_r: Mapping[R, list[Instantiation]], index: int) -> Held:
        """Return the state after an event: `x(s+) = x(s) + jump`, and a new step; both are pooled within r and summed over r."""
        time, total = self.times[index], torch.zeros((), dtype=torch.float64)
        for some in by_r.values():
            beta = self.parameters[f"add.{beta_name(self.program, some[0])}.beta"]
            total = total + pool([self.gates(one, index) for one in some], beta)
        by_layer = total.view(self.layers(), 3, -1)
        jumps = [torch.complex(real, imaginary) for real, imaginary, _ in by_layer]
        biases = [self.parameters[f"state.{fact[0]}.{layer}.step_bias"] for layer in range(1, self.layers() + 1)]
        steps = [torch.log1p(torch.exp(bias + more)) for bias, (_, _, more) in zip(biases, by_layer, strict=True)]
        if old is None:
            return Held(jumps, steps, time)
        before, _ = self.drift(fact, old, self.deduced(fact, time, index), time)
        return Held([x + jump for x, jump in zip(before, jumps, strict=True)], steps, time)

    def layers(self) -> int:
        assert isinstance(self.settings, Settings)
        return self.settings.layers

    def complex(self, name: str) -> Tensor:
        return torch.view_as_complex(self.parameters[name].contiguous())
