"""Whether an A-NHP's encoder can learn from data at all: events, time, and types that it knows."""

from __future__ import annotations

import numpy as np

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP


def check_data(model: ANHP, train: EventData, dev: EventData | None, caller: str) -> None:
    """Also notes in the model what it is about to see."""
    if not isinstance(model, ANHP):
        raise ForetellError(
            f"{caller}: found {type(model).__name__}, expected an A-NHP: the other models have no two-sided encoder"
        )
    if train.event_count == 0:
        raise ForetellError(f"{train.name}: there is no event to learn from")
    for data in (train, dev):
        if data is not None and data.vocabulary != model.vocabulary:
            raise ForetellError(f"{data.name}: its event types are not those of the model")
    model.unseen = tuple(int(kind) for kind in np.flatnonzero(train.type_counts() == 0))
    model.longest = max(sequence.t_end for sequence in train)
    if model.longest <= 0.0:
        raise ForetellError(f"{train.name}: every sequence ends at time 0, so there is no time to learn from")
