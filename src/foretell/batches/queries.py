"""Times at which something is wanted of a batch, and how many events each of them sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.nn.attention import Visible


@dataclass(frozen=True)
class Queries:
    """Times at which something is wanted, each seeing a prefix of its sequence's events."""

    times: Tensor  # float64 [B, Q]
    visible: Visible
    plan: Any = None  # a `QueryPlan`, for models made of rules

    @classmethod
    def by_gap(cls, times: Tensor) -> Queries:
        """From [B, G, P]: the `P` times of gap `g` see the first `g` events."""
        rows, gaps, per_gap = times.shape
        return cls(times.reshape(rows, gaps * per_gap), Visible(None, per_gap))

    @classmethod
    def seeing(cls, times: Tensor, seen: Tensor) -> Queries:
        """Times [B, Q] that see the first `seen` events each."""
        return cls(times, Visible(seen, None))

    @classmethod
    def of_events(cls, batch: Batch) -> Queries:
        """The events' own times, each seeing the events before it."""
        return cls.by_gap(batch.times.unsqueeze(-1))

    @classmethod
    def at_times(cls, batch: Batch, times: Tensor) -> Queries:
        """Times that are no event's: each sees the events with a smaller time."""
        seen = torch.searchsorted(batch.times, times.contiguous(), right=False)
        return cls.seeing(times, torch.minimum(seen, batch.lengths[:, None]))

    def at(self, times: Tensor) -> Queries:
        """Other times [B, Q] that see the same events each: what was planned stays."""
        return replace(self, times=times)

    def seen(self) -> Tensor:
        """How many events each query sees: [1 or B, Q]."""
        if self.visible.seen is not None:
            return self.visible.seen
        assert self.visible.per_gap is not None
        return (torch.arange(self.times.shape[1], device=self.times.device) // self.visible.per_gap)[None]


@dataclass(frozen=True)
class Sample:
    """At each query only some of the possible events, uniformly without replacement, each with weight K/J."""

    keep: int  # J
    rng: np.random.Generator
