"""What noise is a sum of: a batch and what its real events left behind in; expected counts, times and rates of one simple part out.

Each part is a Poisson process in every gap, given the real events: constant, falling, or following a clock. Its integral can be inverted,
so that its events are drawn exactly. A part may have several *columns*, which are drawn apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.objective.profile import Profile


@dataclass(frozen=True)
class Asked:
    """Marks in gaps of a batch, of any one shape."""

    row: Tensor
    gap: Tensor
    mark: Tensor


class Part(Protocol):
    @property
    def columns(self) -> int: ...

    def expected(self, streams: int) -> Tensor:
        """How many events of each column and mark come in each gap: [B, G, columns, K]."""
        ...

    def waits(self, asked: Asked, column: Tensor, uniform: Tensor) -> Tensor:
        """How long after the gap's start an event comes that has this share of the gap's integral before it."""
        ...

    def rate(self, asked: Asked, time: Tensor) -> Tensor:
        """Of one stream, of all columns together."""
        ...


@dataclass(frozen=True)
class Constant:
    batch: Batch
    mu: Tensor  # [K]
    columns: int = 1

    def expected(self, streams: int) -> Tensor:
        return (streams * self.batch.gap_length[..., None, None]) * self.mu

    def waits(self, asked: Asked, column: Tensor, uniform: Tensor) -> Tensor:
        return self.batch.gap_length[asked.row, asked.gap] * uniform

    def rate(self, asked: Asked, time: Tensor) -> Tensor:
        return self.mu[asked.mark]


@dataclass(frozen=True)
class Falling:
    """`Σ_j r_j·exp(−β_j(t−s))` in the gap that begins at `s`, with a column for each decay."""

    batch: Batch
    raised: Tensor  # r: [B, G, J, K]
    beta: Tensor  # [J]

    @property
    def columns(self) -> int:
        return len(self.beta)

    def expected(self, streams: int) -> Tensor:
        beta = self.beta[:, None]
        return self.raised * (-torch.expm1(-self.batch.gap_length[..., None, None] * beta) / beta * streams)

    def waits(self, asked: Asked, column: Tensor, uniform: Tensor) -> Tensor:
        beta = self.beta[column]
        return -torch.log1p(uniform * torch.expm1(-beta * self.batch.gap_length[asked.row, asked.gap])) / beta

    def rate(self, asked: Asked, time: Tensor) -> Tensor:
        elapsed = (time - self.batch.gap_start[asked.row, asked.gap]).unsqueeze(-1)
        raised = self.raised.transpose(2, 3)[asked.row, asked.gap, asked.mark]
        return (raised * torch.exp(-elapsed * self.beta)).sum(-1)


@dataclass(frozen=True)
class Clock:
    """A step function of the time since an origin, which every gap and mark has its own of; nothing where it is infinite."""

    batch: Batch
    profile: Profile
    origin: Tensor  # float64 [B, G, K]
    columns: int = 1

    @cached_property
    def _before(self) -> Tensor:
        """The integral up to the start of each gap: [B, G, K]."""
        return self.profile.upto(self.batch.gap_start.unsqueeze(-1) - self.origin)

    @cached_property
    def _mass(self) -> Tensor:
        """The integral over each gap, and 0 over those that are not scored: [B, G, K]."""
        found = self.profile.upto(self.batch.gap_end.unsqueeze(-1) - self.origin) - self._before
        return torch.where(self.batch.gap_length.unsqueeze(-1) > 0.0, found.clamp(min=0.0), 0.0)

    def expected(self, streams: int) -> Tensor:
        return (self._mass * streams).unsqueeze(2)

    def waits(self, asked: Asked, column: Tensor, uniform: Tensor) -> Tensor:
        place = asked.row, asked.gap, asked.mark
        wanted = self._before[place] + self._mass[place] * uniform
        found = self.origin[place] + self.profile.when(wanted, asked.mark)
        return (found - self.batch.gap_start[asked.row, asked.gap]).clamp(min=0.0)

    def rate(self, asked: Asked, time: Tensor) -> Tensor:
        return self.profile.at(time - self.origin[asked.row, asked.gap, asked.mark], asked.mark)


def since_start(batch: Batch, marks: int) -> Tensor:
    """The origin of a clock that runs from the beginning of the sequence."""
    return batch.times.new_zeros(1, 1, 1).expand(*batch.gap_start.shape, marks)


def since_own(batch: Batch, mark_of_event: Tensor, marks: int) -> Tensor:
    """The time of the last event of each mark that each gap sees; infinite where there is none."""
    number = torch.arange(1, batch.times.shape[1] + 1, device=batch.times.device).expand_as(mark_of_event)
    last = number.new_zeros(*batch.gap_start.shape, marks)
    last[:, 1:].scatter_(2, mark_of_event.unsqueeze(-1), number.unsqueeze(-1))
    last = last.cummax(1).values
    times = F.pad(batch.times, (1, 0), value=torch.inf)
    return times.gather(1, last.flatten(1)).view(last.shape)
