"""The description of a run's data in `environment.json`: written from a data set, and checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from foretell.data import Clock, Dataset, Origin
from foretell.data.timestamps import find_zone
from foretell.errors import ForetellError
from foretell.options import coerce, expected
from foretell.train.config import DataOptions

CARD_READING = ("time_format", "timezone", "start", "covariates", "static")  # how a card's files are read
SHORTEST, LONGEST = 1e-12, 1e15  # seconds per unit


def data_facts(dataset: Dataset) -> dict[str, Any]:
    """Return a short description of the data."""
    return {
        "name": dataset.card.name,
        "origin": dataset.card.origin,
        "time_unit": dataset.card.time_unit,
        "clock": dataset.clock.to_json() | {"absolute": dataset.clock.absolute},
        "reading": {name: value for name in CARD_READING if (value := getattr(dataset.card, name))},
        "types": len(dataset.vocabulary.names),
        "splits": {
            name: {"sequences": len(data), "events": data.event_count} for name, data in dataset.splits().items()
        },
    }


def checked_facts(found: Any) -> dict[str, Any]:
    """Check the description of a run's data and return it; raises `ForetellError` for wrong values."""
    if not isinstance(found, dict):
        raise ForetellError(f'its "data" is {str(found)[:200]}: expected what `foretell train` wrote there')
    if found.get("origin", "window") not in get_args(Origin):
        raise ForetellError(f"data.origin is {str(found['origin'])[:200]!r}: expected {expected(Origin)}")
    if not isinstance(found.get("time_unit", ""), str):
        raise ForetellError(f"data.time_unit is {str(found['time_unit'])[:200]}: expected text")
    clock_of(found)
    reading = found.get("reading", {})
    if not isinstance(reading, dict):
        raise ForetellError(f"data.reading is {str(reading)[:200]}: expected a table")
    hints = get_type_hints(DataOptions)
    for name, value in reading.items():
        if name not in CARD_READING:
            raise ForetellError(f"data.reading has {str(name)[:200]!r}: expected {', '.join(CARD_READING)}")
        if not coerce(value, hints[name])[1]:
            raise ForetellError(f"data.reading.{name} is {str(value)[:200]!r}: expected {expected(hints[name])}")
    return found


def clock_of(facts: Mapping[str, Any]) -> Clock:
    """Return the clock of the training data; runs of earlier versions have only the name of the unit."""
    found = facts.get("clock")
    if found is None:
        return Clock.of_unit(facts.get("time_unit", ""))
    wrong = ForetellError(f"data.clock is {str(found)[:200]}: expected what `foretell train` wrote there")
    if not isinstance(found, dict):
        raise wrong
    unit, zone, seconds = found.get("unit", ""), found.get("zone", "UTC"), found.get("seconds_per_unit")
    absolute = found.get("absolute", "zone" in found)
    known = isinstance(seconds, int | float) and type(seconds) is not bool and SHORTEST <= seconds <= LONGEST
    texts = isinstance(unit, str) and isinstance(zone, str)
    if not texts or type(absolute) is not bool or not (known or (seconds is None and not absolute)):
        raise wrong
    find_zone(zone)
    return Clock(unit, None if seconds is None else float(seconds), zone, absolute)
