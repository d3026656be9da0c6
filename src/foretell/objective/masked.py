"""Masked pretraining (paper, end of section 2): return the log-probability of the type of each masked event of a corrupted batch.

A share of the events is removed. Of the remaining ones, a share has its type replaced by `mask`, but keeps its time. The history of an
event is all other remaining events, past and future.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.models.attention.two_sided import checked_sight
from foretell.models.task_heads import MaskedANHP


@dataclass(frozen=True)
class Corruption:
    removed: Tensor  # bool [B, N]: True where an event is invisible to all others
    masked: Tensor  # bool [B, N]: True where the type of an event is hidden, and must be predicted
    count: int  # number of masked events, available without a transfer from the device


@dataclass(frozen=True)
class LabelTerms:
    log_probability: Tensor  # [labels]: of the true labels
    right: Tensor  # bool [labels]: True where the most probable label is the true one


def corrupt(
    lengths: np.ndarray,
    width: int,
    rng: np.random.Generator,
    *,
    mask: float,
    drop: float,
    device: torch.device | str = "cpu",
) -> Corruption:
    """Draw a corruption on the CPU, event by event, so that a seed gives the same result on every device and for any padding.

    If there are events, at least one is masked."""
    valid = np.arange(width) < lengths[:, None]
    removed, masked = np.zeros_like(valid), np.zeros_like(valid)
    removed[valid] = rng.random(valid.sum()) < drop
    masked[valid] = (rng.random(valid.sum()) < mask) & ~removed[valid]
    if valid.any() and not masked.any():
        row, place = np.argwhere(valid)[rng.integers(valid.sum())]
        removed[row, place], masked[row, place] = False, True
    return Corruption(torch.from_numpy(removed).to(device), torch.from_numpy(masked).to(device), int(masked.sum()))


def masked_terms(
    model: MaskedANHP, batch: Batch, corruption: Corruption, visible: Tensor | np.ndarray | None = None
) -> LabelTerms:
    """Return the terms of the masked events. `visible` (bool [B, N, N], True where the row sees the column) replaces the usual history."""
    seen = None if visible is None else checked_sight(batch, visible)
    logs = model.log_probabilities(batch, corruption.removed, corruption.masked, seen)
    true = batch.types[corruption.masked]
    return LabelTerms(logs.gather(-1, true[:, None]).squeeze(-1), logs.argmax(-1) == true)
