"""When the next event is predicted, seen from each event: quantiles of the waiting time, from the events up to then alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from foretell.data import EventData
from foretell.evaluate.next_event_density import Horizon, Places, march
from foretell.evaluate.next_time import HORIZON, QUICK, longest_time
from foretell.evaluate.panel import NODES
from foretell.evaluate.prediction import QUANTILES
from foretell.models.base import IntensityModel

SHORT_GAPS = 0.05  # the quantile of the sequence's gaps at which marching begins


@torch.no_grad()
def waiting_times(
    model: IntensityModel,
    data: EventData,
    place: int,
    seen: Sequence[int] | np.ndarray,
    quantiles: tuple[float, ...] = QUANTILES,
) -> np.ndarray:
    """Of sequence `place`, after the first `seen` events each: waiting times [len(seen), quantiles], from the last of these on.

    NaN: so much of the probability is never reached; the event may never come.
    """
    rows = [np.empty((0, len(quantiles)))]
    horizon = Horizon(_first_width(data, place), HORIZON * longest_time(model, data))
    with model.evaluating():
        batch = model.collator.batch(data, [place], device=model.device)
        history = model.encode(batch)
        wanted = torch.as_tensor(np.asarray(seen, dtype=np.int64), device=model.device)
        for chunk in wanted.split(max(1, model.queries_at_a_time // NODES)):
            start = batch.gap_start[0][chunk][None]
            places = Places(start, chunk[None], torch.ones_like(start, dtype=torch.bool))
            rows.append(march(model, batch, history, places, horizon, QUICK, quantiles).quantiles[0].cpu().numpy())
    return np.concatenate(rows)


def _first_width(data: EventData, place: int) -> float:
    """A short gap of the sequence: intensities may jump and fall on that scale after an event."""
    gaps = np.diff(data[place].times, prepend=0.0)
    positive = gaps[gaps > 0.0]
    return float(np.quantile(positive, SHORT_GAPS)) if len(positive) else max(data[place].t_end, 1e-9) / 1000.0
