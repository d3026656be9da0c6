"""The number of events that products make possible in each state: counted, or estimated if there are too many candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.ground.timeline import Timeline
from foretell.plan.products import FunctorProducts, ProductHistory

COUNTED = 100_000_000  # the largest number of candidates that are counted for one sequence
DRAWN = 4096  # the number of candidates of a product that are drawn for an estimate
AT_A_TIME = 2_000_000


@dataclass(frozen=True, eq=False)
class ProductCount:
    events: np.ndarray  # float64 [states]: the possible events of one functor, with the listed ones
    is_exact: bool


def product_counts(timeline: Timeline) -> dict[str, ProductCount]:
    """Return the counts by functor, for functors whose events are products."""
    if not timeline.grounding.products:
        return {}
    functors = timeline.grounding.functors
    return {functors[one.functor]: _count(one, timeline.states) for one in ProductHistory(timeline).functors}


def _count(events: FunctorProducts, states: int) -> ProductCount:
    if events.is_plain and not events.products[0].one.is_filtered:
        return ProductCount(events.counts[0].astype(np.float64), True)
    # The possible events only change in states where a fact of a part or a listed fact starts or ends to hold.
    first = np.flatnonzero(_moments(events, states))
    candidates = events.counts[:, first].sum(0)
    is_exact = int(candidates.sum()) <= COUNTED
    count = np.zeros(len(first))
    rng = np.random.default_rng(0)
    for place, state in enumerate(first.tolist()):
        count[place] = _all(events, state) if is_exact else _estimated(events, state, rng)
    return ProductCount(np.repeat(count, np.diff([*first.tolist(), states])), is_exact)


def _moments(events: FunctorProducts, states: int) -> np.ndarray:
    found = np.zeros(states + 1, dtype=bool)
    found[0] = True
    spans = [part.during for one in events.products for part in (*one.parts, *one.blockers)]
    for one in (*spans, events.listed):
        found[one.start], found[one.stop] = True, True
    return found[:states]


def _all(events: FunctorProducts, state: int) -> float:
    """Count each event once: an event of several products counts for the first one."""
    listed = events.listed_values
    total = int(events.is_listed(listed, np.full(len(listed), state)).sum())
    for place, one in enumerate(events.products):
        count = int(one.count[state])
        for start in range(0, count, AT_A_TIME):
            number = np.arange(start, min(start + AT_A_TIME, count))
            when = np.full(len(number), state)
            args = one.args(number, when)
            kept = one.passes(args, when)
            args, when = args[kept], when[kept]
            fresh = ~events.is_listed(args, when)
            for other in events.products[:place]:
                fresh &= ~other.has(args, when)
            total += int(fresh.sum())
    return float(total)


def _estimated(events: FunctorProducts, state: int, rng: np.random.Generator) -> float:
    """Return an unbiased estimate: each drawn candidate is weighted by 1 / (the number of products that contain its event)."""
    listed = events.listed_values
    times = events.times(listed, np.full(len(listed), state))[events.is_listed(listed, np.full(len(listed), state))]
    total = float((1.0 / times).sum())
    for one in events.products:
        count = int(one.count[state])
        number = rng.integers(0, max(count, 1), DRAWN if count else 0)
        when = np.full(len(number), state)
        args = one.args(number, when)
        kept = one.passes(args, when)
        total += count * float((1.0 / events.times(args[kept], when[kept])).sum()) / DRAWN
    return total
