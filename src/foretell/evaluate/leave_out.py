"""Finds which past events matter to a model without rules: leaves each out of the history and computes the intensities again.

In: a model, a history, a time and an event type. Out: the effect of each of the latest events of the history on the log-intensity of that
type, and on that of all types together. Older events are left out all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from foretell.batches.batch import Queries
from foretell.data import Clock, EventData, EventSequence, FrameFormat, FrameResult
from foretell.data.clock import NO_CLOCK
from foretell.data.frame_origin import NO_ORIGIN, FrameOrigin
from foretell.data.frame_output import FrameColumns
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel

MOST_LEFT_OUT = 256  # default number of events that are left out one by one, the latest first
PAIRS_AT_A_TIME = 1 << 20  # largest number of pairs of events in the histories that are encoded together


@dataclass(frozen=True)
class PastEvent:
    """An event of the history, and the decrease of log-intensities without it."""

    event: str
    event_index: int  # from 1
    time: float
    ago: float
    effect: float  # on the explained event's log-intensity
    total_effect: float  # on the log-intensity of all events together


@dataclass(frozen=True)
class PastExplanation(FrameResult):
    """The prediction of a model without rules just before a time, and the effects of past events. The frame has one row per past
    event."""

    sequence: str
    time: float
    seen: int  # number of events with a smaller time
    after: tuple[str, float] | None  # the last event before `time`, and its time
    event: str
    intensities: dict[str, float]  # of all event types, highest first
    past: tuple[PastEvent, ...]  # by decreasing absolute effect
    older: int  # number of earlier events, which were not left out one by one
    older_effect: float | None  # the effect of all older events together
    clock: Clock = NO_CLOCK
    began: int | None = None  # the timestamp of time 0, if known
    frame: FrameOrigin = field(default=NO_ORIGIN, repr=False, compare=False)

    @property
    def intensity(self) -> float:
        return self.intensities[self.event]

    @property
    def total(self) -> float:
        return sum(self.intensities.values())

    @property
    def frame_format(self) -> FrameFormat:
        return FrameFormat(self.frame, self.clock, self.began)

    def frame_columns(self) -> FrameColumns:
        return {
            "sequence": [self.sequence] * len(self.past),
            "event": [one.event for one in self.past],
            "event_index": np.array([one.event_index for one in self.past], dtype=np.int64),
            "time": self.frame_format.times(np.array([one.time for one in self.past], dtype=np.float64)),
            **{
                name: np.array([getattr(one, name) for one in self.past], dtype=np.float64)
                for name in ("ago", "effect", "total_effect")
            },
        }

    def to_json(self, top: int | None = None) -> dict[str, Any]:
        """Return JSON with the first `top` intensities and past events; None: all."""
        return {
            "sequence": self.sequence,
            "time": self.time,
            **({} if self.began is None else {"iso": self.clock.iso(self.time, self.began)}),
            "index": self.seen + 1,
            "event": self.event,
            "intensity": self.intensity,
            "probability": self.intensity / self.total,
            "total": self.total,
            "possible": len(self.intensities),
            "highest": [{"event": name, "intensity": value} for name, value in list(self.intensities.items())[:top]],
            "past": self.clock.with_iso([asdict(one) for one in self.past[:top]], self.began),
            "past_not_shown": len(self.past) - len(self.past[:top]),
            "older": self.older,
            "older_effect": self.older_effect,
        }


def explain_by_past(
    model: IntensityModel,
    history: EventSequence,
    at: float,
    event: str | None = None,
    most: int | None = MOST_LEFT_OUT,
    progress: Callable[[int, int], None] | None = None,
) -> PastExplanation:
    """Leave out the last `most` events of `history` one by one (None: all); `history` must have only the events before `at`."""
    names, seen = model.vocabulary, len(history)
    chosen = None if event is None else names.find(event)
    if event is not None and chosen is None:
        raise ForetellError(names.unknown(event))
    left_out = min(seen, seen if most is None else most)
    older = seen - left_out
    kept = np.ones((1 + left_out + (older > 0), seen), dtype=bool)
    kept[1 + np.arange(left_out), older + np.arange(left_out)] = False
    if older:
        kept[-1, :older] = False
    rows = []
    for part in _intensities(model, history, at, kept):
        rows.append(part)
        if progress is not None:
            progress(sum(map(len, rows)), len(kept))
    found = np.concatenate(rows)  # [histories, K]
    kind = int(found[0].argmax()) if chosen is None else chosen
    with np.errstate(divide="ignore"):
        logs, totals = np.log(found[:, kind]), np.log(found.sum(1))
    past = [
        PastEvent(
            names[int(history.types[place])],
            place + 1,
            float(history.times[place]),
            at - float(history.times[place]),
            float(logs[0] - logs[1 + place - older]),
            float(totals[0] - totals[1 + place - older]),
        )
        for place in range(older, seen)
    ]
    highest = sorted(range(len(names)), key=lambda one: (-found[0, one], names[one]))
    return PastExplanation(
        history.id,
        at,
        seen,
        (past[-1].event, past[-1].time) if past else None,
        names[kind],
        {names[one]: float(found[0, one]) for one in highest},
        tuple(sorted(past, key=lambda one: (-abs(one.effect), -one.event_index))),
        older,
        float(logs[0] - logs[-1]) if older else None,
        history.source.clock,
        history.start,
        history.source.frame,
    )


@torch.no_grad()
def _intensities(model: IntensityModel, history: EventSequence, at: float, kept: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the intensities of all types for each row of `kept` [histories, events], a few histories at a time: float64 [·, K]."""
    columns = EventData([history], model.vocabulary).columns
    together = max(1, PAIRS_AT_A_TIME // max(1, kept.shape[1]) ** 2)
    with model.evaluating():
        for start in range(0, len(kept), together):
            rows = kept[start : start + together]
            data = EventData(columns.select([0] * len(rows)).keep(rows.reshape(-1)), model.vocabulary)
            batch = model.collator.batch(data, range(len(rows)), device=model.device)
            times = torch.full((len(rows), 1), at, dtype=torch.float64, device=model.device)
            queries = model.collator.plan_queries(batch, Queries.at_times(batch, times))
            found = model.intensities(model.state(model.encode(batch), queries))
            yield found[:, 0].double().cpu().numpy()
