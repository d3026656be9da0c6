"""What a format's reader gives before a vocabulary is known and times are placed: flat columns, and the mistakes found on the way.

`RawEvents` come from a table (`event_table.gathered`) or from sequences one by one (`gatherer.Gatherer`). `problems` hold
every structural mistake with its place; `value_problems` adds those of the numbers, in bulk.
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
MOST_COLUMNS = 10_000  # of a table
MOST_SHOWN = 1_000  # sequences whose mistakes are looked at one by one
PlaceUnit = Literal["line", "row", "sequence", "event"]


class Problem(NamedTuple):
    """A mistake and its line or row (0: the whole file)."""

    place: int
    text: str


def too_many_columns(count: int, place: int) -> list[Problem]:
    """The mistake of a table with more columns than any has that holds one event per row."""
    if count <= MOST_COLUMNS:
        return []
    return [
        Problem(place, f"{count:,} columns; expected a table with one event per row, and {MOST_COLUMNS:,} at the most")
    ]


@dataclass(frozen=True)
class TimeNotes:
    """The assumptions made while reading a file's times, as counts of times."""

    zoneless: int = 0  # without a zone
    twice: int = 0  # local times that happen twice, when clocks go back
    never: int = 0  # local times that clocks skip


NO_NOTES = TimeNotes()


@dataclass(frozen=True, eq=False)
class RawEvents:
    """One file's sequences. `codes` are integer types as written or, with `names`, indices into them.

    Times, starts and ends are as the file has them: datetime64[ns] in UTC, or numbers (int64, float64).
    """

    path: str
    unit: PlaceUnit
    times: np.ndarray  # [events]
    codes: np.ndarray  # int32 [events]
    names: tuple[str, ...] | None
    offsets: np.ndarray  # int64 [sequences + 1]
    t_starts: np.ndarray  # [sequences]; NaT or NaN where none is given
    t_ends: np.ndarray  # [sequences]; likewise
    score_from: np.ndarray  # [sequences]; likewise
    ids: tuple[str, ...]
    metadata: tuple[Mapping[str, object], ...]
    places: np.ndarray  # int64 [sequences], the line or row where each one starts
    event_places: np.ndarray | None = None  # int64 [events], where every event has a line or row of its own
    doubt: Problem | None = None  # a mistake, unless a vocabulary is given that has such names
    textual: bool = False  # the integers were text in the file, so they may also be names
    type_names: Mapping[int, int] = field(default_factory=dict)  # type id → code, where a file gives both
    attributes: Mapping[str, Attribute] = field(default_factory=dict)  # [events]
    sequence_attributes: Mapping[str, Attribute] = field(default_factory=dict)  # [sequences]
    unused_columns: tuple[str, ...] = ()
    time_notes: TimeNotes = NO_NOTES
    said: tuple[str, ...] = ()  # what the reader took for granted, a sentence each
    problems: tuple[Problem, ...] = ()

    @property
    def stamped(self) -> bool:
        """Whether the times are timestamps."""
        return self.times.dtype.kind == "M"

    @property
    def ends_given(self) -> np.ndarray:
        """bool [sequences]: True where the file says how long a sequence was observed."""
        return ~np.isnat(self.t_ends) if self.t_ends.dtype.kind == "M" else ~np.isnan(self.t_ends)

    def where(self, sequence: int) -> str:
        """The part of a message that names a sequence."""
        return f"sequence {self.ids[sequence]!r}"

    def place_of(self, sequence: int, event: int) -> int:
        """The line or row of a sequence's event, counted from the sequence's start."""
        start, stop = int(self.offsets[sequence]), int(self.offsets[sequence + 1])
        if self.event_places is None or start + event >= stop:
            return int(self.places[sequence])
        return int(self.event_places[start + event])

    def sequence_of(self, event: int) -> int:
        """The sequence that owns an event, both as places in the columns."""
        return int(np.searchsorted(self.offsets, event, side="right")) - 1

    def located(self, problems: Iterable[Problem]) -> list[str]:
        """Messages with the file and the place in front, in the order of the file."""
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
        """The mistakes that do not depend on the vocabulary: of the structure, then of the values."""
        return [*self.problems, *self.value_problems()]

    def value_problems(self) -> list[Problem]:
        """Times that are not finite, negative or unsorted, events after the end, ends that are none."""
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
    """Event names as written → codes; a name is spelled once, when it is first met. With `terms`, parentheses must make terms."""

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
