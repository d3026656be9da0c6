"""Means and standard deviations of the columns of facts and events, to and from files of parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foretell.data.covariates import NumberColumn
from foretell.errors import ForetellError
from foretell.models.rules.rule_network import RuleNetwork

EXPECTED = 'expected {"events": {COLUMN: [mean, deviation]}, "tables": {FUNCTOR: {COLUMN: [mean, deviation]}}}'


@dataclass(frozen=True)
class NumberScales:
    """The scales of the columns of facts in tables and of events."""

    network: RuleNetwork

    def to_json(self) -> dict[str, Any]:
        """Return the scales as JSON; empty if the program has no features."""
        tables, events = self.network.book.columns, self.network.features.columns
        if not tables and not events:
            return {}
        return {"events": _shown(events), "tables": {functor: _shown(some) for functor, some in tables.items()}}

    def load(self, found: Any, source: str) -> None:
        """Set the scales from the JSON of a model with the same program."""
        book, features = self.network.book, self.network.features
        wrong = ForetellError(f'{source}: "features" is {str(found)[:80]}: {EXPECTED} with the columns of the program')
        if (
            not isinstance(found, dict)
            or not isinstance(found.get("tables"), dict)
            or set(found["tables"]) != set(book.columns)
        ):
            raise wrong
        try:
            events = _columns(features.columns, found.get("events"))
            tables = {functor: _columns(some, found["tables"][functor]) for functor, some in book.columns.items()}
        except (TypeError, ValueError):
            raise wrong from None
        features.encoder.use(events)
        book.use_columns(tables)
        self.network.forget_inputs()


def _shown(columns: Sequence[NumberColumn]) -> dict[str, list[float]]:
    return {one.name: [one.mean, one.scale] for one in columns}


def _columns(known: Sequence[NumberColumn], found: Any) -> tuple[NumberColumn, ...]:
    if not isinstance(found, dict) or set(found) != {one.name for one in known}:
        raise ValueError
    made = tuple(NumberColumn(one.name, *map(float, found[one.name])) for one in known)
    if not all(math.isfinite(one.mean) and 0.0 < one.scale < math.inf for one in made):
        raise ValueError
    return made
