"""Prefixes of sequences as if nothing happened after them: what additions then expire, and when, is known.

Where nothing expires, one row serves all prefixes of a sequence. Where something does, each has expiries of its own behind it, and is a
row of its own.
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

LATEST = 1001.0  # in horizons: a march ends before


def expires(model: IntensityModel) -> bool:
    return isinstance(model, HasRules) and model.program.expires


@dataclass(frozen=True)
class SilentFutures:
    """One row for each prefix."""

    model: IntensityModel  # with a name for all that is ever possible
    batch: Batch
    seen: Tensor  # int64 [B, 1]: changes up to the last event, with it


def silent_futures(
    model: IntensityModel, data: EventData, chosen: Sequence[tuple[EventSequence, int, float]], last: float
) -> SilentFutures:
    """Rows for sequences, each with how many events are seen and the time from which a horizon of `last` is looked at."""
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
