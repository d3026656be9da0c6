"""Noise-contrastive estimation (Mei, Wan and Eisner 2020): a batch and its noise in, the loss of a step out; no integral.

With `λ̲_k(t) = λ_k(t) + M·λ^q_k(t)` the objective is `Σ log(λ_k/λ̲_k)` over the events that happened plus `Σ log(λ^q_k/λ̲_k)` over the
events of `M` noise streams. Both are logistic functions of `x = log λ_k − log(M·λ^q_k)`: how much more the event looks real than drawn.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.batches.queries import Queries
from foretell.models.base import IntensityModel
from foretell.objective.noise import NoiseEvents


def contrast(model: IntensityModel, batch: Batch, noise: NoiseEvents, history: Any = None) -> Tensor:
    """The negative objective of a batch, summed, in the model's dtype. `history` is the encoded batch, where the caller has it."""
    history = model.encode(model.collator.plan_batch(batch)) if history is None else history
    queries = model.collator.plan_queries(batch, Queries.seeing(noise.times, noise.seen), chosen=noise.chosen)
    found = model.ends_and_chosen(history, batch, queries, noise.chosen)
    log_streams = math.log(noise.streams)
    at_ends = _excess(found.log_at_end, noise.log_rate_at_events + log_streams, batch.event_counts)
    drawn = _excess(found.log_chosen, noise.log_rate + log_streams, noise.valid)
    real = F.softplus(-at_ends) * batch.event_counts
    pseudo = F.softplus(-drawn) * (noise.valid & noise.pseudo)
    noisy = (F.softplus(drawn) + log_streams) * (noise.valid & ~noise.pseudo)
    return real.sum() + pseudo.sum() + noisy.sum()


def _excess(log_intensity: Tensor, log_noise: Tensor, counts: Tensor) -> Tensor:
    """`log λ − log(M·λ^q)` where it counts; elsewhere it may be anything, and must not reach a gradient as infinity times nothing."""
    zero = torch.zeros((), dtype=log_intensity.dtype, device=log_intensity.device)
    return torch.where(counts, log_intensity - log_noise.to(log_intensity.dtype), zero)
