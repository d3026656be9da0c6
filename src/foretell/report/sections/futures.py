"""Sampled futures of the chosen sequence, next to the observed events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foretell.data import EventSequence
from foretell.report.entry import Entry
from foretell.report.markup import PageSection, chart, figure, joined, precise, remark, text_of
from foretell.report.sections.fit import Grouping, group_events
from foretell.report.sections.sequence import GROUPS, calendar, shown_part
from foretell.sampling.core.future import Futures
from foretell.sampling.core.futures import sample_futures
from foretell.wording import counted

DRAWN = 12  # futures per run
AHEAD = 20  # observed events in the time range of the futures
BEFORE = 0.4  # shown part of the past, as a share of the time ahead
MOST_EVENTS = 300  # limit on the events of a future, which may explode
FEWEST = 4  # with fewer events in a sequence, there is no section
TITLE = "Sampled futures"


def futures_section(
    entries: Sequence[Entry],
    places: Sequence[int],
    time_unit: str,
    start: float,
    progress: Callable[[str, int, int], None],
) -> PageSection | None:
    """Return the section: futures drawn from a time before the last shown events; None if the sequence has too few events."""
    first = entries[0].data[places[0]]
    window = _window(first, start)
    if window is None:
        return None
    cut, end = window
    names = entries[0].data.vocabulary.names
    grouping = group_events(entries[0].data.vocabulary, entries[0].data.type_counts(), GROUPS)
    drawn: list[Futures] = []
    for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
        progress(f"{entry.name}: futures", number, len(entries))
        asked: dict[str, Any] = {"horizon": end - cut, "n": DRAWN, "start": cut, "events": MOST_EVENTS, "seed": 0}
        drawn += sample_futures(entry.model, [entry.data[place]], **asked)
    begin = max(0.0, cut - BEFORE * (end - cut))
    inside = (first.times >= begin) & (first.times <= end)
    happened = [(time, names[kind]) for time, kind in zip(first.times[inside], first.types[inside], strict=True)]
    numbers: dict[str, Any] = {
        **calendar(entries[0].data.clock, first.start),
        "begin": precise([begin])[0],
        "cut": precise([cut])[0],
        "end": precise([end])[0],
        "groups": list(grouping.names),
        "happened": _marks(happened, grouping),
        "runs": [
            {
                "name": entry.name,
                "futures": [_marks(list(zip(one.times, one.events, strict=True)), grouping) for one in found.futures],
            }
            for entry, found in zip(entries, drawn, strict=True)
        ],
    }
    numbers.setdefault("xlabel", f"time ({time_unit})" if time_unit and len(time_unit) < 30 else "time")
    body = [remark(_intro(entries, drawn, first, cut, end)), figure(chart("futures"), caption=text_of("futures"))]
    return PageSection("futures", TITLE, joined(*body), {"futures": numbers})


def _window(sequence: EventSequence, start: float) -> tuple[float, float] | None:
    """Return the time range of futures: it contains the last of the shown events. None if there are too few events."""
    times = sequence.times[shown_part(sequence.times, start)]
    ahead = min(AHEAD, len(times) // 3)
    if len(times) < FEWEST:
        return None
    cut, last = float(times[-1 - ahead]), float(times[-1])
    return (cut, last) if cut < last else None


def _marks(events: Sequence[tuple[float, str]], grouping: Grouping) -> list[list[Any]]:
    """Return time, group and name of each event."""
    times = precise([time for time, _ in events])
    return [[time, grouping.place(name), name] for time, (_, name) in zip(times, events, strict=True)]


def _intro(entries: Sequence[Entry], drawn: Sequence[Futures], sequence: EventSequence, cut: float, end: float) -> str:
    clock = entries[0].data.clock
    begin, until = (clock.short(time, sequence.start) or f"{time:.6g}" for time in (cut, end))
    came = int(((sequence.times > cut) & (sequence.times <= end)).sum())
    said = f"Sequence {sequence.id} from {begin} to {until}: {counted(came, 'event')} happened. "
    for entry, found in zip(entries, drawn, strict=True):
        counts = sorted(len(one.events) for one in found.futures)
        said += f"Futures of {entry.title} have {counts[0]} to {counts[-1]} events (median {np.median(counts):g}). "
    return said.rstrip()
