"""Settings for all parts of a data set together, computed from facts that are collected part by part.

In: `RawEvents` of each part. Out: `SettledParts`: the format of times, the unit, whether clocks start at first events, the
vocabulary, and the kinds of attributes. The settings are exactly those that `placing` and `assembling` would determine on the whole data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from foretell.data.assembling import vocabulary_of
from foretell.data.clock import NS, READABLE, UNITS, seconds_in
from foretell.data.packed.layout import AttributeKind
from foretell.data.packed.load_counts import positive_gaps
from foretell.data.packed.writer import kind_of
from foretell.data.raw import RawEvents
from foretell.data.read_options import ReadOptions
from foretell.data.sequence import Vocabulary
from foretell.data.tables import NUMBER
from foretell.data.timestamps import UNIX_FACTORS, UNIX_WORDS, from_unix, unix_format
from foretell.errors import DataError

BOUNDS = ("t_starts", "t_ends", "score_from")


class MedianUnit:
    """Computes the unit of `clock.readable_unit` without storing gaps: counts tell on which side of each unit the median lies."""

    def __init__(self) -> None:
        self.count = 0
        self.below: dict[str, int] = dict.fromkeys(READABLE, 0)
        self.last_below: dict[str, int] = dict.fromkeys(READABLE, 0)
        self.first_above: dict[str, int] = dict.fromkeys(READABLE, np.iinfo(np.int64).max)

    def add(self, gaps: np.ndarray) -> None:
        """Add positive gaps, int64 nanoseconds."""
        self.count += len(gaps)
        for name in READABLE:
            under = gaps < UNITS[name] * NS
            self.below[name] += int(under.sum())
            self.last_below[name] = max(self.last_below[name], int(gaps[under].max(initial=0)))
            self.first_above[name] = min(self.first_above[name], int(gaps[~under].min(initial=np.iinfo(np.int64).max)))

    def unit(self) -> str:
        return next((name for name in reversed(READABLE) if self._reached(name)), "seconds")

    def _reached(self, name: str) -> bool:
        """Whether the median gap is at least one unit `name`."""
        lower, upper = (self.count - 1) // 2, self.count // 2
        if not self.count or self.below[name] > upper:
            return False
        if self.below[name] <= lower:
            return True
        return (self.last_below[name] + self.first_above[name]) / 2 / NS >= UNITS[name]


@dataclass
class PartFacts:
    """The facts about all parts so far; `add` adds a part."""

    said: list[tuple[str, str]] = field(default_factory=list)
    digests: list[RawEvents] = field(default_factory=list)
    forms: list[str | None] = field(default_factory=list)
    units: MedianUnit = field(default_factory=MedianUnit)
    stamped: str = ""  # the first source with dates as times
    numbers: str = ""  # the first source with numbers as times
    starts_given: bool = False
    worded: bool = False  # True: at least one event name is not a number
    kinds: dict[str, set[AttributeKind]] = field(default_factory=dict)

    def add(self, raw: RawEvents, options: ReadOptions) -> None:
        if len(raw.times) or raw.ends_given.any():
            self._add_times(raw, options)
        self.starts_given |= bool(_given(raw.t_starts).any())
        self.worded |= any(not NUMBER.match(name) for name in raw.names or ())
        for table in (raw.attributes, raw.sequence_attributes):
            for name, one in table.items():
                self.kinds.setdefault(name, set()).add(kind_of(one))
        self.digests.append(_digest(raw))

    def _add_times(self, raw: RawEvents, options: ReadOptions) -> None:
        if raw.stamped or raw.t_ends.dtype.kind == "M":
            self.stamped = self.stamped or raw.path
            self.units.add(positive_gaps(raw.times.astype("datetime64[ns]").astype(np.int64), raw.offsets))
            return
        self.numbers = self.numbers or raw.path
        form = options.time_format or "auto"
        numbers = [raw.times, *(one[_given(one)] for one in (getattr(raw, name) for name in BOUNDS))]
        finite = [one if np.isfinite(one).all() else np.zeros(1) for one in numbers]
        unix = form if form in UNIX_FACTORS else unix_format(finite) if form == "auto" else None
        self.forms.append(unix)
        if unix is not None:
            self.units.add(positive_gaps(from_unix(raw.times, unix), raw.offsets))

    def decide(self, options: ReadOptions, card_unit: str, card_types: int | None) -> SettledParts:
        """Return the settings for all parts.

        Raises:
            DataError: parts contradict each other.
        """
        if self.stamped and self.numbers:
            raise DataError(
                f"{self.numbers}: its times are numbers, but those of {self.stamped} are dates; use one of both"
            )
        form, said = options.time_format, list[str]()
        if self.numbers and not form:
            same = set(self.forms) if not card_unit else {None}
            unix = same.pop() if len(same) == 1 else None
            form = unix or "number"
            if unix is not None:
                said.append(
                    f'times are read as Unix {UNIX_WORDS[unix]}; `time_format="number"` reads them as plain numbers'
                )
        absolute = bool(self.stamped) or form in UNIX_FACTORS
        unit = card_unit
        if absolute and seconds_in(unit) is None:
            unit = self.units.unit()
        given_first = not self.starts_given and options.start in ("", "first-event")
        digests = [self._worded(one) for one in self.digests]
        vocabulary, problems = vocabulary_of(digests, card_types)
        if problems:
            raise DataError(dict.fromkeys(problems))
        return SettledParts(form, unit, given_first, vocabulary, self.worded, self._kinds(), said)

    def _worded(self, digest: RawEvents) -> RawEvents:
        return in_words(digest) if self.worded else digest

    def _kinds(self) -> dict[str, AttributeKind]:
        """Return the stored kind of each attribute. If the parts' kinds differ, integers and numbers become numbers, all others text."""
        settled: dict[str, AttributeKind] = {}
        for name, kinds in self.kinds.items():
            if len(kinds) == 1:
                settled[name] = next(iter(kinds))
            else:
                settled[name] = "number" if kinds == {"number", "integer"} else "text"
        return settled


@dataclass(frozen=True)
class SettledParts:
    """The settings for all parts."""

    time_format: str
    unit: str
    given_first: bool
    vocabulary: Vocabulary
    worded: bool
    kinds: dict[str, AttributeKind]
    said: list[str]


def in_words(raw: RawEvents) -> RawEvents:
    """Convert the numeric types of a part to names, for tables whose other parts have names."""
    raw = replace(raw, doubt=None)
    if raw.names is not None or not raw.textual:
        return raw
    used, codes = np.unique(raw.codes, return_inverse=True)
    return replace(raw, names=tuple(map(str, used.tolist())), codes=codes.astype(np.int32))


def _given(bounds: np.ndarray) -> np.ndarray:
    return ~np.isnat(bounds) if bounds.dtype.kind == "M" else ~np.isnan(bounds)


def _digest(raw: RawEvents) -> RawEvents:
    """Return the data that the vocabulary depends on: the largest type, or the names."""
    if raw.textual and raw.names is None:
        top = np.unique(raw.codes)
    else:
        top = raw.codes[[int(raw.codes.argmax())]] if len(raw.codes) else raw.codes
    nothing = np.zeros(0)
    return replace(
        raw,
        codes=top,
        times=nothing,
        offsets=np.zeros(1, np.int64),
        t_starts=nothing,
        t_ends=nothing,
        score_from=nothing,
        ids=(),
        metadata=(),
        places=nothing,
        event_places=None,
        attributes={},
        sequence_attributes={},
        said=(),
        problems=(),
    )


def merged(sentences: Iterable[tuple[str, str]], parts: int) -> list[tuple[str, str]]:
    """Merge remarks of many parts that differ only in numbers; integers in them are counts, and are summed."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for path, sentence in sentences:
        kinds.setdefault((path, re.sub(r"[0-9][0-9,.]*", "#", sentence)), []).append(sentence)
    return [(path, _summed(several, parts)) for (path, _), several in kinds.items()]


def _summed(sentences: Sequence[str], parts: int) -> str:
    numbers = [re.findall(r"[0-9][0-9,]*(?![0-9.e])", one) for one in sentences]
    if len(set(sentences)) == 1 and (parts == 1 or not numbers[0]):
        return sentences[0]
    if any("." in one for text in sentences for one in re.findall(r"[0-9][0-9,.]*[0-9]", text)):
        return f"{sentences[0]} (in one of {parts} parts of the file)"
    sums = [sum(int(one.replace(",", "")) for one in column) for column in zip(*numbers, strict=True)]
    values = iter(f"{one:,}" for one in sums)
    return re.sub(r"[0-9][0-9,]*(?![0-9.e])", lambda _: next(values), sentences[0])
