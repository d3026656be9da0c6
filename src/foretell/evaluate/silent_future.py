"""Prefixes of sequences, followed by the times at which additions expire if no further event happens.

If nothing expires, one row serves all prefixes of a sequence. If additions expire, every prefix needs a row of its own, with its own
expiries after its events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.data import EventData, EventSequence
from foretell.evaluate.likelihood import with_all_names
from foretell.models.base import IntensityModel
from foretell.models.capabilities import HasRules

LATEST = 1001.0  # in horizons: the integration always ends earlier


def expires(model: IntensityModel) -> bool:
    return isinstance(model, HasRules) and model.program.expires


@dataclass(frozen=True)
class SilentFutures:
    """A batch with one row per prefix."""

    model: IntensityModel  # the model with a name for every event that is ever possible
    batch: Batch
    seen: Tensor  # int64 [B, 1]: number of changes up to and including the last event


def silent_futures(
    model: IntensityModel, data: EventData, chosen: Sequence[tuple[EventSequence, int, float]], last: float
) -> SilentFutures:
    """Return a row per entry of `chosen`: a sequence, the number of events that are seen, and the start of a horizon of `last`."""
    rows = [
        one.first(count, max(start, one.times[:count].max(initial=0.0)) + LATEST * last) for one, count, start in chosen
    ]
    made = EventData(rows, data.vocabulary, "window", data.name)
    wide = with_all_names(model, made)
    batch = wide.collator.batch(made, range(len(rows)), device=model.device)
    assert batch.rules is not None and batch.rules.event is not None
    event = batch.rules.event
    counts = torch.as_tensor(np.asarray([count for _, count, _ in chosen]), device=event.device).unsqueeze(1)
    own = (event >= 0) & (event < counts)
    place = torch.arange(1, event.shape[1] + 1, device=event.device) * own
    return SilentFutures(wide, batch, torch.nn.functional.pad(place, (1, 0)).amax(1, keepdim=True))
