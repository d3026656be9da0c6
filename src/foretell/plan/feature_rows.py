"""Facts of tables with features: which rows of the stack of vectors they have, and the numbers that make their vectors.

These rows are no parameters. `W [1; x; missing]` is put there before vectors are summed, with one `W` for all facts of a functor, so that
a fact that training never met has a vector as good as any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from foretell.data.covariates import NumberColumn
from foretell.lang.fact_table import FactTable, Numbers, numbers_of


@dataclass
class FeatureRows:
    """Facts of one functor, as far as they were met."""

    columns: tuple[NumberColumn, ...]
    numbers: Mapping[tuple[str, ...], Numbers]
    matrix: int  # the row of `W` in its stack
    stack: str
    rows: list[int] = field(default_factory=list)  # in the stack of vectors
    args: list[tuple[str, ...]] = field(default_factory=list)  # of each fact
    inputs: list[np.ndarray] = field(default_factory=list)  # float64 [1 + 2·columns] of each
    met: set[tuple[str, ...]] = field(default_factory=set)

    def meet(self, row: int, args: tuple[str, ...]) -> None:
        """Whether the name of a fact is new says nothing: those of a saved model are met before their numbers."""
        if args in self.met:
            return
        self.met.add(args)
        self.rows.append(row)
        self.args.append(args)
        self.inputs.append(self._inputs(args))

    def recount(self, columns: tuple[NumberColumn, ...]) -> None:
        self.columns = columns
        self.inputs = [self._inputs(args) for args in self.args]

    def _inputs(self, args: tuple[str, ...]) -> np.ndarray:
        values = np.array([np.nan if one is None else one for one in self.numbers[args]])
        return feature_inputs(self.columns, values)


def feature_inputs(columns: Iterable[NumberColumn], values: np.ndarray) -> np.ndarray:
    """Values [..., columns], NaN where missing → `[1; x; missing]`, float64."""
    x = [one.standardised(values[..., place]) for place, one in enumerate(columns)]
    return with_missing(np.stack(x, axis=-1))


def with_missing(x: np.ndarray) -> np.ndarray:
    """Standardised numbers [..., columns] → `[1; x; missing]`."""
    gone = np.isnan(x)
    return np.concatenate([np.ones((*x.shape[:-1], 1)), np.where(gone, 0.0, x), gone], axis=-1)


def fit_tables(tables: Iterable[FactTable]) -> dict[str, tuple[NumberColumn, ...]]:
    """How the columns of every functor with features count, from all its rows."""
    tables = list(tables)
    names = {one.functor: one.features for one in tables if one.features}
    found: dict[str, tuple[NumberColumn, ...]] = {}
    for functor, rows in numbers_of(tables).items():
        values = np.array([[np.nan if one is None else one for one in row] for row in rows.values()])
        values = values.reshape(-1, len(names[functor]))
        known = np.isfinite(values).any(axis=0)  # a table without rows has no numbers at all
        found[functor] = tuple(
            NumberColumn.fit(name, values[:, place]) if bool(np.take(known, place)) else NumberColumn(name, 0.0, 1.0)
            for place, name in enumerate(names[functor])
        )
    return found
