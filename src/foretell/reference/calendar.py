"""The calendar, one moment at a time: local time in a zone, its waves, and the terms that they add to a model's vectors.

With `v` the local time in seconds since a Monday at midnight, the waves are the sines and then the cosines of `2π n v/week` and, if years
are used, of `2π n v/year`. The vector of an event gets `E φ` of its own time added, and the state at a query gets `Q φ` of its time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import torch
from torch import Tensor

from foretell.reference.events import Event

SECONDS_OF_DAY = 24 * 60 * 60
YEAR = 365.2425 * SECONDS_OF_DAY


@dataclass(frozen=True)
class SlowCalendar:
    arrays: Mapping[str, Tensor]  # arrays `calendar.event` and `calendar.query`
    zone: str
    began: datetime  # UTC time of the sequence's time 0
    seconds_per_unit: float
    week_turns: Sequence[int]
    year_turns: Sequence[int]  # empty if years are not used

    @property
    def width(self) -> int:
        """The number of waves."""
        return 2 * (len(self.week_turns) + len(self.year_turns))

    def local_seconds(self, time: float) -> float:
        """Return seconds in local time since Monday 1970-01-05T00:00."""
        elapsed = time * self.seconds_per_unit
        offset = (self.began + timedelta(seconds=elapsed)).astimezone(ZoneInfo(self.zone)).utcoffset()
        assert offset is not None
        since = self.began - datetime(1970, 1, 5, tzinfo=UTC)
        return since.total_seconds() + elapsed + offset.total_seconds()

    def waves(self, time: float) -> Tensor:
        seconds = self.local_seconds(time)
        angles = [2 * math.pi * turns * seconds / (7 * SECONDS_OF_DAY) for turns in self.week_turns]
        angles += [2 * math.pi * turns * seconds / YEAR for turns in self.year_turns]
        return torch.tensor([wave(angle) for wave in (math.sin, math.cos) for angle in angles], dtype=torch.float64)

    def of_event(self, event: Event) -> Tensor:
        """Return the term that is added to an event's vector."""
        return self.waves(event.time) @ self.arrays["calendar.event"]

    def of_query(self, time: float) -> Tensor:
        """Return the term that is added to the state at a query."""
        return self.waves(time) @ self.arrays["calendar.query"]
