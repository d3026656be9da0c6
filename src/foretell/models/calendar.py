"""The calendar's terms in a model: a vector added to the embedding of each event, and one added to the state at each query.

`φ(t)` are the waves of the week (and the year) at time `t`, in the zone of the data; the terms are `E φ(t)` and `Q φ(t)`. The first
uses the time of the event, the second the time of the query, so that intensities change with the calendar between events. `E` and `Q`
start at 0, so that an untrained model computes what it would without a calendar.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.data import EventData
from foretell.data.calendar import Calendar, calendar_of
from foretell.models.feature_rows import EventFeatureRows
from foretell.nn.calendar import CalendarWaves

if TYPE_CHECKING:
    from foretell.models.base import IntensityModel

log = logging.getLogger("foretell")


@dataclass(frozen=True)
class QueryCovariates:
    """What queries use from a sequence besides its events; a part of every encoded history."""

    added: Tensor | None  # [B, 1, D]: the term of static covariates in every state
    starts: Tensor | None  # float64 [B]: the moment at time 0


NO_INPUTS = QueryCovariates(None, None)


class ModelCalendar(nn.Module):
    """A calendar with the waves that a model uses."""

    def __init__(self, calendar: Calendar) -> None:
        super().__init__()
        self.calendar = calendar
        self.phases = CalendarWaves(calendar)

    def waves(self, starts: Tensor, times: Tensor) -> Tensor:
        """Return `φ`, [..., features], at times [...] of sequences that start at moments [...]."""
        return self.phases(self.phases.moments(starts, times), next(self.parameters()).dtype)


class CalendarEmbedding(ModelCalendar):
    """The matrices `E` and `Q`, both stored transposed: [features, D]."""

    def __init__(self, calendar: Calendar, event: int, query: int) -> None:
        super().__init__(calendar)
        self.event = nn.Parameter(torch.zeros(self.phases.width, event))
        self.query = nn.Parameter(torch.zeros(self.phases.width, query))

    def of_events(self, batch: Batch, before: int = 0) -> Tensor:
        """Return the term in the embeddings of events, [B, N, D]; `before` rows at time 0 (`bos`) come first."""
        found = self.features_of_events(batch, before)
        return found.rows @ found.vectors

    def features_of_events(self, batch: Batch, before: int = 0) -> EventFeatureRows:
        """Return the two factors of the product that `of_events` computes."""
        times = F.pad(batch.times, (before, 0))
        return EventFeatureRows(self.waves(starts_of(batch)[:, None], times), self.event)

    def of_queries(self, starts: Tensor, times: Tensor) -> Tensor:
        """Return the term in the states of queries at times [B, Q]: [B, Q, D]."""
        return self.waves(starts[:, None], times) @ self.query

    def named_arrays(self) -> dict[str, Tensor]:
        """Return views of the parameters under their public names."""
        return {"calendar.event": self.event, "calendar.query": self.query}


def starts_of(batch: Batch) -> Tensor:
    assert batch.starts is not None, "the batch was not made by the model's collator"
    return batch.starts


def add_calendar(model: IntensityModel, calendar: Calendar) -> CalendarEmbedding:
    """Let a model use this calendar from now on. Its results do not change before training."""
    assert model.calendar is None, "it has one"
    made = CalendarEmbedding(calendar, *model.calendar_sizes()).to(model.device, model.dtype)
    model.calendar, model.collator.calendar = made, True
    return made


def take_calendar(model: IntensityModel, data: EventData) -> None:
    """Before training: let the model use the calendar of the training data, if they have one and the model can use it."""
    options: Any = model.options
    if not model.takes_calendar or not getattr(options, "calendar", False) or model.followed is not None:
        return
    calendar = calendar_of(data)
    if calendar is not None:
        model.follow_calendar(calendar)
        waves = "day, week and year" if calendar.yearly else "day and week"
        log.info("%s follows the clock: %s in %s", model.title, waves, calendar.zone)
