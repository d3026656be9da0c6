"""The calendar of a data set, from which the hour of the week is computed. Only data with over two weeks of absolute times have one.

Moments are float64 seconds since Monday 1970-01-05T00:00Z. A zone consists of the moments at which its offset changes, and the
offsets between them. Local time is a moment plus the offset at this moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.data.timestamps import FIRST_YEAR, LAST_YEAR, NS, find_zone

if TYPE_CHECKING:
    from foretell.data.dataset import EventData
    from foretell.data.sequence import EventSequence

MONDAY = datetime(1970, 1, 5, tzinfo=UTC)
MONDAY_SECONDS = 345_600  # seconds from 1970-01-01T00:00Z to that Monday
HOUR, DAY, WEEK = 3600.0, 86_400.0, 604_800.0
YEAR = 365.2425 * DAY
HOURS = 168  # hours of a week
SHORTEST = 2.0 * WEEK  # seconds; shorter data have no information on weeks
TWO_YEARS = 2.0 * YEAR


@dataclass(frozen=True)
class Calendar:
    """Converts times to moments. It also has the zone, and whether the data are long enough to learn the time of year."""

    zone: str
    seconds_per_unit: float
    yearly: bool = False

    def moments(self, times: np.ndarray | float, start: int) -> np.ndarray:
        """Return the times of a sequence as moments; `start` is the sequence's start in nanoseconds since 1970."""
        return moment_of(start) + np.asarray(times, dtype=np.float64) * self.seconds_per_unit

    def to_json(self) -> dict[str, Any]:
        return {"zone": self.zone, "seconds_per_unit": self.seconds_per_unit, "yearly": self.yearly}

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Calendar:
        """The inverse of `to_json`; raise a `ValueError` for invalid values."""
        zone, seconds, yearly = table["zone"], table["seconds_per_unit"], table["yearly"]
        if not isinstance(zone, str) or type(yearly) is not bool:
            raise ValueError(f"its calendar is {table!r}")
        if type(seconds) not in (int, float) or not 0.0 < seconds < 1e12:
            raise ValueError(f"its calendar has {seconds!r} seconds per unit")
        find_zone(zone)
        return cls(zone, float(seconds), yearly)


@dataclass(frozen=True, eq=False)
class ZoneClock:
    """The moments at which the offset of a zone changes, and the offsets."""

    moments: np.ndarray  # float64 [changes], ascending
    offsets: np.ndarray  # float64 [changes + 1]: seconds east of UTC before, between and after them

    def local(self, moments: np.ndarray) -> np.ndarray:
        """Return local time in seconds since Monday 1970-01-05T00:00: float64."""
        return moments + self.offsets[np.searchsorted(self.moments, moments, side="right")]


def moment_of(start: int) -> float:
    """Convert nanoseconds since 1970 to a moment. Seconds and nanoseconds are converted separately, for precision."""
    seconds, rest = divmod(int(start), NS)
    return float(seconds - MONDAY_SECONDS) + rest / NS


def calendar_of(data: EventData) -> Calendar | None:
    """Return the calendar of data; None if they have no absolute times, or span at most two weeks."""
    clock, columns = data.clock, data.columns
    if columns.starts is None or clock.seconds_per_unit is None or not len(columns):
        return None
    # Differences are computed in int64, then converted to float64.
    begins = (columns.starts - columns.starts.min()) / NS
    span = float((begins + columns.t_ends * clock.seconds_per_unit).max() - begins.min())
    if span <= SHORTEST:
        return None
    return Calendar(clock.zone, clock.seconds_per_unit, span >= TWO_YEARS)


def has_start(sequence: EventSequence) -> bool:
    return sequence.start is not None


@lru_cache(maxsize=64)
def zone_clock(name: str) -> ZoneClock:
    """Return the changes of a zone's offset, to the second, in all years of int64 timestamps."""
    zone = find_zone(name)
    if zone is UTC:
        return ZoneClock(np.zeros(0), np.zeros(1))
    first, last = ((datetime(year, 1, 1, tzinfo=UTC) - MONDAY).days for year in (FIRST_YEAR, LAST_YEAR + 1))
    offsets = [_offset(day * 86_400, zone) for day in range(first, last)]
    moments, found = [], [offsets[0]]
    for place in np.flatnonzero(np.diff(offsets)).tolist():
        low, high = (first + place) * 86_400, (first + place + 1) * 86_400
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(middle, zone) == offsets[place] else (low, middle)
        moments.append(high)
        found.append(offsets[place + 1])
    return ZoneClock(np.array(moments, dtype=np.float64), np.array(found, dtype=np.float64))


def _offset(second: int, zone: tzinfo) -> float:
    offset = (MONDAY + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None
    return offset.total_seconds()
