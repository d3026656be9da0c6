"""Additional columns of a table: `Attribute` is one column, `SequenceAttributes` the attributes of one sequence.

A sequence does not copy its attributes: it refers to the `AttributeTable` of the data that it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Attribute:
    """An additional column of a table: numbers, times, or categories as codes.

    `values` are float64 (NaN is missing), int64, datetime64[ns] (NaT is missing) or, with `categories`, int32 codes
    (-1 is missing).
    """

    values: np.ndarray
    categories: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, places: np.ndarray | slice | None) -> Attribute:
        """Return some of the values, by index, mask or slice; None: all."""
        return self if places is None else Attribute(self.values[places], self.categories)

    def texts(self) -> list[str | None]:
        """Return the values of a column with categories as text; None is missing."""
        assert self.categories is not None, "numbers have no text"
        return [None if code < 0 else self.categories[code] for code in self.values.tolist()]

    def missing(self) -> np.ndarray:
        """Return bool [rows]: True for missing values."""
        if self.categories is not None:
            return self.values < 0
        if self.values.dtype.kind == "M":
            return np.isnat(self.values)
        return ~np.isfinite(self.values)


@dataclass(frozen=True, eq=False)
class AttributeTable:
    """The attributes of many sequences: columns with one value per event, and columns with one value per sequence."""

    of_events: Mapping[str, Attribute]
    of_sequences: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True, eq=False)
class SequenceAttributes:
    """The attributes of one sequence in a table: its events' values begin in row `row`, its own values are in row `place`."""

    table: AttributeTable
    row: int
    place: int

    def of_events(self, name: str, count: int) -> Attribute | None:
        """Return the values of the first `count` events; None if there is no such column."""
        found = self.table.of_events.get(name)
        return None if found is None else found.take(slice(self.row, self.row + count))

    def of_sequence(self, name: str) -> Attribute | None:
        """Return the sequence's own value, as an attribute of length 1; None if there is no such column."""
        found = self.table.of_sequences.get(name)
        return None if found is None else found.take(slice(self.place, self.place + 1))

    def keep(self, kept: np.ndarray) -> SequenceAttributes:
        """Return the attributes of some events; `kept` has their positions, or is bool per event."""
        rows = self.row + (np.flatnonzero(kept) if kept.dtype == np.bool_ else kept)
        events = {name: one.take(rows) for name, one in self.table.of_events.items()}
        return SequenceAttributes(AttributeTable(events, self.table.of_sequences), 0, self.place)


def joined_tables(parts: Sequence[SequenceAttributes | None], lengths: Sequence[int]) -> AttributeTable:
    """Join the attributes of sequences from different tables into one table; absent columns become missing values."""
    tables = {id(one.table): one.table for one in parts if one is not None}
    of_events = dict.fromkeys(name for table in tables.values() for name in table.of_events)
    of_sequences = dict.fromkeys(name for table in tables.values() for name in table.of_sequences)
    pairs = list(zip(parts, lengths, strict=True))
    return AttributeTable(
        {name: joined([None if p is None else p.of_events(name, n) for p, n in pairs], lengths) for name in of_events},
        {name: joined([None if p is None else p.of_sequence(name) for p in parts], [1] * len(parts)) for name in of_sequences},
    )  # fmt: skip


def joined(parts: Sequence[Attribute | None], lengths: Sequence[int]) -> Attribute:
    """Concatenate columns; None stands for missing values, as many as its length. If only some columns are text, all become text."""
    given = [part for part in parts if part is not None]
    if len(parts) == len(given) == 1:
        return given[0]
    kinds = {"text" if one.categories is not None else one.values.dtype.kind for one in given}
    if kinds <= {"f", "i", "u"}:
        whole = "f" not in kinds and len(given) == len(parts)
        pieces = [np.full(n, np.nan) if one is None else one.values for one, n in zip(parts, lengths, strict=True)]
        return Attribute(np.concatenate(pieces).astype(np.int64 if whole else np.float64))
    alike = {one.categories for one in given}
    if kinds == {"M"} or (kinds == {"text"} and len(alike) == 1):
        nothing = np.datetime64("NaT", "ns") if kinds == {"M"} else np.int32(-1)
        pieces = [np.full(n, nothing) if one is None else one.values for one, n in zip(parts, lengths, strict=True)]
        return Attribute(np.concatenate(pieces), given[0].categories)
    places: dict[str, int] = {}
    codes = []
    for one, n in zip(parts, lengths, strict=True):
        texts = [None] * n if one is None else as_texts(one)
        codes += [-1 if text is None else places.setdefault(text, len(places)) for text in texts]
    return Attribute(np.array(codes, dtype=np.int32), tuple(places))


def as_texts(attribute: Attribute) -> list[str | None]:
    """Return the values of any column as text; whole numbers have no decimal point, and None is missing."""
    if attribute.categories is not None:
        return attribute.texts()
    gone = attribute.missing().tolist()
    if attribute.values.dtype.kind == "f":
        return [None if no else f"{value:.15g}" for value, no in zip(attribute.values.tolist(), gone, strict=True)]
    texts = attribute.values.astype(str).tolist()
    return [None if no else text for text, no in zip(texts, gone, strict=True)]
