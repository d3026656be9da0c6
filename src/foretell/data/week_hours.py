"""Hours of the week in a time zone: the hour of a moment, and the observed time in each hour.

Hour 0 begins on Monday at midnight, local time. The time in hour `h` up to a moment is a function of local time that grows by the
same amount every week; spans across a change of the zone's offset are corrected.
"""

from __future__ import annotations

import numpy as np

from foretell.data.calendar import HOUR, HOURS, WEEK, Calendar, ZoneClock, moment_of, zone_clock
from foretell.data.dataset import EventData


def hours_of(moments: np.ndarray, zone: ZoneClock) -> np.ndarray:
    """Return the hour of the week of each moment: int64."""
    return np.minimum((zone.local(moments) % WEEK / HOUR).astype(np.int64), HOURS - 1)


def hours_watched(begin: np.ndarray, end: np.ndarray, zone: ZoneClock) -> np.ndarray:
    """Return the seconds in each hour of the week, summed over the spans from `begin` to `end`: float64 [168]."""
    found = _up_to(zone.local(end)) - _up_to(zone.local(begin))
    for moment, before, after in zip(zone.moments, zone.offsets, zone.offsets[1:], strict=False):
        crossed = int(((begin < moment) & (moment <= end)).sum())
        if crossed:  # the local time between the two offsets was skipped or repeated
            edges = np.array([moment + before]), np.array([moment + after])
            found -= crossed * (_up_to(edges[1]) - _up_to(edges[0]))
    return found


def _up_to(local: np.ndarray) -> np.ndarray:
    """Return the seconds in each hour of the week from moment 0 (a Monday at midnight) to local times, summed: float64 [168]."""
    weeks, rest = np.divmod(local, WEEK)
    hour = np.minimum((rest / HOUR).astype(np.int64), HOURS - 1)
    found = np.bincount(hour, weights=rest - hour * HOUR, minlength=HOURS)
    whole = np.bincount(hour, minlength=HOURS)  # times in an hour contain all earlier hours of that week
    through = whole.sum() - whole.cumsum()
    return found + HOUR * (through + weeks.sum())


def weekly_counts(data: EventData, calendar: Calendar) -> tuple[np.ndarray, np.ndarray]:
    """Return the scored events per type and hour of the week, int64 [K, 168], and the observed seconds per hour, float64 [168]."""
    zone, types = zone_clock(calendar.zone), len(data.vocabulary)
    begins, ends, moments, kinds = [], [], [], []
    for sequence in data:
        assert sequence.start is not None, "these data have a calendar"
        start = moment_of(sequence.start)
        begins.append(start + sequence.scored_from * calendar.seconds_per_unit)
        ends.append(start + sequence.t_end * calendar.seconds_per_unit)
        kept = np.ones(len(sequence), dtype=bool) if sequence.unscored is None else ~sequence.unscored
        if sequence.scored_from:
            kept &= sequence.times > sequence.scored_from
        if data.origin == "first-event":
            kept[:1] = False
        moments.append(start + sequence.times[kept] * calendar.seconds_per_unit)
        kinds.append(sequence.types[kept])
    hours = hours_of(np.concatenate([np.zeros(0), *moments]), zone)
    place = np.concatenate([np.zeros(0, dtype=np.int64), *kinds]).astype(np.int64) * HOURS + hours
    counts = np.bincount(place, minlength=types * HOURS).reshape(types, HOURS)
    return counts, hours_watched(np.array(begins), np.array(ends), zone)
