"""Attributes as they are written to files: one value per event; values of sequences are repeated for each event."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from foretell.data.clock import iso_texts
from foretell.data.columns import Attribute, Columns


def attribute_columns(columns: Columns, taken: Collection[str]) -> dict[str, Attribute]:
    """Return all attributes with one value per event, with names that are not in `taken`."""
    rows = np.repeat(np.arange(len(columns)), columns.lengths)
    of_sequences = {name: one.take(rows) for name, one in columns.sequence_attributes.items()}
    free = free_names(columns.attributes, taken)
    return free | free_names(of_sequences, {*taken, *free})


def free_names(attributes: Mapping[str, Attribute], taken: Collection[str]) -> dict[str, Attribute]:
    """Return the attributes by unique names: a name in `taken` gets a `_`."""
    made: dict[str, Attribute] = {}
    for name, one in attributes.items():
        while name in taken or name in made:
            name = f"{name}_"
        made[name] = one
    return made


def plain_values(attribute: Attribute) -> list[object]:
    """Return the values as Python text and numbers, dates as ISO 8601 text; None is missing."""
    values = attribute.values
    if attribute.categories is not None:
        return list(attribute.texts())
    if values.dtype.kind == "M":
        given = ~np.isnat(values)
        texts = iter(iso_texts(values[given].astype(np.int64)))
        return [next(texts) if one else None for one in given.tolist()]
    return [None if value != value else value for value in values.tolist()]


def cell_texts(attribute: Attribute) -> list[str]:
    """Return the values as text cells; "" is missing."""
    return ["" if value is None else str(value) for value in plain_values(attribute)]
