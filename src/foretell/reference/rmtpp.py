"""RMTPP from its equations (Du et al. 2016, section 4): named arrays in, states and intensities out.

Each function is one equation, for one event at a time, by recursion over the history. The arrays are those of `named_arrays()`, in
float64 and in the data's own unit of time; gradients flow back to the tensors that they were made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from foretell.reference.calendar import SlowCalendar
from foretell.reference.covariates import SlowCovariates, with_event, with_query
from foretell.reference.events import Event, History


@dataclass(frozen=True)
class SlowRMTPP:
    arrays: Mapping[str, Tensor]
    types: Sequence[str]
    covariates: SlowCovariates | None = None
    calendar: SlowCalendar | None = None
    memo: dict[History, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def intensity(self, type: str, time: float, history: History) -> Tensor:
        """Return `λ_e(t) = λ(t)·P(e)`; without a calendar, the type does not depend on the time."""
        return self.total(time, history) * self.probability(type, time, history)

    def total(self, time: float, history: History) -> Tensor:
        """Equation 11: `λ(t) = exp(v·h + w(t − s) + b)` after the last event at `s`."""
        score = self.arrays["time.b"] + self.arrays["time.w"] * (time - _last(history))
        for v, h in zip(self.arrays["time.v"], with_query(self.after(history), self.covariates), strict=True):
            score = score + v * h
        if self.calendar is not None:
            score = score + self.calendar.of_query(time)[0]
        return torch.exp(score)

    def integral(self, history: History, end: float) -> Tensor:
        """Return the exponent of equation 12, `(λ(end) − λ(s))/w`, or `λ·(end − s)` if `w` is 0. It is not defined with a calendar."""
        assert self.calendar is None
        start, slope = _last(history), self.arrays["time.w"]
        if float(slope.detach()) == 0.0:
            return self.total(start, history) * (end - start)
        return (self.total(end, history) - self.total(start, history)) / slope

    def probability(self, type: str, time: float, history: History) -> Tensor:
        """Equation 10: a softmax of `V_e·[1; h]`."""
        scores = {one: self.score(one, time, history) for one in self.types}
        whole = torch.zeros((), dtype=torch.float64)
        for one in scores.values():
            whole = whole + torch.exp(one)
        return torch.exp(scores[type]) / whole

    def score(self, type: str, time: float, history: History) -> Tensor:
        weights = self.arrays[f"type.{type}.w"]
        score = weights[0]
        for d, h in enumerate(with_query(self.after(history), self.covariates)):
            score = score + weights[1 + d] * h
        if self.calendar is not None:
            score = score + self.calendar.of_query(time)[1 + list(self.types).index(type)]
        return score

    def event_embedding(self, sequence: History, index: int, layer: int) -> Tensor:
        """Return the type's vector (layer 0), or the state after the event (layer 1)."""
        if layer == 0:
            return with_event(
                self.arrays[f"embed.{sequence[index].type}"], self.covariates, sequence[index], self.calendar
            )
        return self.after(sequence[: index + 1])

    def after(self, history: History) -> Tensor:
        """Equation 9, with tanh: return the state after the last event, from the state before it; the first state is that after `bos`."""
        if history not in self.memo:
            if not history:
                raw = self.arrays["cell.W"] @ with_event(
                    self.arrays["bos"], self.covariates, Event("bos", 0.0), self.calendar
                )
            else:
                event, before = history[-1], self.after(history[:-1])
                gap = event.time - _last(history[:-1])
                x = with_event(self.arrays[f"embed.{event.type}"], self.covariates, event, self.calendar)
                raw = self.arrays["cell.W"] @ x + self.arrays["cell.gap"] * gap
                raw = raw + self.arrays["cell.U"] @ before
            self.memo[history] = torch.tanh(raw + self.arrays["cell.b"])
        return self.memo[history]


def _last(history: History) -> float:
    return history[-1].time if history else 0.0
