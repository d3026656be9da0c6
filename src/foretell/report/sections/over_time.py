"""What the models expected while one sequence went on: intensities, the events, and the predicted waiting times with their uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foretell.data import EventSequence
from foretell.evaluate.next_time import QUANTILES, waiting_times
from foretell.models.base import IntensityModel
from foretell.report.canvas import per_unit, time_label
from foretell.report.entry import Entry
from foretell.report.grouping import Grouping, group_events
from foretell.report.markup import Markup, PageSection, chart, figure, joined, precise, remark
from foretell.wording import counted

MOST_EVENTS = 300  # more would make the page heavy, and take long to predict one by one
GRID = 900
GROUPS = 6
AT_A_TIME = 256  # times that a model is asked about together, so that many types fit the memory


def over_time_section(
    entries: Sequence[Entry],
    places: Sequence[int],
    time_unit: str,
    start: float,
    progress: Callable[[str, int, int], None],
) -> PageSection:
    """`places` say where each entry's data have the chosen sequence, `start` from when on it is shown."""
    first = entries[0].data[places[0]]
    inside = _shown(first.times, start)
    happened, kinds = first.times[inside], first.types[inside]
    end = first.t_end if inside.stop == len(first) else float(happened[-1])
    names = entries[0].data.vocabulary.names
    grouping = group_events(entries[0].data.vocabulary, np.bincount(kinds, minlength=len(names)), GROUPS)
    times = grid_of(happened, start, end)
    runs = []
    for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
        progress(f"{entry.name}: intensities over time", number, len(entries))
        total, groups = course(entry.model, entry.data[place], times, grouping)
        own = entry.data[place]
        part = _shown(own.times, start)
        seen = np.arange(part.start, part.stop)
        waits = waiting_times(entry.model, entry.data, place, seen)
        starts = np.concatenate([[0.0], own.times])[seen]
        runs.append(
            {
                "name": entry.name,
                "kind": entry.model.title,
                "total": total,
                "groups": list(groups),
                "starts": precise(starts),
                "waits": waits,
                "gaps": own.times[part] - starts,
            }
        )
    numbers: dict[str, Any] = {
        "unit": per_unit(time_unit),
        "xlabel": time_label(time_unit),
        "start": precise([start])[0],
        "end": precise([end])[0],
        "times": precise(times),
        "groups": list(grouping.names),
        "events": [
            [time, grouping.place(names[kind]), names[kind]]
            for time, kind in zip(precise(happened), kinds.tolist(), strict=True)
        ],
        "quantiles": list(QUANTILES),
        "runs": runs,
    }
    body = joined(remark(_intro(first, len(happened), start, end)), _figures(len(entries), grouping))
    return PageSection("intensities", "One sequence over time", body, {"course": numbers, "raster": {}, "waiting": {}})


def _shown(times: np.ndarray, start: float) -> slice:
    first = int(np.searchsorted(times, start, side="left"))
    return slice(first, min(len(times), first + MOST_EVENTS))


def _intro(sequence: EventSequence, shown: int, start: float, end: float) -> str:
    cut = (
        ""
        if shown == len(sequence)
        else f"; shown are {counted(shown, 'event')} from {start:g} to {end:g} (--start shows others)"
    )
    return f"Sequence {sequence.id}: {counted(len(sequence), 'event')} until {sequence.t_end:g}{cut}."


def _figures(runs: int, grouping: Grouping) -> Markup:
    between = (
        " Where the lines of several runs part, what one of them learned is not what the data alone imply: their "
        "spread is a measure of how uncertain the intensity itself is (between these runs, and no more than that)."
        if runs > 1
        else ""
    )
    caption = (
        "Top: intensities, the events expected in a unit of time, each from the events before it; the grey area is "
        f"that of all events, the lines are those of the most frequent {grouping.kind}s (or of the runs, if you "
        "choose totals). Middle: what happened. Bottom: the uncertainty of the next event's time, as predicted when "
        "the previous event had just happened. Bands: the next event is in the strong one with 50 % and in the faint "
        "one with 90 % probability; a dot is the gap that followed, in red where it is outside the 90 % band, as one "
        "in ten should be." + between
    )
    return figure(
        chart("course", "Lines: intensities over time.", "Intensities"),
        chart("raster", "Marks: the events over time.", "Events"),
        chart("waiting", "Bands and dots: predicted and actual waiting times.", "Waiting time until the next event"),
        caption=caption,
        stacked=True,
    )


def grid_of(happened: np.ndarray, start: float, end: float) -> np.ndarray:
    """Both sides of every event, where an intensity jumps, and an even grid in between."""
    after = np.nextafter(happened, np.inf)
    whole = np.concatenate([np.linspace(start, end, GRID), happened, after[after <= end]])
    return np.unique(whole)


def course(
    model: IntensityModel, history: EventSequence, times: np.ndarray, grouping: Grouping
) -> tuple[np.ndarray, np.ndarray]:
    """The intensity of all events [times] and of each group [groups, times]."""
    total, groups = np.zeros(len(times)), np.zeros((len(grouping.names), len(times)))
    places = grouping.places(model.vocabulary)
    for start in range(0, len(times), AT_A_TIME):
        part = slice(start, start + AT_A_TIME)
        possible = model.possible_intensities(history, times[part])
        if possible is None:
            found = model.intensity(history, times[part])
            total[part] = found.sum(1)
            for group in range(len(grouping.names)):
                groups[group, part] = found[:, places == group].sum(1)
            continue
        for offset, row in enumerate(possible):
            total[start + offset] = sum(row.values())
            for name, value in row.items():
                group = grouping.place(name)
                if group >= 0:
                    groups[group, start + offset] += value
    return total, groups
