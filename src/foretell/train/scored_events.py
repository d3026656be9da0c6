"""Which events of a data set count: all but those that the data, the window or the model leave unscored, which are history."""

from __future__ import annotations

import numpy as np

from foretell.data import EventData, EventSequence
from foretell.models.base import IntensityModel


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
