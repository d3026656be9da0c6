"""Long sequences → windows with a limited number of events, each with some history before it, for training and scoring in bounded memory.

Every scored event and every scored moment is scored in exactly one window. A window begins with the last events of the window before
it, which are history and are not scored. Earlier events are not visible. The clock of a window starts at the last event before the
window or, with `origin = "first-event"`, at the window's first event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretell.data.columns import Columns
from foretell.data.dataset import EventData
from foretell.data.sequence import offsets_of


@dataclass(frozen=True)
class WindowSpan:
    """A window of a sequence, as event indices: `first` to `own` is history, `own` to `stop` is scored."""

    sequence: int
    first: int
    own: int
    stop: int


def in_windows(data: EventData, events: int, history: int) -> EventData:
    """Cut each sequence of more than `events` events into windows, each with `history` events before it.

    The id of a window is `ID[FROM:TO]`, with the indices of its scored events. Ties are not cut, so a window can have more events.
    """
    assert events >= 1 and history >= 0
    columns = data.columns
    if not (columns.lengths > events).any():
        return data
    given_first = data.origin == "first-event"
    spans = [
        span
        for place in range(len(columns))
        for span in spans_of(columns, place, events, max(history, int(given_first)))
    ]
    return replace(data, sequences=_cut(data, spans, given_first), report=None)


def spans_of(columns: Columns, place: int, events: int, history: int) -> list[WindowSpan]:
    """Return the windows of one sequence; windows without a scored part are left out."""
    times = columns.times[columns.offsets[place] : columns.offsets[place + 1]]
    count, later = len(times), 0.0 if columns.scored_from is None else float(columns.scored_from[place])
    if count <= events:
        return [WindowSpan(place, 0, 0, count)]
    found: list[WindowSpan] = []
    own = 0
    while own < count:
        stop = min(own + events, count)
        if stop < count:  # include all events at the time of the last one
            stop = int(np.searchsorted(times, times[stop - 1], side="right"))
        first = max(own - history, 0)
        if stop == count or later == 0.0 or times[stop - 1] > later:
            found.append(WindowSpan(place, first, own, stop))
        own = stop
    return found


def _cut(data: EventData, spans: list[WindowSpan], given_first: bool) -> Columns:
    columns = data.columns
    place, first, own, stop = (
        np.array([getattr(span, name) for span in spans], dtype=np.int64)
        for name in ("sequence", "first", "own", "stop")
    )
    starts = columns.offsets[place]
    offsets = offsets_of(stop - first)
    rows = np.repeat(starts + first - offsets[:-1], stop - first) + np.arange(offsets[-1])
    zero = np.zeros(len(spans))  # the time in the sequence at which each window's clock starts
    later = first > 0
    zero[later] = columns.times[(starts + first - (0 if given_first else 1))[later]]
    whole = stop == columns.lengths[place]
    ends = columns.t_ends[place].copy()
    ends[~whole] = columns.times[(starts + stop - 1)[~whole]]
    scored = np.zeros(len(spans)) if columns.scored_from is None else columns.scored_from[place].copy()
    inner = own > 0
    scored[inner] = np.maximum(scored[inner], columns.times[(starts + own - 1)[inner]])
    kept = columns.at_events(rows)
    unscored = np.zeros(len(rows), dtype=bool) if kept["unscored"] is None else kept["unscored"].copy()
    # `scored_from` alone cannot separate history at time 0 of a window from scored events at time 0, so history is marked per event.
    unscored |= np.arange(len(rows)) < np.repeat(offsets[:-1] + own - first, stop - first)
    absolute = None
    if columns.starts is not None:
        absolute = data.clock.instants(zero, columns.starts[place])
    assumed = None if columns.ends_assumed is None else columns.ends_assumed[place] & whole
    return Columns(
        **{**kept, "times": kept["times"] - np.repeat(zero, stop - first), "unscored": unscored},
        offsets=offsets,
        t_ends=ends - zero,
        ids=tuple(_named(columns, span) for span in spans),
        metadata=tuple(columns.metadata[span.sequence] for span in spans),
        starts=absolute,
        scored_from=np.maximum(scored - zero, 0.0),
        ends_assumed=assumed,
        sequence_attributes={name: one.take(place) for name, one in columns.sequence_attributes.items()},
    )


def _named(columns: Columns, span: WindowSpan) -> str:
    whole = span.own == 0 and span.stop == int(columns.lengths[span.sequence])
    name = columns.ids[span.sequence]
    return name if whole else f"{name}[{span.own}:{span.stop}]"
