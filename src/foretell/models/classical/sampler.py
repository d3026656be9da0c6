"""Sampler of Poisson and Hawkes processes: a Poisson rate is its own bound, and Hawkes intensities are highest right after an event."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from foretell.data import Vocabulary
from foretell.sampling.core.sampler import Bounds, Sampler

ROUNDING = 1e-12


class HawkesSampler(Sampler):
    """The past is stored as decayed counts. A Poisson process is a Hawkes process without decays."""

    def __init__(
        self, vocabulary: Vocabulary, mu: Tensor, alpha: Tensor, beta: Tensor, counts: Tensor, since: Tensor
    ) -> None:
        self.vocabulary = vocabulary
        self.mu, self.alpha, self.beta = mu, alpha, beta  # float64 [K], [K, K, J], [J]
        self.counts, self.since = counts, since  # float64 [W, K, J] as of the time [W]

    @property
    def count(self) -> int:
        return len(self.since)

    @property
    def width(self) -> float:
        """The width of windows: a tenth of the fastest decay time, or without decays the mean time to the next event."""
        rate = 10.0 * float(self.beta.max()) if len(self.beta) else float(self.mu.sum())
        return 1.0 / rate if rate > 0.0 else 1.0  # if rates underflow, no events occur in any window

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.vocabulary, self.mu, self.alpha, self.beta, self.counts[rows], self.since[rows])

    def name(self, row: int, choice: int) -> str:
        return self.vocabulary.names[choice]

    def intensities(self, times: Tensor) -> Tensor:
        decay = torch.exp(-(times - self.since[:, None]).clamp(min=0.0).unsqueeze(-1) * self.beta)  # [W, Q, J]
        raised = torch.einsum("wfj,efj->wej", self.counts, self.alpha)
        return self.mu + torch.einsum("wqj,wej->wqe", decay, raised)

    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        """Return the intensity at the start of the window, since it only falls between events."""
        upper = self.intensities(start).sum(-1) * (1.0 + ROUNDING)
        return Bounds(upper, self.intensities((start + end) / 2.0).sum(-1))

    def append(self, times: Tensor, choices: Tensor) -> None:
        some = (choices >= 0).nonzero().squeeze(1)
        decay = torch.exp(-(times - self.since)[some].unsqueeze(-1) * self.beta)
        self.counts[some] = self.counts[some] * decay.unsqueeze(1)
        self.counts[some, choices[some]] += 1.0
        self.since[some] = times[some]
