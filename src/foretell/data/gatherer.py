"""Collect single sequences into `RawEvents`, for formats that are lists of sequences."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from foretell.data.raw import LARGEST_TYPE, NameTable, PlaceUnit, Problem, RawEvents, TimeNotes
from foretell.data.read_options import BOUNDS
from foretell.data.sequence import NO_METADATA, encodable, offsets_of
from foretell.data.timestamps import parse_times
from foretell.errors import short

NUMBERS = frozenset({int, float})
TEXT = frozenset({str})
LARGEST_EXACT = 2**53
Bounds = Mapping[str, float | str | None]  # values as written, by the names in `BOUNDS`


class Gatherer:
    """Collects the sequences of a file in flat columns, and all mistakes in a list."""

    def __init__(self, path: str, unit: PlaceUnit, timezone: str = "UTC", terms: bool = False, before: int = 0) -> None:
        """`before` is the number of earlier sequences in the file, which is used to number sequences without an id."""
        self.path = path
        self.before = before
        self.unit: PlaceUnit = unit
        self.timezone = timezone
        self.problems: list[Problem] = []
        self._seen = 0
        self._kept = 0
        self._times = array("d")  # times, if they are numbers
        self._whole: array[int] | None = array("q")  # times, as long as all are integers
        self._texts: list[str] = []  # times, if they are text
        self._stamped: bool | None = None
        self._stamp_place = 0
        self._notes = TimeNotes()
        self._codes = array("i")
        self._table = NameTable(terms)
        self._named: bool | None = None
        self._kind_place = 0
        self._ids: dict[str, int] = {}  # id → line or row
        self._sequences: list[tuple[int, Bounds, Mapping[str, object]]] = []  # (length, …) per sequence
        self._pairs: dict[int, int] = {}
        self._pair_codes: dict[int, int] = {}

    @property
    def events(self) -> int:
        """The number of events in the kept sequences."""
        return self._kept

    @property
    def seen(self) -> int:
        """The number of sequences so far, including those with mistakes."""
        return self._seen

    def fault(self, place: int, text: str) -> None:
        """Note a mistake."""
        self.problems.append(Problem(place, text))

    def add(
        self,
        place: int,
        times: object,
        events: object,
        bounds: Mapping[str, object] = NO_METADATA,
        id: object = None,
        metadata: Mapping[str, object] = NO_METADATA,
        types: object = None,
    ) -> None:
        """Add one sequence as read from a file, with `bounds` by name. Values of a wrong type are noted as mistakes."""
        before = len(self.problems)
        name = self._identify(place, id)
        where = f"sequence {name!r}"
        label, listed = ("types", types) if events is None else ("events", events)
        named = label == "events" and isinstance(listed, list) and set(map(type, listed)) == {str}
        stamped = isinstance(times, list) and set(map(type, times)) == {str}
        clock = self._list_of(
            place, where, "times", times, TEXT if stamped else NUMBERS, "numbers, or of times as text"
        )
        expected = "names, or of integers >= 0" if label == "events" else "integers >= 0"
        kinds = self._list_of(place, where, label, listed, TEXT if named else {int}, expected)
        numbers = None
        if events is not None and types is not None:
            numbers = self._list_of(place, where, "types", types, {int}, "integers >= 0")
        known = {label: self._bound(place, where, label, bounds.get(label)) for label in BOUNDS}
        if clock is None or kinds is None or len(self.problems) > before:
            return
        for other, values in ((label, kinds), ("types", numbers)):
            if values is not None and len(values) != len(clock):
                counts = f"{len(clock)} times but {len(values)} {other}"
                self.fault(place, f"{where}: {counts}: the lists are ragged; each event needs one of both")
        self._check_kind(place, where, stamped if clock else None, known)
        if len(self.problems) == before:
            self._append_times(place, where, clock)
        self._append_events(place, where, kinds, named, label)
        if numbers is not None and len(self.problems) == before:
            self._note_pairs(place, where, numbers)
        if len(self.problems) > before:
            for kept in (self._times, self._texts, self._codes, self._whole or []):
                del kept[self._kept :]
            return
        self._kept += len(clock)
        self._ids[name] = place
        self._sequences.append((len(clock), known, metadata))

    def finish(self) -> RawEvents:
        """Return everything collected; the columns have only sequences without structural mistakes."""
        if not self._ids and not self.problems:
            self.fault(0, "the file has no sequences; expected at least one")
        lengths, bounds, metadata = zip(*self._sequences, strict=True) if self._ids else ((), (), ())
        times, offsets = self._finished_times(), offsets_of(lengths)
        if times.dtype.kind == "M":
            for event in np.flatnonzero(np.isnat(times)).tolist():
                sequence = int(np.searchsorted(offsets, event, side="right")) - 1
                index, text = event - int(offsets[sequence]), short(self._texts[event])
                self._fault_in(sequence, f"times[{index}] is {text}, expected a time such as 2012-03-01T12:00:00Z")
        return RawEvents(
            path=self.path,
            unit=self.unit,
            times=times,
            codes=np.array(self._codes, dtype=np.int32),
            names=tuple(self._table.names) if self._named else None,
            offsets=offsets,
            t_starts=self._finished_bounds("t_start", bounds),
            t_ends=self._finished_bounds("t_end", bounds),
            score_from=self._finished_bounds("score_from", bounds),
            ids=tuple(self._ids),
            metadata=metadata,
            places=np.array(list(self._ids.values()), dtype=np.int64),
            type_names=dict(self._pairs) if self._named else {},
            time_notes=self._notes,
            problems=tuple(self.problems),
        )

    def _finished_times(self) -> np.ndarray:
        if self._stamped:
            return self._parsed(self._texts)
        floats = np.array(self._times, dtype=np.float64)
        if self._whole is None or np.abs(floats).max(initial=0.0) < LARGEST_EXACT:
            return floats
        return np.array(self._whole, dtype=np.int64)  # int64, since float64 cannot distinguish nanoseconds

    def _finished_bounds(self, label: str, bounds: Sequence[Bounds]) -> np.ndarray:
        values: list[Any] = [one[label] for one in bounds]
        if not self._stamped:
            return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        found = self._parsed(["" if value is None else value for value in values])
        for sequence in np.flatnonzero(np.isnat(found)).tolist():
            if values[sequence] is not None:
                self._fault_in(
                    sequence, f"{label} is {short(values[sequence])}, expected a time such as 2012-03-01T12:00"
                )
        return found

    def _parsed(self, texts: list[str]) -> np.ndarray:
        found = parse_times(texts, self.timezone)
        notes = self._notes
        self._notes = TimeNotes(notes.zoneless + found.zoneless, notes.twice + found.twice, notes.never + found.never)
        instants = found.instants.astype("datetime64[ns]")
        instants[~found.valid] = np.datetime64("NaT")
        return instants

    def _fault_in(self, sequence: int, text: str) -> None:
        name, place = list(self._ids.items())[sequence]
        self.fault(place, f"sequence {name!r}: {text}")

    def _check_kind(self, place: int, where: str, stamped: bool | None, bounds: Bounds) -> None:
        """Note a mistake if some times of a file are timestamps and others are numbers, starts and ends included."""
        kinds = {"times": stamped}
        kinds |= {name: isinstance(value, str) for name, value in bounds.items() if value is not None}
        for label, kind in kinds.items():
            if kind is None:
                continue
            if self._stamped is None:
                self._stamped, self._stamp_place = kind, place
            if kind != self._stamped:
                value = "text" if label == "times" else short(bounds[label])
                found, expected = (
                    (f"{label} is {value}", "a number") if kind else (f"{label} is a number", "text in ISO 8601")
                )
                there = "" if place == self._stamp_place else f" at {self.unit} {self._stamp_place}"
                self.fault(place, f"{where}: {found}, expected {expected} as for other times{there}")

    def _identify(self, place: int, id: object) -> str:
        self._seen += 1
        if id is None:
            number = self.before + self._seen - 1
            while str(number) in self._ids:
                number += 1
            return str(number)
        if type(id) not in (str, int) or id == "" or not encodable(short(id)):
            self.fault(place, f"id is {short(id)}, expected text that is not empty, or an integer")
            return short(id)
        name = str(id)
        if name in self._ids:
            before = f"{self.unit} {self._ids[name]}"
            self.fault(place, f"sequence {name!r}: this id was used before, at {before}; ids are unique")
        return name

    def _list_of(
        self, place: int, where: str, label: str, values: object, allowed: Collection[type], expected: str
    ) -> list[Any] | None:
        if not isinstance(values, list):
            self.fault(place, f"{where}: {label} is {short(values)}, expected a list of {expected}")
            return None
        if not set(map(type, values)) <= set(allowed):
            index, value = next((i, value) for i, value in enumerate(values) if type(value) not in allowed)
            found = f"{label}[{index}] is {short(value)}, of type {type(value).__name__}"
            self.fault(place, f"{where}: {found}; expected a list of {expected}")
            return None
        return values

    def _bound(self, place: int, where: str, label: str, value: object) -> float | str | None:
        """Return a start or an end as written; note a mistake if it is neither number nor text."""
        if value is None or type(value) is str:
            return value
        if type(value) in NUMBERS:
            assert isinstance(value, int | float)
            with contextlib.suppress(OverflowError):  # an integer too large for a float is reported below
                if np.isfinite(float(value)):
                    return float(value)
        self.fault(place, f"{where}: {label} is {short(value)}, expected a finite number, a time as text, or null")
        return None

    def _append_times(self, place: int, where: str, times: list[Any]) -> None:
        if self._stamped:
            self._texts += times
        else:
            self._append_numbers(place, where, times)

    def _append_events(self, place: int, where: str, listed: list[Any], named: bool, label: str) -> None:
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
                        self.fault(place, f"{where}: {label}[{index}]: {self._table.faults[written]}")
            return
        low, high = min(listed), max(listed)
        if low < 0 or high > LARGEST_TYPE:
            index = listed.index(low if low < 0 else high)
            said = f"{label}[{index}] is {listed[index]}, expected an integer from 0 to 2^31 - 2"
            self.fault(place, f"{where}: {said}")
            return
        self._codes.extend(listed)

    def _append_numbers(self, place: int, where: str, times: list[Any]) -> None:
        try:
            self._times.extend(times)
        except OverflowError:
            self.fault(place, f"{where}: times hold a number too large for float64")
        if self._whole is None:
            return
        if set(map(type, times)) <= {int} and max(map(abs, times), default=0) < 2**63:
            self._whole.extend(times)
        else:
            self._whole = None

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
