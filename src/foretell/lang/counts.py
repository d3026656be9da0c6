"""Counts the parameters of a program: per rule, and in total."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod

from foretell.lang.fact_table import FactTable, inputs
from foretell.lang.program import Functor, NumberedRule, RuleShapes, dimension, pattern_of, shapes_of


@dataclass(frozen=True)
class RuleCount:
    rule: NumberedRule
    shapes: RuleShapes
    parameters: int  # of matrices in all layers, for one binding of the name's variables, and of the exponent
    shared_with: str | None  # the earlier rule that has the same matrices; None: there is none


@dataclass(frozen=True)
class Counts:
    rules: tuple[RuleCount, ...]
    tables: int  # numbers in the vectors of table rows and in the matrices of features
    intensities: int
    total: int  # counts each shared matrix once, and `:: post(C)` for one value of C
    per_value: bool  # whether there are groups such as `:: post(C)`, so the total grows with their values


def count_parameters(
    rules: Iterable[NumberedRule],
    tables: Collection[FactTable],
    functors: Mapping[str, Functor],
    features: Mapping[str, tuple[str, ...]],
    *,
    dim: int,
    layers: int,
    time_dim: int | None = None,
) -> Counts:
    time_dim = dim if time_dim is None else time_dim
    owner: dict[object, str] = {}
    counts: list[RuleCount] = []
    total = 0
    for one in rules:
        shapes = shapes_of(one, functors, dim, time_dim)
        matrices = sum(map(prod, shapes.matrices.values())) * (layers if shapes.stem == "add" else 1)
        shared = owner.setdefault((shapes.stem, pattern_of(shapes.name)), one.name) if shapes.matrices else one.name
        exponent = 0 if shapes.beta is None else 1
        total += (matrices if shared == one.name else 0) + (
            exponent and owner.setdefault(("beta", pattern_of(shapes.beta or shapes.name)), one.name) == one.name
        )
        counts.append(RuleCount(one, shapes, matrices + exponent, None if shared == one.name else shared))
    rows = sum(
        dimension(functors, table.functor, dim)
        * sum(("deduce", (table.functor, *row)) not in owner for row in table.rows)
        for table in tables
        if not table.features
    )
    columns = {f"deduce {one.functor}": (one.functor, one.features) for one in tables if one.features}
    columns |= {f"add {name}": (name, some) for name, some in features.items()}
    rows += sum(dimension(functors, name, dim) * inputs(len(some)) for name, some in columns.values())
    events = sum(2 + dimension(functors, name, dim) for name, one in functors.items() if one.kind == "event")
    per_value = any(count.shapes.groups for count in counts)
    return Counts(tuple(counts), rows, events, total + rows + events, per_value)
