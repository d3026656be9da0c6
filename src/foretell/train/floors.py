"""The floors that every model must beat: Poisson and Hawkes by maximum likelihood, on the events that the model is scored on."""

from __future__ import annotations

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.train.lesson import history_only


def floors_for(vocabulary: Vocabulary) -> list[IntensityModel]:
    return [Hawkes(vocabulary), Poisson(vocabulary)]


def scored_alike(data: EventData, model: IntensityModel) -> EventData:
    """The same data, with events of types that the model does not predict as history for every model."""
    types = model.unscored
    if types is None or not types.any():
        return data
    marked = [
        EventSequence(one.times, one.types, one.t_end, one.id, one.metadata, history_only(one, types)) for one in data
    ]
    return EventData(marked, data.vocabulary, data.origin, data.name)
