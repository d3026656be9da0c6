"""Small data with absolute times, whose sequences go over a change to summer time, and models that follow their calendar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from foretell.data import Clock, EventData
from foretell.data.calendar import Calendar
from foretell.models.base import IntensityModel
from foretell.nn.calendar import WEEK_TURNS, YEAR_TURNS
from foretell.reference.calendar import SlowCalendar
from tests.samples import Model, random_data, randomise

ZONE = "Europe/Berlin"
SECONDS_PER_UNIT = 7200.0  # a sequence of 10 units goes over most of a day
CALENDAR = Calendar(ZONE, SECONDS_PER_UNIT)
YEARLY = Calendar(ZONE, SECONDS_PER_UNIT, yearly=True)
# The evening before clocks go forward, the one before they go back, and a day on which nothing changes
BEGINS = ("2024-03-30T19:30:15", "2024-10-26T18:00:00", "2023-07-05T08:15:00", "1969-12-31T12:00:00")


def began(row: int) -> datetime:
    return datetime.fromisoformat(BEGINS[row % len(BEGINS)]).replace(tzinfo=ZoneInfo(ZONE)).astimezone(ZoneInfo("UTC"))


def nanoseconds(row: int) -> int:
    """When a sequence starts, in nanoseconds since 1970."""
    since = began(row) - datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))
    return since // timedelta(microseconds=1) * 1000


def dated(data: EventData) -> EventData:
    """The same events, at dates."""
    clock = Clock("", SECONDS_PER_UNIT, ZONE, absolute=True)
    started = [replace(one, start=nanoseconds(row)) for row, one in enumerate(data)]
    return EventData(started, data.vocabulary, data.origin, data.name, clock=clock, covariates=data.covariates)


def dated_data(seed: int, lengths: Sequence[int], *, types: int = 3, ties: bool = False) -> EventData:
    return dated(random_data(seed, lengths, types=types, ties=ties))


def with_calendar(model: Model, calendar: Calendar = CALENDAR, seed: int = 7, spread: float = 0.1) -> Model:
    """The model with this calendar, whose vectors are drawn at random."""
    model.follow_calendar(calendar)
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    randomise(model, seed, spread)
    for name, parameter in model.named_parameters():
        if not name.startswith(("calendar.", "clock.")):
            parameter.data.copy_(before[name])
    return model


def slow_calendar(model: IntensityModel, row: int) -> SlowCalendar:
    known = model.followed
    assert known is not None
    years = YEAR_TURNS if known.yearly else ()
    arrays = {} if model.calendar is None else model.calendar.named_arrays()
    return SlowCalendar(arrays, known.zone, began(row), known.seconds_per_unit, WEEK_TURNS, years)
