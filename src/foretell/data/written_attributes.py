"""Further columns of a table as files have them: one value per event, those of sequences repeated where a file has rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from foretell.data.clock import iso_texts
from foretell.data.columns import Attribute, Columns


def attribute_columns(columns: Columns, taken: Collection[str]) -> dict[str, Attribute]:
    """All further columns, one value per event, under names that are not `taken`."""
    rows = np.repeat(np.arange(len(columns)), columns.lengths)
    of_sequences = {name: one.take(rows) for name, one in columns.sequence_attributes.items()}
    free = free_names(columns.attributes, taken)
    return free | free_names(of_sequences, {*taken, *free})


def free_names(attributes: Mapping[str, Attribute], taken: Collection[str]) -> dict[str, Attribute]:
    """Columns by a name that nothing else has: one that is taken gets a `_`."""
    made: dict[str, Attribute] = {}
    for name, one in attributes.items():
        while name in taken or name in made:
            name = f"{name}_"
        made[name] = one
    return made


def plain_values(attribute: Attribute) -> list[object]:
    """Text and numbers as Python has them, dates as ISO 8601; None where there is no value."""
    values = attribute.values
    if attribute.categories is not None:
        return list(attribute.texts())
    if values.dtype.kind == "M":
        given = ~np.isnat(values)
        texts = iter(iso_texts(values[given].astype(np.int64)))
        return [next(texts) if one else None for one in given.tolist()]
    return [None if value != value else value for value in values.tolist()]


def cell_texts(attribute: Attribute) -> list[str]:
    """The values as cells of a text table; "" where there is none."""
    return ["" if value is None else str(value) for value in plain_values(attribute)]
