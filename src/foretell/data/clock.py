"""The clock of a data set: converts its times to real times, and back.

A sequence's times are float64 numbers of `unit`s since its start, which is an absolute time (int64 nanoseconds since
1970-01-01T00:00Z) where the data have timestamps. Differences are taken in int64 before they become float64.
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

READABLE = ("seconds", "minutes", "hours", "days", "years")  # what a unit is chosen from
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DATED, END_DATED = (
    round((datetime(year, 1, 1, tzinfo=UTC) - EPOCH).total_seconds()) * NS for year in (2, 9999)
)  # nanoseconds between which there are dates in every zone
END_INSTANTS = 2.0**63 - 2.0**20  # of int64, with room for rounding


@dataclass(frozen=True)
class Clock:
    """How the times of a data set relate to real time. Numbers without a known unit have `seconds_per_unit=None`."""

    unit: str = ""  # "days"; "" is not known
    seconds_per_unit: float | None = None
    zone: str = "UTC"  # that times are shown in
    absolute: bool = False  # sequences have a `start` in nanoseconds since 1970

    @classmethod
    def of_unit(cls, name: str, zone: str = "UTC", absolute: bool = False) -> Clock:
        """A clock whose unit has this name; a name that is not known is kept as a name alone."""
        return cls(name, seconds_in(name), zone, absolute)

    def numbers(self, instants: np.ndarray, starts: np.ndarray | int) -> np.ndarray:
        """Nanoseconds since 1970, int64, → units since `starts`, float64."""
        return (instants - starts) / self._nanoseconds()

    def instants(self, numbers: np.ndarray | float, starts: np.ndarray | int) -> np.ndarray:
        """Units since `starts` → nanoseconds since 1970, int64; a whole microsecond where one is as near as float64 can tell.

        Raises:
            ForetellError: a time lies outside the years that int64 has nanoseconds for.
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
        """A time of a sequence as ISO 8601 text in the clock's zone, to the microsecond; None without a start or beyond all dates."""
        instant = self._instant(number, start)
        return None if instant is None else iso_text((instant + 500) // 1000 * 1000, self.zone)

    def with_iso(self, value: Any, start: int | None) -> Any:
        """Plain values in which every `time` has its `iso` beside it; as they are without an absolute start."""
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
        """`2012-03-01 12:00:05` in the clock's zone, finer only where the unit is seconds; None like `iso`."""
        instant = self._instant(number, start)
        if instant is None or self.seconds_per_unit is None:
            return None
        fine = NS if self.seconds_per_unit > 1.0 else NS // 1000
        text = iso_text((instant + fine // 2) // fine * fine, self.zone)
        return re.sub(r"(Z|[+-][0-9:]+)$", "", text).replace("T", " ")

    def _instant(self, number: float, start: int | None) -> int | None:
        """Nanoseconds since 1970 of a time; None without an absolute start, and beyond the years that have dates."""
        if start is None or self.seconds_per_unit is None:
            return None
        elapsed = number * self._nanoseconds()
        instant = start + round(elapsed) if np.isfinite(elapsed) else None
        return instant if instant is not None and FIRST_DATED <= instant < END_DATED else None

    def shown(self, number: float, start: int | None) -> str:
        """A date and the zone where the clock is absolute, or else the number with its unit."""
        text = self.short(number, start)
        return f"{number:g} {self.unit}".rstrip() if text is None else f"{text} {self.zone}"

    def number_of(self, text: str, start: int | None, option: str = "time") -> float:
        """A time as a number: numbers are not changed, dates become units since `start`."""
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
        """`10` is ten units; `10d`, `30m`, `1d12h` are converted."""
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
        """Plain values."""
        found: dict[str, object] = {"unit": self.unit, "seconds_per_unit": self.seconds_per_unit}
        return found | ({"zone": self.zone} if self.absolute else {})

    def _nanoseconds(self) -> float:
        assert self.seconds_per_unit is not None, "a clock without a unit has no absolute times"
        return self.seconds_per_unit * NS


NO_CLOCK = Clock()  # plain numbers


def clock_from(values: Mapping[str, object]) -> Clock:
    """A clock from what `to_json` gives of its unit."""
    seconds = values.get("seconds_per_unit")
    return Clock(str(values.get("unit", "")), float(seconds) if isinstance(seconds, int | float) else None)


def readable_unit(gaps: np.ndarray) -> str:
    """The largest unit that is not longer than the median positive gap (in nanoseconds); at least seconds."""
    positive = gaps[gaps > 0]
    middle = float(np.median(positive)) / NS if len(positive) else 0.0
    return next((name for name in reversed(READABLE) if middle >= UNITS[name]), "seconds")


def iso_text(instant: int, zone: str = "UTC") -> str:
    """Nanoseconds since 1970 as ISO 8601 in a zone: `2012-03-01T12:00:00+01:00`, with `Z` for UTC."""
    seconds, fraction = divmod(int(instant), NS)
    found = (EPOCH + timedelta(seconds=seconds)).astimezone(find_zone(zone))
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    offset = found.isoformat()[19:]
    return f"{found:%Y-%m-%dT%H:%M:%S}{digits}{'Z' if offset == '+00:00' and zone == 'UTC' else offset}"


def iso_texts(instants: np.ndarray) -> list[str]:
    """Many times as text in UTC, `2012-03-01T12:00:00Z`, all with the same number of digits."""
    sizes: tuple[tuple[Literal["s", "ms", "us", "ns"], int], ...] = (
        ("s", NS),
        ("ms", 1_000_000),
        ("us", 1000),
        ("ns", 1),
    )
    unit: Literal["s", "ms", "us", "ns"] = next(name for name, size in sizes if (instants % size == 0).all())
    return [f"{text}Z" for text in np.datetime_as_string(instants.astype("datetime64[ns]"), unit=unit).tolist()]


def unit_name(text: str, option: str) -> str:
    """The name of a unit that a user wrote, or a `ForetellError`."""
    if seconds_in(text) is None:
        raise ForetellError(f"{option} {text!r}: expected {', '.join(UNITS)}{did_you_mean(text, UNITS, before='; ')}")
    return text
