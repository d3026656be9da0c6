"""The mean log-likelihood an event of a data set: what early stopping looks at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from foretell.batches.batch import Batch, Window
from foretell.batches.buckets import length_buckets
from foretell.batches.queries import Sample
from foretell.data import EventData
from foretell.models.base import IntensityModel
from foretell.objective.integral import Points, in_parts, stratified
from foretell.objective.loglik import log_likelihood


def batches_of(data: EventData, model: IntensityModel, window: Window, nodes: int) -> Iterator[tuple[list[int], Batch]]:
    """All sequences, in batches of similar length that fit the device with `nodes` queries a gap."""
    limit = model.queries_at_a_time
    gaps = data.lengths + 1
    in_order = np.random.default_rng(0)  # any fixed order: it changes no sum
    for indices in length_buckets(gaps, max(1, len(data)), in_order, max_tokens=max(1, limit // nodes)):
        batch = model.collator.batch(data, indices, window=window, device=model.device, unscored=model.unscored)
        yield indices.tolist(), batch


@torch.no_grad()
def mean_log_likelihood(
    model: IntensityModel,
    data: EventData,
    points_a_gap: int,
    window: Window = "all",
    downsample: int = 0,
    seed: int = 0,
) -> float:
    """With the same stratified draws at every call: unbiased for any intensity, and comparable from epoch to epoch.

    (Nothing is trained on these draws, so nothing can learn to be quiet at just those times.) With `downsample`, only so many of the events
    possible at each time are looked at, again the same at every call.
    """
    value, scored = 0.0, 0
    sample = Sample(downsample, np.random.default_rng(seed)) if downsample else None
    generator = torch.Generator().manual_seed(seed)
    for _, batch in batches_of(data, model, window, points_a_gap):
        if model.closed_form:
            value += float(log_likelihood(model, batch, None).log_likelihood().sum())
        else:
            shape = *batch.gap_start.shape, points_a_gap
            draws = torch.rand(shape, generator=generator, dtype=torch.float64).to(model.device)
            value += _by_parts(model, batch, stratified(batch, points_a_gap, None, draws), sample)
        scored += int(batch.scored.sum())
    return value / max(scored, 1)


def _by_parts(model: IntensityModel, batch: Batch, points: Points, sample: Sample | None) -> float:
    """The log-likelihood of a batch, with some of each gap's points at a time where they are many."""
    value = 0.0
    for number, part in enumerate(in_parts(points, batch.gap_start.shape[1], model.queries_at_a_time)):
        terms = log_likelihood(model, batch, part, sample)
        value -= float(terms.gap_integral.sum())
        value += float(terms.event_log.sum()) if number == 0 else 0.0
    return value
