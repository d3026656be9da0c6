"""Durations as text (`30m`, `2h`, `1d12h`) ↔ seconds. This module does not import numpy."""

from __future__ import annotations

import re

UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 604800.0, "years": 31_557_600.0}
SHORT = {"s": "seconds", "sec": "seconds", "min": "minutes", "m": "minutes", "h": "hours", "hr": "hours", "d": "days"}
SHORT |= {"w": "weeks", "y": "years", "yr": "years"}
FINE = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([^\W\d_]+)")


def seconds_in(unit: str) -> float | None:
    """Return the number of seconds in a unit (singular, plural or abbreviation), or None if the unit is unknown."""
    word = unit.strip().lower()
    for name in (word, f"{word}s", SHORT.get(word, "")):
        if name in UNITS:
            return UNITS[name]
    return FINE.get(word)


def duration_seconds(text: str) -> float | None:
    """Return the seconds of a text such as `10d`, `1d12h` or `2 hours`; None if the text is no duration."""
    total, place = 0.0, 0
    while match := _DURATION.match(text, place):
        seconds = seconds_in(match[2])
        if seconds is None:
            return None
        total += float(match[1]) * seconds
        place = match.end()
    return total if place and not text[place:].strip() else None


def short_duration(seconds: float) -> str:
    """Return seconds as text: `40 s`, `12 min`, `1 h 20 min`, `3 d 4 h`."""
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 100 * 60:
        return f"{round(whole / 60)} min"
    hours, minutes = divmod(round(whole / 60), 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(round(whole / 3600), 24)
    return f"{days} d {hours} h"
