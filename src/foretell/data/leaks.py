"""Leaks: columns that nearly determine the next event, and so may only be known afterwards, such as durations and outcomes.

A predictor of the next type is learned on half of the sequences and tested on the others. A column is reported if it avoids most
of the mistakes that are made from the current type alone, or if the order of its values is almost the order of the gaps to the next
events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from foretell.data.attributes import Attribute
from foretell.data.dataset import EventData
from foretell.data.timestamps import NS

FEWEST = 100  # a column with fewer values on pairs of neighbouring events is not tested
MOST_VALUES = 1_000  # a column with more distinct numbers is not used to predict types
OF_TYPES = 0.8  # the share of mistakes about the next type that a leak avoids
MISTAKES = 0.05  # types are not tested if fewer mistakes are made without the column
OF_GAPS = 0.95  # the rank correlation of a leak with the gap
OF_MEANS = 0.9  # the share of the variance of log-gaps that a leak of categories explains


Measure = Literal["mistakes", "rank correlation", "variance"]


@dataclass(frozen=True)
class Leak:
    """A column that almost determines the next type or the next gap."""

    column: str
    what: Literal["next gap", "next type"]
    strength: float
    measure: Measure  # the meaning of `strength`: share of avoided mistakes, rank correlation, share of variance
    static: bool  # True: a column of sequences

    def sentence(self) -> str:
        """Return the warning as text."""
        share = f"{100 * self.strength:.0f} %"
        told = {
            "mistakes": f"{share} of the mistakes about it are avoided",
            "rank correlation": f"rank correlation {self.strength:.2f}",
            "variance": f"{share} of the variance of its logarithm",
        }[self.measure]
        return (
            f"the column {self.column!r} nearly determines the {self.what} ({told}): is it known when its event happens? If not, do "
            "not name it as a covariate"
        )


@dataclass(frozen=True)
class _Pairs:
    """Pairs of neighbouring events of a sequence. `event`, `sequence`, `place` and `kind` are those of the first event."""

    event: np.ndarray  # int64 [pairs]
    sequence: np.ndarray
    place: np.ndarray  # index of the event in its sequence
    kind: np.ndarray
    following: np.ndarray  # type of the second event
    gap: np.ndarray

    @property
    def learn(self) -> np.ndarray:
        """bool [pairs]: True for learning: every second sequence, or the earlier half of a single sequence."""
        if len(self.sequence) and self.sequence[0] == self.sequence[-1]:
            return self.event < np.median(self.event)
        return self.sequence % 2 == 0


def find_leaks(data: EventData) -> tuple[Leak, ...]:
    """Return all leaks, first those of columns of events."""
    columns, pairs = data.columns, _pairs(data)
    if len(pairs.event) < FEWEST:
        return ()
    found: list[Leak] = []
    for static, named in ((False, columns.attributes), (True, columns.sequence_attributes)):
        for name, attribute in named.items():
            values = attribute.take(pairs.sequence if static else pairs.event)
            strength = _of_types(values, pairs, static)
            if strength is not None:
                found.append(Leak(name, "next type", strength, "mistakes", static))
            strength = None if static else _of_gaps(values, pairs, data)
            if strength is not None:
                measure = "rank correlation" if values.categories is None else "variance"
                found.append(Leak(name, "next gap", strength, measure, static))
    return tuple(found)


def _pairs(data: EventData) -> _Pairs:
    columns = data.columns
    sequence = np.repeat(np.arange(len(columns)), columns.lengths)
    event = np.flatnonzero(sequence[1:] == sequence[:-1])
    place = event - columns.offsets[sequence[event]]
    times, types = columns.times, columns.types.astype(np.int64)
    return _Pairs(event, sequence[event], place, types[event], types[event + 1], times[event + 1] - times[event])


def _of_types(values: Attribute, pairs: _Pairs, static: bool) -> float | None:
    """Return the share of mistakes about the next type that a column avoids, or None below `OF_TYPES`. A static value is combined
    with the event's index."""
    codes = _codes(values)
    there = None if codes is None else ~values.missing()
    if codes is None or there is None or there.sum() < FEWEST:
        return None
    judged = ~pairs.learn & there
    usual = _told(pairs.kind, pairs.following, pairs.learn, np.full(len(codes), -1))
    keys = codes * (int(pairs.kind.max()) + 1) + pairs.kind
    if static:
        keys = keys * (int(pairs.place.max()) + 1) + pairs.place
    with_column = _told(keys, pairs.following, pairs.learn & there, usual)
    before, after = (
        float((one != pairs.following)[judged].mean()) if judged.any() else 0.0 for one in (usual, with_column)
    )
    if before < MISTAKES:
        return None
    avoided = 1.0 - after / before
    return avoided if avoided >= OF_TYPES else None


def _of_gaps(values: Attribute, pairs: _Pairs, data: EventData) -> float | None:
    """Return how well a column determines the gap to the next event; None below the threshold."""
    there = ~values.missing() & (pairs.gap > 0.0)
    if there.sum() < FEWEST or len(np.unique(pairs.gap[there])) < 3:
        return None
    logs = np.log(pairs.gap[there])
    if values.categories is not None:
        strength, enough = _explained(values.values[there], logs, pairs.learn[there]), OF_MEANS
    else:
        numbers = _numbers(values, pairs, data)
        if numbers is None:
            return None
        strength, enough = abs(_rank_correlation(numbers[there], logs)), OF_GAPS
    return strength if strength >= enough else None


def _codes(values: Attribute) -> np.ndarray | None:
    """Return codes of the values, int64; None for a column with too many distinct numbers."""
    if values.categories is not None:
        return values.values.astype(np.int64) + 1
    if values.values.dtype.kind not in "iufb":
        return None
    known, place = np.unique(values.values, return_inverse=True)
    return place.astype(np.int64) if len(known) <= MOST_VALUES else None


def _numbers(values: Attribute, pairs: _Pairs, data: EventData) -> np.ndarray | None:
    """Return numbers as float64, and dates as seconds after their events; None for other values."""
    if values.values.dtype.kind in "iufb":
        return values.values.astype(np.float64)
    starts, clock = data.columns.starts, data.clock
    if values.values.dtype.kind != "M" or starts is None or clock.seconds_per_unit is None:
        return None
    since = (values.values.astype("datetime64[ns]").astype(np.int64) - starts[pairs.sequence]) / NS
    return since - data.columns.times[pairs.event] * clock.seconds_per_unit


def _told(keys: np.ndarray, following: np.ndarray, learn: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Predict the most frequent successor of each key in the learning half; `otherwise` for keys that do not occur there."""
    both, counts = np.unique(np.stack([keys[learn], following[learn]]), axis=1, return_counts=True)
    order = np.lexsort((-counts, both[0]))
    known, first = np.unique(both[0][order], return_index=True)
    if not len(known):
        return otherwise
    usual = both[1][order][first]
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[place] == keys, usual[place], otherwise)


def _explained(codes: np.ndarray, logs: np.ndarray, learn: np.ndarray) -> float:
    """Return the share of the variance in the test half that category means of the learning half explain."""
    if not learn.any() or learn.all() or not float(logs[~learn].var()):
        return 0.0
    counts = np.bincount(codes[learn])
    means = np.bincount(codes[learn], weights=logs[learn]) / np.maximum(counts, 1)
    whole = float(logs[learn].mean())
    judged = codes[~learn]
    seen = judged < len(counts)
    guess = np.where(seen & (counts[np.where(seen, judged, 0)] > 0), means[np.where(seen, judged, 0)], whole)
    return 1.0 - float(((logs[~learn] - guess) ** 2).mean()) / float(logs[~learn].var())


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's rank correlation; equal values have their mean rank."""
    ranks = []
    for values in (one, other):
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((counts.cumsum() - (counts - 1) / 2.0)[place])
    if not ranks[0].std() or not ranks[1].std():
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])
