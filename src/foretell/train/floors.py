"""The floors that every model must beat: Poisson and Hawkes by maximum likelihood."""

from __future__ import annotations

from foretell.data import Vocabulary
from foretell.models.base import IntensityModel
from foretell.models.hawkes import Hawkes
from foretell.models.poisson import Poisson


def floors_for(vocabulary: Vocabulary) -> list[IntensityModel]:
    return [Hawkes(vocabulary), Poisson(vocabulary)]
