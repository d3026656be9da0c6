"""Scores broken down by what kind of event they are of: rows of one or more runs in, one line a functor out.

An event's functor is its name before the parentheses (`pass` of `pass(purple7,purple8)`), or all of a plain name. A functor's
log-likelihood is the mean over its events of their rows, each with the integral since the event before; over all functors, weighed by
their events, these add up to the whole (but for sequences without events).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foretell.evaluate.bootstrap import Estimate, Units, estimates
from foretell.evaluate.metrics import Metric
from foretell.terms import split


@dataclass(frozen=True)
class FunctorScores:
    functor: str
    events: int
    scores: dict[str, tuple[Estimate, ...]]  # of each metric, one for each run

    def to_json(self) -> dict[str, Any]:
        found = {key: [asdict(one) for one in runs] for key, runs in self.scores.items()}
        return {"functor": self.functor, "events": self.events, **found}


def functors_of(names: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The functors, and for each name which one is its."""
    of_name = [split(name)[0] for name in names]
    known = {functor: place for place, functor in enumerate(sorted(set(of_name)))}
    return list(known), np.array([known[functor] for functor in of_name], dtype=np.int64)


def by_functor(
    runs: Sequence[Sequence[Metric]], types: np.ndarray, names: Sequence[str], units: Units, seed: int = 0
) -> list[FunctorScores]:
    """Of each functor that happens, most frequent first. `types` [rows] point into `names`; -1: no event. Runs have the same metrics."""
    functors, place = functors_of(names)
    of_row = np.where(types >= 0, place[np.maximum(types, 0)] if len(names) else -1, -1)
    counts = np.bincount(of_row[of_row >= 0], minlength=len(functors))
    order = [int(number) for number in np.argsort(-counts, kind="stable") if counts[number]]
    chosen = [of_row == number for number in order]
    keys = [one.key for one in runs[0]] if runs else []
    ratios = [
        metrics[which].where(rows).ratio(units) for rows in chosen for which in range(len(keys)) for metrics in runs
    ]
    found = iter(estimates(ratios, units.resampling(seed)))
    return [
        FunctorScores(functors[number], int(counts[number]), {key: tuple(next(found) for _ in runs) for key in keys})
        for number in order
    ]
