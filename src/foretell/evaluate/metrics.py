"""Every score as columns: for each row of a scored model a value and whether it counts. What is summed, resampled, compared.

In: rows, predicted times, guessed participants. Out: `Metric`s, each the mean of its values over the rows that count (or, `root`, its
square root). They are what `evaluate` averages, `compare` pairs and `by_functor` breaks down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from foretell.evaluate.bootstrap import Ratio
from foretell.evaluate.likelihood import EventScores
from foretell.evaluate.next_time import UNDEFINED_ABOVE, NextTimes
from foretell.evaluate.participants import Guesses
from foretell.evaluate.units import Units

Kind = Literal["nats", "time", "share"]


@dataclass(frozen=True)
class Metric:
    key: str  # as in JSON
    title: str  # in words
    kind: Kind
    values: np.ndarray  # float64 [rows]
    counts: np.ndarray  # [rows]: 1 where a row counts, else 0
    variances: np.ndarray | None = None  # of the values, where a part of them was drawn at random
    root: bool = False

    @property
    def higher_is_better(self) -> bool:
        return self.kind == "nats"

    def where(self, chosen: np.ndarray) -> Metric:
        """Of some rows alone."""
        spread = None if self.variances is None else self.variances * chosen
        return replace(self, values=self.values * chosen, counts=self.counts * chosen, variances=spread)

    def ratio(self, units: Units) -> Ratio:
        return units.ratio(self.values, self.counts, self.variances, root=self.root)


def metrics_of(events: EventScores, times: NextTimes | None = None, guesses: Sequence[Guesses] = ()) -> list[Metric]:
    """All that these numbers can tell, log-likelihoods first."""
    real, noise = events.is_event, events.integral_variance
    found = [
        Metric("log_likelihood", "log-likelihood", "nats", events.log_likelihood, real, noise),
        Metric("time_log_likelihood", "log-likelihood of times", "nats", events.time_log_likelihood, real, noise),
        Metric("type_log_likelihood", "log-likelihood of types", "nats", events.type_log_likelihood, real),
    ]
    if times is not None:
        found += _of_times(events, times)
    wrong = (events.predicted_type != events.type) & real
    found.append(Metric("error_rate", "error of the next type, given its time", "share", wrong.astype(float), real))
    if times is not None:
        guessed = np.full(len(real), -1)
        guessed[real] = times.type_without_time
        missed = ((guessed != events.type) & real).astype(float)
        found.append(
            Metric("error_rate_without_time", "error of the next type, without its time", "share", missed, real)
        )
    return found + _of_participants(events, guesses)


def defined_times(events: EventScores, times: NextTimes) -> np.ndarray:
    """bool [rows]: True where the next time has a mean."""
    defined = events.is_event.copy()
    defined[events.is_event] = times.no_event <= UNDEFINED_ABOVE
    return defined


def _of_times(events: EventScores, times: NextTimes) -> list[Metric]:
    real = np.flatnonzero(events.is_event)
    assert np.array_equal(events.sequence[real], times.sequence) and np.array_equal(events.event[real], times.event)
    defined, off = defined_times(events, times), np.zeros(len(events.event))
    off[real] = np.abs(times.predicted - events.time[real])
    off[~defined] = 0.0
    return [
        Metric("rmse", "RMSE of the next time", "time", off**2, defined, root=True),
        Metric("mae", "mean absolute error of the next time", "time", off, defined),
    ]


def _of_participants(events: EventScores, guesses: Sequence[Guesses]) -> list[Metric]:
    """Of each pattern, and of all of them together where there are several."""
    found = []
    for one in guesses:
        rows = _rows_of(events, one)
        wrong, asked = np.zeros(len(events.event)), np.zeros(len(events.event), dtype=bool)
        wrong[rows], asked[rows] = one.wrong, True
        found.append(Metric(f"participants {one.pattern}", f"error of who, {one.pattern}", "share", wrong, asked))
    if len(found) > 1:
        # An event that two patterns ask about is asked about twice.
        wrong = np.sum([one.values for one in found], axis=0)
        asked = np.sum([one.counts for one in found], axis=0)
        found.append(Metric("participants all", "error of who", "share", wrong, asked))
    return found


def _rows_of(events: EventScores, guesses: Guesses) -> np.ndarray:
    """Where the guessed events stand among the rows, which are in the order of (sequence, event)."""
    wide = int(max(events.event.max(initial=0), guesses.event.max(initial=0))) + 2
    keys, wanted = (one.sequence.astype(np.int64) * wide + one.event + 1 for one in (events, guesses))
    rows = np.searchsorted(keys, wanted)
    assert np.array_equal(keys[rows], wanted)
    return rows
