"""What every reader of a foreign format gives: the splits that a file holds, and how many types it claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.data.raw import Gatherer, RawEvents
from foretell.errors import DataError


@dataclass(frozen=True)
class Foreign:
    """`splits` by name; a file that does not name its one split has it under its own name."""

    splits: Mapping[str, RawEvents]
    types: int | None = None


def rows_of(
    gatherer: Gatherer, place: int, rows: object, time_key: str, event_key: str
) -> tuple[list[Any], list[Any]] | None:
    """A list of one dict an event → its times and events; None if it is not that, and the mistake is noted."""
    if not isinstance(rows, list):
        gatherer.fault(place, f"expected a list of events, found {type(rows).__name__}")
        return None
    for index, row in enumerate(rows):
        missing = [key for key in (time_key, event_key) if not isinstance(row, dict) or key not in row]
        if missing:
            found = ", ".join(map(str, list(row)[:10])) if isinstance(row, dict) else type(row).__name__
            gatherer.fault(place, f"event {index} has no {' and no '.join(map(repr, missing))}; found {found}")
            return None
    return [row[time_key] for row in rows], [row[event_key] for row in rows]


def type_count(path: Path, value: object) -> int | None:
    """A file's `dim_process`: the number of event types, if it is given."""
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise DataError(f"{path}: dim_process is {value!r}, expected the number of event types")
    return value
