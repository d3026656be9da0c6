"""Sentences that say which run predicts best, by how much, and whether a floor is better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretell.evaluate.bootstrap import Units
from foretell.evaluate.compare import SIGNIFICANT, Difference, difference_of, in_words, ways_of
from foretell.evaluate.metrics import EventRecord, Metric, metrics_of
from foretell.report.entry import Entry

METRIC = "log_likelihood"


def verdict(entries: Sequence[Entry]) -> list[str]:
    """Return the sentences; none if there is nothing to compare, or if models were scored on different events."""
    runs = _ranked([entry for entry in entries if not entry.floor])
    floors = _ranked([entry for entry in entries if entry.floor])
    if not runs or len(runs) + len(floors) < 2 or not _same_events(entries):
        return []
    best, said = runs[0], []
    beaten = bool(floors) and _value(floors[0]) > _value(best)
    if beaten:
        size, chance = _compared(floors[0], best, len(floors))
        does = "as well" if "may be" in chance else "better"
        more = f"A floor does {does}: {floors[0].title} has {size} more than {best.title}; {chance}"
        said.append(f"{more} It is a simple model: train longer, or on more data.")
    if len(runs) > 1:
        size, chance = _compared(best, runs[1], len(runs) - 1)
        of = "Of the runs, " if beaten else ""
        said.append(f"{of}{best.title} predicts best: {size} more than the next, {runs[1].title}; {chance}")
    if floors and not beaten:
        size, chance = _compared(best, floors[0], len(floors))
        said.append(f"The best floor, {floors[0].title}, is {size} behind {best.title}; {chance}")
    return said


def _ranked(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: -_value(entry))


def _value(entry: Entry) -> float:
    return float(_metric(entry).values.sum() / max(_metric(entry).counts.sum(), 1))


def _metric(entry: Entry) -> Metric:
    return next(one for one in metrics_of(EventRecord(entry.events)) if one.key == METRIC)


def _same_events(entries: Sequence[Entry]) -> bool:
    first = entries[0].events
    return all(
        len(entry.data) == len(entries[0].data)
        and all(
            np.array_equal(getattr(first, part), getattr(entry.events, part)) for part in ("sequence", "event", "time")
        )
        for entry in entries[1:]
    )


def _difference(one: Entry, other: Entry) -> Difference:
    ways, _ = ways_of("both", len(one.data))
    units = Units(one.events.sequence, len(one.data))
    return difference_of((one.name, other.name), _metric(one), _metric(other), units, ways)


def _compared(better: Entry, worse: Entry, comparisons: int) -> tuple[str, str]:
    """Return the difference, and whether chance explains it; p is multiplied by the number of models that were compared."""
    found = _difference(better, worse)
    corrected = [(one, min(1.0, comparisons * one.test.p_value)) for one in found.tests]
    told = ", ".join(f"p {in_words(p, one.test)} over {one.over}" for one, p in corrected)
    real = bool(corrected) and all(p < SIGNIFICANT for _, p in corrected)
    return _size(found), f"chance does not explain it ({told})." if real else f"that may be chance ({told})."


def _size(found: Difference) -> str:
    one = found.difference
    between = f"{one.low:.3f} to {one.high:.3f}".replace("-", "−")
    return f"{one.value:.3f} nats per event (95 % interval {between})".replace("-", "−")
