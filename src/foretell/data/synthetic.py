"""Processes with a likelihood in closed form, and exact draws of event data from them.

Poisson, `λ_e = rate_e`; Hawkes, `λ_e(t) = μ_e + Σ_f Σ_j α_efj Σ_s exp(−β_j (t − s))`; self-correcting,
`λ(t) = exp(μ t − α N(t−))`. The metadata of each sequence has `nll_true`, its exact negative log-likelihood on `[0, t_end]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from foretell.data.dataset import EventData
from foretell.data.sequence import EventSequence, Vocabulary
from foretell.errors import ForetellError


class Process(Protocol):
    """A process that can be simulated and scored exactly."""

    @property
    def type_count(self) -> int:
        """How many event types there are."""
        ...

    def draw(self, t_end: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw times and types of one sequence on `[0, t_end]`."""
        ...

    def log_intensities(self, times: np.ndarray, types: np.ndarray) -> np.ndarray:
        """Return the log-intensity of each event's type just before the event, float64 [events]."""
        ...

    def integrals(self, times: np.ndarray, types: np.ndarray, t_end: float) -> np.ndarray:
        """Return the integral of the total intensity over each gap, and last over the tail, float64 [events + 1]."""
        ...


def simulate(process: Process, sequences: int, t_end: float, seed: int, name: str = "simulated") -> EventData:
    """Draw independent sequences of a process. Sequence `n` does not depend on the number of sequences."""
    (found,) = simulate_parts(process, sequences, t_end, seed, name, sequences)
    return found


def simulate_parts(
    process: Process, sequences: int, t_end: float, seed: int, name: str = "simulated", at_a_time: int = 1 << 12
) -> Iterator[EventData]:
    """Yield the sequences of `simulate` in parts of `at_a_time` sequences."""
    if sequences < 1:
        raise ForetellError(f"{sequences} sequences: expected at least 1")
    if not np.isfinite(t_end) or t_end <= 0:
        raise ForetellError(f"t_end is {t_end:g}: expected a finite number > 0")
    root, vocabulary = np.random.SeedSequence(seed), Vocabulary.of_size(process.type_count)
    for first in range(0, sequences, at_a_time):
        drawn: list[EventSequence] = []
        for number, source in enumerate(root.spawn(min(at_a_time, sequences - first)), start=first):
            times, types = process.draw(t_end, np.random.default_rng(source))
            truth = nll(process, times, types, t_end)
            drawn.append(EventSequence(times, types, t_end, str(number), {"nll_true": truth}))
        yield EventData(drawn, vocabulary, "window", name)


def nll(process: Process, times: np.ndarray, types: np.ndarray, t_end: float) -> float:
    """Return the exact negative log-likelihood of one sequence on `[0, t_end]`, in nats."""
    return float(process.integrals(times, types, t_end).sum() - process.log_intensities(times, types).sum())


@dataclass(frozen=True)
class PoissonProcess:
    """A Poisson process with a constant rate per type."""

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        rates = _numbers("rate", self.rates)
        if not len(rates) or (rates < 0).any() or rates.sum() <= 0:
            raise ForetellError(f"rates are {list(self.rates)}: expected numbers >= 0 that are not all 0")

    @property
    def type_count(self) -> int:
        """How many event types there are."""
        return len(self.rates)

    def draw(self, t_end: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw the number of events, then their independent uniform times."""
        rates = np.array(self.rates, dtype=np.float64)
        count = rng.poisson(rates.sum() * t_end)
        times = np.sort(rng.uniform(0.0, t_end, count))
        return times, rng.choice(len(rates), size=count, p=rates / rates.sum())

    def log_intensities(self, times: np.ndarray, types: np.ndarray) -> np.ndarray:
        """Return the logarithm of each event's rate."""
        return np.log(np.array(self.rates, dtype=np.float64)[types])

    def integrals(self, times: np.ndarray, types: np.ndarray, t_end: float) -> np.ndarray:
        """Return the total rate times each gap."""
        return sum(self.rates) * np.diff(times, prepend=0.0, append=t_end)


@dataclass(frozen=True)
class HawkesProcess:
    """A Hawkes process: base rates `mu` [K], jumps `alpha` [K, K, J] (of type `e` after an event of type `f`), decays `beta` [J]."""

    mu: Any  # array or list
    alpha: Any
    beta: Any

    def __post_init__(self) -> None:
        mu, alpha, beta = _numbers("mu", self.mu), _numbers("alpha", self.alpha), _numbers("beta", self.beta)
        mu, beta = np.atleast_1d(mu), np.atleast_1d(beta)
        if alpha.ndim < 2 and len(mu) == 1:
            alpha = alpha.reshape(1, 1, -1)
        if alpha.ndim == 2:
            alpha = alpha[:, :, None]
        expected = (len(mu), len(mu), len(beta))
        problems: list[str] = []
        if mu.ndim != 1 or beta.ndim != 1 or alpha.shape != expected:
            problems.append(
                f"alpha has shape {alpha.shape} for {len(mu)} values of mu and {len(beta)} of beta: expected "
                f"{expected}, that is alpha[e][f][j], the jump of type e's intensity after an event of type f"
            )
        elif (mu < 0).any() or (alpha < 0).any() or (beta <= 0).any() or mu.sum() <= 0:
            problems.append("mu and alpha must be >= 0, beta > 0, and some mu > 0")
        else:
            offspring = (alpha / beta).sum(axis=2)
            radius = float(np.abs(np.linalg.eigvals(offspring)).max())
            if radius >= 1:
                problems.append(
                    f"each event brings {radius:.3g} others on average: the process explodes; "
                    f"expected less than 1 (the largest eigenvalue of the sums of alpha / beta)"
                )
        if problems:
            raise ForetellError("Hawkes: " + "; ".join(problems))
        for name, value in (("mu", mu), ("alpha", alpha), ("beta", beta)):
            object.__setattr__(self, name, value)

    @property
    def type_count(self) -> int:
        """How many event types there are."""
        return len(self.mu)

    def draw(self, t_end: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw by thinning. Intensities only decrease between events, so the current total intensity is a bound until the next event."""
        times: list[float] = []
        types: list[int] = []
        now = 0.0
        excited = np.zeros((len(self.mu), len(self.beta)))
        while True:
            bound = float(self.mu.sum() + excited.sum())
            wait = float(rng.exponential(1 / bound))
            now += wait
            if now > t_end:
                return np.array(times), np.array(types, dtype=np.int32)
            excited = excited * np.exp(-self.beta * wait)
            intensities = self.mu + excited.sum(axis=1)
            level = float(rng.uniform(0.0, bound))
            cumulated = np.cumsum(intensities)
            # the proposal is rejected if the level is above the total; else the same draw chooses the type
            if level < cumulated[-1]:
                kind = int(np.searchsorted(cumulated, level, side="right"))
                times.append(now)
                types.append(kind)
                excited = excited + self.alpha[:, kind, :]

    def log_intensities(self, times: np.ndarray, types: np.ndarray) -> np.ndarray:
        """Return the log-intensities, computed by a recursion over events in which the excitation decays."""
        excited = np.zeros((len(self.mu), len(self.beta)))
        logs = np.empty(len(times))
        for place, (gap, kind) in enumerate(zip(np.diff(times, prepend=0.0), types, strict=True)):
            excited = excited * np.exp(-self.beta * gap)
            logs[place] = np.log(self.mu[kind] + excited[kind].sum())
            excited = excited + self.alpha[:, kind, :]
        return logs

    def integrals(self, times: np.ndarray, types: np.ndarray, t_end: float) -> np.ndarray:
        """Return the integral of the base rates plus the decrease of excitation over each gap, divided by the decays."""
        gaps = np.diff(times, prepend=0.0, append=t_end)
        jumps = self.alpha.sum(axis=0)  # [K, J]: increase of the total intensity after an event
        excited = np.zeros(len(self.beta))
        totals = np.empty(len(gaps))
        for place, gap in enumerate(gaps):
            totals[place] = self.mu.sum() * gap + (excited * -np.expm1(-self.beta * gap) / self.beta).sum()
            if place < len(types):
                excited = excited * np.exp(-self.beta * gap) + jumps[types[place]]
        return totals


@dataclass(frozen=True)
class SelfCorrectingProcess:
    """A process with one type, whose intensity grows with time and decreases at every event."""

    mu: float = 1.0
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mu) and np.isfinite(self.alpha) and self.mu > 0 and self.alpha > 0):
            raise ForetellError(f"self-correcting: mu is {self.mu:g} and alpha {self.alpha:g}: expected numbers > 0")

    @property
    def type_count(self) -> int:
        """The number of event types: 1."""
        return 1

    def draw(self, t_end: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw each waiting time as the inverse of the integral at an exponential variate."""
        times: list[float] = []
        now = 0.0
        while True:
            level = float(rng.exponential())
            exponent = self.alpha * len(times) - self.mu * now
            # log(1 + level·μ·e^exponent), without overflow for all exponents
            now += float(np.logaddexp(0.0, np.log(level * self.mu) + exponent)) / self.mu
            if now > t_end:
                return np.array(times), np.zeros(len(times), dtype=np.int32)
            times.append(now)

    def log_intensities(self, times: np.ndarray, types: np.ndarray) -> np.ndarray:
        """Return `μ t − α N(t−)` for each event."""
        return self.mu * times - self.alpha * np.arange(len(times))

    def integrals(self, times: np.ndarray, types: np.ndarray, t_end: float) -> np.ndarray:
        """Return `e^(μ t − α n) (1 − e^(−μ gap)) / μ` for each gap, where `t` is the end of the gap."""
        ends = np.append(times, t_end)
        gaps = np.diff(ends, prepend=0.0)
        return np.exp(self.mu * ends - self.alpha * np.arange(len(ends))) * -np.expm1(-self.mu * gaps) / self.mu


def _numbers(name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ForetellError(f"{name} is {values!r}: expected numbers, in lists of equal lengths") from None
    if not np.isfinite(array).all():
        raise ForetellError(f"{name} is {values!r}: expected finite numbers")
    return array
