"""A split of a data set (`EventData`), the data set itself (`Dataset`), and the remarks of loading (`LoadReport`).

The shares of ties and of times on a grid are recorded because a model can exploit them: its density can grow without bound there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import tomli_w

from foretell.data.clock import NO_CLOCK, Clock
from foretell.data.columns import Columns, counts_of_types, gaps_of
from foretell.data.covariates import NO_NAMES, CovariateEncoding, CovariateNames
from foretell.data.frame_origin import NO_ORIGIN, FrameKind, FrameOrigin, SequenceSource, source_of
from foretell.data.frame_output import events_frame, html_table
from foretell.data.parquet import events_as_arrow
from foretell.data.sequence import MOST_TYPES, NO_METADATA, EventSequence, Vocabulary
from foretell.errors import DataError
from foretell.reading import TOML_BYTES, parse_toml, read_document
from foretell.terms import NameProblem, event_name
from foretell.wording import counted, did_you_mean, listed

Origin = Literal["window", "first-event"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)
CARD_FILE = "dataset.toml"
OTHER = "other"  # the event type that replaces all types outside the vocabulary


@dataclass(frozen=True)
class Card:
    """The card of a data set; keys that the library does not use are kept in `about`."""

    name: str
    origin: Origin = "window"
    time_unit: str = ""
    types: int | None = None
    about: Mapping[str, object] = field(default_factory=lambda: NO_METADATA)
    time_format: str = ""  # how times are written: number, iso, unix-s, …
    timezone: str = ""  # the zone of times without one
    start: str = ""  # when windows start: first-event, day, week, month, or a time
    covariates: tuple[str, ...] = ()  # columns of events that models use
    static: tuple[str, ...] = ()  # columns of sequences that models use

    @classmethod
    def read(cls, path: Path, default_name: str) -> Card:
        """Read a card from a TOML file; raise a `DataError` with all its mistakes."""
        try:
            table = parse_toml(read_document(path, TOML_BYTES))
        except ValueError as error:
            raise DataError(f"{path}: this is not TOML: {error}") from None
        problems: list[str] = []
        name = table.pop("name", default_name)
        origin = table.pop("origin", "window")
        types = table.pop("types", None)
        texts = {key: table.pop(key, "") for key in ("time_unit", "time_format", "timezone", "start")}
        for key, value in (("name", name), *texts.items()):
            if not isinstance(value, str):
                problems.append(f"{path}: {key} is {value!r}, expected text")
        if origin not in ORIGINS:
            hint = did_you_mean(str(origin), ORIGINS, before="; ")
            problems.append(f'{path}: origin is {origin!r}, expected "window" or "first-event"{hint}')
        if types is not None and (type(types) is not int or not 1 <= types <= MOST_TYPES):
            problems.append(f"{path}: types is {types!r}, expected the number of event types, 1 to {MOST_TYPES}")
        lists = {key: table.pop(key, []) for key in ("covariates", "static")}
        for key, value in lists.items():
            if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
                problems.append(f"{path}: {key} is {value!r}, expected a list of names of columns")
        if problems:
            raise DataError(problems)
        covariates, static = (tuple(value) for value in lists.values())
        return cls(name, origin, types=types, about=table, covariates=covariates, static=static, **texts)

    def to_toml(self) -> str:
        """Return the card as TOML text."""
        table: dict[str, object] = {"name": self.name, "origin": self.origin, "time_unit": self.time_unit}
        if self.types is not None:
            table["types"] = self.types
        table |= {key: text for key in ("time_format", "timezone", "start") if (text := getattr(self, key))}
        table |= {key: list(names) for key in ("covariates", "static") if (names := getattr(self, key))}
        table |= dict(self.about)
        try:
            return tomli_w.dumps(table)
        except (TypeError, ValueError) as error:
            expected = "expected text, numbers, booleans, dates, lists or tables"
            raise DataError(f"a card cannot hold this: {error}; {expected}") from None


SPLITS = ("train", "dev", "test")
GRIDS = (1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
ON_A_GRID = 0.99  # the share of times that must lie on a grid of the data


@dataclass(frozen=True)
class LoadReport:
    """Facts about a split's times; `lines()` returns them as sentences."""

    path: str
    sequences: int
    events: int
    ties: float  # the share of gaps between neighbouring events that are zero
    grid_shares: tuple[tuple[float, float], ...]  # (spacing of a grid, share of times on it), coarse to fine
    missing_ends: int  # the number of sequences whose t_end is the time of their last event
    attributes: tuple[str, ...] = ()  # names of the additional columns that were kept
    unused_columns: tuple[str, ...] = ()
    unknown_types: tuple[tuple[str, int], ...] = ()  # (type outside the given vocabulary, its number of events)
    unknown: str = "error"  # what was done with these events

    @property
    def grid(self) -> float | None:
        """The spacing of the coarsest grid with at least 99 % of the times, or None."""
        return next((spacing for spacing, share in self.grid_shares if share >= ON_A_GRID), None)

    @property
    def grid_share(self) -> float:
        """The share of times on `grid`; 0 if there is no grid."""
        return next((share for _, share in self.grid_shares if share >= ON_A_GRID), 0.0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that matter when scores are read, one sentence each."""
        said: list[str] = []
        if self.missing_ends:
            said.append(
                f"{self.missing_ends} of {self.sequences} sequences have no t_end; the time of their last event is "
                f"used, so the quiet after it is not scored"
            )
        if self.attributes:
            said.append(f"columns kept as attributes, used only if named as covariates: {', '.join(self.attributes)}")
        if self.unused_columns:
            said.append(f"columns not used (free text): {', '.join(self.unused_columns)}")
        if self.unknown_types:
            events = sum(count for _, count in self.unknown_types)
            fate = "left out" if self.unknown == "skip" else f"read as `{OTHER}`"
            names = listed((name for name, _ in self.unknown_types), most=5)
            size = f"{counted(events, 'event')} of {counted(len(self.unknown_types), 'type')}"
            said.append(f"{size} that training never saw ({names}) {'was' if events == 1 else 'were'} {fate}")
        return tuple(said)

    def lines(self) -> tuple[str, ...]:
        """Return the warnings, then the shares of ties and of times on a grid, if there are any."""
        said = list(self.warnings)
        if self.ties:
            said.append(f"{percent(self.ties)} of the gaps are zero (ties)")
        if self.grid is not None:
            said.append(f"{percent(self.grid_share)} of the times are {grid_name(self.grid)}")
        return tuple(said)


def percent(share: float) -> str:
    """Return a share as text in percent, which is 0 or 100 only if the share is exactly 0 or 1."""
    for digits in (0, 1, 2, 3):
        text = f"{100 * share:.{digits}f}"
        if share in (0.0, 1.0) or float(text) not in (0.0, 100.0):
            return f"{text} %"
    return f"{100 * share:g} %"


def grid_name(spacing: float) -> str:
    """Return the description of a grid: `whole units`, or `multiples of 0.01`."""
    return "whole units" if spacing == 1 else f"multiples of {spacing:g}"


@dataclass(frozen=True, eq=False, repr=False)
class EventData:
    """One split of a data set: sequences of events over one vocabulary.

    Args:
        sequences: the sequences.
        vocabulary: the event types that the sequences' integers stand for.
        origin: "window": sequences are observed from time 0 on. "first-event": the first event is at time 0, and is not scored.
        name: the name of the data in messages.
        report: the remarks of loading; default: computed from the sequences.
        clock: the unit of times and, if known, the time zone; default: the clock of the data that the sequences come from.
        frame: the kind of data frame that the events come from; default: as for `clock`.
        covariates: the columns that models use.

    Raises:
        DataError: an event is outside the vocabulary, or a sequence contradicts `origin`.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"], ["visit"]], [[0.5, 2.0], [1.0]], t_ends=[10.0, 5.0])
        >>> len(data), data.event_count, data[0].times.tolist()
        (2, 3, [0.5, 2.0])
    """

    sequences: Sequence[EventSequence]
    vocabulary: Vocabulary
    origin: Origin = "window"
    name: str = "data"
    report: LoadReport | None = field(default=None, repr=False)
    clock: Clock = NO_CLOCK
    frame: FrameOrigin = NO_ORIGIN  # the data frame that the events come from
    covariates: CovariateNames = NO_NAMES  # the columns that models use

    def __post_init__(self) -> None:
        if not isinstance(self.sequences, Columns):
            for name, value in source_of(self.sequences, self.clock, self.frame).items():
                object.__setattr__(self, name, value)
        columns = Columns.of(self.sequences)
        object.__setattr__(self, "sequences", columns)
        assert self.origin in ORIGINS, self.origin
        problems: list[str] = []
        if len(columns.types) and (top := int(columns.types.max())) >= len(self.vocabulary):
            problems.append(f"{self.name}: type {top} is outside the vocabulary of {len(self.vocabulary)} event types")
        if self.origin == "first-event":
            broken = not_from_zero(columns)
            problems += [f"{self.name}: sequence {columns.ids[place]!r}: {text}" for place, text in broken]
        if problems:
            raise DataError(problems)
        if self.report is None:
            object.__setattr__(self, "report", describe_load(columns, self.name))

    @classmethod
    def from_names(
        cls, events: Iterable[Sequence[str]], times: Iterable[Sequence[float]], *, t_ends: Sequence[float] | None = None
    ) -> EventData:
        """Make a split from lists of event names and times, one per sequence. Without `t_ends`, a sequence ends with its last event."""
        events, times = list(events), list(times)
        lists = not any(isinstance(one, str) for one in events)
        if not lists or not all(isinstance(one, Sequence | np.ndarray) for one in times):
            raise DataError(
                "from_names: expected lists of names and of times, one of each a sequence: [['a', 'b']], [[0.5, 2.0]]"
            )
        if [len(names) for names in events] != [len(when) for when in times]:
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
        """The flat arrays of all sequences."""
        assert isinstance(self.sequences, Columns)
        return self.sequences

    @property
    def event_count(self) -> int:
        """The number of events in all sequences."""
        return len(self.columns.times)

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of events of each sequence, int64 [sequences]."""
        return self.columns.lengths

    def gaps(self) -> np.ndarray:
        """Return the gaps between neighbouring events, all sequences in one float64 array."""
        return gaps_of(self.columns.times, self.columns.offsets)

    def type_counts(self) -> np.ndarray:
        """Return the number of events of each type, int64 [types]."""
        return counts_of_types(self.columns.types, len(self.vocabulary))

    def encoding(self) -> CovariateEncoding | None:
        """Fit the encoding of the covariates on these data; return None if there are no covariates."""
        table = self.columns.attribute_table
        return None if table is None or not self.covariates else CovariateEncoding.fit(self.covariates, table)

    def names_of(self, sequence: EventSequence) -> list[str]:
        """Return the type names of a sequence's events, in order."""
        return [self.vocabulary.names[kind] for kind in sequence.types.tolist()]

    def to_frame(self, kind: FrameKind | None = None) -> Any:
        """Return a data frame: one row per event, columns `sequence`, `time`, `event`, bounds, attributes. `kind`: see `FrameResult`."""
        return events_frame([(self.name, self)], kind)

    def _repr_html_(self) -> str:
        return html_table(events_as_arrow(self, self.clock.zone), repr(self))

    def select(self, indices: Iterable[int]) -> EventData:
        """Return a split with some of the sequences, in the order of `indices`."""
        return replace(self, sequences=self.columns.select(indices), report=None)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, index: int) -> EventSequence:
        return self.columns.sequence(index, SequenceSource(self.clock, self.frame))

    def __iter__(self) -> Iterator[EventSequence]:
        return self.columns.each(SequenceSource(self.clock, self.frame))


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set: up to three splits over one vocabulary.

    `load` and `from_frame` return a `Dataset`.

    Args:
        train: the split for training, or None.
        dev: the split for early stopping and for choosing settings, or None.
        test: the split for final scores, or None.
        vocabulary: the event types of all splits.
        card: name, time unit and other facts from `dataset.toml`.
        path: the folder or file of the data.

    Example:
        >>> data = ft.load("robocup")
        >>> {name: split.event_count for name, split in data.splits().items()}
        {'train': 2192, 'dev': 816, 'test': 778}
    """

    train: EventData | None
    dev: EventData | None
    test: EventData | None
    vocabulary: Vocabulary
    card: Card
    path: str = ""

    def __repr__(self) -> str:
        splits = ", ".join(map(repr, self.splits().values()))
        return f"Dataset({self.card.name!r}, {len(self.vocabulary)} types, {splits})"

    @property
    def clock(self) -> Clock:
        """The clock that all splits share."""
        return next((data.clock for data in self.splits().values()), Clock.of_unit(self.card.time_unit))

    def splits(self) -> dict[str, EventData]:
        """Return the existing splits by name, in the order train, dev, test."""
        found = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: data for name, data in found.items() if data is not None}

    def to_frame(self, kind: FrameKind | None = None) -> Any:
        """Return a data frame with one row per event of all splits, and a column `split` if there are several splits."""
        return events_frame(list(self.splits().items()), kind)

    def _repr_html_(self) -> str:
        return "".join(data._repr_html_() for data in self.splits().values())


def _normalised(name: str) -> str:
    try:
        return event_name(name)
    except NameProblem as problem:
        raise DataError(str(problem)) from None


def not_from_zero(columns: Columns) -> list[tuple[int, str]]:
    """Return the index of each sequence that contradicts `origin = "first-event"`, with a message."""
    lengths = columns.lengths
    first = np.full(len(columns), np.nan)
    first[lengths > 0] = columns.times[columns.offsets[:-1][lengths > 0]]
    promise = 'but origin = "first-event" promises a first event at time 0; use origin = "window"'
    broken: list[tuple[int, str]] = []
    for place in np.flatnonzero(first != 0).tolist():
        found = f"the first time is {float(first[place])!r}" if lengths[place] else "there is no event"
        broken.append((place, f"{found}, {promise}"))
    return broken


def describe_load(columns: Columns, path: str, **more: Any) -> LoadReport:
    """Return the `LoadReport` of checked columns; `more` has values for its other fields."""
    gaps = gaps_of(columns.times, columns.offsets)
    return LoadReport(
        path=path,
        sequences=len(columns),
        events=len(columns.times),
        ties=float(np.mean(gaps == 0)) if len(gaps) else 0.0,
        grid_shares=grid_shares(columns.times),
        missing_ends=0 if columns.ends_assumed is None else int(columns.ends_assumed.sum()),
        **more,
    )


def grid_shares(times: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Return (spacing, share of times on the grid) for each decimal grid that float64 can resolve at these times."""
    if not len(times):
        return ()
    shares: list[tuple[float, float]] = []
    rounding = 2 * np.spacing(times)
    for spacing in GRIDS:
        # at 1e10, every float64 is a multiple of about 1e-6, so such a fine grid means nothing
        if float(rounding.max()) * 50 > spacing:
            break
        steps = np.round(1 / spacing)
        shares.append((spacing, float(np.mean(np.abs(np.round(times * steps) / steps - times) <= rounding))))
    return tuple(shares)
