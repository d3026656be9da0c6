"""The weekly Poisson process in local time: the hour of the week of every event, and the time of observation per hour of the week.

Its rates are counts divided by time, shrunk towards a profile that all types share by `c` pseudo-events in every hour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

HOURS = 7 * 24


def hour_of_week(moment: datetime, zone: str) -> int:
    """Return the hour of the week: 0 on Monday from 00:00 to 01:00."""
    local = moment.astimezone(ZoneInfo(zone))
    return local.weekday() * 24 + local.hour


def watched(begin: datetime, end: datetime, zone: str) -> list[float]:
    """Return the seconds from `begin` to `end` in every hour of the week, minute by minute."""
    found = [0.0] * HOURS
    at = begin
    while at < end:
        minute = at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        until = min(minute, end)
        found[hour_of_week(at, zone)] += (until - at).total_seconds()
        at = until
    return found


def rates(
    counts: Mapping[str, Sequence[int]], seconds: Sequence[float], shared: float, own: float
) -> dict[str, list[float]]:
    """Return events per second of each type in each hour; `shared` pseudo-events smooth the common profile, `own` that of each type."""
    whole = sum(seconds)
    every = sum(sum(one) for one in counts.values()) + 0.5 * len(counts)
    profile = []
    for hour in range(HOURS):
        here = sum(one[hour] for one in counts.values())
        profile.append((here + shared) / (every / whole * seconds[hour] + shared))
    even = sum(part * length for part, length in zip(profile, seconds, strict=True)) / whole
    found = {}
    for name, one in counts.items():
        expected = [(sum(one) + 0.5) / whole * part / even for part in profile]
        found[name] = [
            (count + own) / (length + own / rate) for count, length, rate in zip(one, seconds, expected, strict=True)
        ]
    return found


def log_likelihood(
    events: Sequence[tuple[str, datetime]],
    begin: datetime,
    end: datetime,
    zone: str,
    per_second: Mapping[str, Sequence[float]],
) -> float:
    """Return `Σ log λ − ∫ λ` of one sequence, with rates per second."""
    logs = sum(math.log(per_second[name][hour_of_week(at, zone)]) for name, at in events)
    seconds = watched(begin, end, zone)
    return logs - sum(sum(one[hour] for one in per_second.values()) * seconds[hour] for hour in range(HOURS))
