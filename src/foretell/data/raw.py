"""What a format's reader gives before a vocabulary is known: flat columns, and the mistakes found on the way.

In: `Gatherer` takes the sequences of a file one by one. Out: `RawEvents`, whose `problems` hold every structural
mistake with its place; `checked` adds those of the values, in bulk.
"""

from __future__ import annotations

import contextlib
import reprlib
from array import array
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from foretell.data.sequence import NO_METADATA, encodable, offsets_of, time_mistakes
from foretell.terms import NameProblem, normalise

NUMBERS = frozenset({int, float})
LARGEST_TYPE = 2**31 - 2


class Problem(NamedTuple):
    """A mistake and the line or row it stands in (0: the file as a whole)."""

    place: int
    text: str


@dataclass(frozen=True)
class RawEvents:
    """One file's sequences. `codes` are integer types as written or, with `names`, indices into them."""

    path: str
    unit: Literal["line", "row", "sequence"]
    times: np.ndarray  # float64 [events]
    codes: np.ndarray  # int32 [events]
    names: tuple[str, ...] | None
    offsets: np.ndarray  # int64 [sequences + 1]
    t_ends: np.ndarray  # float64 [sequences]
    ends_given: np.ndarray  # bool [sequences]
    ids: tuple[str, ...]
    metadata: tuple[Mapping[str, object], ...]
    places: np.ndarray  # int64 [sequences], the line or row where each one starts
    event_places: np.ndarray | None = None  # int64 [events], where every event has a line or row of its own
    doubt: Problem | None = None  # a mistake, unless a vocabulary is given that has such names
    textual: bool = False  # the integers were text in the file, so they may also be names
    type_names: Mapping[int, int] = field(default_factory=dict)  # type id → code, where a file gives both
    ignored_columns: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

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
        """What is wrong whatever the vocabulary: the structure, then the values."""
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
        for sequence in np.flatnonzero(wrong).tolist():
            end = float(self.t_ends[sequence]) if self.ends_given[sequence] else None
            for event, text in time_mistakes(times[offsets[sequence] : offsets[sequence + 1]], end):
                problems.append(Problem(self.place_of(sequence, event), f"{self.where(sequence)}: {text}"))
        return problems


class NameTable(dict[str, int]):
    """Event names as written → codes; a name is normalised once, when it is first met."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, int] = {}
        self.faults: dict[str, str] = {}

    def __missing__(self, written: str) -> int:
        try:
            name = normalise(written)
        except NameProblem as problem:
            self.faults[written] = str(problem)
            code = -1
        else:
            code = self.names.setdefault(name, len(self.names))
        self[written] = code
        return code


class Gatherer:
    """Collects a file's sequences into flat columns, and its mistakes instead of stopping at the first."""

    def __init__(self, path: str, unit: Literal["line", "row", "sequence"]) -> None:
        self.path = path
        self.unit: Literal["line", "row", "sequence"] = unit
        self.problems: list[Problem] = []
        self.ignored_columns: tuple[str, ...] = ()
        self.textual = False
        self.doubt: Problem | None = None
        self._seen = 0
        self._kept = 0
        self._rows = array("q")
        self._times = array("d")
        self._codes = array("i")
        self._table = NameTable()
        self._named: bool | None = None
        self._kind_place = 0
        self._ids: dict[str, int] = {}  # with their lines or rows
        self._sequences: list[tuple[int, float, bool, Mapping[str, object]]] = []  # length, end, whether it is given, …
        self._pairs: dict[int, int] = {}
        self._pair_codes: dict[int, int] = {}

    def fault(self, place: int, text: str) -> None:
        """Notes a mistake."""
        self.problems.append(Problem(place, text))

    def add(
        self,
        place: int,
        times: object,
        events: object,
        t_end: object = None,
        id: object = None,
        metadata: Mapping[str, object] = NO_METADATA,
        types: object = None,
        rows: list[int] | None = None,
    ) -> None:
        """One sequence as a file gives it. Anything may be of the wrong type; then it becomes a problem.

        `rows` are the lines or rows of the single events, where they have their own.
        """
        before = len(self.problems)
        name = self._identify(place, id)
        where = f"sequence {name!r}"
        label, listed = ("types", types) if events is None else ("events", events)
        named = label == "events" and isinstance(listed, list) and set(map(type, listed)) == {str}
        clock = self._list_of(place, where, "times", times, NUMBERS, "numbers")
        expected = "names, or of integers >= 0" if label == "events" else "integers >= 0"
        kinds = self._list_of(place, where, label, listed, {str} if named else {int}, expected)
        numbers = None
        if events is not None and types is not None:
            numbers = self._list_of(place, where, "types", types, {int}, "integers >= 0")
        end = self._end(place, where, t_end)
        if clock is None or kinds is None or len(self.problems) > before:
            return
        for other, values in ((label, kinds), ("types", numbers)):
            if values is not None and len(values) != len(clock):
                counts = f"{len(clock)} times but {len(values)} {other}"
                self.fault(place, f"{where}: {counts}: the lists are ragged; each event needs one of both")
        self._append(place, where, clock, kinds, named, label, rows)
        if numbers is not None and len(self.problems) == before:
            self._note_pairs(place, where, numbers)
        if len(self.problems) > before:
            del self._times[self._kept :], self._codes[self._kept :]
            return
        self._kept += len(clock)
        self._rows.extend(rows or ())
        self._ids[name] = place
        self._sequences.append((len(clock), end, t_end is not None, metadata))

    def finish(self) -> RawEvents:
        """Everything gathered; the columns hold the sequences without structural mistakes."""
        if not self._ids and not self.problems:
            self.fault(0, "the file has no sequences; expected at least one")
        lengths, t_ends, ends_given, metadata = zip(*self._sequences, strict=True) if self._ids else ((), (), (), ())
        return RawEvents(
            path=self.path,
            unit=self.unit,
            times=np.array(self._times, dtype=np.float64),
            codes=np.array(self._codes, dtype=np.int32),
            names=tuple(self._table.names) if self._named else None,
            offsets=offsets_of(lengths),
            t_ends=np.array(t_ends, dtype=np.float64),
            ends_given=np.array(ends_given, dtype=bool),
            ids=tuple(self._ids),
            metadata=metadata,
            places=np.array(list(self._ids.values()), dtype=np.int64),
            type_names=dict(self._pairs) if self._named else {},
            event_places=np.array(self._rows, dtype=np.int64) if self._rows else None,
            doubt=self.doubt,
            textual=self.textual,
            ignored_columns=self.ignored_columns,
            problems=tuple(self.problems),
        )

    def _identify(self, place: int, id: object) -> str:
        self._seen += 1
        if id is None:
            number = self._seen - 1
            while str(number) in self._ids:
                number += 1
            return str(number)
        if type(id) not in (str, int) or id == "" or not encodable(_short(id)):
            self.fault(place, f"id is {_short(id)}, expected text that is not empty, or an integer")
            return _short(id)
        name = str(id)
        if name in self._ids:
            before = f"{self.unit} {self._ids[name]}"
            self.fault(place, f"sequence {name!r}: this id was used before, at {before}; ids are unique")
        return name

    def _list_of(
        self, place: int, where: str, label: str, values: object, allowed: Collection[type], expected: str
    ) -> list[Any] | None:
        if not isinstance(values, list):
            self.fault(place, f"{where}: {label} is {_short(values)}, expected a list of {expected}")
            return None
        if not set(map(type, values)) <= set(allowed):
            index, value = next((i, value) for i, value in enumerate(values) if type(value) not in allowed)
            found = f"{label}[{index}] is {_short(value)}, of type {type(value).__name__}"
            self.fault(place, f"{where}: {found}; expected a list of {expected}")
            return None
        return values

    def _end(self, place: int, where: str, t_end: object) -> float:
        if t_end is None:
            return np.nan
        if type(t_end) in NUMBERS:
            assert isinstance(t_end, int | float)
            with contextlib.suppress(OverflowError):  # an integer beyond all floats is told of below
                return float(t_end)
        self.fault(place, f"{where}: t_end is {_short(t_end)}, expected a number or null")
        return np.nan

    def _append(
        self,
        place: int,
        where: str,
        times: list[Any],
        listed: list[Any],
        named: bool,
        label: str,
        rows: list[int] | None,
    ) -> None:
        def line(index: int) -> int:
            """Where an event stands: in its own line or row, or in that of the whole sequence."""
            return rows[index] if rows is not None and index < len(rows) else place

        try:
            self._times.extend(times)
        except OverflowError:
            self.fault(place, f"{where}: times hold a number too large for float64")
        if not listed:
            return
        if self._named is None:
            self._named, self._kind_place = named, place
        elif self._named != named:
            had, has = ("names", "integers") if self._named else ("integers", "names")
            there = f"at {self.unit} {self._kind_place} they are {had}"
            self.fault(place, f"{where}: the events are {has}, but {there}; a file has one of both")
            return
        if named:
            self._codes.extend(map(self._table.__getitem__, listed))
            if self._table.faults:
                for written in dict.fromkeys(listed):
                    if written in self._table.faults:
                        index = listed.index(written)
                        self.fault(line(index), f"{where}: {label}[{index}]: {self._table.faults[written]}")
            return
        low, high = min(listed), max(listed)
        if low < 0 or high > LARGEST_TYPE:
            index = listed.index(low if low < 0 else high)
            said = f"{label}[{index}] is {listed[index]}, expected an integer from 0 to 2^31 - 2"
            self.fault(line(index), f"{where}: {said}")
            return
        self._codes.extend(listed)

    def _note_pairs(self, place: int, where: str, types: list[int]) -> None:
        codes = self._codes[self._kept :].tolist()
        for kind, code in dict.fromkeys(zip(types, codes, strict=True)):
            if not self._named:
                if kind != code:
                    self.fault(place, f"{where}: events and types disagree: {code} in events is {kind} in types")
                continue
            if self._pairs.get(kind) == code:
                continue
            if kind < 0 or kind > LARGEST_TYPE:
                self.fault(place, f"{where}: types hold {kind}, expected an integer >= 0")
            elif kind in self._pairs:
                here, before = (list(self._table.names)[one] for one in (code, self._pairs[kind]))
                self.fault(place, f"{where}: type {kind} is `{here}` here and `{before}` before; a type has one name")
            elif code in self._pair_codes:
                found = f"event `{list(self._table.names)[code]}` has type {kind} here"
                self.fault(place, f"{where}: {found} and {self._pair_codes[code]} before; a name has one type")
            else:
                self._pairs[kind], self._pair_codes[code] = code, kind


# a hostile file can hold a value whose full text would fill the memory
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother, _BRIEF.maxlong = 2, 40, 40, 40


def _short(value: object) -> str:
    try:
        return _BRIEF.repr(value)
    except ValueError:
        return "a huge integer"  # Python refuses to write integers of thousands of digits
