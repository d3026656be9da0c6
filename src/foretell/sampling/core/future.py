"""The results of sampling: whole futures of a history, or draws of its next event, with counts of the work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from foretell.data import Clock, FrameFormat, FrameResult
from foretell.data.clock import NO_CLOCK
from foretell.data.frame_output import NO_FORMAT, FrameColumns
from foretell.sampling.core.sampler import FutureCovariates
from foretell.sampling.core.thinning import Cost

End = Literal["horizon", "count"]


@dataclass(frozen=True)
class Future:
    times: np.ndarray  # float64, after the start, in order
    events: tuple[str, ...]
    end: End  # "horizon": no further event before it; "count": the requested number of events was reached

    def to_json(self, clock: Clock = NO_CLOCK, began: int | None = None) -> dict[str, Any]:
        """Return a JSON object, with ISO times in addition if `began`, the absolute start of the sequence, is known."""
        iso = {} if began is None else {"iso": [clock.iso(time, began) for time in self.times.tolist()]}
        return {"times": self.times.tolist(), **iso, "events": list(self.events), "end": self.end}


@dataclass(frozen=True)
class Futures(FrameResult):
    """Sampled futures of one history. As a frame: a row per event, with the number of its future, from 1, in `sample`."""

    sequence: str
    start: float
    horizon: float  # an absolute time
    futures: tuple[Future, ...]
    cost: Cost
    seed: int
    format: FrameFormat = field(default=NO_FORMAT, repr=False, compare=False)
    covariates: FutureCovariates | None = None  # how covariates of drawn events were chosen; None: the model has none

    def frame_columns(self) -> FrameColumns:
        lengths = [len(one.times) for one in self.futures]
        return {
            "sequence": [self.sequence] * sum(lengths),
            "sample": np.repeat(np.arange(1, len(lengths) + 1), lengths),
            "time": self.format.times(np.concatenate([np.zeros(0), *(one.times for one in self.futures)])),
            "event": [event for one in self.futures for event in one.events],
        }

    def to_json(self, clock: Clock = NO_CLOCK, began: int | None = None) -> dict[str, Any]:
        """Return a JSON object, with ISO times in addition if `began`, the absolute start of the sequence, is known."""
        ends = {"start": self.start, "horizon": self.horizon}
        iso = {} if began is None else {"iso": {name: clock.iso(time, began) for name, time in ends.items()}}
        return {
            "sequence": self.sequence,
            **ends,
            **iso,
            "seed": self.seed,
            **({} if self.covariates is None else {"covariates": self.covariates}),
            "futures": [one.to_json(clock, began) for one in self.futures],
            "cost": cost_json(self.cost),
        }


@dataclass(frozen=True)
class NextEvents(FrameResult):
    """Draws of the next event of one history. As a frame: a row per draw, without time and event if none was found."""

    sequence: str
    start: float
    horizon: float
    found: np.ndarray  # bool [n]; False: no event before the horizon
    times: np.ndarray  # float64 [n]; NaN if there is no event
    events: tuple[str | None, ...]
    cost: Cost
    format: FrameFormat = field(default=NO_FORMAT, repr=False, compare=False)

    def frame_columns(self) -> FrameColumns:
        count = len(self.times)
        names = {"sequence": [self.sequence] * count, "sample": np.arange(1, count + 1)}
        return names | {"time": self.format.times(self.times), "event": list(self.events)}


def cost_json(cost: Cost) -> dict[str, int]:
    return {"accepted": cost.accepted, "proposals": cost.proposals, "bounds": cost.bounds, "pieces": cost.pieces}
