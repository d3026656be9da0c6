"""Labels for classification: a metadata key or an attribute in, one label per sequence or per event out.

A label is text, an integer, true or false. Null or a missing key means no label: such sequences and events are not used in training
or scores, but such events remain visible in histories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from foretell.data.dataset import EventData
from foretell.data.sequence import EventSequence
from foretell.data.written_attributes import plain_values
from foretell.errors import DataError, ForetellError
from foretell.wording import did_you_mean

Of = Literal["sequences", "events"]
NO_LABEL = -1
MOST_SHOWN = 10


@dataclass(frozen=True)
class Labels:
    """The list of possible labels, and whether sequences or events have labels."""

    field: str
    of: Of
    names: tuple[str, ...]

    def targets(self, data: EventData) -> list[np.ndarray]:
        """Return an int64 array per sequence with its label, or with the labels of its events; NO_LABEL is missing."""
        place: dict[str | None, int] = {name: index for index, name in enumerate(self.names)}
        problems: list[str] = []
        found = []
        for sequence, value in _values(data, self.field):
            words = _words(sequence, value, self.field, data.name, problems)
            if words is None:
                words = [None] * (1 if self.of == "sequences" else len(sequence))
            elif isinstance(words, list) != (self.of == "events"):
                is_a, expected = ("a list", "one value") if self.of == "sequences" else ("one value", "a list")
                where = f"{data.name}: sequence {sequence.id!r}: `{self.field}` is {is_a}"
                problems.append(f"{where}, expected {expected} as in the other sequences")
                continue
            row = words if isinstance(words, list) else [words]
            for word in {word for word in row if word is not None and word not in place}:
                problems.append(
                    f"{data.name}: sequence {sequence.id!r}: `{self.field}` is {word!r}, which is none of the "
                    f"{len(place)} known labels{did_you_mean(word, self.names, before='; ')}"
                )
            found.append(np.array([place.get(word, NO_LABEL) for word in row], dtype=np.int64))
        if problems:
            raise DataError(problems[:MOST_SHOWN])
        return found


def find_labels(splits: Iterable[EventData], field: str) -> Labels:
    """Find the possible labels in all splits together; raise an error with all invalid values."""
    parts = list(splits)
    problems: list[str] = []
    words: set[str] = set()
    kinds: dict[bool, str] = {}
    for data in parts:
        for sequence, value in _values(data, field):
            found = _words(sequence, value, field, data.name, problems)
            if found is not None:
                kinds.setdefault(isinstance(found, list), sequence.id)
                words.update(word for word in (found if isinstance(found, list) else [found]) if word is not None)
    if problems:
        raise DataError(problems[:MOST_SHOWN])
    if not kinds:
        known = sorted({key for data in parts for key in _keys(data)})
        some = f"there are {', '.join(known[:MOST_SHOWN])}" if known else "the data have no keys of their own"
        hint = did_you_mean(field, known, "; ", otherwise=f"; {some}")
        raise ForetellError(f"label {field!r}: no sequence has this key{hint}")
    if len(kinds) == 2:
        found = f"`{field}` is a list in sequence {kinds[True]!r} and one value in sequence {kinds[False]!r}"
        raise DataError(f"{found}: expected the same in all")
    if len(words) < 2:
        raise ForetellError(f"label {field!r}: found {len(words)} different values, expected two or more to tell apart")
    return Labels(field, "events" if True in kinds else "sequences", tuple(sorted(words, key=_order)))


def labelled(data: EventData, targets: Sequence[np.ndarray]) -> np.ndarray:
    """Return the indices of sequences with at least one label, int64."""
    return np.array([place for place, row in enumerate(targets) if (row != NO_LABEL).any()], dtype=np.int64)


def _values(data: EventData, field: str) -> Iterator[tuple[EventSequence, object]]:
    """Yield each sequence with its value: from its metadata, else from an attribute of sequences (one value) or events (a list)."""
    columns = data.columns
    own, of_events = columns.sequence_attributes.get(field), columns.attributes.get(field)
    values = plain_values(own) if own is not None else None
    cells = plain_values(of_events) if values is None and of_events is not None else None
    for place, sequence in enumerate(data):
        value = sequence.metadata.get(field)
        if value is None and values is not None:
            value = values[place]
        elif value is None and cells is not None:
            value = cells[columns.offsets[place] : columns.offsets[place + 1]]
        yield sequence, value


def _keys(data: EventData) -> set[str]:
    """Return the names of all metadata keys and attributes."""
    return {key for sequence in data for key in sequence.metadata} | {
        *data.columns.attributes,
        *data.columns.sequence_attributes,
    }


def _words(
    sequence: EventSequence, value: object, field: str, name: str, problems: list[str]
) -> str | list[str | None] | None:
    """Return the label of a sequence, or the labels of its events, as text; None is missing."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        return _word(value, f"{name}: sequence {sequence.id!r}: `{field}`", problems)
    if len(value) != len(sequence):
        problems.append(
            f"{name}: sequence {sequence.id!r}: `{field}` has {len(value)} values and there are {len(sequence)} events: "
            "expected one for each event"
        )
        return None
    return [
        None if one is None else _word(one, f"{name}: sequence {sequence.id!r}: `{field}`[{place}]", problems)
        for place, one in enumerate(value)
    ]


def _word(value: object, where: str, problems: list[str]) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and value:
        return value
    problems.append(f"{where} is {value!r}: expected text, a whole number, true or false, or null for no label")
    return None


def _order(word: str) -> tuple[int, int, str]:
    """Sort key: first integers by value, then words alphabetically."""
    return (0, int(word), "") if word.lstrip("-").isdigit() else (1, 0, word)
