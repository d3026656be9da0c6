"""Average effects and permutation importance of covariates, with intervals, from a model with covariates and held-out data.

The *importance* of a column is the log-likelihood per event that is lost if its values are shuffled among all events (or sequences),
averaged over some shuffles. The *effect* is the mean change of the log of the total intensity at the events' times if a number is one
standard deviation higher everywhere, or if all events have one category, compared with the observed values. Intervals resample sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foretell.data import EventData
from foretell.data.attributes import Attribute
from foretell.data.covariates import CategoryColumn, ColumnEncoding, NumberColumn
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate, Ratio, estimates, resample_sequences
from foretell.evaluate.likelihood import EventScores, score_events
from foretell.models.base import IntensityModel
from foretell.train.likelihood_task import scored_alike

SHUFFLES = 5
MOST_CATEGORIES = 5  # effects are reported for this number of most frequent categories of a column
POINTS = 5  # draws per gap, the same for every changed column


@dataclass(frozen=True)
class CovariateEffect:
    """The importance and effects of one covariate of a model."""

    column: str
    static: bool
    importance: Estimate  # nats per event that are lost without it
    effects: tuple[tuple[str, Estimate], ...]  # by the change: "+1 sd", or a category

    def to_json(self) -> dict[str, Any]:
        """Return the values as JSON."""
        effects = [{"change": name, **_plain(one)} for name, one in self.effects]
        return {"column": self.column, "static": self.static, "importance": _plain(self.importance), "effects": effects}


def covariate_effects(
    model: IntensityModel,
    data: EventData,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[CovariateEffect]:
    """Compute the importance and the effects of every column that the model uses and the data have; the most important comes first.

    Args:
        model: a model that was trained with covariates.
        data: held-out data with the same columns.
        seed: the seed of the shuffles.
        progress: called with the number of columns done and their total.
    """
    if model.collator.covariates is None:
        raise ForetellError(f"{model.title} was trained without covariates: there are no effects to tell")
    data, encoding = scored_alike(data, model), model.collator.covariates.encoding
    columns = data.columns
    there = [
        (column, static)
        for static, columns_of, named in (
            (False, encoding.events, columns.attributes),
            (True, encoding.static, columns.sequence_attributes),
        )
        for column in columns_of
        if column.name in named
    ]
    if not there:
        raise ForetellError(f"{data.name}: it has none of the columns {', '.join(encoding.names)}")
    question = _Question(model, data, score_events(model, data, integral="stratified", points=POINTS), seed)
    found = []
    for number, (column, static) in enumerate(there):
        found.append(question.effect(column, static))
        if progress is not None:
            progress(number + 1, len(there))
    return sorted(found, key=lambda one: -one.importance.value)


@dataclass(frozen=True)
class _Question:
    model: IntensityModel
    data: EventData
    base: EventScores
    seed: int

    def effect(self, column: ColumnEncoding, static: bool) -> CovariateEffect:
        columns = self.data.columns
        values = (columns.sequence_attributes if static else columns.attributes)[column.name]
        random = np.random.default_rng(self.seed)
        lost = np.zeros(len(columns))
        for _ in range(SHUFFLES):
            shuffled = self._scores(column.name, values.take(random.permutation(len(values))), static)
            lost += (self.base.log_likelihoods - shuffled.log_likelihoods) / SHUFFLES
        importance = self._mean(lost, self.base.scored.astype(np.float64))
        effects = tuple((name, self._moved(column.name, one, static)) for name, one in _changes(column, values))
        return CovariateEffect(column.name, static, importance, effects)

    def _scores(self, name: str, values: Attribute, static: bool) -> EventScores:
        field = "sequence_attributes" if static else "attributes"
        columns = self.data.columns
        table = {**getattr(columns, field), name: values}
        changed = replace(self.data, sequences=replace(columns, **{field: table}))
        return score_events(self.model, changed, integral="stratified", points=POINTS)

    def _moved(self, name: str, values: Attribute, static: bool) -> Estimate:
        """Return the mean change of log λ. For columns of events, the first event of each sequence is left out: they cannot affect it."""
        counts = self.base.event >= (0 if static else 1)
        change = (self._scores(name, values, static).log_total - self.base.log_total)[counts]
        sequence, size = self.base.sequence[counts], len(self.data)
        return self._mean(
            np.bincount(sequence, weights=change, minlength=size),
            np.bincount(sequence, minlength=size).astype(np.float64),
        )

    def _mean(self, sums: np.ndarray, counts: np.ndarray) -> Estimate:
        return estimates([Ratio(sums, counts)], resample_sequences(len(sums), self.seed))[0]


def _changes(column: ColumnEncoding, values: Attribute) -> list[tuple[str, Attribute]]:
    """Return the changes to make to a column: pairs of a name and the changed values."""
    if isinstance(column, NumberColumn):
        return [("+1 sd", Attribute(values.values.astype(np.float64) + column.scale))]
    assert isinstance(column, CategoryColumn)
    if values.categories is None:
        return []
    counts = np.bincount(values.values[values.values >= 0], minlength=len(values.categories))
    frequent = np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]
    return [
        (values.categories[code], Attribute(np.full_like(values.values, code), values.categories))
        for code in frequent.tolist()
        if counts[code] and values.categories[code] in column.categories
    ]


def _plain(one: Estimate) -> dict[str, float]:
    return {"value": one.value, "low": one.low, "high": one.high}
