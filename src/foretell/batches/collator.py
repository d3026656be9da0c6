"""Sequences → a batch, and times → queries, each with its plan where a model is made of rules.

The collator of a model is the one place that knows sequences and tensors: a model applies what it is given and looks nothing up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Window, make_batch
from foretell.batches.queries import Queries, Sample
from foretell.data import EventData


class Collator:
    """For models without rules: padding alone."""

    captured_after = 1  # occurrences of a capture key: at once, since batches of a shape are sure to come again

    def batch(
        self,
        data: EventData,
        indices: Sequence[int] | np.ndarray,
        *,
        window: Window = "all",
        device: torch.device | str = "cpu",
        width: int | None = None,
        unscored: np.ndarray | None = None,
        planned: bool = True,
    ) -> Batch:
        """The chosen sequences, padded to the longest or to `width` events; types that are `unscored` [K] happen and do not count.

        Not `planned`: rows will be taken from it, and `plan_batch` called for those.
        """
        return make_batch(data, indices, window=window, device=device, width=width, unscored=unscored)

    def plan_batch(self, batch: Batch) -> Batch:
        """The batch with what `model.encode` applies, unless it has it."""
        return batch

    def plan_queries(
        self, batch: Batch, queries: Queries, sample: Sample | None = None, chosen: Tensor | None = None
    ) -> Queries:
        """Queries about a batch with what the model applies; about a `sample` of the possible events, or `chosen` [B, Q] ones."""
        return queries

    def capture_key(self, batch: Batch) -> Hashable:
        """Batches for which this is equal can be served by one captured step."""
        return tuple(batch.times.shape)

    @contextmanager
    def keeping(self) -> Iterator[object]:
        """Plans handed out inside are handed out again without a look at the device; a graph must keep what comes alive."""
        yield None
