"""The multivariate Hawkes process with shared exponential decays: `λ_e(t) = μ_e + Σ_f Σ_j α_efj Σ_s exp(−β_j(t−s))`.

The past enters only through `S_fj`, the decayed count of earlier events of type `f`. One pass over the events updates these counts, and
the integral has a closed form. Maximum likelihood is in `hawkes_fit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.classical.sampler import HawkesSampler
from foretell.models.registry import ModelOptions, ModelSpec, register
from foretell.options import option
from foretell.sampling.core.start import past_batch

DECAYS = 2  # the default


@dataclass(frozen=True)
class DecayedCounts:
    """The decayed counts after each number of events, as of the time of the last event, and that time."""

    counts: Tensor  # [B, N + 1, K, J]
    since: Tensor  # float64 [B, N + 1]


@dataclass(frozen=True)
class HawkesOptions(ModelOptions):
    decays: int | Literal["auto"] = option(
        "auto", doc="Exponential decays; auto: 1, 2 or 4, as dev says, 2 without dev."
    )
    shrinkage: float | Literal["auto"] = option(
        "auto", doc="So many events of every type excite like the average; auto: as dev says, 0 without dev."
    )

    earlier: ClassVar[dict[str, Any]] = {"shrinkage": 0.0}

    def mistakes(self) -> list[str]:
        found = []
        if self.decays != "auto" and self.decays < 1:
            found.append(f"decays = {self.decays}: expected 1 or more")
        if self.shrinkage != "auto" and not 0.0 <= self.shrinkage < math.inf:
            found.append(f"shrinkage = {self.shrinkage}: expected 0 (none) or a number of events")
        return found


@register(ModelSpec("hawkes", "Hawkes", HawkesOptions, "exponential decays, by maximum likelihood", "Hawkes 1971"))
class Hawkes(IntensityModel[HawkesOptions]):
    """A Hawkes process with exponential decays: every event raises the intensities for a while.

    `λ_k(t) = μ_k + Σ_i Σ_d α_{d, k_i, k} β_d exp(−β_d (t − t_i))`, fitted by maximum likelihood (EM), in float64. A floor for all
    other models.

    Hawkes, "Spectra of Some Self-Exciting and Mutually Exciting Point Processes", Biometrika 1971.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"], ["visit"]], [[0.5, 2.0], [1.0]], t_ends=[10.0, 5.0])
        >>> fitted = ft.fit(ft.Hawkes(data.vocabulary, decays=1), data)
        >>> fitted.model.options.decays
        1
    """

    unit_names = ()  # all rates are parameters

    def __init__(
        self,
        vocabulary: Vocabulary | int,
        options: HawkesOptions | None = None,
        *,
        dtype: torch.dtype = torch.float64,
        **changes: Any,
    ) -> None:
        super().__init__(vocabulary, self.chosen(options, changes))
        self.mu = nn.Parameter(torch.ones(self.types, dtype=dtype))
        self._make(DECAYS if self.options.decays == "auto" else self.options.decays, dtype)

    def _make(self, decays: int, dtype: torch.dtype) -> None:
        self.decays = decays
        self.alpha = nn.Parameter(torch.zeros(self.types, self.types, decays, dtype=dtype))
        self.beta = nn.Parameter(torch.ones(decays, dtype=dtype))

    def settle(self, decays: int, shrinkage: float) -> None:
        """Set the number of decays and the shrinkage if options leave them open. A new number of decays resets the parameters."""
        if decays != self.decays:
            self._make(decays, self.dtype)
        self.options = replace(self.options, decays=decays, shrinkage=shrinkage)

    @classmethod
    def from_options(cls, options: Any, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> Self:
        return cls(vocabulary, options)  # always in float64, without random numbers

    def fit_directly(
        self, train: EventData, dev: EventData | None, record: Callable[[int, float | None], None]
    ) -> None:
        from foretell.models.classical.hawkes_fit import fit_best_hawkes  # it imports this class

        fit_best_hawkes(self, train, dev, record)

    def check_state(self) -> None:
        if bool((self.mu < 0.0).any() | (self.alpha < 0.0).any()):
            raise ValueError("mu or alpha has numbers below 0")
        if not bool((self.beta > 0.0).all()):
            raise ValueError("beta has numbers that are not above 0")

    def encode(self, batch: Batch) -> DecayedCounts:
        return decayed_counts(batch, self.beta, self.types)

    def state(self, history: DecayedCounts, queries: Queries) -> Tensor:
        seen = queries.seen().expand_as(queries.times)
        elapsed = queries.times - history.since.gather(1, seen)
        rows = torch.arange(len(seen), device=seen.device)[:, None]
        decay = torch.exp(-elapsed.to(self.dtype).unsqueeze(-1) * self.beta)  # [B, Q, J]
        return (history.counts[rows, seen] * decay.unsqueeze(-2)).flatten(-2)

    def intensities(self, state: Tensor) -> Tensor:
        return F.linear(state, self.alpha.flatten(1), self.mu)

    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        return ((self.alpha.flatten(1)[types] * state).sum(-1) + self.mu[types]).log()

    def total(self, state: Tensor) -> Tensor:
        return state @ self.alpha.flatten(1).sum(0) + self.mu.sum()

    def exact_integral(self, history: DecayedCounts, batch: Batch) -> Tensor:
        length, before = (one.to(self.dtype) for one in (batch.gap_length, batch.scored_start - batch.gap_start))
        left = torch.exp(-before.unsqueeze(-1) * self.beta)  # share of counts left where scoring begins
        decayed = -left * torch.expm1(-length.unsqueeze(-1) * self.beta) / self.beta  # [B, G, J]
        raised = torch.einsum("bgfj,fj->bgj", history.counts, self.alpha.sum(0))
        return self.mu.sum() * length + (raised * decayed).sum(-1)

    @torch.inference_mode()
    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> HawkesSampler:
        mu, alpha, beta = (one.detach().double() for one in (self.mu, self.alpha, self.beta))
        batch = past_batch(histories, seen, self)
        past = decayed_counts(batch, beta, self.types)
        row = torch.arange(len(batch), device=self.device)
        return HawkesSampler(
            self.vocabulary, mu, alpha, beta, past.counts[row, batch.lengths], past.since[row, batch.lengths]
        )

    def named_arrays(self) -> dict[str, Tensor]:
        names = self.vocabulary.names
        found = {"beta": self.beta.detach()}
        for index, name in enumerate(names):
            found[f"mu.{name}"] = self.mu.detach()[index]
            found[f"alpha.{name}"] = self.alpha.detach()[index]  # excitation of `name`: [K, J]
        return found

    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        for name, array in arrays.items():
            fine = (array >= 0) if name.startswith("alpha.") else (array > 0)
            if not bool(fine.all()):
                raise ForetellError(
                    f"{name}: expected {'no number below 0' if name.startswith('alpha.') else 'numbers above 0'}"
                )
        with torch.no_grad():
            for name, target in self.named_arrays().items():
                target.copy_(arrays[name])


def decayed_counts(batch: Batch, beta: Tensor, types: int) -> DecayedCounts:
    """Return the decayed counts, from one pass over the events of all sequences in parallel."""
    rows, width = batch.times.shape
    since = batch.gap_start
    decay = torch.exp(-(batch.times - since[:, :-1]).to(beta.dtype).unsqueeze(-1) * beta)  # [B, N, J]
    current = torch.zeros(rows, types, len(beta), dtype=beta.dtype, device=beta.device)
    everywhere = torch.arange(rows, device=beta.device)
    after = [current]
    for step in range(width):
        current = current * decay[:, step, None, :]
        current = current.index_put((everywhere, batch.types[:, step]), current.new_ones(()), accumulate=True)
        after.append(current)
    return DecayedCounts(torch.stack(after, dim=1), since)
