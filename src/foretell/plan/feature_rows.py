"""Facts of tables with features: their rows in the stack of vectors, and the numbers from which these vectors are computed.

These rows are no parameters. Before vectors are summed, each row is set to `W [1; x; missing]`, with one `W` for all facts of a
functor. So facts that training never met also have meaningful vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from foretell.data.covariates import NumberColumn
from foretell.lang.fact_table import FactTable, Numbers, numbers_of


@dataclass
class FeatureRows:
    """The facts of one functor that were met so far."""

    columns: tuple[NumberColumn, ...]
    numbers: Mapping[tuple[str, ...], Numbers]
    matrix: int  # the row of `W` in its stack
    stack: str
    rows: list[int] = field(default_factory=list)  # the row of each fact in the stack of vectors
    args: list[tuple[str, ...]] = field(default_factory=list)  # the arguments of each fact
    inputs: list[np.ndarray] = field(default_factory=list)  # the input vector of each fact: float64 [1 + 2·columns]
    met: set[tuple[str, ...]] = field(default_factory=set)

    def meet(self, row: int, args: tuple[str, ...]) -> None:
        """Register a fact and its numbers on first use. A saved model may register a fact's name before the fact's numbers are known."""
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
    """Return the inputs `[1; x; missing]` of values [..., columns] as float64; NaN means missing."""
    x = [one.standardised(values[..., place]) for place, one in enumerate(columns)]
    return with_missing(np.stack(x, axis=-1))


def with_missing(x: np.ndarray) -> np.ndarray:
    """Return `[1; x; missing]` for standardised numbers [..., columns]."""
    gone = np.isnan(x)
    return np.concatenate([np.ones((*x.shape[:-1], 1)), np.where(gone, 0.0, x), gone], axis=-1)


def fit_tables(tables: Iterable[FactTable]) -> dict[str, tuple[NumberColumn, ...]]:
    """Return the scales of the columns of every functor with features, computed from all its rows."""
    tables = list(tables)
    names = {one.functor: one.features for one in tables if one.features}
    found: dict[str, tuple[NumberColumn, ...]] = {}
    for functor, rows in numbers_of(tables).items():
        values = np.array([[np.nan if one is None else one for one in row] for row in rows.values()])
        values = values.reshape(-1, len(names[functor]))
        known = np.isfinite(values).any(axis=0)  # a table without rows has no finite numbers
        found[functor] = tuple(
            NumberColumn.fit(name, values[:, place]) if bool(np.take(known, place)) else NumberColumn(name, 0.0, 1.0)
            for place, name in enumerate(names[functor])
        )
    return found
