"""What is expected next: when, what and who, as probabilities. The records that predictions are made of, and their JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from foretell.evaluate.next_time import UNDEFINED_ABOVE
from foretell.evaluate.pattern import EventPattern

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
Interval = tuple[float | None, float | None]


@dataclass(frozen=True)
class Likely:
    event: str
    probability: float  # that it is the next event
    share: float | None = None  # given that the next event matches the pattern


@dataclass(frozen=True)
class Who:
    """The next event among those that match a pattern."""

    pattern: str
    probability: float  # that the next event matches at all
    matching: int  # events that match and are possible
    events: tuple[Likely, ...]  # the most probable of them first


@dataclass(frozen=True)
class Outlook:
    """The distribution of the next event, as far as it was asked for. A time that may never come is None."""

    by: Literal["quadrature", "samples"]
    mean: float | None  # given that something happens up to the horizon; None: it is too probable that nothing does
    mean_error: float | None  # what the mean may be off by: of quadrature, or the standard error of the draws
    median: float | None
    interval_50: Interval
    interval_90: Interval
    no_event: float  # the probability that nothing happens up to the horizon
    horizon: float
    possible: int  # events that may be next
    events: tuple[Likely, ...]  # the most probable first
    who: Who | None
    draws: int | None = None

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "by": self.by,
            "mean": self.mean,
            "mean_error": self.mean_error,
            "median": self.median,
            "interval_50": list(self.interval_50),
            "interval_90": list(self.interval_90),
            "no_event": self.no_event,
            "horizon": self.horizon,
            "possible": self.possible,
            "events": [{"event": one.event, "probability": one.probability} for one in self.events],
        }
        if self.draws is not None:
            found["draws"] = self.draws
        if self.who is not None:
            found["pattern"] = {
                "pattern": self.who.pattern,
                "probability": self.who.probability,
                "matching": self.who.matching,
                "events": [
                    {"event": one.event, "probability": one.probability, "share": one.share} for one in self.who.events
                ],
            }
        return found


@dataclass(frozen=True)
class Prediction:
    """What a model expects next in one sequence, given that nothing happens between its last event and `start`."""

    sequence: str
    start: float
    seen: int  # events of the history
    outlook: Outlook
    samples: Outlook | None = None  # beside the quadrature, where both were asked for

    @property
    def mean(self) -> float | None:
        return self.outlook.mean

    @property
    def median(self) -> float | None:
        return self.outlook.median

    @property
    def events(self) -> tuple[Likely, ...]:
        return self.outlook.events

    @property
    def who(self) -> Who | None:
        return self.outlook.who

    @property
    def no_event(self) -> float:
        return self.outlook.no_event

    def to_json(self) -> dict[str, Any]:
        found = {
            "sequence": self.sequence,
            "start": self.start,
            "events_seen": self.seen,
            **self.outlook.to_json(),
        }
        if self.samples is not None:
            found["samples"] = self.samples.to_json()
        return found


@dataclass(frozen=True)
class Asked:
    top: int
    pattern: EventPattern | None


def has_mean(no_event: float) -> bool:
    """Whether the mean is reported."""
    return no_event <= UNDEFINED_ABOVE


def make_outlook(
    asked: Asked,
    *,
    by: Literal["quadrature", "samples"],
    mean: float,
    mean_error: float,
    quantiles: list[float],
    no_event: float,
    defined: bool,
    horizon: float,
    probabilities: dict[str, float],
    possible: int,
    draws: int | None = None,
) -> Outlook:
    """From absolute times (NaN where they are never reached), in the order of QUANTILES, and what each event's probability is.

    `defined`: whether the mean is.
    """
    defined = defined and math.isfinite(mean)
    times = [None if math.isnan(one) else one for one in quantiles]
    ranked = sorted(((p, name) for name, p in probabilities.items() if p > 0.0), key=lambda one: (-one[0], one[1]))
    return Outlook(
        by=by,
        mean=mean if defined else None,
        mean_error=mean_error if defined and math.isfinite(mean_error) else None,
        median=times[2],
        interval_50=(times[1], times[3]),
        interval_90=(times[0], times[4]),
        no_event=no_event,
        horizon=horizon,
        possible=possible,
        events=tuple(Likely(name, p) for p, name in ranked[: asked.top]),
        who=None if asked.pattern is None else _who(asked.pattern, ranked, asked.top),
        draws=draws,
    )


def _who(pattern: EventPattern, ranked: list[tuple[float, str]], top: int) -> Who:
    matching = [(p, name) for p, name in ranked if pattern.matches(name)]
    total = float(np.sum([p for p, _ in matching])) if matching else 0.0
    best = tuple(Likely(name, p, p / total) for p, name in matching[:top])
    return Who(pattern.text, total, len(matching), best)
