"""The end of a long history, for models that attend to single events: older events are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretell.data import Clock, EventSequence
from foretell.sampling.core.future import Future, Futures


@dataclass(frozen=True)
class RecentHistory:
    """The last events of a history, with times measured from the last event that was left out."""

    sequence: EventSequence
    zero: float  # the time of the whole history at which this clock starts
    left_out: int

    @classmethod
    def of(cls, whole: EventSequence, events: int, clock: Clock, start: float | None = None) -> RecentHistory:
        """Return the last `events` events up to `start` (default: the end), and all later events."""
        assert events >= 1
        seen = len(whole) if start is None else int(np.searchsorted(whole.times, start, side="right"))
        first = max(seen - events, 0)
        if not first:
            return cls(whole, 0.0, 0)
        zero = float(whole.times[first - 1])
        began = None if whole.start is None else int(clock.instants(np.array([zero]), np.array([whole.start]))[0])
        own = whole.attributes
        kept = replace(
            whole,
            times=whole.times[first:] - zero,
            types=whole.types[first:],
            t_end=whole.t_end - zero,
            unscored=None if whole.unscored is None else whole.unscored[first:],
            start=began,
            scored_from=max(whole.scored_from - zero, 0.0),
            attributes=None if own is None else replace(own, row=own.row + first),
        )
        return cls(kept, zero, first)

    def back(self, found: Futures) -> Futures:
        """Convert futures of this history to the clock of the whole history."""
        if not self.left_out:
            return found
        futures = tuple(Future(one.times + self.zero, one.events, one.end) for one in found.futures)
        return replace(found, start=found.start + self.zero, horizon=found.horizon + self.zero, futures=futures)


def recent_histories(
    histories: Sequence[EventSequence], events: int, clock: Clock, starts: Sequence[float] | None = None
) -> list[RecentHistory]:
    """Return the last `events` events of each history up to its start, or whole histories if `events` is 0."""
    if not events:
        return [RecentHistory(one, 0.0, 0) for one in histories]
    begin = [None] * len(histories) if starts is None else starts
    return [RecentHistory.of(one, events, clock, start) for one, start in zip(histories, begin, strict=True)]
