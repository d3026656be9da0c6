"""A split of a data set (`EventData`) and the data set itself (`Dataset`): what models are trained and scored on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from foretell.data.card import ORIGINS, Card, Origin
from foretell.data.columns import Columns
from foretell.data.loadreport import LoadReport, gaps_of, grid_shares, tie_share
from foretell.data.sequence import EventSequence, Vocabulary
from foretell.errors import DataError
from foretell.terms import NameProblem, normalise

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True, eq=False, repr=False)
class EventData:
    """One split. `origin="first-event"` says that each sequence's first event, at time 0, is history, not scored."""

    sequences: Sequence[EventSequence]
    vocabulary: Vocabulary
    origin: Origin = "window"
    name: str = "data"
    report: LoadReport | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        columns = Columns.of(self.sequences)
        object.__setattr__(self, "sequences", columns)
        assert self.origin in ORIGINS, self.origin
        problems: list[str] = []
        if len(columns.types) and (top := int(columns.types.max())) >= len(self.vocabulary):
            problems.append(f"{self.name}: type {top} is outside the vocabulary of {len(self.vocabulary)} event types")
        if self.origin == "first-event":
            problems += [
                f"{self.name}: sequence {columns.ids[place]!r}: {text}" for place, text in not_from_zero(columns)
            ]
        if problems:
            raise DataError(problems)
        if self.report is None:
            object.__setattr__(self, "report", describe_load(columns, self.name))

    @classmethod
    def from_names(
        cls, events: Iterable[Sequence[str]], times: Iterable[Sequence[float]], *, t_ends: Sequence[float] | None = None
    ) -> EventData:
        """From the names and times of each sequence's events; without `t_ends`, a sequence ends with its last event."""
        events, times = list(events), list(times)
        if any(isinstance(one, str) for one in events) or not all(
            isinstance(one, Sequence | np.ndarray) for one in times
        ):
            raise DataError(
                "from_names: expected lists of names and of times, one of each a sequence: [['a', 'b']], [[0.5, 2.0]]"
            )
        if any(len(names) != len(when) for names, when in zip(events, times, strict=False)) or len(events) != len(
            times
        ):
            raise DataError("from_names: there must be as many times as events, in every sequence")
        if t_ends is not None and (not isinstance(t_ends, Sequence | np.ndarray) or len(t_ends) != len(events)):
            raise DataError("from_names: t_ends: expected one time for each sequence")
        named = [[_normalised(name) for name in sequence] for sequence in events]
        vocabulary = Vocabulary(tuple(sorted({name for sequence in named for name in sequence})))
        made = []
        for place, (names, when) in enumerate(zip(named, times, strict=True)):
            kinds = np.asarray([vocabulary.index(name) for name in names], dtype=np.int32)
            end = t_ends[place] if t_ends is not None else max(when, default=0.0)
            made.append(EventSequence(np.asarray(when, dtype=np.float64), kinds, end, str(place)))
        return cls(made, vocabulary)

    def __repr__(self) -> str:
        return f"EventData({self.name!r}, {len(self)} sequences, {self.event_count} events)"

    @property
    def columns(self) -> Columns:
        """The flat arrays behind `sequences`."""
        assert isinstance(self.sequences, Columns)
        return self.sequences

    @property
    def event_count(self) -> int:
        """Events of all sequences together."""
        return len(self.columns.times)

    @property
    def lengths(self) -> np.ndarray:
        """Events of each sequence, int64."""
        return self.columns.lengths

    def gaps(self) -> np.ndarray:
        """The gaps between neighbouring events of a sequence, all sequences in one float64 array."""
        return gaps_of(self.columns.times, self.columns.offsets)

    def type_counts(self) -> np.ndarray:
        """How often each type of the vocabulary happens, int64."""
        return np.bincount(self.columns.types, minlength=len(self.vocabulary))

    def names_of(self, sequence: EventSequence) -> list[str]:
        """The names of a sequence's events, in order."""
        return [self.vocabulary.names[kind] for kind in sequence.types.tolist()]

    def select(self, indices: Iterable[int]) -> EventData:
        """Some of the sequences, in the order asked for."""
        return replace(self, sequences=self.columns.select(indices), report=None)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, index: int) -> EventSequence:
        return self.columns[index]

    def __iter__(self) -> Iterator[EventSequence]:
        return iter(self.columns)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """The splits of a data set over one vocabulary, with its card and the place it was read from."""

    train: EventData | None
    dev: EventData | None
    test: EventData | None
    vocabulary: Vocabulary
    card: Card
    path: str = ""

    def __repr__(self) -> str:
        return (
            f"Dataset({self.card.name!r}, {len(self.vocabulary)} types, {', '.join(map(repr, self.splits().values()))})"
        )

    def splits(self) -> dict[str, EventData]:
        """The splits that exist, by name, in the order train, dev, test."""
        found = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: data for name, data in found.items() if data is not None}


def _normalised(name: str) -> str:
    try:
        return normalise(name)
    except NameProblem as problem:
        raise DataError(str(problem)) from None


def not_from_zero(columns: Columns) -> list[tuple[int, str]]:
    """The sequences that break `origin = "first-event"`, each with the sentence that says how."""
    lengths = columns.lengths
    first = np.full(len(columns), np.nan)
    first[lengths > 0] = columns.times[columns.offsets[:-1][lengths > 0]]
    broken: list[tuple[int, str]] = []
    for place in np.flatnonzero(first != 0).tolist():
        found = f"the first time is {float(first[place])!r}" if lengths[place] else "there is no event"
        broken.append(
            (place, f'{found}, but origin = "first-event" promises a first event at time 0; use origin = "window"')
        )
    return broken


def describe_load(
    columns: Columns, path: str, missing_ends: int = 0, ignored_columns: tuple[str, ...] = ()
) -> LoadReport:
    """The `LoadReport` of checked columns."""
    return LoadReport(
        path=path,
        sequences=len(columns),
        events=len(columns.times),
        ties=tie_share(columns.times, columns.offsets),
        grid_shares=grid_shares(columns.times),
        missing_ends=missing_ends,
        ignored_columns=ignored_columns,
    )
