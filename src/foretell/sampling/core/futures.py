"""Whole futures, and next events alone: models and histories in, sampled events out, each with why it ended.

A history is what happened up to `start`. Draws from one history share their past until their first event; from then on each goes its own
way, and for a model of rules the database goes with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from foretell.data import Clock, EventData, EventSequence, FrameFormat, FrameResult, ResultList, Vocabulary
from foretell.data.clock import NO_CLOCK
from foretell.data.frame_output import NO_FORMAT, FrameColumns
from foretell.errors import ForetellError
from foretell.sampling.core.start import SampledModel, start_sampler
from foretell.sampling.core.thinning import KEPT, Cost, Pace, next_events, next_window, waits
from foretell.sampling.core.threads import alone, keep_memory, side_by_side

log = logging.getLogger("foretell")

End = Literal["horizon", "count"]
SEQUENCES_AT_A_TIME = 64  # whose pasts are held side by side
WORTH_SHARING = 16  # futures from which on they are shared out among threads
MOST_EVENTS = 10_000  # of a future, unless more are asked for: a process that feeds itself may explode
MOST_DRAWS = 1_000_000  # of one history
DRAWS_AT_A_TIME = 50_000  # of next events, each with the intensities of all types
LONGEST_TIMES = 100.0  # observation times of training, up to which a next event is waited for


@dataclass(frozen=True)
class Future:
    times: np.ndarray  # float64, after the start, in order
    events: tuple[str, ...]
    end: End  # nothing more happens up to the horizon, or as many events as were asked for

    def to_json(self, clock: Clock = NO_CLOCK, began: int | None = None) -> dict[str, Any]:
        """With ISO times beside the numbers where the sequence `began` at a known time."""
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

    def frame_columns(self) -> FrameColumns:
        lengths = [len(one.times) for one in self.futures]
        return {
            "sequence": [self.sequence] * sum(lengths),
            "sample": np.repeat(np.arange(1, len(lengths) + 1), lengths),
            "time": self.format.times(np.concatenate([np.zeros(0), *(one.times for one in self.futures)])),
            "event": [event for one in self.futures for event in one.events],
        }

    def to_json(self, clock: Clock = NO_CLOCK, began: int | None = None) -> dict[str, Any]:
        """With ISO times beside the numbers where the sequence `began` at a known time."""
        ends = {"start": self.start, "horizon": self.horizon}
        iso = {} if began is None else {"iso": {name: clock.iso(time, began) for name, time in ends.items()}}
        return {
            "sequence": self.sequence,
            **ends,
            **iso,
            "seed": self.seed,
            "futures": [one.to_json(clock, began) for one in self.futures],
            "cost": cost_json(self.cost),
        }


@dataclass(frozen=True)
class NextEvents(FrameResult):
    """Draws of the next event of one history. As a frame: a row per draw; time and event are missing where nothing was found."""

    sequence: str
    start: float
    horizon: float
    found: np.ndarray  # bool [n]; False: nothing up to the horizon
    times: np.ndarray  # float64 [n]; NaN where nothing was found
    events: tuple[str | None, ...]
    cost: Cost
    format: FrameFormat = field(default=NO_FORMAT, repr=False, compare=False)

    def frame_columns(self) -> FrameColumns:
        count = len(self.times)
        names = {"sequence": [self.sequence] * count, "sample": np.arange(1, count + 1)}
        return names | {"time": self.format.times(self.times), "event": list(self.events)}


def cost_json(cost: Cost) -> dict[str, int]:
    return {"accepted": cost.accepted, "proposals": cost.proposals, "bounds": cost.bounds, "pieces": cost.pieces}


@dataclass(frozen=True)
class SamplingStart:
    """Where the future of a history begins."""

    history: EventSequence
    seen: int  # events of the history that have happened by then
    start: float


def sampling_start(history: EventSequence, start: float | None) -> SamplingStart:
    """At the end of what was observed, or earlier, where later events are not seen, or later, after a time in which nothing happened."""
    if not isinstance(history, EventSequence):
        raise ForetellError(f"history: expected an EventSequence, such as data.test[0], found {type(history).__name__}")
    if start is None:
        return SamplingStart(history, len(history), history.t_end)
    if not (np.isfinite(start) and start >= 0.0):
        raise ForetellError(f"start = {start}: expected a time from 0 on")
    if start > history.t_end:
        log.warning(
            "sequence %s is observed until %g: from then to %g nothing is taken to have happened",
            history.id, history.t_end, start,
        )  # fmt: skip
    seen = int(np.searchsorted(history.times, start, side="right"))
    return SamplingStart(history, seen, start)


def sample_futures(
    model: SampledModel,
    histories: Sequence[EventSequence] | EventData,
    *,
    horizon: float,
    n: int = 1,
    start: float | Sequence[float] | None = None,
    events: int = MOST_EVENTS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> ResultList[Futures]:
    """`n` futures of each history over a `horizon` of time after its start (or one for each), or up to a number of `events`."""
    _check(horizon, n, events, seed)
    keep_memory()
    begin = [start] * len(histories) if start is None or isinstance(start, int | float) else start
    starts = [sampling_start(history, one) for history, one in zip(histories, begin, strict=True)]
    step = _share(n)
    shares = [(number, first) for number in range(len(starts)) for first in range(0, n, step)]
    finished = dict.fromkeys(shares, 0)

    def sampled(share: tuple[int, int]) -> tuple[list[Future], Cost]:
        number, first = share
        size = min(step, n - first)

        def told(count: int) -> None:
            finished[share] = count
            if progress is not None:
                progress(sum(finished.values()), len(starts) * n)

        # Of its own for every share, so that neither threads nor other histories change what is drawn.
        random = torch.Generator().manual_seed(_mixed(seed, number, first))
        one = starts[number]
        return _futures(model, one, size, one.start + horizon, events, random, told)

    made: list[list[Future]] = [[] for _ in starts]
    costs = [Cost() for _ in starts]
    for (number, _), (futures, cost) in zip(shares, side_by_side(sampled, shares, model.device), strict=True):
        made[number] += futures
        costs[number] += cost
    found: ResultList[Futures] = ResultList()
    for one, futures, cost in zip(starts, made, costs, strict=True):
        said = FrameFormat.of(histories, one.history.start)
        found.append(Futures(one.history.id, one.start, one.start + horizon, tuple(futures), cost, seed, said))
    return found


def _share(n: int) -> int:
    """Futures of a history that are drawn side by side: equal shares, whatever the number of threads, but at least two of many."""
    shares = max(-(-n // SEQUENCES_AT_A_TIME), 2 if n >= WORTH_SHARING else 1)
    return -(-n // shares)


def _mixed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def sample(
    model: SampledModel,
    history: EventSequence,
    *,
    horizon: float,
    n: int = 1,
    start: float | None = None,
    events: int = MOST_EVENTS,
    seed: int = 0,
) -> Futures:
    """`n` futures of one history."""
    return sample_futures(model, [history], horizon=horizon, n=n, start=start, events=events, seed=seed)[0]


def sample_next(
    model: SampledModel,
    histories: Sequence[EventSequence] | EventData,
    *,
    n: int,
    horizon: float | None = None,
    start: float | None = None,
    seed: int = 0,
) -> ResultList[NextEvents]:
    """`n` draws of the next event of each history; without a `horizon`, a hundred times as long as anything in training."""
    if horizon is None:
        longest = model.longest if model.longest is not None else max((one.t_end for one in histories), default=1.0)
        horizon = LONGEST_TIMES * longest
    _check(horizon, n, MOST_EVENTS, seed)
    keep_memory()
    found: ResultList[NextEvents] = ResultList()
    for number, one in enumerate(sampling_start(history, start) for history in histories):
        with alone(model.device):
            sampler = start_sampler(model, [one.history], [one.seen])
        begin = torch.tensor([one.start], dtype=torch.float64, device=model.device)
        parts = []
        with alone(model.device) if sampler.shares_out else nullcontext():
            for first in range(0, n, DRAWS_AT_A_TIME):
                random = torch.Generator().manual_seed(_mixed(seed, number, first))
                of_draw = torch.zeros(min(DRAWS_AT_A_TIME, n - first), dtype=torch.int64, device=model.device)
                pace = Pace.first(sampler, model.device)
                parts.append(next_events(sampler, of_draw, begin, begin + horizon, pace, random))
        choices = torch.cat([part.choices for part in parts]).cpu().numpy()
        named = np.array([sampler.name(0, choice) for choice in range(choices.max() + 1)] + [None], dtype=object)
        names = tuple(named[choices].tolist())  # the last one is that of -1
        times = torch.cat([part.times for part in parts]).cpu().numpy()
        cost = sum((part.cost for part in parts), Cost())
        until, said = one.start + horizon, FrameFormat.of(histories, one.history.start)
        found.append(NextEvents(one.history.id, one.start, until, ~np.isnan(times), times, names, cost, said))
    return found


def _futures(
    model: SampledModel,
    begin: SamplingStart,
    n: int,
    horizon: float,
    events: int,
    random: torch.Generator,
    told: Callable[[int], None],
) -> tuple[list[Future], Cost]:
    device = model.device
    sampler = start_sampler(model, [begin.history], [begin.seen])
    pace = Pace.first(sampler, device)
    now = torch.tensor([begin.start], dtype=torch.float64, device=device)
    far = torch.full_like(now, horizon)
    together = torch.zeros(n, dtype=torch.int64, device=device)
    drawn = next_events(sampler, together, now, far, pace, random)
    cost = drawn.cost
    made = [_Growing() for _ in range(n)]
    ids = drawn.found.nonzero().squeeze(1)  # which future each sequence is, from here on
    sampler, pace = sampler.select(together[ids]), pace.select(together[ids])
    now, choices = drawn.times[ids], drawn.choices[ids]
    due = torch.zeros_like(now)
    while len(ids):
        happened = (choices >= 0).nonzero().squeeze(1).tolist()
        for row, draw, when, which in zip(
            happened, ids[happened].tolist(), now[happened].tolist(), choices[happened].tolist(), strict=True
        ):
            made[draw].add(when, sampler.name(row, which), events)
        sampler.append(now, choices)
        due = torch.where(choices >= 0, waits(len(ids), random, device), due)
        pace.happened(choices >= 0, horizon - now)
        open_ = torch.tensor([not made[draw].full for draw in ids.tolist()], device=device) & (now < horizon)
        told(n - int(open_.sum()))
        if int(open_.sum()) < KEPT * len(ids):
            keep = open_.nonzero().squeeze(1)
            ids, sampler, pace, now, due, open_ = (
                ids[keep], sampler.select(keep), pace.select(keep), now[keep], due[keep], open_[keep],
            )  # fmt: skip
            if not len(ids):
                break
        end = torch.where(open_, horizon, now)
        stretch = next_window(sampler, torch.arange(len(ids), device=device), now, end, pace, due, random)
        cost += stretch.drawn.cost
        choices, due = stretch.drawn.choices, stretch.due
        now = torch.where(stretch.drawn.found, stretch.drawn.times, stretch.end)
    told(n)
    return [one.future() for one in made], cost


@dataclass
class _Growing:
    times: list[float] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    full: bool = False

    def add(self, time: float, event: str, most: int) -> None:
        self.times.append(time)
        self.events.append(event)
        self.full = len(self.times) == most

    def future(self) -> Future:
        return Future(np.asarray(self.times, dtype=np.float64), tuple(self.events), "count" if self.full else "horizon")


def futures_as_data(
    found: Sequence[Futures],
    histories: Sequence[EventSequence] | None,
    vocabulary: Vocabulary,
    clock: Clock = NO_CLOCK,
    *,
    whole: bool = True,
) -> EventData:
    """A sequence for each future, named after its history and its place; with `histories`, what happened before comes first if `whole`.

    It ends at the horizon, or with its last event where it was cut there.
    """
    names = {name: number for number, name in enumerate(vocabulary.names)}
    sequences = []
    for place, one in enumerate(found):
        past_times, past_types = np.empty(0), np.empty(0, dtype=np.int32)
        if histories is not None and whole:
            seen = int(np.searchsorted(histories[place].times, one.start, side="right"))
            past_times, past_types = histories[place].times[:seen], histories[place].types[:seen]
        for number, future in enumerate(one.futures, 1):
            types = [names.setdefault(name, len(names)) for name in future.events]
            times = np.concatenate([past_times, future.times])
            end = one.horizon if future.end == "horizon" else float(future.times[-1])
            kinds = np.concatenate([past_types, np.asarray(types, dtype=np.int32)])
            began = None if histories is None else histories[place].start
            sequences.append(EventSequence(times, kinds, end, f"{one.sequence}-{number}", start=began))
    return EventData(sequences, Vocabulary(tuple(names)), name="futures", clock=clock)


def _check(horizon: float, n: int, events: int, seed: int) -> None:
    problems = []
    if not (np.isfinite(horizon) and horizon > 0.0):
        problems.append(f"horizon = {horizon}: expected a positive length of time")
    if not 1 <= n <= MOST_DRAWS:
        problems.append(f"n = {n}: expected a number from 1 to {MOST_DRAWS:,}")
    if events < 1:
        problems.append(f"events = {events}: expected 1 or more")
    if seed < 0:
        problems.append(f"seed = {seed}: expected 0 or more")
    if problems:
        raise ForetellError("\n".join(problems))
