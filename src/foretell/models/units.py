"""Numbers that a model computes from its training data before training: the range of wavelengths, the unit of time, initial
rates."""

from __future__ import annotations

from typing import Literal

import numpy as np

from foretell.data import EventData, EventSequence, Origin
from foretell.errors import ForetellError

ShortestWave = Literal["quantile", "min"] | float

PSEUDO_COUNT = 0.5  # added to every type's count, so that a type that never occurs in training has a small rate
SMALLEST_QUANTILE = 0.01
SMALLEST_UNIT, LARGEST_UNIT = 1e-100, 1e100  # limits for units of time; beyond them, quotients of times leave float64


def gaps(data: EventData) -> np.ndarray:
    """Return the gaps between consecutive events, of all sequences together."""
    found = [np.diff(sequence.times) for sequence in data]
    return np.concatenate(found) if found else np.empty(0)


def _usable(data: EventData, *units: float) -> None:
    """Raise an error if times are so long or short that quotients of them leave float64."""
    far = [unit for unit in units if not (unit == 0.0 or SMALLEST_UNIT <= unit <= LARGEST_UNIT)]
    if far:
        found = f"its times or gaps are about {far[0]:g}, expected {SMALLEST_UNIT:g} to {LARGEST_UNIT:g}"
        raise ForetellError(f"{data.name}: {found}; give them in another unit")


def wave_range(data: EventData, shortest: ShortestWave) -> tuple[float, float]:
    """Return `m` and `M` of the time embedding: the 1 % quantile (or minimum) of the positive gaps, and the largest `t_end`."""
    longest = max((sequence.t_end for sequence in data), default=0.0)
    if longest <= 0.0:
        raise ForetellError(f"{data.name}: every sequence ends at time 0, so there is no time to learn from")
    _usable(data, longest)
    if not isinstance(shortest, str):
        if not 0.0 < shortest < np.inf:
            raise ForetellError(f'shortest wave m = {shortest}: expected a positive number, "quantile" or "min"')
        return float(shortest), longest
    if shortest not in ("quantile", "min"):
        raise ForetellError(f'shortest wave m = {shortest!r}: expected "quantile", "min" or a positive number')
    positive = gaps(data)
    positive = positive[positive > 0.0]
    if len(positive) == 0:  # no sequence has two events at different times
        return longest, longest
    found = float(positive.min() if shortest == "min" else np.quantile(positive, SMALLEST_QUANTILE))
    _usable(data, found)
    return found, longest


def gap_range(data: EventData) -> tuple[float, float]:
    """Return the range of time scales: the 1 % quantile of the positive gaps, and twice their 99 % quantile."""
    positive = gaps(data)
    positive = positive[positive > 0.0]
    if len(positive) == 0:
        unit = mean_gap(data)
        return unit, unit
    short, long = np.quantile(positive, [SMALLEST_QUANTILE, 1.0 - SMALLEST_QUANTILE])
    _usable(data, float(short), float(long))
    return float(short), 2.0 * float(long)


def mean_gap(data: EventData) -> float:
    """Return the mean gap between consecutive events; if there are none, the observed time per event."""
    between = gaps(data)
    whole = between.sum() > 0.0
    found = float(between.mean()) if whole else sum(sequence.t_end for sequence in data) / max(data.event_count, 1)
    _usable(data, found)
    return found


def history_only(sequence: EventSequence) -> np.ndarray:
    """Return bool [events]: True for events that are not scored, because the data mark them so or they precede the scored window."""
    marked = np.zeros(len(sequence), dtype=bool) if sequence.unscored is None else sequence.unscored
    return marked | (sequence.times <= sequence.scored_from) if sequence.scored_from else marked


def scored(sequence: EventSequence, origin: Origin) -> np.ndarray:
    """Return which events of a sequence are scored: bool, one per event."""
    found = ~history_only(sequence)
    if origin == "first-event":
        found[:1] = False
    return found


def scored_counts(data: EventData) -> tuple[np.ndarray, float]:
    """Return the number of scored events per type plus ½, and the total time in which they were observed."""
    counts = np.full(len(data.vocabulary), PSEUDO_COUNT)
    for sequence in data:
        counts += np.bincount(sequence.types[scored(sequence, data.origin)], minlength=len(counts))
    return counts, sum(sequence.t_end - sequence.scored_from for sequence in data)


def starting_rates(data: EventData) -> np.ndarray:
    """Return the events per unit of time for each type: float64 [K]."""
    counts, observed = scored_counts(data)
    return counts / observed
