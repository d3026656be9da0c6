"""Known values of events as columns of numbers, with a vector for each column. Their product is added to embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class EventFeatureRows:
    """The two factors, not multiplied yet: a model may first multiply the vectors, which are fewer, by its next matrix."""

    rows: Tensor  # [B, N, F]: without gradients
    vectors: Tensor  # [F, D]

    @property
    def width(self) -> int:
        """F, the number of columns."""
        return len(self.vectors)

    @classmethod
    def joined(cls, parts: Sequence[EventFeatureRows]) -> EventFeatureRows | None:
        """Return all parts as one, with their columns side by side; None: there are no parts."""
        if len(parts) <= 1:
            return parts[0] if parts else None
        return cls(torch.cat([one.rows for one in parts], dim=-1), torch.cat([one.vectors for one in parts]))
