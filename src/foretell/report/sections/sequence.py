"""The intensities of the models over one sequence.

`over_time_section`: intensities, events, and predicted waiting times with their uncertainty. `moments_section`: a time slider for a model
of rules, with its database, the possible events, and the attention behind each possible event, if there is any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from foretell.data import Clock, EventSequence
from foretell.evaluate.next_time import QUANTILES, waiting_times
from foretell.ground.timeline import Timeline
from foretell.lang.syntax import pretty_rule
from foretell.models.base import IntensityModel
from foretell.models.capabilities import HasRules
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.andtt_attention import Head, Look, look_back, without_heads
from foretell.models.rules.andtt_explain import take_apart
from foretell.models.rules.rule_model import RuleModel
from foretell.report.canvas import is_bursty, per_unit, time_label
from foretell.report.entry import Entry
from foretell.report.markup import Markup, PageSection, chart, element, figure, joined, precise, remark, text_of
from foretell.report.sections.fit import Grouping, group_events
from foretell.wording import counted

MOST_EVENTS = 300  # more events would make the page large, and take long to predict
GRID = 900
GROUPS = 6
AT_A_TIME = 256  # query times that a model computes together, limited for memory with many types


def over_time_section(
    entries: Sequence[Entry],
    places: Sequence[int],
    time_unit: str,
    start: float,
    progress: Callable[[str, int, int], None],
) -> PageSection:
    """Return the section; `places` are the positions of the chosen sequence in each entry's data, `start` is the first shown time."""
    first = entries[0].data[places[0]]
    inside = shown_part(first.times, start)
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
        part = shown_part(own.times, start)
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
        **calendar(entries[0].data.clock, first.start),
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
        "log": any(is_bursty(run["total"]) for run in runs),
    }
    told = lambda time: entries[0].data.clock.short(time, first.start) or f"{time:g}"  # noqa: E731
    body = joined(
        remark(_intro(first, len(happened), told(start), told(end), told)),
        _figures(len(entries), grouping, numbers["log"]),
    )
    return PageSection("intensities", "One sequence over time", body, {"course": numbers, "raster": {}, "waiting": {}})


def shown_part(times: np.ndarray, start: float) -> slice:
    first = int(np.searchsorted(times, start, side="left"))
    return slice(first, min(len(times), first + MOST_EVENTS))


def calendar(clock: Clock, began: int | None) -> dict[str, Any]:
    """Return the entries with which the page shows times as dates: local start and unit in milliseconds, and a label; {} without dates."""
    text = clock.iso(0.0, began)
    if text is None or began is None:
        return {}
    offset = datetime.fromisoformat(text).utcoffset() or timedelta()
    assert clock.seconds_per_unit is not None
    local = {"start": began / 1e6 + offset / timedelta(milliseconds=1), "unit": 1000.0 * clock.seconds_per_unit}
    return {"calendar": local, "xlabel": f"time (UTC{text[-6:] if offset else ''})"}


def _intro(sequence: EventSequence, shown: int, start: str, end: str, told: Callable[[float], str]) -> str:
    cut = ""
    if shown < len(sequence):
        cut = f"; shown are {counted(shown, 'event')} from {start} to {end}"
    scored = f", scored from {told(sequence.scored_from)} on" if sequence.scored_from else ""
    return f"Sequence {sequence.id}: {counted(len(sequence), 'event')} until {told(sequence.t_end)}{scored}{cut}."


def _figures(runs: int, grouping: Grouping, log: bool) -> Markup:
    caption = text_of("over_time", kind=grouping.kind) + (" " + text_of("over_time_runs") if runs > 1 else "")
    caption += " " + text_of("over_time_log") if log else ""
    return figure(chart("course"), chart("raster"), chart("waiting"), caption=caption, stacked=True)


def grid_of(happened: np.ndarray, start: float, end: float) -> np.ndarray:
    """Return times on both sides of every event, where an intensity jumps, and an even grid in between."""
    after = np.nextafter(happened, np.inf)
    whole = np.concatenate([np.linspace(start, end, GRID), happened, after[after <= end]])
    return np.unique(whole)


def course(
    model: IntensityModel, history: EventSequence, times: np.ndarray, grouping: Grouping
) -> tuple[np.ndarray, np.ndarray]:
    """Return the total intensity [times], and that of each group [groups, times]."""
    total, groups = np.zeros(len(times)), np.zeros((len(grouping.names), len(times)))
    places = grouping.places(model.vocabulary)
    for start in range(0, len(times), AT_A_TIME):
        part = slice(start, start + AT_A_TIME)
        if not isinstance(model, HasRules):
            found = model.intensity(history, times[part])
            total[part] = found.sum(1)
            for group in range(len(grouping.names)):
                groups[group, part] = found[:, places == group].sum(1)
            continue
        for offset, row in enumerate(model.possible_intensities(history, times[part])):
            total[start + offset] = sum(row.values())
            for name, value in row.items():
                group = grouping.place(name)
                if group >= 0:
                    groups[group, start + offset] += value
    return total, groups


MOST_MOMENTS = 150
MOST_POSSIBLE = 6  # possible events that are explained at each moment, besides those that occurred
MOST_HEADS = 5  # heads of attention that are shown for each of these
MOST_PAST = 3  # events that are shown for each head
MOST_FACTS = 3000
ENOUGH_SECONDS = 60.0  # no further moment is begun after this time


@dataclass
class _Names:
    """A list that stores each text once; `place` returns a text's index."""

    texts: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def place(self, text: str) -> int:
        if text not in self.places:
            self.places[text] = len(self.texts)
            self.texts.append(text)
        return self.places[text]


def moments_of(
    model: RuleModel,
    history: EventSequence,
    *,
    start: float = 0.0,
    most: int = MOST_MOMENTS,
    progress: Callable[[int, int], None] | None = None,
    seconds: float = ENOUGH_SECONDS,
) -> dict[str, Any] | None:
    """Return the moments from `start` on, as JSON for the page; None if there is no event."""
    times = np.unique(history.times[history.times >= start])[:most]
    if not len(times):
        return None
    names, begun = _Names(), time.monotonic()
    frames: list[dict[str, Any]] = []
    possible = model.possible_intensities(history, times)
    look: Look | None = None
    for place, (at, found) in enumerate(zip(times.tolist(), possible, strict=True)):
        if place and time.monotonic() - begun > seconds:
            break
        look = look_back(model, history, at) if isinstance(model, ANDTT) else without_heads(model, history, at)
        frames.append(_frame(model, history, look, found, names))
        if progress is not None:
            progress(place + 1, len(times))
    assert look is not None
    until = int(np.searchsorted(history.times, look.time, side="right"))
    happened = [model.vocabulary.names[kind] for kind in history.types[:until].tolist()]
    always, facts = _facts(look.timeline, [frame["seen"] + 1 for frame in frames], names)
    return {
        "frames": frames,
        "past": [
            [when, names.place(name)] for when, name in zip(precise(history.times[:until]), happened, strict=True)
        ],
        "always": always,
        "facts": facts[:MOST_FACTS],
        "facts_left_out": max(0, len(facts) - MOST_FACTS),
        "of": len(np.unique(history.times[history.times >= start])),
        "layers": model.layers if isinstance(model, ANDTT) else 0,  # layers of attention
        "names": names.texts,  # last, because all entries above add names
    }


def _frame(
    model: RuleModel, history: EventSequence, look: Look, found: dict[str, float], names: _Names
) -> dict[str, Any]:
    ranked = sorted(found, key=lambda name: (-found[name], name))
    inside = np.flatnonzero(history.times == look.time)
    happened = [model.vocabulary.names[kind] for kind in history.types[inside].tolist()]
    shown = ranked[:MOST_POSSIBLE] + [
        one for one in dict.fromkeys(happened) if one in found and one not in ranked[:MOST_POSSIBLE]
    ]
    return {
        "t": precise([look.time])[0],
        "seen": look.seen,
        "happened": [names.place(one) for one in happened],
        "rank": [ranked.index(one) + 1 if one in found else None for one in happened],
        "total": sum(found.values()),
        "possible": len(found),
        "events": [[names.place(one), found[one], _behind(model, look, one, names)] for one in shown],
    }


def _behind(model: RuleModel, look: Look, event: str, names: _Names) -> list[list[Any]]:
    """Return the attention heads with the largest effects on an event's intensity: fact, rule, effect on its log, and attended events."""
    if not isinstance(model, ANDTT):
        return []
    grounding = look.timeline.grounding
    number = grounding.find(*grounding.program.split(event))
    assert number is not None, f"{event} is possible, and so it is a fact"
    anatomy = take_apart(model, look, number)
    heads = [one for parts in anatomy.facts.values() for one in parts if one.head is not None]
    strongest = sorted(heads, key=lambda one: -abs(one.effect or 0.0))[:MOST_HEADS]
    found = []
    for one in strongest:
        assert one.head is not None
        rule = grounding.groups[one.group][0]
        text = pretty_rule(model.program.rules[rule].rule)
        layers = [_attended(one.head, layer) for layer in range(len(one.head.layers))]
        found.append([names.place(grounding.text(one.fact)), names.place(text), one.effect, layers])
    return found


def _attended(head: Head, layer: int) -> list[Any]:
    """Return the weight of the null event, the largest weights with their events (0 is `bos`, i the i-th event), and the number of
    other events."""
    at = head.layers[layer]
    order = np.lexsort((-np.asarray(head.events), -at.weights))[:MOST_PAST].tolist()
    rest = len(head.events) - len(order)
    return [round(at.kept, 3), [[head.events[one], round(float(at.weights[one]), 3)] for one in order], rest]


def _facts(timeline: Timeline, states: list[int], names: _Names) -> tuple[list[int], list[list[int]]]:
    """Return facts that are always true, and facts that change: fact, first moment, and the moment at which it ends."""
    grounding = timeline.grounding
    always = [names.place(grounding.text(fact)) for fact in grounding.always.tolist() if not grounding.is_event(fact)]
    moving = []
    for fact, first, last in timeline.shown_holds.tolist():
        begin, end = (int(np.searchsorted(states, state, side="left")) for state in (first, last))
        if begin < end and not grounding.is_event(fact):
            moving.append([names.place(grounding.text(fact)), begin, end])
    return always, sorted(moving, key=lambda row: (row[1], names.texts[row[0]]))


TITLE = "Inside the rules, moment by moment"


def moments_section(
    entries: Sequence[Entry], places: Sequence[int], start: float, progress: Callable[[str, int, int], None]
) -> PageSection | None:
    """Return the section of the first entry with rules; None if there is none."""
    both = zip(entries, places, strict=True)
    with_rules = [(entry, place) for entry, place in both if isinstance(entry.model, RuleModel)]
    if not with_rules:
        return None
    entry, place = with_rules[0]
    model, history = entry.model, entry.data[place]
    assert isinstance(model, RuleModel)
    told = lambda done, of: progress(f"{entry.name}: moments", done, of)  # noqa: E731
    numbers = moments_of(model, history, start=start, progress=told)
    dated = lambda time: entry.data.clock.short(time, history.start) or f"{time:g}"  # noqa: E731
    if numbers is None:
        return PageSection(
            "moments", TITLE, remark(f"Nothing happens in sequence {history.id} from {dated(start)} on.")
        )
    numbers |= calendar(entry.data.clock, history.start)
    shown = len(numbers["frames"])
    some = ""
    if shown < numbers["of"]:
        some = f" Shown are {shown:,} of {numbers['of']:,} times, from {dated(numbers['frames'][0]['t'])} on."
    others = "" if len(with_rules) == 1 else " Other runs with rules have their own: make a report of each."
    intro = remark(f"{entry.title}, sequence {history.id}, just before each event.{some}{others}")
    attended = [text_of("attended")] if isinstance(model, ANDTT) else []
    caption = " ".join([text_of("possible", most=MOST_POSSIBLE), *attended, text_of("true")])
    body = joined(intro, figure(chart("moments"), caption=caption))
    return PageSection(
        "moments", TITLE, joined(body, element("noscript", "The slider needs JavaScript.")), {"moments": numbers}
    )
