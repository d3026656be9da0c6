"""The intensities of a model of rules at planned queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.batches.rule_collator import QueryPlan
from foretell.data import Vocabulary


@dataclass(frozen=True)
class PlannedIntensities:
    """Log-intensities of all possible events at some queries, and of the observed events."""

    about: QueryPlan
    possible: Tensor  # [E]: log λ, one per possible event of the plan
    happened: Tensor  # [events of all sequences]: log λ, 0 for an event that is not scored

    def at_ends(self, batch: Batch) -> Tensor:
        """Return log-intensities of the events of a batch, [B, N]; 0 in padding."""
        ends = self.happened.new_zeros(batch.times.numel())
        return ends.index_copy(0, self.about.event, self.happened).view(batch.times.shape)

    def summed(self, values: Tensor, shape: tuple[int, int]) -> Tensor:
        """Return the sums of values of possible events [E] by query: [B, Q]."""
        weight = self.about.plan.possible_weight
        values = values if weight is None else values * weight.to(values.dtype)
        return values.new_zeros(shape[0] * shape[1]).index_add(0, self.about.query, values).view(shape)

    def columns(self, vocabulary: Vocabulary) -> Tensor:
        """Return the type of each possible event, int64 [E]; the size of the vocabulary stands for an unknown type."""
        distinct, inverse = np.unique(self.about.plan.possible_fact, return_inverse=True)
        found = [vocabulary.find(self.about.plan.text(fact)) for fact in distinct.tolist()]
        table = np.asarray([len(vocabulary) if one is None else one for one in found], dtype=np.int64)
        columns = table[inverse] if len(table) else np.zeros(0, dtype=np.int64)
        return torch.from_numpy(columns).to(self.possible.device)
