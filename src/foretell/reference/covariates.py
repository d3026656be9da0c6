"""What covariates add to a model's vectors, column by column: values in, sums of named arrays out.

A number is counted in standard deviations from the mean. Columns of an event enter its own vector; those of a sequence enter the vectors of
all its events, `bos` included, and what is known at every query.
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
    columns: Mapping[str, tuple[float, float] | tuple[str, ...]]  # mean and standard deviation, or the known categories
    static: Mapping[str, Value]  # the sequence's own values

    def of_event(self, event: Event) -> Tensor:
        """Added to an event's vector."""
        found = self.of_sequence("static.event")
        for name, value in event.covariates:
            found = found + self.of_value(f"covariate.{name}", self.columns[name], value)
        return found

    def of_query(self) -> Tensor:
        """Added to what is known at a time."""
        return self.of_sequence("static.query")

    def of_sequence(self, prefix: str) -> Tensor:
        found = torch.zeros(self.dim, dtype=torch.float64)
        for name, value in self.static.items():
            found = found + self.of_value(f"{prefix}.{name}", self.columns[name], value)
        return found

    def of_value(self, name: str, column: tuple[float, float] | tuple[str, ...], value: Value) -> Tensor:
        """`x·w` of a number, a vector of a category, of all that are not known, or of what is missing."""
        if value is None:
            return self.arrays[f"{name}.missing"]
        if isinstance(value, str):
            return self.arrays[f"{name}.is.{value}" if value in column else f"{name}.other"]
        mean, deviation = (float(one) for one in column)
        return (value - mean) / deviation * self.arrays[f"{name}.w"]


def with_event(
    vector: Tensor, covariates: SlowCovariates | None, event: Event, calendar: SlowCalendar | None = None
) -> Tensor:
    """An event's vector, with what its covariates, its sequence's and the calendar add."""
    vector = vector if covariates is None else vector + covariates.of_event(event)
    return vector if calendar is None else vector + calendar.of_event(event)


def with_query(
    vector: Tensor, covariates: SlowCovariates | None, time: float = 0.0, calendar: SlowCalendar | None = None
) -> Tensor:
    """The state at a time, with the terms of its sequence's covariates and of the calendar."""
    vector = vector if covariates is None else vector + covariates.of_query()
    return vector if calendar is None else vector + calendar.of_query(time)
