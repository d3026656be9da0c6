"""The calendar's terms in a model: a vector for the embedding of each event, and one for the state at each query.

With `φ(t)` the waves of the week (and the year) at a time `t`, in the zone of the data, they are `E φ(t)` and `Q φ(t)`. An event's own
moment enters its embedding; a query's enters the state of that query, so that intensities change with the calendar between events. `E`
and `Q` start at 0: a fresh model is the one without a calendar.
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
    """What is known of a sequence whatever has happened: an encoded history has it for its queries."""

    added: Tensor | None  # [B, 1, D]: by covariates, to every state
    starts: Tensor | None  # float64 [B]: the moment of time 0


NO_INPUTS = QueryCovariates(None, None)


class ModelCalendar(nn.Module):
    """The waves that a model follows."""

    def __init__(self, calendar: Calendar) -> None:
        super().__init__()
        self.calendar = calendar
        self.phases = CalendarWaves(calendar)

    def waves(self, starts: Tensor, times: Tensor) -> Tensor:
        """`φ` at times [...] of sequences that start at moments [...]: [..., features]."""
        return self.phases(self.phases.moments(starts, times), next(self.parameters()).dtype)


class CalendarEmbedding(ModelCalendar):
    """`E` and `Q`, each the rows of their transpose: [features, D]."""

    def __init__(self, calendar: Calendar, event: int, query: int) -> None:
        super().__init__(calendar)
        self.event = nn.Parameter(torch.zeros(self.phases.width, event))
        self.query = nn.Parameter(torch.zeros(self.phases.width, query))

    def of_events(self, batch: Batch, before: int = 0) -> Tensor:
        """The term that is added to the embeddings of events, and to `before` rows (`bos`) at time 0 in front of them: [B, N, D]."""
        found = self.features_of_events(batch, before)
        return found.rows @ found.vectors

    def features_of_events(self, batch: Batch, before: int = 0) -> EventFeatureRows:
        """What `of_events` multiplies, and by what."""
        times = F.pad(batch.times, (before, 0))
        return EventFeatureRows(self.waves(starts_of(batch)[:, None], times), self.event)

    def of_queries(self, starts: Tensor, times: Tensor) -> Tensor:
        """The term that is added at queries at times [B, Q]: [B, Q, D]."""
        return self.waves(starts[:, None], times) @ self.query

    def named_arrays(self) -> dict[str, Tensor]:
        """Views of the parameters under their public names."""
        return {"calendar.event": self.event, "calendar.query": self.query}


def starts_of(batch: Batch) -> Tensor:
    assert batch.starts is not None, "the batch was not made by the model's collator"
    return batch.starts


def add_calendar(model: IntensityModel, calendar: Calendar) -> CalendarEmbedding:
    """Let a model use this calendar from now on; initially its results do not change."""
    assert model.calendar is None, "it has one"
    made = CalendarEmbedding(calendar, *model.calendar_sizes()).to(model.device, model.dtype)
    model.calendar, model.collator.calendar = made, True
    return made


def take_calendar(model: IntensityModel, data: EventData) -> None:
    """Before training: the calendar of the training data, where they have one and the model may use it."""
    options: Any = model.options
    if not model.takes_calendar or not getattr(options, "calendar", False) or model.followed is not None:
        return
    calendar = calendar_of(data)
    if calendar is not None:
        model.follow_calendar(calendar)
        waves = "day, week and year" if calendar.yearly else "day and week"
        log.info("%s follows the clock: %s in %s", model.title, waves, calendar.zone)
