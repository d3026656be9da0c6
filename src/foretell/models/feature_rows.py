"""Known values of events as columns of numbers, and a vector for each column; their product is added to embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class EventFeatureRows:
    """Not multiplied yet: a model may first multiply the vectors, of which there are fewer, by what comes next."""

    rows: Tensor  # [B, N, F]: no gradient reaches them
    vectors: Tensor  # [F, D]

    @property
    def width(self) -> int:
        """F."""
        return len(self.vectors)

    @classmethod
    def joined(cls, parts: Sequence[EventFeatureRows]) -> EventFeatureRows | None:
        """Side by side; None: there are none."""
        if len(parts) <= 1:
            return parts[0] if parts else None
        return cls(torch.cat([one.rows for one in parts], dim=-1), torch.cat([one.vectors for one in parts]))
