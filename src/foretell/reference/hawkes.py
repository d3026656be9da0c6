"""The multivariate Hawkes process with shared exponential decays: likelihoods by plain loops.

`λ_e(t) = μ_e + Σ_f Σ_j α_efj Σ_s exp(−β_j(t−s))`, over the earlier events of type `f` at times `s`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foretell.reference.events import History, before_event


@dataclass(frozen=True)
class SlowHawkes:
    """`mu[e]`, `alpha[e, f][j]` (the effect of `f` on `e`), `beta[j]`; with all `alpha` 0 it is the Poisson process."""

    mu: Mapping[str, float]
    alpha: Mapping[tuple[str, str], Sequence[float]]
    beta: Sequence[float]

    def intensity(self, type: str, time: float, history: History) -> float:
        rate = self.mu[type]
        for event in history:
            for alpha, beta in zip(self.alpha[type, event.type], self.beta, strict=True):
                rate += alpha * math.exp(-beta * (time - event.time))
        return rate

    def integral(self, sequence: History, t_end: float) -> float:
        """Return `∫_0^T Σ_e λ_e(t) dt`: an event at `s` adds `α/β·(1 − exp(−β(T−s)))`."""
        value = sum(self.mu.values()) * t_end
        for event in sequence:
            for type in self.mu:
                for alpha, beta in zip(self.alpha[type, event.type], self.beta, strict=True):
                    value += alpha / beta * (1.0 - math.exp(-beta * (t_end - event.time)))
        return value

    def raised(
        self, sequences: Sequence[tuple[History, float]], shrinkage: float
    ) -> dict[tuple[str, str], list[float]]:
        """Return `alpha` after one step of expectation-maximisation over (events, t_end), shrunk as in `models/classical/hawkes_fit`."""
        decays = range(len(self.beta))
        caused = {pair: [0.0 for _ in decays] for pair in self.alpha}
        exposed = {type: [0.0 for _ in decays] for type in self.mu}
        causes = 0
        for sequence, t_end in sequences:
            for i, event in enumerate(sequence):
                causes += 1
                rate = self.intensity(event.type, event.time, before_event(sequence, i))
                for j in decays:
                    exposed[event.type][j] += (1.0 - math.exp(-self.beta[j] * (t_end - event.time))) / self.beta[j]
                    for cause in before_event(sequence, i):
                        alpha = self.alpha[event.type, cause.type][j]
                        caused[event.type, cause.type][j] += (
                            alpha * math.exp(-self.beta[j] * (event.time - cause.time)) / rate
                        )
        found = {pair: [0.0 for _ in decays] for pair in self.alpha}
        for type, cause in found:
            for j in decays:
                whole = sum(exposed[one][j] for one in self.mu)
                more = shrinkage * whole / causes
                average = sum(caused[type, one][j] for one in self.mu) / whole
                found[type, cause][j] = (caused[type, cause][j] + more * average) / (exposed[cause][j] + more)
        return found

    def log_likelihood(self, sequence: History, t_end: float, first: int = 0) -> float:
        """Return the log-likelihood (paper, equation 6) in closed form; `first=1` conditions on the first event."""
        logs = [
            math.log(self.intensity(sequence[i].type, sequence[i].time, before_event(sequence, i)))
            for i in range(first, len(sequence))
        ]
        return sum(logs) - self.integral(sequence, t_end)
