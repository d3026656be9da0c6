"""The clock of a data set, which converts its times to absolute times, and back.

A sequence's times are float64, in `unit`s since its start. If the data have timestamps, the start is an absolute time (int64
nanoseconds since 1970-01-01T00:00Z). Differences are computed in int64 and then converted to float64.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np

from foretell.data.timestamps import NS, find_zone, parse_time
from foretell.durations import UNITS, duration_seconds, seconds_in
from foretell.errors import ForetellError
from foretell.wording import did_you_mean

READABLE = ("seconds", "minutes", "hours", "days", "years")  # units that are chosen automatically
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DATED, END_DATED = (
    round((datetime(year, 1, 1, tzinfo=UTC) - EPOCH).total_seconds()) * NS for year in (2, 9999)
)  # range of nanoseconds in which every zone has dates
END_INSTANTS = 2.0**63 - 2.0**20  # limit of int64, with room for rounding


@dataclass(frozen=True)
class Clock:
    """How the times of a data set relate to absolute time. `seconds_per_unit=None` means that the unit is unknown."""

    unit: str = ""  # such as "days"; "" is unknown
    seconds_per_unit: float | None = None
    zone: str = "UTC"  # the time zone for output
    absolute: bool = False  # True: sequences have a `start` in nanoseconds since 1970

    @classmethod
    def of_unit(cls, name: str, zone: str = "UTC", absolute: bool = False) -> Clock:
        """Make a clock with this unit; for an unknown unit, `seconds_per_unit` is None."""
        return cls(name, seconds_in(name), zone, absolute)

    def numbers(self, instants: np.ndarray, starts: np.ndarray | int) -> np.ndarray:
        """Convert nanoseconds since 1970, int64, to units since `starts`, float64."""
        return (instants - starts) / self._nanoseconds()

    def instants(self, numbers: np.ndarray | float, starts: np.ndarray | int) -> np.ndarray:
        """Convert units since `starts` to nanoseconds since 1970, int64, rounded to microseconds if that is within float64 precision.

        Raises:
            ForetellError: a time is too far from 1970 for int64 nanoseconds.
        """
        elapsed = np.asarray(numbers, dtype=np.float64) * self._nanoseconds()
        if not (np.abs(elapsed + starts) < END_INSTANTS).all():
            raise ForetellError(
                "times lie beyond the years 1678 to 2262, whose dates nanoseconds can tell; leave dates out"
            )
        error = 2.0 * np.spacing(np.abs(elapsed).max(initial=1.0))
        exact = np.asarray(starts) + np.rint(elapsed).astype(np.int64)
        micro = (exact + 500) // 1000 * 1000
        return np.where(np.abs(micro - exact) <= error, micro, exact)

    def iso(self, number: float, start: int | None) -> str | None:
        """Return a time as ISO 8601 text in the clock's zone, to the microsecond; None without a start, or if it is no valid date."""
        instant = self._instant(number, start)
        return None if instant is None else iso_text((instant + 500) // 1000 * 1000, self.zone)

    def with_iso(self, value: Any, start: int | None) -> Any:
        """Add a key `iso` next to each key `time` in nested plain values; return them unchanged without an absolute start."""
        if start is None or self.seconds_per_unit is None:
            return value
        if isinstance(value, list | tuple):
            return [self.with_iso(one, start) for one in value]
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for name, one in value.items():
            found[name] = self.with_iso(one, start)
            if name == "time":
                found["iso"] = self.iso(one, start)
        return found

    def short(self, number: float, start: int | None) -> str | None:
        """Return text such as `2012-03-01 12:00:05` in the clock's zone, with fractions if the unit is seconds; None as in `iso`."""
        instant = self._instant(number, start)
        if instant is None or self.seconds_per_unit is None:
            return None
        fine = NS if self.seconds_per_unit > 1.0 else NS // 1000
        text = iso_text((instant + fine // 2) // fine * fine, self.zone)
        return re.sub(r"(Z|[+-][0-9:]+)$", "", text).replace("T", " ")

    def _instant(self, number: float, start: int | None) -> int | None:
        """Return a time as nanoseconds since 1970; None without an absolute start, or if it is no valid date."""
        if start is None or self.seconds_per_unit is None:
            return None
        elapsed = number * self._nanoseconds()
        instant = start + round(elapsed) if np.isfinite(elapsed) else None
        return instant if instant is not None and FIRST_DATED <= instant < END_DATED else None

    def shown(self, number: float, start: int | None) -> str:
        """Return a time for output: date and zone if the clock is absolute, else the number with its unit."""
        text = self.short(number, start)
        return f"{number:g} {self.unit}".rstrip() if text is None else f"{text} {self.zone}"

    def number_of(self, text: str, start: int | None, option: str = "time") -> float:
        """Parse a time: a number is returned unchanged, a date becomes units since `start`."""
        try:
            return float(text)
        except ValueError:
            pass
        instant = parse_time(text, self.zone)
        if instant is None:
            raise ForetellError(f"{option} {text!r}: expected a number or a time such as 2012-03-01T12:00")
        if start is None or self.seconds_per_unit is None:
            raise ForetellError(f"{option} {text!r}: these data have numbers for times, not dates; expected a number")
        return float(self.numbers(np.array(instant), start))

    def duration(self, text: str, option: str = "horizon") -> float:
        """Parse a length of time into units: `10` is ten units; `10d`, `30m`, `1d12h` are converted."""
        try:
            return float(text)
        except ValueError:
            seconds = duration_seconds(text)
        if seconds is None:
            raise ForetellError(f"{option} {text!r}: expected a number, or a duration such as 30m, 2h, 10d or 1d12h")
        if self.seconds_per_unit is None:
            unit = f"their unit is {self.unit!r}" if self.unit else "their unit is not known"
            raise ForetellError(f"{option} {text!r}: the data's times are plain numbers ({unit}); expected a number")
        return seconds / self.seconds_per_unit

    def to_json(self) -> dict[str, object]:
        """Return the clock as plain values; the inverse of `clock_from`."""
        found: dict[str, object] = {"unit": self.unit, "seconds_per_unit": self.seconds_per_unit}
        return found | ({"zone": self.zone} if self.absolute else {})

    def _nanoseconds(self) -> float:
        assert self.seconds_per_unit is not None, "a clock without a unit has no absolute times"
        return self.seconds_per_unit * NS


NO_CLOCK = Clock()  # no unit, no absolute start


def clock_from(values: Mapping[str, object]) -> Clock:
    """Make a clock from the values of `to_json`."""
    seconds = values.get("seconds_per_unit")
    return Clock(str(values.get("unit", "")), float(seconds) if isinstance(seconds, int | float) else None)


def readable_unit(gaps: np.ndarray) -> str:
    """Return the largest unit that is at most the median positive gap (in nanoseconds), but at least seconds."""
    positive = gaps[gaps > 0]
    middle = float(np.median(positive)) / NS if len(positive) else 0.0
    return next((name for name in reversed(READABLE) if middle >= UNITS[name]), "seconds")


def iso_text(instant: int, zone: str = "UTC") -> str:
    """Return nanoseconds since 1970 as ISO 8601 text in a zone: `2012-03-01T12:00:00+01:00`, with `Z` for UTC."""
    seconds, fraction = divmod(int(instant), NS)
    found = (EPOCH + timedelta(seconds=seconds)).astimezone(find_zone(zone))
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    offset = found.isoformat()[19:]
    return f"{found:%Y-%m-%dT%H:%M:%S}{digits}{'Z' if offset == '+00:00' and zone == 'UTC' else offset}"


def iso_texts(instants: np.ndarray) -> list[str]:
    """Return times as ISO 8601 text in UTC, `2012-03-01T12:00:00Z`, all with the same number of digits."""
    sizes: tuple[tuple[Literal["s", "ms", "us", "ns"], int], ...] = (
        ("s", NS),
        ("ms", 1_000_000),
        ("us", 1000),
        ("ns", 1),
    )
    unit: Literal["s", "ms", "us", "ns"] = next(name for name, size in sizes if (instants % size == 0).all())
    return [f"{text}Z" for text in np.datetime_as_string(instants.astype("datetime64[ns]"), unit=unit).tolist()]


def unit_name(text: str, option: str) -> str:
    """Return the canonical name of a unit; raise a `ForetellError` if it is unknown."""
    if seconds_in(text) is None:
        raise ForetellError(f"{option} {text!r}: expected {', '.join(UNITS)}{did_you_mean(text, UNITS, before='; ')}")
    return text
