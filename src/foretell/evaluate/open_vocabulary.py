"""Events that a model's vocabulary lacks and that its rules make possible: a model and data in, the same model with all names out.

A model of rules keeps what it has no name for in one sum. To say which event is the most probable, each must stand by itself.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np
from torch import Tensor

from foretell.data import EventData, Vocabulary
from foretell.models.base import IntensityModel
from foretell.models.rules.rule_model import RuleModel

UNMET = -1  # the type of an event that the model's vocabulary lacks


def with_all_names(model: IntensityModel, data: EventData) -> IntensityModel:
    """With a name for every event that is possible at some time in the data."""
    if not isinstance(model, RuleModel):
        return model
    grounding, facts = model.histories.grounding, set[int]()
    for one in data:
        _, timeline = model.histories.timeline(model.vocabulary, one.types, one.times, one.unscored)
        facts.update(np.unique(timeline.holds[:, 0]).tolist())
    facts.update(grounding.always.tolist())
    return with_names(model, (grounding.text(fact) for fact in facts if grounding.is_event(fact)))


def with_names(model: IntensityModel, names: Iterable[str]) -> IntensityModel:
    """With these names behind its own. The two share their parameters; the caller's model keeps its vocabulary."""
    fresh = sorted({name for name in names if name not in model.vocabulary})
    if not fresh:
        return model
    wide = copy.copy(model)
    wide.vocabulary = Vocabulary((*model.vocabulary.names, *fresh))
    return wide


def known_types(types: Tensor, model: IntensityModel) -> Tensor:
    """Types of a model with all names as those of the model itself: int32, UNMET where it has no name for one."""
    return types.where(types < model.types, UNMET).int()
