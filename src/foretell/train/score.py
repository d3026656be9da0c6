"""The mean log-likelihood per event of a data set, which early stopping looks at, and which events count.

All count but those that the data, the window or the model leave unscored; these are history.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from foretell.batches.batch import Batch, Window
from foretell.batches.buckets import length_buckets
from foretell.batches.queries import Sample
from foretell.data import EventData, EventSequence
from foretell.models.base import IntensityModel
from foretell.objective.integral import Points, in_parts, stratified
from foretell.objective.loglik import log_likelihood


def batches_of(data: EventData, model: IntensityModel, window: Window, nodes: int) -> Iterator[tuple[list[int], Batch]]:
    """All sequences, in batches of similar length that fit the device with `nodes` queries per gap."""
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
    points_per_gap: int,
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
    for _, batch in batches_of(data, model, window, points_per_gap):
        if model.closed_form:
            value += float(log_likelihood(model, batch, None).log_likelihood().sum())
        else:
            shape = *batch.gap_start.shape, points_per_gap
            draws = torch.rand(shape, generator=generator, dtype=torch.float64).to(model.device)
            value += _by_parts(model, batch, stratified(batch, points_per_gap, None, draws), sample)
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


def sum_scored(data: EventData, indices: np.ndarray, window: str, unscored: np.ndarray | None = None) -> int:
    """Scored events of some sequences, without asking the device; types that are `unscored` [K] are not."""
    first = 1 if window == "events-2-to-I" or data.origin == "first-event" else 0
    if (unscored is None or not unscored.any()) and data.columns.unscored is None:
        return int(np.maximum(data.lengths[indices] - first, 0).sum())
    return sum(int((~history_only(data[int(place)], unscored))[first:].sum()) for place in indices)


def history_only(sequence: EventSequence, unscored: np.ndarray | None) -> np.ndarray:
    """bool [events]: what the data mark so, and events of types that are `unscored` [K]."""
    marked = np.zeros(len(sequence), dtype=bool) if sequence.unscored is None else sequence.unscored
    return marked if unscored is None or not len(unscored) else marked | unscored[sequence.types]


def scored_alike(data: EventData, model: IntensityModel) -> EventData:
    """The same data, with events of types that the model does not predict as history for every model."""
    types = model.unscored
    if types is None or not types.any():
        return data
    marked = [
        EventSequence(one.times, one.types, one.t_end, one.id, one.metadata, history_only(one, types)) for one in data
    ]
    return EventData(marked, data.vocabulary, data.origin, data.name)
