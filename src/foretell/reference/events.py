"""Events, and the history of an event or a time.

An event sees the events before it in the sequence, even at the same time. A query time that is not an event
sees the events with a smaller time.
"""

from __future__ import annotations

from typing import NamedTuple

Value = float | str | None  # a number, a category, or missing


class Event(NamedTuple):
    """An event `type@time` and its covariates."""

    type: str
    time: float
    covariates: tuple[tuple[str, Value], ...] = ()


History = tuple[Event, ...]


def before_event(sequence: History, index: int) -> History:
    """Return the history of the event at `index`."""
    return sequence[:index]


def before_time(sequence: History, time: float) -> History:
    """Return the history of a time that is not an event."""
    return tuple(event for event in sequence if event.time < time)
