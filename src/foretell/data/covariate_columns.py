"""Find named covariates in columns and in keys of JSON lines, and store them as attributes of events or of sequences.

A column of a table has one value per row. A static covariate must have one value per sequence, and becomes an attribute of sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from foretell.data.attributes import Attribute
from foretell.data.columns import Columns
from foretell.data.covariates import CovariateNames, split_kind
from foretell.errors import DataError
from foretell.wording import counted, did_you_mean, listed


def with_covariates(
    columns: Columns, names: CovariateNames, unused: Sequence[str], tell: Callable[[str], None], *, trained: bool
) -> Columns:
    """Return the columns with all named covariates as attributes. If `trained`, absent covariates only cause a message.

    Raises:
        DataError: covariates are absent, or have the wrong kind; the message lists all of them.
    """
    events, sequences = dict(columns.attributes), dict(columns.sequence_attributes)
    problems: list[str] = []
    absent: list[str] = []
    for option, texts in (("covariates", names.events), ("static", names.static)):
        for name in (split_kind(text)[0] for text in texts):
            if name not in events and name not in sequences:
                _from_metadata(name, columns, events, sequences, problems)
            if option == "static" and name not in sequences and name in events:
                try:
                    sequences[name] = _settled(name, events[name], columns, tell)
                    del events[name]
                except DataError as error:
                    problems += error.problems
            elif name not in (events if option == "covariates" else sequences):
                if trained and name not in sequences:
                    absent.append(name)
                else:
                    problems.append(without_column(name, option, list(events), list(sequences), unused))
    if problems:
        raise DataError(problems)
    if absent:
        many = "columns that the model knows are" if len(absent) > 1 else "a column that the model knows is"
        tell(f"{many} not here, and all values are taken as missing: {', '.join(absent)}")
    return replace(columns, attributes=events, sequence_attributes=sequences)


def _settled(name: str, attribute: Attribute, columns: Columns, tell: Callable[[str], None]) -> Attribute:
    found, late = per_sequence(name, attribute, columns.offsets, columns.ids)
    if late:
        several = f"{counted(late, 'sequence')} of {len(columns)}"
        tell(f"{name}: in {several} only a later event has it, but as a static covariate it is known from the start")
    return found


def _from_metadata(
    name: str,
    columns: Columns,
    events: dict[str, Attribute],
    sequences: dict[str, Attribute],
    problems: list[str],
) -> None:
    """Add a key of JSON lines as an attribute: a list with one value per event, or one value per sequence."""
    values = [one.get(name) for one in columns.metadata]
    if all(value is None for value in values):
        return
    if not any(isinstance(value, list | tuple) for value in values):
        sequences[name] = attribute_of(values)
        return
    cells: list[object] = []
    for place, (value, length) in enumerate(zip(values, columns.lengths.tolist(), strict=True)):
        own = list(value) if isinstance(value, list | tuple) else [None] * length
        if len(own) != length or (value is not None and not isinstance(value, list | tuple)):
            found = f"{len(own)} values" if isinstance(value, list | tuple) else "one value"
            problems.append(
                f"sequence {columns.ids[place]!r}: `{name}` has {found} and there are {length} events: "
                "expected a list with one for each event"
            )
            own = [None] * length
        cells += own
    events[name] = attribute_of(cells)


def with_listed_attributes(columns: Columns) -> Columns:
    """Convert metadata that are lists with one plain value per event, as in JSON lines, to attributes of the events."""
    made: dict[str, Attribute] = {}
    lengths = columns.lengths.tolist()
    for name in dict.fromkeys(name for one in columns.metadata for name, value in one.items() if type(value) is list):
        lists = [one.get(name) for one in columns.metadata]
        fitting = all(
            one is None or (type(one) is list and len(one) == n) for one, n in zip(lists, lengths, strict=True)
        )
        if not fitting or name in columns.attributes:
            continue
        cells = [
            cell for one, n in zip(lists, lengths, strict=True) for cell in (one if type(one) is list else [None] * n)
        ]
        if {type(cell) for cell in cells} <= {int}:
            made[name] = Attribute(np.array(cells, dtype=np.int64))
        elif not any(isinstance(cell, list | dict) for cell in cells):
            made[name] = attribute_of(cells)
    if not made:
        return columns
    rest = [{name: value for name, value in one.items() if name not in made} for one in columns.metadata]
    return replace(columns, attributes={**columns.attributes, **made}, metadata=tuple(rest))


def attribute_of(values: Sequence[object]) -> Attribute:
    """Make a column of Python values: numbers if all are numbers, else categories; None is missing."""
    given = [value for value in values if value is not None]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
        return Attribute(np.array([np.nan if value is None else value for value in values], dtype=np.float64))
    places: dict[str, int] = {}
    texts = [
        None if value is None else str(value).lower() if isinstance(value, bool) else str(value) for value in values
    ]
    codes = [-1 if text is None else places.setdefault(text, len(places)) for text in texts]
    return Attribute(np.array(codes, dtype=np.int32), tuple(places))


def without_column(
    name: str, option: str, there: Sequence[str], elsewhere: Sequence[str], unused: Sequence[str]
) -> str:
    """Return the message that there is no column with this name, with a hint."""
    asked = f'`{option}=["{name}"]`'
    if name in unused:
        return f"{asked}: this column is free text, of which no covariate can be made"
    if name in elsewhere:
        return f'{asked}: it has one value per sequence, not per event; use `static=["{name}"]`'
    found = f"found {listed(there, most=10)}" if there else "there is none beside sequence, time and event"
    return f"{asked}: no such column; {found}{did_you_mean(name, there, before='; ')}"


def per_sequence(name: str, attribute: Attribute, offsets: np.ndarray, ids: Sequence[str]) -> tuple[Attribute, int]:
    """Return a column of events as one of sequences, and the number of sequences in which the first event lacks the value.

    Raises:
        DataError: a sequence has several values.
    """
    given = ~attribute.missing()
    lengths = np.diff(offsets)
    sequences = np.repeat(np.arange(len(lengths)), lengths)[given]
    rows = np.flatnonzero(given)
    first = np.full(len(lengths), -1, dtype=np.int64)
    first[sequences[::-1]] = rows[::-1]
    values = attribute.values
    differs = values[rows] != values[first[sequences]]
    if differs.any():
        at = int(np.argmax(differs))
        several = len(np.unique(sequences[differs]))
        told = f"`static=['{name}']`: sequence {ids[int(sequences[at])]!r} has several values"
        more = f" (and {several - 1} more)" if several > 1 else ""
        raise DataError(f"{told}{more}; a value that changes from event to event is one of `covariates=['{name}']`")
    nothing = {"f": np.nan, "M": np.datetime64("NaT")}.get(values.dtype.kind, -1)
    whole = values if values.dtype.kind != "i" or attribute.categories is not None else values.astype(np.float64)
    nothing = np.nan if whole.dtype.kind == "f" else nothing
    found = np.where(first >= 0, whole[np.maximum(first, 0)] if len(whole) else nothing, nothing).astype(whole.dtype)
    late = int(((first > offsets[:-1]) & (first >= 0)).sum())
    return Attribute(found, attribute.categories), late
