"""One question to a model: queries are planned by its collator, and a batch is encoded where that was not done yet."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from foretell.batches.batch import Batch, Queries
from foretell.models.base import IntensityModel


def state_at(model: IntensityModel, batch: Batch, queries: Queries, history: Any = None) -> Tensor:
    """States [B, Q, ...]."""
    if history is None:
        history = model.encode(model.collator.plan_batch(batch))
    return model.state(history, model.collator.plan_queries(batch, queries))
