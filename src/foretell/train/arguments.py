"""Checks of the arguments of training: a model, and splits with events to learn from."""

from __future__ import annotations

import numpy as np

from foretell.data import EventData
from foretell.data.arguments import check_split
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel, check_model


def check_arguments(model: object, train: object, dev: object, *, auto: bool = False) -> None:
    """Raise `ForetellError` if `model` is no model, or if `train` or `dev` is no split."""
    if not (auto and isinstance(model, str)):
        check_model(model)
    check_split(train, "train")
    if dev is not None:
        check_split(dev, "dev")


def check_data(model: IntensityModel, train: EventData, dev: EventData | None) -> None:
    """Raise `ForetellError` for data without events or time, or with other types. Stores traits of `train` in the model."""
    if train.event_count == 0:
        raise ForetellError(f"{train.name}: there is no event to learn from")
    for data in (train, dev):
        if data is not None and data.vocabulary != model.vocabulary:
            raise ForetellError(f"{data.name}: its event types are not those of the model")
    model.unseen = tuple(int(kind) for kind in np.flatnonzero(train.type_counts() == 0))
    model.longest = float(train.columns.t_ends.max())
    if model.longest <= 0.0:
        raise ForetellError(f"{train.name}: every sequence ends at time 0, so there is no time to learn from")
