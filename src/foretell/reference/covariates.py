"""The terms that covariates add to a model's vectors, column by column: values in, sums of named arrays out.

A number is in standard deviations from the mean. Covariates of an event are added to its own vector. Those of a sequence are added to the
vectors of all its events, `bos` included, and to the state at every query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.reference.calendar import SlowCalendar
from foretell.reference.events import Event, Value


@dataclass(frozen=True)
class SlowCovariates:
    arrays: Mapping[str, Tensor]
    dim: int
    columns: Mapping[
        str, tuple[float, float] | tuple[str, ...]
    ]  # mean and standard deviation of numbers, or the known categories
    static: Mapping[str, Value]  # the sequence's own values

    def of_event(self, event: Event) -> Tensor:
        """Return the term that is added to an event's vector."""
        found = self.of_sequence("static.event")
        for name, value in event.covariates:
            found = found + self.of_value(f"covariate.{name}", self.columns[name], value)
        return found

    def of_query(self) -> Tensor:
        """Return the term that is added to the state at a query."""
        return self.of_sequence("static.query")

    def of_sequence(self, prefix: str) -> Tensor:
        found = torch.zeros(self.dim, dtype=torch.float64)
        for name, value in self.static.items():
            found = found + self.of_value(f"{prefix}.{name}", self.columns[name], value)
        return found

    def of_value(self, name: str, column: tuple[float, float] | tuple[str, ...], value: Value) -> Tensor:
        """Return `x·w` for a number, the vector of a known category, or the vector for unknown categories or missing values."""
        if value is None:
            return self.arrays[f"{name}.missing"]
        if isinstance(value, str):
            return self.arrays[f"{name}.is.{value}" if value in column else f"{name}.other"]
        mean, deviation = (float(one) for one in column)
        return (value - mean) / deviation * self.arrays[f"{name}.w"]


def with_event(
    vector: Tensor, covariates: SlowCovariates | None, event: Event, calendar: SlowCalendar | None = None
) -> Tensor:
    """Return an event's vector plus the terms of its covariates, of its sequence's and of the calendar."""
    vector = vector if covariates is None else vector + covariates.of_event(event)
    return vector if calendar is None else vector + calendar.of_event(event)


def with_query(
    vector: Tensor, covariates: SlowCovariates | None, time: float = 0.0, calendar: SlowCalendar | None = None
) -> Tensor:
    """Return the state at a time plus the terms of the sequence's covariates and of the calendar."""
    vector = vector if covariates is None else vector + covariates.of_query()
    return vector if calendar is None else vector + calendar.of_query(time)
