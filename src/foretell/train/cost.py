"""How much of a model a training step looks at: the currency in which objectives are compared.

A *state* is one evaluation of the network at one time; an *intensity* is one `λ_k(t)` of one type or possible event. Padding is not
counted. With `I` scored events, and `P` points in each of their gaps, the likelihood needs `I + (I + 1)·P` states and `I + K·(I + 1)·P`
intensities; noise-contrastive estimation needs one of both for every event that happened and for every event that was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.batches.batch import what_counts
from foretell.data import EventData
from foretell.models.base import IntensityModel
from foretell.models.rules.possible_events import possible_totals
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.integral import Points
from foretell.train.config import TrainOptions


@dataclass(frozen=True)
class Evaluations:
    states: int = 0
    intensities: int = 0


def for_integral(
    model: IntensityModel,
    data: EventData,
    indices: np.ndarray,
    events: int,
    options: TrainOptions,
    uniform: Sequence[Points] = (),
) -> Evaluations:
    """Of one step of maximum likelihood on some sequences with that many scored `events`; `uniform` are its draws of that kind."""
    if options.integral == "uniform":
        points = _points_in_gaps(data, indices, uniform)
    else:
        lengths = data.lengths[indices]
        width = int(lengths.max(initial=0))
        _, counts = what_counts(lengths, width, data.origin == "first-event", options.window)
        points = counts.astype(np.int64) * options.points
    asked = int(points.sum())
    if not isinstance(model, RuleModel):
        return Evaluations(events + asked, events + asked * model.types)
    looked_at = 0
    for row, index in enumerate(indices.tolist()):
        possible = possible_totals(model, data[index])
        if options.downsample:
            possible = np.minimum(possible, options.downsample)
        looked_at += int((points[row, : len(possible)] * possible).sum())
    return Evaluations(events + asked, events + looked_at)


def _points_in_gaps(data: EventData, indices: np.ndarray, drawn: Sequence[Points]) -> np.ndarray:
    """How many of the drawn times lie in each gap: [B, N + 1]; the pieces of a batch follow one another."""
    found = np.zeros((len(indices), int(data.lengths[indices].max(initial=0)) + 1), dtype=np.int64)
    row = 0
    for points in drawn:
        used = points.weights.cpu().numpy() > 0.0
        gap = points.gap.cpu().numpy()
        for one in range(len(used)):
            found[row + one] += np.bincount(gap[one][used[one]], minlength=found.shape[1])[: found.shape[1]]
        row += len(used)
    return found
