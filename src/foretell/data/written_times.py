"""Times as text for files: ISO 8601 timestamps if the data have an absolute clock, else numbers with all digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretell.data.clock import iso_texts

if TYPE_CHECKING:
    from foretell.data.dataset import EventData


def event_instants(data: EventData) -> np.ndarray | None:
    """Return the times of all events in nanoseconds since 1970; None without an absolute clock."""
    columns = data.columns
    if columns.starts is None:
        return None
    return data.clock.instants(columns.times, np.repeat(columns.starts, columns.lengths))


def end_instants(data: EventData) -> np.ndarray | None:
    """Return the ends of all sequences in nanoseconds since 1970; None without an absolute clock."""
    return None if data.columns.starts is None else data.clock.instants(data.columns.t_ends, data.columns.starts)


def score_instants(data: EventData) -> np.ndarray | None:
    """Return the `scored_from` of all sequences in nanoseconds since 1970; None without an absolute clock, or if all are 0."""
    columns = data.columns
    if columns.starts is None or columns.scored_from is None:
        return None
    return data.clock.instants(columns.scored_from, columns.starts)


def ends_known(data: EventData) -> np.ndarray:
    """Return bool [sequences]: False if t_end is only the last event's time."""
    assumed = data.columns.ends_assumed
    return np.ones(len(data), dtype=bool) if assumed is None else ~assumed


def starts_known(data: EventData) -> bool:
    """Whether the starts of sequences must be written: with an absolute clock, unless clocks start at first events."""
    return data.columns.starts is not None and data.origin == "window"


def written_times(data: EventData) -> list[str]:
    """Return the times of all events as text."""
    instants = event_instants(data)
    return [repr(time) for time in data.columns.times.tolist()] if instants is None else iso_texts(instants)


def written_bounds(data: EventData) -> tuple[list[str], list[str]]:
    """Return starts and ends of sequences as text, "" for assumed ends; a list is empty if it need not be written."""
    columns = data.columns
    instants = end_instants(data)
    ends = [repr(end) for end in columns.t_ends.tolist()] if instants is None else iso_texts(instants)
    known = ends_known(data)
    ends = [end if here else "" for end, here in zip(ends, known.tolist(), strict=True)]
    starts = [] if columns.starts is None or not starts_known(data) else iso_texts(columns.starts)
    return starts, ends if known.any() else []


def written_score_from(data: EventData) -> list[str]:
    """Return `scored_from` of sequences as text, "" for 0; the list is empty if all are 0."""
    found, instants = data.columns.scored_from, score_instants(data)
    if found is None or not found.any():
        return []
    texts = [repr(one) for one in found.tolist()] if instants is None else iso_texts(instants)
    return [text if later else "" for text, later in zip(texts, found.tolist(), strict=True)]
