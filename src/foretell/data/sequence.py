"""One observed sequence of events (`EventSequence`), and the list of event types (`Vocabulary`).

In: times, types and the end of the observation. Out: `EventSequence`, checked once at construction and read-only
afterwards: `0 <= t_1 <= … <= t_I <= t_end`, all finite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from foretell.data.attributes import SequenceAttributes
from foretell.data.frame_origin import NO_SOURCE, SequenceSource
from foretell.errors import DataError
from foretell.terms import NameProblem, event_name
from foretell.wording import did_you_mean

FACTS = "facts"  # metadata key for a sequence's own facts, used by programs with `:- given(…).`
NO_METADATA: Mapping[str, object] = {}  # shared, never changed; no MappingProxyType, since that cannot be pickled
MOST_TYPES = 1_000_000  # a larger number is taken for a wrong id


@dataclass(frozen=True, slots=True, eq=False)
class EventSequence:
    """One sequence of events, observed on the window `[0, t_end]`.

    The arrays are checked and become read-only. The order of events at equal times is the order in which they happened.

    Args:
        times: float64, sorted, from 0 to `t_end`.
        types: the event types, as indices of a vocabulary.
        t_end: the end of the observation. The tail after the last event is part of the likelihood.
        id: the name of the sequence in messages and results.
        metadata: other data about the sequence.
        unscored: bool per event, True if the event is history only; None: all events are scored. It is not stored in files.
        start: the absolute time of 0, in nanoseconds since 1970, or None.
        scored_from: events and gaps up to this time are history only.
        end_assumed: True if `t_end` is only the last event's time, because the end is unknown.
        attributes: additional columns of the events and of the sequence.
        source: the clock and the kind of data frame of the data that the sequence comes from.

    Raises:
        DataError: every mistake in the arrays (NaN, unsorted, negative, beyond `t_end`, unequal lengths).

    Example:
        >>> ft.EventSequence([0.5, 2.0, 2.0], [0, 1, 0], t_end=10.0, id="anna").t_end
        10.0
        >>> ft.EventSequence([2.0, 0.5], [0, 1], t_end=10.0)
        Traceback (most recent call last):
        foretell.errors.DataError: sequence '0': times[1] = 0.5 comes after 2.0: unsorted; sort the events by time
    """

    times: np.ndarray
    types: np.ndarray
    t_end: float
    id: str = "0"
    metadata: Mapping[str, object] = field(default_factory=lambda: NO_METADATA)
    unscored: np.ndarray | None = None
    start: int | None = None
    scored_from: float = 0.0
    end_assumed: bool = False
    attributes: SequenceAttributes | None = None
    source: SequenceSource = NO_SOURCE

    def __post_init__(self) -> None:
        problems: list[str] = []
        times = _as_array("times", self.times, False, problems)
        types = _as_array("types", self.types, True, problems)
        if not problems and len(times) != len(types):
            problems.append(f"{len(times)} times but {len(types)} types: each event needs one of both")
        end = self.t_end
        if isinstance(end, bool | np.bool_) or not isinstance(end, int | float | np.integer | np.floating):
            problems.append(f"t_end is {end!r}, expected a number")
        elif not problems:
            problems += [text for _, text in time_mistakes(times, float(end))]
        unscored = None if self.unscored is None else np.array(self.unscored)
        if unscored is not None and (unscored.dtype != np.bool_ or unscored.shape != types.shape):
            problems.append(f"unscored has type {unscored.dtype} and shape {unscored.shape}, expected a bool per event")
        if not problems and not 0.0 <= self.scored_from <= float(end):
            problems.append(f"scored_from is {self.scored_from!r}, expected a time from 0 to t_end = {end!r}")
        if not isinstance(self.id, str) or not self.id or not encodable(self.id):
            problems.append("the id must be Unicode text that is not empty")
        if problems:
            raise DataError(f"sequence {self.id!r}: {problem}" for problem in problems)
        object.__setattr__(self, "times", read_only(times))
        object.__setattr__(self, "types", read_only(types))
        object.__setattr__(self, "t_end", float(end))
        object.__setattr__(self, "unscored", None if unscored is None else read_only(unscored))

    def __len__(self) -> int:
        return len(self.times)

    def first(self, count: int, t_end: float | None = None) -> EventSequence:
        """Return the sequence of the first `count` events, observed until `t_end` (default: the sequence's own `t_end`)."""
        unscored = None if self.unscored is None else self.unscored[:count]
        end = self.t_end if t_end is None else t_end
        return replace(
            self,
            times=self.times[:count],
            types=self.types[:count],
            t_end=end,
            unscored=unscored,
            scored_from=min(self.scored_from, end),
            end_assumed=self.end_assumed and t_end is None,
        )

    @classmethod
    def trusted(cls, **values: Any) -> EventSequence:
        """Make a sequence from arrays that have been checked (float64, int32, read-only), without another check. `values` has all
        fields."""
        sequence = object.__new__(cls)
        for name in cls.__slots__:
            object.__setattr__(sequence, name, values[name])
        return sequence


@dataclass(frozen=True)
class Vocabulary:
    """The event types: `names[k]` is the name of type `k`.

    Names that are terms, such as `pass(purple1, purple2)`, are stored without spaces.

    Args:
        names: the names, each once.

    Raises:
        DataError: a name occurs twice, or is not valid.

    Example:
        >>> vocabulary = ft.Vocabulary(("visit", "test"))
        >>> vocabulary.index("test"), vocabulary[0], "scan" in vocabulary
        (1, 'visit', False)
    """

    names: tuple[str, ...]
    _places: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problems: list[str] = []
        names: list[str] = []
        for place, name in enumerate(self.names):
            if not isinstance(name, str):
                problems.append(f"type {place} is named {name!r}, expected text")
                continue
            try:
                names.append(event_name(name))
            except NameProblem as problem:
                problems.append(f"type {place}: {problem}")
        places: dict[str, int] = {}
        for place, name in enumerate(names):
            if places.setdefault(name, place) != place and not problems:
                problems.append(f"types {places[name]} and {place} have the same name {name!r}")
        if problems:
            raise DataError(problems)
        object.__setattr__(self, "names", tuple(names))
        object.__setattr__(self, "_places", places)

    @classmethod
    def of_size(cls, size: int) -> Vocabulary:
        """Make a vocabulary of `size` types named `"0"`, `"1"`, …"""
        if not 0 <= size <= MOST_TYPES:
            raise DataError(f"{size} event types: expected 0 to {MOST_TYPES}")
        return cls(tuple(map(str, range(size))))

    @property
    def numbered(self) -> bool:
        """Whether the names are the numbers 0, 1, …"""
        return all(name == str(place) for place, name in enumerate(self.names))

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, index: int) -> str:
        return self.names[index]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def find(self, name: str) -> int | None:
        """Return the type with this name, in any spelling, or None."""
        place = self._places.get(name)
        if place is not None:
            return place
        try:
            return self._places.get(event_name(name))
        except NameProblem:
            return None

    def index(self, name: str) -> int:
        """Return the type with this name; raise a `DataError` with similar names if there is none."""
        place = self.find(name)
        if place is None:
            raise DataError(self.unknown(name))
        return place

    def unknown(self, name: str) -> str:
        """Return the message for an unknown name, with a similar name as a hint."""
        return f"event `{name}` is not one of the {len(self)} known event types{did_you_mean(name, self.names, before='; ')}"


def offsets_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the cumulative sum of lengths, with a 0 in front: int64 [n + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, dtype=np.int64))])


def encodable(text: str) -> bool:
    """Whether a text can be encoded as UTF-8; text from JSON can contain a lone surrogate, which cannot."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def time_mistakes(times: np.ndarray, t_end: float | None) -> list[tuple[int, str]]:
    """Return all mistakes in one sequence's times, each with the index of the first event that has it.

    `t_end=None` means that the sequence has no `t_end`.
    """
    problems: list[tuple[int, str]] = []
    for what, wrong in (
        ("NaN", np.isnan(times)),
        ("infinite", np.isinf(times)),
        ("negative", (times < 0) & np.isfinite(times)),
    ):
        if wrong.any():
            first = int(np.argmax(wrong))
            found = f"times[{first}] is {times[first]:g}{_others(wrong)}"
            problems.append((first, f"{found}: {what} times are not allowed; times are finite numbers >= 0"))
    with np.errstate(invalid="ignore"):
        falls = np.diff(times) < 0
    if falls.any():
        first = int(np.argmax(falls))
        found = f"times[{first + 1}] = {_number(times[first + 1])} comes after {_number(times[first])}{_others(falls)}"
        problems.append((first + 1, f"{found}: unsorted; sort the events by time"))
    if t_end is None:
        if len(times) == 0:
            problems.append((0, "no events and no t_end; a sequence without events needs a t_end"))
    elif not np.isfinite(t_end) or t_end < 0:
        problems.append((0, f"t_end is {t_end:g}, expected a finite number >= 0"))
    else:
        late = np.isfinite(times) & (times > t_end)
        if late.any():
            first = int(np.argmax(late))
            found = f"times[{first}] = {_number(times[first])}{_others(late)}"
            problems.append((first, f"{found} is after t_end = {_number(t_end)}, the end of the observation"))
    return problems


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view of an array."""
    view = array.view()
    view.flags.writeable = False
    return view


def _number(value: float | np.floating) -> str:
    return repr(float(value))


def _others(wrong: np.ndarray) -> str:
    count = int(wrong.sum()) - 1
    return f" (and {count} more like it)" if count else ""


def _as_array(name: str, values: object, whole: bool, problems: list[str]) -> np.ndarray:
    """Convert values to times (float64) or, if `whole`, to types (int32); on a mistake, note it and return an empty array."""
    kind, expected = (np.int32, "integers") if whole else (np.float64, "numbers")
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.asarray(None)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, dtype=kind)
    if array.ndim != 1 or array.dtype.kind not in ("iu" if whole else "iuf"):
        problems.append(f"{name} have type {array.dtype} and {array.ndim} axes, expected a list of {expected}")
    elif whole and (array.min() < 0 or array.max() >= np.iinfo(np.int32).max):
        found = f"{name} lie between {array.min()} and {array.max()}"
        problems.append(f"{found}, expected integers >= 0 that fit 32 bits")
    else:
        # a copy, so that later changes to the caller's array cannot change a checked sequence
        return np.array(array, dtype=kind)
    return np.zeros(0, dtype=kind)
