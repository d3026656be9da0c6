"""Dates and times as text, local times and Unix numbers → int64 nanoseconds since 1970-01-01T00:00Z, whole columns at once.

ISO 8601: `2012-03-01`, `2012-03-01T12:00`, `2012-03-01 12:00:00.123456789 +01:00`, `…Z` are parsed with numpy. Rarer forms are
parsed by `datetime.fromisoformat`, and patterns with `%` by `datetime.strptime`.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

import numpy as np

from foretell.errors import ForetellError
from foretell.wording import did_you_mean

NS = 1_000_000_000
HOUR = 3600 * NS
WIDTH = 40  # characters that are examined; the longest form above has 36
FIRST_YEAR, LAST_YEAR = 1678, 2261  # full years within the range of int64 nanoseconds
UNIX_FACTORS = {"unix-s": NS, "unix-ms": 1_000_000, "unix-us": 1000, "unix-ns": 1}
UNIX_WORDS = {"unix-s": "seconds", "unix-ms": "milliseconds", "unix-us": "microseconds", "unix-ns": "nanoseconds"}
UNIX_FROM, UNIX_TO = 631_152_000, 4_102_444_800  # 1990 to 2100, in seconds
FORMATS = ("auto", "iso", "number", *UNIX_FACTORS)
EXPECTED_TIME = "a number or a time such as 2012-03-01T12:00:00+01:00 (other forms: `time_format='%d/%m/%Y %H:%M'`)"
PATTERNS = (  # other frequent formats, in logs and spreadsheets
    *(
        f"%{one}{clock}"
        for one in ("d.%m.%Y", "d/%m/%Y", "m/%d/%Y", "d-%m-%Y", "Y/%m/%d")
        for clock in ("", " %H:%M", " %H:%M:%S")
    ),
    *(f"%m/%d/%Y %I:%M{seconds} %p" for seconds in ("", ":%S")),
    "%d/%b/%Y:%H:%M:%S %z",  # Apache
    "%a %b %d %H:%M:%S %Y %z",  # git
    "%a %b %d %H:%M:%S %Y",
    "%a, %d %b %Y %H:%M:%S %z",  # mail
    "%d %b %Y %H:%M:%S",
)
TRIED = 1000  # the number of texts on which a pattern is tested before it is proposed


@dataclass(frozen=True)
class ParsedTimes:
    """Times parsed from texts; `valid` is False for text that could not be read."""

    instants: np.ndarray  # int64 nanoseconds since 1970, in UTC
    valid: np.ndarray  # bool
    zoneless: int = 0  # times without a zone
    twice: int = 0  # local times that exist twice, when clocks go back; the first is used
    never: int = 0  # local times that do not exist, when clocks go forward; the earlier offset is used


def check_format(text: str) -> str:
    """Return a time format if it is in `FORMATS` or a pattern for `strptime`; raise an error otherwise."""
    if text in FORMATS or "%" in text:
        return text
    hint = did_you_mean(text, FORMATS, before="; ")
    known = ", ".join(FORMATS)
    raise ForetellError(f"`time_format={text!r}`: expected {known}, or a pattern such as '%d/%m/%Y %H:%M'{hint}")


@lru_cache(maxsize=64)
def find_zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name; raise a `ForetellError` with a similar name if there is none."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = zoneinfo.available_timezones()
        hint = did_you_mean(name, known, before="; ")
        if not known:
            hint = "; this system has no list of zones: pip install tzdata"
        raise ForetellError(f"`timezone={name!r}`: expected a zone such as Europe/Berlin{hint}") from None


def expected_time(texts: Sequence[str]) -> str:
    """Return the text after "expected" for unreadable times; it names a pattern if one reads all of the texts."""
    some = [text for text in texts if text][:TRIED]
    fitting = [
        f"`time_format={pattern!r}`"
        for pattern in PATTERNS
        if some and _read_by(some[:1], pattern) and _read_by(some, pattern)
    ]
    if not fitting:
        return EXPECTED_TIME
    return f"{EXPECTED_TIME.split(' (')[0]}; {' or '.join(fitting)} would read this column"


def parse_time(text: str, zone: str = "UTC") -> int | None:
    """Parse one time; return None if the text is no time."""
    found = parse_times([text], zone)
    return int(found.instants[0]) if found.valid[0] else None


def parse_times(
    texts: Sequence[str], zone: str = "UTC", pattern: str = "", counts: np.ndarray | None = None
) -> ParsedTimes:
    """Parse texts. `zone` is the zone of times without one; `counts` has the number of occurrences of each text (default: 1)."""
    if pattern:
        local, valid, has_zone = _slowly(texts, lambda text: datetime.strptime(text, pattern))
    else:
        local, valid, has_zone = _iso(texts)
        if not valid.all():
            rest = np.flatnonzero(~valid)
            local[rest], valid[rest], has_zone[rest] = _slowly([texts[n] for n in rest.tolist()], _from_iso)
    bare = valid & ~has_zone
    often = np.ones(len(local), dtype=np.int64) if counts is None else counts
    zoneless = int(often[bare].sum())
    if not zoneless or find_zone(zone) is UTC:
        return ParsedTimes(local, valid, zoneless)
    found = localised(local[bare], zone, often[bare])
    local[bare] = found.instants
    return ParsedTimes(local, valid, zoneless, found.twice, found.never)


def _read_by(texts: Sequence[str], pattern: str) -> bool:
    """Whether a pattern reads all texts."""
    return bool(_slowly(texts, lambda text: datetime.strptime(text, pattern))[1].all())


def _from_iso(text: str) -> datetime:
    if not re.match(r"[0-9]{4}", text) or text.isdecimal():
        raise ValueError(text)
    return datetime.fromisoformat(text)


def _slowly(texts: Iterable[str], read: Callable[[str], datetime]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows: list[tuple[int, bool, bool]] = []
    for text in texts:
        try:
            found = read(text.strip())
            zoned = found.tzinfo is not None
            since = (found if zoned else found.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        except (ValueError, OverflowError):
            rows.append((0, False, False))
            continue
        fits = FIRST_YEAR <= found.year <= LAST_YEAR
        rows.append((since // timedelta(microseconds=1) * 1000 if fits else 0, fits, zoned))
    whole = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return whole[:, 0].copy(), whole[:, 1].astype(bool), whole[:, 2].astype(bool)


def _iso(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parse ISO 8601. Return for each text: nanoseconds in UTC (local time if it has no zone), whether it is valid, and whether it
    has a zone."""
    lengths = np.fromiter((len(text.rstrip()) for text in texts), dtype=np.int64, count=len(texts))
    packed = "".join([text[:WIDTH].ljust(WIDTH) for text in texts]).encode("ascii", "replace")
    letters = np.frombuffer(packed, dtype=np.uint8).reshape(-1, WIDTH).T.copy()
    digit = letters - np.uint8(48)  # values above 9 are no digits

    def number(*places: int) -> tuple[np.ndarray, np.ndarray]:
        value, right = np.zeros(len(texts), dtype=np.int64), np.ones(len(texts), dtype=bool)
        for place in places:
            value = value * 10 + digit[place]
            right &= digit[place] <= 9
        return value, right

    days, valid = _days(number, letters)
    dated = lengths == 10
    hour, hour_right = number(11, 12)
    minute, minute_right = number(14, 15)
    timed = np.isin(letters[10], (32, 84, 116)) & hour_right & (letters[13] == 58) & minute_right
    timed &= (hour <= 23) & (minute <= 59)
    second, second_right = number(17, 18)
    has_second = timed & (letters[16] == 58)
    timed &= ~has_second | (second_right & (second <= 59))
    end = np.where(has_second, 19, 16)
    fraction, size = _fraction(digit, has_second & np.isin(letters[19], (44, 46)))
    timed &= size != 0
    end = np.where(size > 0, 20 + size, end)
    offset, zone_right, zoned, end = _offset(letters, digit, end)
    timed &= zone_right & (end == lengths)
    seconds = np.where(timed & ~dated, hour * 3600 + minute * 60 + np.where(has_second, second, 0) - offset, 0)
    valid &= dated | timed
    found = (days * 86400 + seconds) * NS + np.where(timed & (size > 0) & ~dated, fraction, 0)
    return np.where(valid, found, 0), valid, valid & zoned & ~dated


def _days(number: Callable[..., tuple[np.ndarray, np.ndarray]], letters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the days since 1970 of `YYYY-MM-DD` at the start of each text, and whether this is a valid date."""
    (year, right), (month, month_right), (day, day_right) = number(0, 1, 2, 3), number(5, 6), number(8, 9)
    right = right & month_right & day_right & (letters[4] == 45) & (letters[7] == 45)
    right &= (year >= FIRST_YEAR) & (year <= LAST_YEAR) & (month >= 1) & (month <= 12) & (day >= 1)
    months = np.where(right, (year - 1970) * 12 + month - 1, 0)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    following = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    right &= first + day <= following
    return first + day - 1, right


def _fraction(digit: np.ndarray, dotted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nanoseconds after the decimal point, and the number of digits there: -1 without a point."""
    value, size, going = np.zeros(len(dotted), dtype=np.int64), np.zeros(len(dotted), dtype=np.int64), dotted.copy()
    for place in range(9):
        going &= digit[20 + place] <= 9
        if not going.any():
            break
        value += np.where(going, digit[20 + place].astype(np.int64) * 10 ** (8 - place), 0)
        size += going
    return value, np.where(dotted, size, -1)


def _offset(
    letters: np.ndarray, digit: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the offset in seconds east of UTC, whether it is valid, whether there is one, and the position where the text ends."""
    rows = np.arange(len(at))

    def here(shift: int, of: np.ndarray = letters) -> np.ndarray:
        return of[np.minimum(at + shift, WIDTH - 1), rows]

    sign = here(0)
    spaced = (sign == 32) & np.isin(here(1), (43, 45, 90))
    if spaced.any():
        at = at + spaced
        sign = here(0)
    utc, signed = np.isin(sign, (90, 122)), np.isin(sign, (43, 45))
    if not signed.any():
        return np.zeros(len(at), dtype=np.int64), utc | (sign == 32), utc, at + utc
    colon = here(3) == 58
    pairs = [here(place, digit) for place in (1, 2)]
    minutes = [np.where(colon, here(place + 1, digit), here(place, digit)) for place in (3, 4)]
    has_minutes = colon | (here(3, digit) <= 9)
    right = (pairs[0] <= 9) & (pairs[1] <= 9) & (~has_minutes | ((minutes[0] <= 5) & (minutes[1] <= 9)))
    hours = pairs[0].astype(np.int64) * 10 + pairs[1]
    seconds = hours * 3600 + np.where(has_minutes, minutes[0].astype(np.int64) * 10 + minutes[1], 0) * 60
    seconds = np.where(signed & right, np.where(sign == 45, -seconds, seconds), 0)
    end = at + np.where(signed, np.where(colon, 6, np.where(has_minutes, 5, 3)), utc.astype(np.int64))
    return seconds, utc | (sign == 32) | (signed & right & (hours <= 23)), utc | signed, end


def localised(local: np.ndarray, zone: str, counts: np.ndarray | None = None) -> ParsedTimes:
    """Convert local nanoseconds of a zone to UTC. The offset is computed per hour; only in hours with a change, per time.

    `counts` has the number of occurrences of each time (default: 1).
    """
    where = find_zone(zone)
    if where is UTC:
        return ParsedTimes(local, np.ones(len(local), dtype=bool))
    hours, place = np.unique(local // HOUR, return_inverse=True)
    offsets = np.array([_steady_offset(int(hour) * 3600, where) for hour in hours.tolist()], dtype=np.float64)
    offset, twice, never = offsets[place], 0, 0
    for row in np.flatnonzero(np.isnan(offset)).tolist():
        early, late = (_offset_at(int(local[row]) // NS, where, fold) for fold in (0, 1))
        often = 1 if counts is None else int(counts[row])
        twice, never = twice + often * (early > late), never + often * (early < late)
        offset[row] = early
    return ParsedTimes(local - offset.astype(np.int64) * NS, np.ones(len(local), dtype=bool), 0, twice, never)


def _steady_offset(second: int, zone: tzinfo) -> float:
    """Return the offset of a local hour in seconds; NaN if it changes within the hour."""
    found = {_offset_at(when, zone, fold) for when in (second, second + 3599) for fold in (0, 1)}
    return found.pop() if len(found) == 1 else np.nan


def _offset_at(second: int, zone: tzinfo, fold: int) -> int:
    local = datetime(1970, 1, 1) + timedelta(seconds=second)
    offset = local.replace(tzinfo=zone, fold=fold).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def unix_format(parts: Iterable[np.ndarray]) -> str | None:
    """Return the format (`unix-s`, `unix-ms`, …) in which all numbers lie between 1990 and 2100; None if there is no such format."""
    found: str | None = None
    for part in parts:
        if not len(part):
            continue
        low, high = float(part.min()), float(part.max())
        here = next(
            (
                name
                for name, factor in UNIX_FACTORS.items()
                if low * factor / NS >= UNIX_FROM and high * factor / NS < UNIX_TO
            ),
            None,
        )
        if here is None or (found is not None and here != found):
            return None
        found = here
    return found


def from_unix(numbers: np.ndarray, form: str) -> np.ndarray:
    """Convert Unix numbers to nanoseconds: integers exactly, floats rounded to microseconds, the precision of float64."""
    factor = UNIX_FACTORS[form]
    if numbers.dtype.kind in "iu":
        return numbers.astype(np.int64) * factor
    return np.rint(numbers * (factor / 1000)).astype(np.int64) * 1000
