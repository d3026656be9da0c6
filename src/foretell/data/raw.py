"""`RawEvents`, the output of a format's reader: flat columns with times and names as written, and the mistakes found so far.

They are made from a table (`event_table.gathered`) or from single sequences (`gatherer.Gatherer`). `problems` has the
structural mistakes with their lines; `value_problems` returns the mistakes in the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from foretell.data.columns import Attribute
from foretell.data.sequence import time_mistakes
from foretell.terms import NameProblem, event_name

LARGEST_TYPE = 2**31 - 2
MOST_COLUMNS = 10_000  # the largest number of columns of a table
MOST_SHOWN = 1_000  # the largest number of sequences whose mistakes are examined one by one
PlaceUnit = Literal["line", "row", "sequence", "event"]


class Problem(NamedTuple):
    """A mistake, with its line or row (0: the whole file)."""

    place: int
    text: str


def too_many_columns(count: int, place: int) -> list[Problem]:
    """Return the mistake of a table with too many columns; empty if the number is allowed."""
    if count <= MOST_COLUMNS:
        return []
    return [
        Problem(place, f"{count:,} columns; expected a table with one event per row, and {MOST_COLUMNS:,} at the most")
    ]


@dataclass(frozen=True)
class TimeNotes:
    """The numbers of times for which the reader of a file made an assumption."""

    zoneless: int = 0  # times without a zone
    twice: int = 0  # local times that exist twice, when clocks go back
    never: int = 0  # local times that do not exist, when clocks go forward


NO_NOTES = TimeNotes()


@dataclass(frozen=True, eq=False)
class RawEvents:
    """The sequences of one file. `codes` are indices into `names` or, without names, the integer types as written.

    Times, starts and ends are as in the file: datetime64[ns] in UTC, or numbers (int64, float64).
    """

    path: str
    unit: PlaceUnit
    times: np.ndarray  # [events]
    codes: np.ndarray  # int32 [events]
    names: tuple[str, ...] | None
    offsets: np.ndarray  # int64 [sequences + 1]
    t_starts: np.ndarray  # [sequences]; NaT or NaN is missing
    t_ends: np.ndarray  # [sequences]; NaT or NaN is missing
    score_from: np.ndarray  # [sequences]; NaT or NaN is missing
    ids: tuple[str, ...]
    metadata: tuple[Mapping[str, object], ...]
    places: np.ndarray  # int64 [sequences]: the line or row where each sequence starts
    event_places: np.ndarray | None = None  # int64 [events]: the line or row of each event, if they have one
    doubt: Problem | None = None  # a mistake, unless the given vocabulary has these names
    textual: bool = False  # True: the integers were text in the file, so they may be names
    type_names: Mapping[int, int] = field(default_factory=dict)  # type id → code, if a file has both
    attributes: Mapping[str, Attribute] = field(default_factory=dict)  # [events]
    sequence_attributes: Mapping[str, Attribute] = field(default_factory=dict)  # [sequences]
    unused_columns: tuple[str, ...] = ()
    time_notes: TimeNotes = NO_NOTES
    said: tuple[str, ...] = ()  # assumptions of the reader, one sentence each
    problems: tuple[Problem, ...] = ()

    @property
    def stamped(self) -> bool:
        """Whether the times are timestamps."""
        return self.times.dtype.kind == "M"

    @property
    def ends_given(self) -> np.ndarray:
        """bool [sequences]: True if the file has the end of the sequence's observation."""
        return ~np.isnat(self.t_ends) if self.t_ends.dtype.kind == "M" else ~np.isnan(self.t_ends)

    def where(self, sequence: int) -> str:
        """Return the part of a message that names a sequence."""
        return f"sequence {self.ids[sequence]!r}"

    def place_of(self, sequence: int, event: int) -> int:
        """Return the line or row of an event, which is given by its index in the sequence."""
        start, stop = int(self.offsets[sequence]), int(self.offsets[sequence + 1])
        if self.event_places is None or start + event >= stop:
            return int(self.places[sequence])
        return int(self.event_places[start + event])

    def sequence_of(self, event: int) -> int:
        """Return the index of the sequence with this event, which is given by its index in the columns."""
        return int(np.searchsorted(self.offsets, event, side="right")) - 1

    def located(self, problems: Iterable[Problem]) -> list[str]:
        """Return messages that begin with file and line or row, in the order of the file."""
        messages: list[str] = []
        for place, text in sorted(problems, key=lambda problem: problem.place):
            if place == 0:
                messages.append(f"{self.path}: {text}")
            elif self.unit == "line":
                messages.append(f"{self.path}:{place}: {text}")
            else:
                messages.append(f"{self.path}: {self.unit} {place}: {text}")
        return messages

    def mistakes(self) -> list[Problem]:
        """Return the mistakes that do not depend on the vocabulary: those of the structure, then those of the values."""
        return [*self.problems, *self.value_problems()]

    def value_problems(self) -> list[Problem]:
        """Return mistakes in the values: times that are not finite, negative or unsorted, events after the end, invalid ends."""
        times, offsets, lengths = self.times, self.offsets, np.diff(self.offsets)
        with np.errstate(invalid="ignore"):
            wrong_events = ~(np.isfinite(times) & (times >= 0))
            falls = np.zeros(len(times), dtype=bool)
            falls[1:] = np.diff(times) < 0
            falls[offsets[:-1][lengths > 0]] = False
            wrong_events |= falls
            ends = np.where(self.ends_given, self.t_ends, np.inf)
            wrong_events |= times > np.repeat(ends, lengths)
            wrong = (~np.isfinite(self.t_ends) | (self.t_ends < 0)) & self.ends_given
        wrong |= ~self.ends_given & (lengths == 0)
        wrong[np.searchsorted(offsets, np.flatnonzero(wrong_events), side="right") - 1] = True
        problems: list[Problem] = []
        for sequence in np.flatnonzero(wrong)[:MOST_SHOWN].tolist():
            end = float(self.t_ends[sequence]) if self.ends_given[sequence] else None
            for event, text in time_mistakes(times[offsets[sequence] : offsets[sequence + 1]], end):
                problems.append(Problem(self.place_of(sequence, event), f"{self.where(sequence)}: {text}"))
        return problems


class NameTable(dict[str, int]):
    """Event names as written → codes. Each name is normalised once. With `terms`, names with parentheses must be terms."""

    def __init__(self, terms: bool = False) -> None:
        super().__init__()
        self.terms = terms
        self.names: dict[str, int] = {}
        self.faults: dict[str, str] = {}

    def __missing__(self, written: str) -> int:
        try:
            name = event_name(written, self.terms)
        except NameProblem as problem:
            self.faults[written] = str(problem)
            code = -1
        else:
            code = self.names.setdefault(name, len(self.names))
        self[written] = code
        return code
