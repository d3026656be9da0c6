"""The result of `predict`: the distribution of the next event of a sequence, and its clock, as JSON and as a frame."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from foretell.data import Clock, FrameFormat, FrameOrigin, FrameResult
from foretell.data.clock import NO_CLOCK
from foretell.data.frame_origin import NO_ORIGIN
from foretell.data.frame_output import FrameColumns

Interval = tuple[float | None, float | None]


@dataclass(frozen=True)
class LikelyEvent:
    event: str
    probability: float  # the probability that it is the next event
    share: float | None = None  # its probability given that the next event matches the pattern


@dataclass(frozen=True)
class MatchingEvents:
    """The probabilities of the events that match a pattern."""

    pattern: str
    probability: float  # the probability that the next event matches
    matching: int  # number of possible events that match
    events: tuple[LikelyEvent, ...]  # the most probable of them first


@dataclass(frozen=True)
class NextEventDistribution:
    """The distribution of the next event. A mean or quantile that is not defined is None."""

    by: Literal["quadrature", "samples"]
    mean: float | None  # given an event up to the horizon; None: the probability that nothing happens is too high
    mean_error: float | None  # estimated error of the quadrature, or the standard error of the draws
    median: float | None
    interval_50: Interval
    interval_90: Interval
    no_event: float  # the probability that nothing happens up to the horizon
    horizon: float
    possible: int  # number of events that may be next
    events: tuple[LikelyEvent, ...]  # the most probable first
    who: MatchingEvents | None
    draws: int | None = None
    drawn: int | None = (
        None  # number of possible events that were drawn to estimate the total intensity; `events` then has only those that match
    )
    total_error: float | None = None  # relative standard error of that estimate

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> NextEventDistribution:
        """Restore a distribution from the output of `dataclasses.asdict` after a round trip through JSON."""
        who = found["who"]
        if who is not None:
            who = MatchingEvents(**{**who, "events": tuple(LikelyEvent(**one) for one in who["events"])})
        pairs = {name: (found[name][0], found[name][1]) for name in ("interval_50", "interval_90")}
        return cls(**{**found, **pairs, "events": tuple(LikelyEvent(**one) for one in found["events"]), "who": who})

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = dataclasses.asdict(self)
        found |= {name: list(found[name]) for name in ("interval_50", "interval_90")}
        found["events"] = [{"event": one.event, "probability": one.probability} for one in self.events]
        who = found.pop("who")
        for name in ("draws", "drawn", "total_error"):
            if found[name] is None:
                del found[name]
        return found if who is None else found | {"pattern": who | {"events": list(who["events"])}}


@dataclass(frozen=True)
class Prediction(FrameResult):
    """The predicted next event of one sequence, given that nothing happens between its last event and `start`.

    As a frame it has a row for each of the most probable events; `time` is the median of the next event's time, whatever its type.
    """

    sequence: str
    start: float
    seen: int  # number of events of the history
    outlook: NextEventDistribution
    samples: NextEventDistribution | None = None  # the result of samples if both methods were requested
    clock: Clock = NO_CLOCK
    began: int | None = None  # the timestamp of time 0, if known
    frame: FrameOrigin = field(default=NO_ORIGIN, repr=False, compare=False)

    @property
    def frame_format(self) -> FrameFormat:
        return FrameFormat(self.frame, self.clock, self.began)

    @property
    def mean(self) -> float | None:
        return self.outlook.mean

    @property
    def median(self) -> float | None:
        return self.outlook.median

    @property
    def events(self) -> tuple[LikelyEvent, ...]:
        return self.outlook.events

    @property
    def who(self) -> MatchingEvents | None:
        return self.outlook.who

    @property
    def no_event(self) -> float:
        return self.outlook.no_event

    def to_json(self) -> dict[str, Any]:
        found = {"sequence": self.sequence, "start": self.start, "events_seen": self.seen, **self.outlook.to_json()}
        if self.began is not None:
            times = {"start": self.start, **{name: found[name] for name in ("mean", "median", "horizon")}}
            times |= {name: found[name] for name in ("interval_50", "interval_90")}
            found["iso"] = {name: iso_times(value, self.clock, self.began) for name, value in times.items()}
        return found if self.samples is None else found | {"samples": self.samples.to_json()}

    def frame_columns(self) -> FrameColumns:
        found, count = self.outlook, len(self.events)
        when = {"mean": found.mean, "low_50": found.interval_50[0], "high_50": found.interval_50[1]}
        when |= {"low_90": found.interval_90[0], "high_90": found.interval_90[1], "start": self.start}
        return {
            "sequence": [self.sequence] * count,
            "rank": np.arange(1, count + 1),
            "time": self.frame_format.times([found.median] * count),
            "event": [one.event for one in self.events],
            "probability": np.array([one.probability for one in self.events], dtype=np.float64),
            **self._shares(),
            "no_event": np.full(count, found.no_event),
            **{name: self.frame_format.times([value] * count) for name, value in when.items()},
        }

    def _shares(self) -> FrameColumns:
        """Return the probabilities of the events that match the pattern, given that the next event matches."""
        shares = [one.share for one in self.events if one.share is not None]
        return {"share": np.array(shares)} if shares and len(shares) == len(self.events) else {}


def iso_times(value: Any, clock: Clock, began: int | None) -> Any:
    """Convert a time, or a list of times, to ISO 8601; None stays None."""
    if isinstance(value, list):
        return [iso_times(one, clock, began) for one in value]
    return None if value is None else clock.iso(value, began)
