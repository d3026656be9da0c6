"""The influence of events of one type on the intensities of every type: intensities shortly after an event, with and without the event."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.data import EventData, EventSequence
from foretell.report.entry import Entry
from foretell.report.markup import Markup, PageSection, element, figure, text_of
from foretell.report.sections.fit import Grouping, group_events
from foretell.report.sections.sequence import course

MOST_GROUPS = 10
EVENTS_OF_A_GROUP = 12  # events per group that are left out, one at a time
FEWEST = 3  # with fewer events in a group, its mean is not shown
MOST_SEQUENCES = 60
LONGEST_HISTORY = 120  # only events with fewer events before them are left out
ENOUGH_SECONDS = 20.0  # per run; no further event is left out after this time
NOTHING = 0.01  # effects on the logarithm below this are shown as none
STRONGEST = 5  # number of shades
MOST_RUNS = 3
TITLE = "What an event does to the others"


@dataclass(frozen=True)
class Influence:
    """`factors[i, j]`: the geometric mean factor by which an event of group i multiplies the intensity of group j; NaN: unknown."""

    grouping: Grouping
    factors: np.ndarray  # [groups, groups]
    events: np.ndarray  # int64 [groups]: number of events left out
    after: float  # time after the event at which intensities are compared


def influence_section(entries: Sequence[Entry], progress: Callable[[str, int, int], None]) -> PageSection | None:
    """Return the section; None if there is only one type, or if no event has an influence in any of the models."""
    made = []
    for number, entry in enumerate(entries[:MOST_RUNS]):
        progress(f"{entry.name}: influences", number, len(entries))
        found = influence_of(entry)
        if found is not None:
            made.append((entry, found))
    if not made:
        return None
    after, unit = made[0][1].after, entries[0].data.clock.unit
    words = {"after": f"{after:.3g}{' ' + unit if unit else ''}"}
    tables = [
        element("div", element("h3", entry.title), _table(one, entry.title), class_="chartbox") for entry, one in made
    ]
    wide = len(made[0][1].grouping.names) > 6
    return PageSection("influence", TITLE, figure(*tables, caption=text_of("influence", **words), stacked=wide))


def influence_of(entry: Entry, seconds: float = ENOUGH_SECONDS) -> Influence | None:
    """Return the influences in a run; None if there is only one type, no gap, or no influence."""
    data, names = entry.data, entry.data.vocabulary.names
    grouping = group_events(data.vocabulary, data.type_counts(), MOST_GROUPS)
    gaps = data.gaps()
    gaps = gaps[gaps > 0.0]
    size = len(grouping.names)
    if size < 2 or not len(gaps) or entry.model.has_covariates:
        return None
    after, begun = float(np.median(gaps)), time.monotonic()
    sums, known, left_out = np.zeros((size, size)), np.zeros((size, size)), np.zeros(size, dtype=np.int64)
    for sequence, place in _chosen(data, grouping):
        if time.monotonic() - begun > seconds:
            break
        group = grouping.place(names[sequence.types[place]])
        at = np.array([sequence.times[place] + after])
        both = [
            course(entry.model, sequence.first(kept, float(at[0])), at, grouping)[1][:, 0]
            for kept in (place + 1, place)
        ]
        real = (both[0] > 0.0) & (both[1] > 0.0)
        sums[group, real] += np.log(both[0][real] / both[1][real])
        known[group, real] += 1
        left_out[group] += 1
    enough = (known >= FEWEST) & (left_out >= FEWEST)[:, None]
    logs = np.where(enough, sums / np.maximum(known, 1), np.nan)
    if not enough.any() or np.nanmax(np.abs(logs)) < NOTHING:
        return None
    return Influence(grouping, np.exp(logs), left_out, after)


def _chosen(data: EventData, grouping: Grouping) -> Iterator[tuple[EventSequence, int]]:
    """Yield some events of each group, from different sequences if possible; events with ties are not used."""
    names, wanted = data.vocabulary.names, np.full(len(grouping.names), EVENTS_OF_A_GROUP)
    share = max(1, -(-EVENTS_OF_A_GROUP // max(len(data), 1)))  # the most events of a group from one sequence
    for sequence in (data[row] for row in range(min(len(data), MOST_SEQUENCES))):
        taken = np.zeros(len(wanted), dtype=np.int64)
        for place in range(min(len(sequence), LONGEST_HISTORY)):
            group, at = grouping.place(names[sequence.types[place]]), sequence.times[place]
            alone = int((sequence.times == at).sum()) == 1 and at > sequence.scored_from
            if group >= 0 and alone and wanted[group] and taken[group] < share:
                wanted[group] -= 1
                taken[group] += 1
                yield sequence, place


def _table(found: Influence, title: str) -> Markup:
    names = found.grouping.names
    heads = [element("th", element("span", name), scope="col", class_="turned") for name in names]
    corner, last = element("th", "event ↓ intensity →", scope="col"), element("th", "left out", scope="col", class_="n")
    rows = [
        element(
            "tr",
            element("th", name, scope="row"),
            *(_cell(factor, name, other) for factor, other in zip(row, names, strict=True)),
            element("td", str(count), class_="n"),
        )
        for name, row, count in zip(names, found.factors.tolist(), found.events.tolist(), strict=True)
        if count >= FEWEST
    ]
    inner = element(
        "table", element("thead", element("tr", corner, *heads, last)), element("tbody", *rows), class_="heat"
    )
    return element("div", inner, class_="scroll", role="region", aria_label=f"Influences in {title}", tabindex=0)


def _cell(factor: float, name: str, other: str) -> Markup:
    if np.isnan(factor):
        return element("td", "–")
    strength = min(STRONGEST, round(abs(np.log2(factor)) * 2.0))
    shade = f"{'u' if factor > 1.0 else 'd'}{strength}" if strength else None
    told = f"×{factor:.2g}" if 0.1 <= factor < 1000.0 else f"×{factor:.0e}"
    return element("td", told, class_=shade, title=f"{name} multiplies the intensity of {other} by {factor:.3g}")
