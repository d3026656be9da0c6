"""Features in embeddings: numbers of facts in a table with `features(…)`, and of past events, `:- features(buy, amount).`

Both enter as `W [1; x_1; …; x_n; m_1; …; m_n]`, where `x` is in standard deviations from the mean, limited to ±100. If a number is
missing, `x` is 0 and `m` is 1; otherwise `m` is 0. All facts of such a table share `deduce.features(FUNCTOR).W`, and have no vectors of
their own. For a past event, the product with `add.features(FUNCTOR).W` is added to the event's embedding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from foretell.lang.program import Program
from foretell.reference.database import Fact

FURTHEST = 100.0
Scale = tuple[float, float]  # mean and standard deviation


class EventWithNumbers(NamedTuple):
    """An event of the data with the numbers of its columns; columns that are left out are missing."""

    name: str
    numbers: Mapping[str, float | None]


Given = str | EventWithNumbers


def name_of(event: Given) -> str:
    return event if isinstance(event, str) else event.name


def facts_and_numbers(program: Program, events: Sequence[Given]) -> list[tuple[Fact, Mapping[str, float | None]]]:
    found: list[tuple[Fact, Mapping[str, float | None]]] = []
    for event in events:
        functor, args = program.split(name_of(event))
        found.append(((functor, *args), {} if isinstance(event, str) else event.numbers))
    return found


def column(numbers: Sequence[float | None], scales: Sequence[Scale]) -> Tensor:
    """Return `[1; x_1; …; x_n; m_1; …; m_n]`."""
    x = [0.0 if one is None else standardised(one, scale) for one, scale in zip(numbers, scales, strict=True)]
    return torch.tensor([1.0, *x, *(float(one is None) for one in numbers)], dtype=torch.float64)


def standardised(number: float, scale: Scale) -> float:
    mean, deviation = scale
    return max(-FURTHEST, min(FURTHEST, (number - mean) / deviation))


def rows_with_numbers(program: Program) -> dict[Fact, tuple[float | None, ...]]:
    """Return the numbers of all facts in tables with features."""
    return {
        (table.functor, *row): numbers
        for table in program.tables
        if table.features
        for row, numbers in zip(table.rows, table.numbers, strict=True)
    }


def scales_of_tables(program: Program) -> dict[str, list[Scale]]:
    """Return the scales of every functor with features, from the numbers in its rows; a deviation of 0 is replaced by 1."""
    found: dict[str, list[list[float | None]]] = {}
    for fact, numbers in rows_with_numbers(program).items():
        columns = found.setdefault(fact[0], [[] for _ in numbers])
        for one, number in zip(columns, numbers, strict=True):
            one.append(number)
    return {functor: [scale_of(one) for one in columns] for functor, columns in found.items()}


def scale_of(numbers: Sequence[float | None]) -> Scale:
    known = [one for one in numbers if one is not None]
    mean = math.fsum(known) / len(known)
    deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in known) / len(known))
    return mean, deviation if deviation > 0.0 else 1.0


def feature_shapes(program: Program, dims: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the shapes of all matrices of features; `dims` are the dimensions of functors."""
    shapes: dict[str, tuple[int, int]] = {}
    for functor, scales in scales_of_tables(program).items():
        shapes[f"deduce.features({functor}).W"] = dims[functor], 1 + 2 * len(scales)
    for functor, columns in program.features.items():
        shapes[f"add.features({functor}).W"] = dims[functor], 1 + 2 * len(columns)
    return shapes


class Numbers(NamedTuple):
    """The features of one sequence's facts and events."""

    of_facts: Mapping[Fact, Tensor]  # columns `[1; x; m]` of facts in tables
    of_events: Sequence[Mapping[str, Tensor]]  # for bos and each event: columns `[1; x; m]` by functor

    def of_fact(self, fact: Fact, parameters: Mapping[str, Tensor]) -> Tensor:
        return parameters[f"deduce.features({fact[0]}).W"] @ self.of_facts[fact]

    def of_event(self, functor: str, index: int, parameters: Mapping[str, Tensor]) -> Tensor | float:
        """Return the term that is added to the embedding of a past event; 0 for a functor without features."""
        found = self.of_events[index].get(functor)
        return 0.0 if found is None else parameters[f"add.features({functor}).W"] @ found


def numbers_of(program: Program, scales: Mapping[str, Scale], events: Sequence[Mapping[str, float | None]]) -> Numbers:
    """Return the features of one sequence; `scales` are those of events' columns, and other columns are not standardised."""
    of_tables = scales_of_tables(program)
    facts = {fact: column(numbers, of_tables[fact[0]]) for fact, numbers in rows_with_numbers(program).items()}
    of_events = [
        {
            functor: column([given.get(name) for name in columns], [scales.get(name, (0.0, 1.0)) for name in columns])
            for functor, columns in program.features.items()
        }
        for given in events
    ]
    return Numbers(facts, of_events)
