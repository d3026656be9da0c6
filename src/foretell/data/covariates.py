"""Covariates: attributes that the user has named, and their encoding with statistics of the training data.

In: names (`amount`, `channel:category`) and attributes. Out: `CovariateEncoding`, fitted once, stored with a model and applied to
any data. A number is standardised (NaN if it is missing). A category becomes a code: 0 if it is missing, 1 if it is rare or does
not occur in training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.data.attributes import Attribute, AttributeTable, as_texts
from foretell.errors import DataError, ForetellError

KINDS = ("number", "category")
MISSING, OTHERS = 0, 1  # codes of missing values, and of rare or unseen categories
FIRST = 2  # the code of the first category with its own vector
LEAST = 5  # a category with fewer values in training is rare
MOST = 1_000  # the largest number of categories with own vectors per column: the most frequent ones
FURTHEST = 100.0  # standardised numbers are clipped to ± this


@dataclass(frozen=True)
class CovariateNames:
    """The names of covariates of events, and of whole sequences (`static`). `NAME:category` and `NAME:number` set a column's kind."""

    events: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.events or self.static)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, without their kinds."""
        return tuple(split_kind(one)[0] for one in (*self.events, *self.static))

    def mistakes(self) -> list[str]:
        """Return a message for each name that is empty or occurs twice."""
        names = self.columns
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        found = [f"covariates: the column {name!r} is named twice" for name in twice]
        return found + (["covariates: a column without a name"] if "" in names else [])


NO_NAMES = CovariateNames()


def split_kind(text: str) -> tuple[str, str | None]:
    """Split `channel:category` into name and kind; the kind is None if the column's values determine it."""
    name, colon, kind = text.rpartition(":")
    return (name, kind) if colon and kind in KINDS else (text, None)


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, with its mean and standard deviation in training (1 if all values are equal)."""

    name: str
    mean: float
    scale: float

    @classmethod
    def fit(cls, name: str, values: np.ndarray) -> NumberColumn:
        """Fit to training values, at least one of which must not be missing."""
        known = values[np.isfinite(values)]
        scale = float(known.std())
        return cls(name, float(known.mean()), scale if scale > 0.0 and np.isfinite(scale) else 1.0)

    def standardised(self, values: np.ndarray) -> np.ndarray:
        """Return (values − mean) / standard deviation, clipped, as float64; NaN is missing."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.clip((values - self.mean) / self.scale, -FURTHEST, FURTHEST)
        return np.where(np.isfinite(values), found, np.nan)

    def encode(self, attribute: Attribute) -> np.ndarray:
        """Return the standardised values as float32."""
        return self.standardised(numbers_of(self.name, attribute)).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "number", "mean": self.mean, "scale": self.scale}


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories; `categories` are those with their own vectors."""

    name: str
    categories: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of codes."""
        return FIRST + len(self.categories)

    def encode(self, attribute: Attribute) -> np.ndarray:
        """Return int32 codes: 0 for missing, 1 for rare or unseen, from 2 on the categories."""
        place = {name: FIRST + number for number, name in enumerate(self.categories)}
        if attribute.categories is None:
            texts = as_texts(attribute)
            return np.array([MISSING if text is None else place.get(text, OTHERS) for text in texts], dtype=np.int32)
        codes = np.array([*(place.get(name, OTHERS) for name in attribute.categories), MISSING], dtype=np.int32)
        return codes[attribute.values]  # a missing value, -1, selects the last code

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "category", "categories": list(self.categories)}


ColumnEncoding = NumberColumn | CategoryColumn


def fit_column(text: str, attribute: Attribute) -> ColumnEncoding:
    """Fit the encoding of a column to training values; `text` is its name, optionally with `:category` or `:number`."""
    name, kind = split_kind(text)
    if attribute.values.dtype.kind == "M":
        raise DataError(f"covariate {name!r}: its values are dates, expected numbers or categories")
    if attribute.missing().all():
        raise DataError(f"covariate {name!r}: it has no value in the training data; leave it out")
    if kind == "category" or (kind is None and attribute.categories is not None):
        texts = [text for text in as_texts(attribute) if text is not None]
        names, counts = np.unique(np.array(texts, dtype=object), return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MOST]
        return CategoryColumn(name, tuple(sorted(str(names[place]) for place in order if counts[place] >= LEAST)))
    return NumberColumn.fit(name, numbers_of(name, attribute))


def numbers_of(name: str, attribute: Attribute) -> np.ndarray:
    """Return the values as float64; text is converted, and raises if some of it is no number."""
    if attribute.categories is None:
        return attribute.values.astype(np.float64)
    made = np.full(len(attribute.categories) + 1, np.nan)
    for place, text in enumerate(attribute.categories):
        try:
            made[place] = float(text)
        except ValueError:
            raise DataError(
                f"covariate {name!r}: {text!r} is not a number; expected numbers (or train with {name}:category)"
            ) from None
    return made[attribute.values]


def column_from_json(found: Any) -> ColumnEncoding:
    """The inverse of `to_json`; invalid input raises a `ValueError`."""
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise ValueError(f"a covariate is {str(found)[:80]!r}")
    if found.get("kind") == "category":
        names = found.get("categories")
        if not isinstance(names, list) or len(names) > MOST or not all(isinstance(one, str) for one in names):
            raise ValueError(f"the categories of covariate {found['name']!r} are no list of names")
        return CategoryColumn(found["name"], tuple(names))
    numbers = [found.get(key) for key in ("mean", "scale")]
    mean, scale = (float(one) if isinstance(one, int | float) else np.nan for one in numbers)
    if found.get("kind") != "number" or not (np.isfinite(mean) and 0.0 < scale < np.inf):
        raise ValueError(f"covariate {found['name']!r} is {str(found)[:80]}")
    return NumberColumn(found["name"], mean, scale)


@dataclass(frozen=True)
class EncodedColumns:
    """Encoded columns: numbers, float32 [rows, numbers], and codes of categories, int32 [rows, categories]."""

    numbers: np.ndarray
    codes: np.ndarray


@dataclass(frozen=True)
class CovariateEncoding:
    """The encodings of all columns, of events and of whole sequences."""

    events: tuple[ColumnEncoding, ...] = ()
    static: tuple[ColumnEncoding, ...] = ()

    @classmethod
    def fit(cls, names: CovariateNames, table: AttributeTable) -> CovariateEncoding:
        """Fit to training data; raise an error with all mistakes."""
        problems: list[str] = []
        made: list[list[ColumnEncoding]] = []
        for texts, columns in ((names.events, table.of_events), (names.static, table.of_sequences)):
            made.append([])
            for text in texts:
                try:
                    made[-1].append(fit_column(text, columns[split_kind(text)[0]]))
                except DataError as error:
                    problems += error.problems
        if problems:
            raise DataError(problems)
        return cls(tuple(made[0]), tuple(made[1]))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, of events and of sequences."""
        return tuple(one.name for one in (*self.events, *self.static))

    def encode(self, table: AttributeTable, rows: int, sequences: int) -> tuple[EncodedColumns, EncodedColumns]:
        """Encode the columns of a table's events and sequences; columns that the table lacks become missing values."""
        return encoded(self.events, table.of_events, rows), encoded(self.static, table.of_sequences, sequences)

    def absent(self, table: AttributeTable) -> list[str]:
        """Return the names of the columns that are missing in a table."""
        both = ((self.events, table.of_events), (self.static, table.of_sequences))
        return [one.name for columns, found in both for one in columns if one.name not in found]

    def to_json(self) -> dict[str, Any]:
        return {"events": [one.to_json() for one in self.events], "static": [one.to_json() for one in self.static]}

    @classmethod
    def from_json(cls, found: Any) -> CovariateEncoding:
        """The inverse of `to_json`; invalid input raises a `ValueError`."""
        if not isinstance(found, dict) or not all(isinstance(found.get(key), list) for key in ("events", "static")):
            raise ValueError(f"its covariates are {str(found)[:80]!r}")
        return cls(*(tuple(map(column_from_json, found[key])) for key in ("events", "static")))


def encoded(columns: Sequence[ColumnEncoding], found: Mapping[str, Attribute], rows: int) -> EncodedColumns:
    """Encode the columns of a table; columns that are not in the table become missing values."""
    numbers = [one for one in columns if isinstance(one, NumberColumn)]
    categories = [one for one in columns if isinstance(one, CategoryColumn)]
    floats = np.full((rows, len(numbers)), np.nan, dtype=np.float32)
    codes = np.full((rows, len(categories)), MISSING, dtype=np.int32)
    for target, group in ((floats, numbers), (codes, categories)):
        for place, one in enumerate(group):
            if one.name in found:
                target[:, place] = one.encode(found[one.name])
    return EncodedColumns(floats, codes)


def check_names(names: CovariateNames) -> None:
    """Raise an error if names are empty or occur twice."""
    wrong = names.mistakes()
    if wrong:
        raise ForetellError("\n".join(wrong))
