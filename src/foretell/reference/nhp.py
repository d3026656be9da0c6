"""NHP from its equations (Mei & Eisner 2017, section 3): named arrays in, cells and intensities out.

Each function is one equation, for one event at a time, gate by gate and by recursion over the history. The arrays are those of
`named_arrays()`, in float64; gradients flow back to the tensors that they were made from. `w` and `τ` are in the data's own unit, and
decays are per `scale` of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from foretell.reference.calendar import SlowCalendar
from foretell.reference.covariates import SlowCovariates, with_event, with_query
from foretell.reference.events import Event, History

BOS = Event("bos", 0.0)  # happens once, before all events; it has a vector, but no intensity


class Cell(NamedTuple):
    """The cell after the last event; all fields except the time have `dim` numbers."""

    memory: Tensor  # c
    target: Tensor  # c̄
    decay: Tensor  # δ
    output: Tensor  # o
    since: float


@dataclass(frozen=True)
class SlowNHP:
    arrays: Mapping[str, Tensor]
    types: Sequence[str]
    dim: int  # D
    scale: float  # the unit of time of decays
    covariates: SlowCovariates | None = None
    calendar: SlowCalendar | None = None
    memo: dict[History, Cell] = field(default_factory=dict, repr=False, compare=False)

    def intensity(self, type: str, time: float, history: History) -> Tensor:
        """Equation 4: `λ_e(t) = τ log(1 + exp(w·[1; h(t)]/τ))`."""
        w, tau = self.arrays[f"intensity.{type}.w"], self.arrays[f"intensity.{type}.tau"]
        score = w[0]
        known = with_query(self.read(self.after(history), time), self.covariates, time, self.calendar)
        for d, h in enumerate(known):
            score = score + w[1 + d] * h
        return tau * torch.log(1.0 + torch.exp(score / tau))

    def event_embedding(self, sequence: History, index: int, layer: int) -> Tensor:
        """Return the type's vector (layer 0), or the output right after the event (layer 1)."""
        if layer == 0:
            return with_event(
                self.arrays[f"embed.{sequence[index].type}"], self.covariates, sequence[index], self.calendar
            )
        return self.read(self.after(sequence[: index + 1]), sequence[index].time)

    # The cell

    def after(self, history: History) -> Cell:
        """Equations 5 and 6: return the cell after the last event, from the cell before it."""
        if history not in self.memo:
            if not history:  # bos at time 0 starts from a cell of zeros
                zeros = torch.zeros(self.dim, dtype=torch.float64)
                before, event, x = Cell(zeros, zeros, zeros, zeros, 0.0), BOS, self.arrays["bos"]
            else:
                before, event = self.after(history[:-1]), history[-1]
                x = self.arrays[f"embed.{event.type}"]
            x = with_event(x, self.covariates, event, self.calendar)
            c, h = self.memory(before, event.time), self.read(before, event.time)
            z = torch.tanh(self.raw("candidate", x, h))
            self.memo[history] = Cell(
                memory=self.gate("forget", x, h) * c + self.gate("input", x, h) * z,
                target=self.gate("target_forget", x, h) * before.target + self.gate("target_input", x, h) * z,
                decay=torch.log(1.0 + torch.exp(self.raw("decay", x, h))),
                output=self.gate("output", x, h),
                since=event.time,
            )
        return self.memo[history]

    def memory(self, cell: Cell, time: float) -> Tensor:
        """Equation 7: `c(t) = c̄ + (c − c̄)·exp(−δ(t−s))`."""
        passed = (time - cell.since) / self.scale
        drifted = [
            target + (c - target) * torch.exp(-decay * passed)
            for c, target, decay in zip(cell.memory, cell.target, cell.decay, strict=True)
        ]
        return torch.stack(drifted)

    def read(self, cell: Cell, time: float) -> Tensor:
        """Return `h(t) = o·tanh(c(t))`."""
        return cell.output * torch.tanh(self.memory(cell, time))

    def gate(self, name: str, x: Tensor, h: Tensor) -> Tensor:
        return 1.0 / (1.0 + torch.exp(-self.raw(name, x, h)))

    def raw(self, name: str, x: Tensor, h: Tensor) -> Tensor:
        """Return `W x + U h + b` of one gate."""
        by_event, by_memory = self.arrays[f"cell.{name}.W"] @ x, self.arrays[f"cell.{name}.U"] @ h
        return by_event + by_memory + self.arrays[f"cell.{name}.b"]
