"""Events, and what is before them.

An event sees the events before it in the sequence, even one at the same time; a time that is no event's
sees the events with a smaller time.
"""

from __future__ import annotations

from typing import NamedTuple

Value = float | str | None  # of a covariate: a number, a category, or missing


class Event(NamedTuple):
    """`type@time`, and what else is known of it once it has happened."""

    type: str
    time: float
    covariates: tuple[tuple[str, Value], ...] = ()


History = tuple[Event, ...]


def before_event(sequence: History, index: int) -> History:
    """The history of the event at `index`."""
    return sequence[:index]


def before_time(sequence: History, time: float) -> History:
    """The history of a time at which nothing happened."""
    return tuple(event for event in sequence if event.time < time)
