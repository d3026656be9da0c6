"""Draw whole futures, or only the next event, of histories from a model; each future says why it ended.

A history is what happened up to `start`. Draws from one history share its past until their first event. After that each has its own
sequence and, for a model of rules, its own database.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, get_args

import numpy as np
import torch

from foretell.data import Clock, EventData, EventSequence, FrameFormat, ResultList, Vocabulary
from foretell.data.arguments import check_histories, check_history
from foretell.data.clock import NO_CLOCK
from foretell.data.sequence import FACTS, NO_METADATA
from foretell.errors import ForetellError
from foretell.options import check_choice
from foretell.sampling.core.drawing import FutureDraws, SamplingStart, in_shards, in_threads, mixed_seed
from foretell.sampling.core.future import Future, Futures, NextEvents
from foretell.sampling.core.sampler import FutureCovariates
from foretell.sampling.core.start import SampledModel, start_sampler
from foretell.sampling.core.thinning import Cost, Pace, next_events
from foretell.sampling.core.threads import alone, keep_memory
from foretell.shards.shard_map import Shards

log = logging.getLogger("foretell")

MOST_EVENTS = 10_000  # limit of a future's events, unless the caller sets one: a self-exciting process may explode
MOST_DRAWS = 1_000_000  # limit of the draws from one history
DRAWS_AT_A_TIME = 50_000  # next events drawn together; each needs the intensities of all types
LONGEST_TIMES = 100.0  # limit of waiting for a next event, in lengths of the longest training sequence


def sampling_start(history: EventSequence, start: float | None) -> SamplingStart:
    """Return where futures start: at `start`, or else at the end of observation. Events of the history after `start` are ignored."""
    check_history(history)
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
    horizon: float | None = None,
    n: int = 1,
    start: float | Sequence[float] | None = None,
    events: int | None = None,
    seed: int = 0,
    covariates: FutureCovariates = "drawn",
    progress: Callable[[int, int], None] | None = None,
    shards: Shards | None = None,
) -> ResultList[Futures]:
    """Draw futures of every history, exactly, by thinning under proved bounds.

    Draws depend only on `seed` and on the position of a history, not on threads or on the other histories.

    Args:
        model: the model.
        histories: what has happened so far.
        horizon: the length of each future. It may be left out if `events` is given, and is then a hundred times the longest sequence in
            training.
        n: futures per history.
        start: where futures begin, one time for all or one per history; default: each history's `t_end`.
        events: the largest number of events in a future; default: 10,000.
        seed: the seed of the random numbers.
        covariates: of drawn events, if the model uses any: "drawn" from training events of the same type, or "missing".
        progress: called with the number of finished futures and the number of all futures.
        shards: where futures are computed, which does not change them; default: in this process.

    Returns:
        The futures of each history; `to_frame()` has a row per event.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"], ["visit"]], [[0.5, 2.0], [1.0]], t_ends=[10.0, 5.0])
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data).model
        >>> [len(one.futures) for one in ft.sample_futures(model, data, horizon=3.0, n=4)]
        [4, 4]
    """
    check_histories(histories)
    if horizon is None and events is None:
        raise ForetellError("say how long futures last, with `horizon=`, or how many events they have, with `events=`")
    horizon = longest_wait(model, histories) if horizon is None else horizon
    events = MOST_EVENTS if events is None else events
    _check(horizon, n, events, seed)
    _check_covariates(model, covariates)
    keep_memory()
    begin = [start] * len(histories) if start is None or isinstance(start, int | float) else start
    starts = [sampling_start(history, one) for history, one in zip(histories, begin, strict=True)]
    drawing = FutureDraws(model, starts, horizon, n, (events, covariates), seed)
    drawn = in_threads(drawing, progress) if shards is None else in_shards(drawing, progress, shards)
    made: list[list[Future]] = [[] for _ in starts]
    costs = [Cost() for _ in starts]
    for (number, _), (futures, cost) in zip(drawing.shares, drawn, strict=True):
        made[number] += futures
        costs[number] += cost
    found: ResultList[Futures] = ResultList()
    for one, futures, cost in zip(starts, made, costs, strict=True):
        said = FrameFormat.of(one.history.source, one.history.start)
        how = covariates if model.has_covariates else None
        found.append(Futures(one.history.id, one.start, one.start + horizon, tuple(futures), cost, seed, said, how))
    return found


def sample(
    model: SampledModel,
    history: EventSequence,
    *,
    horizon: float | None = None,
    n: int = 1,
    start: float | None = None,
    events: int | None = None,
    seed: int = 0,
    covariates: FutureCovariates = "drawn",
) -> Futures:
    """Draw futures of one history, exactly, by thinning under proved bounds.

    Args:
        model: the model.
        history: what has happened so far.
        horizon: the length of each future; may be left out if `events` is given.
        n: the number of futures.
        start: where futures begin; default: the history's `t_end`.
        events: the largest number of events in a future; default: 10,000.
        seed: the seed of the random numbers.
        covariates: as in `sample_futures`.

    Returns:
        The futures; `to_frame()` has a row per event.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"]], [[0.5, 2.0]], t_ends=[10.0])
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data).model
        >>> len(ft.sample(model, data[0], horizon=3.0, n=4).futures)
        4
    """
    limits: Any = {"horizon": horizon, "n": n, "start": start, "events": events}
    return sample_futures(model, [history], **limits, seed=seed, covariates=covariates)[0]


def _check_covariates(model: SampledModel, covariates: str) -> None:
    check_choice("covariates", covariates, list(get_args(FutureCovariates)), repr)
    if covariates != "drawn" and not model.has_covariates:
        raise ForetellError(
            f"covariates = {covariates!r}: {model.title} was trained without covariates, and its futures have none; leave it out"
        )


def longest_wait(model: SampledModel, histories: Sequence[EventSequence] | EventData) -> float:
    """Return the default horizon for the next event: a hundred times the longest training sequence."""
    longest = model.longest if model.longest is not None else max((one.t_end for one in histories), default=1.0)
    return LONGEST_TIMES * longest


def sample_next(
    model: SampledModel,
    histories: Sequence[EventSequence] | EventData,
    *,
    n: int,
    horizon: float | None = None,
    start: float | None = None,
    seed: int = 0,
) -> ResultList[NextEvents]:
    """Draw the next event of each history many times, exactly.

    Args:
        model: the model.
        histories: what has happened so far.
        n: draws per history.
        horizon: the longest time to wait for an event; default: a hundred times the longest sequence in training.
        start: the time from which the next event is drawn; default: each history's `t_end`.
        seed: the seed of the random numbers.

    Returns:
        For each history the times and events of the draws, and which draws found an event (`found`).

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"]], [[0.5, 2.0]], t_ends=[10.0])
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data).model
        >>> ft.sample_next(model, data, n=5)[0].times.shape
        (5,)
    """
    check_histories(histories)
    horizon = longest_wait(model, histories) if horizon is None else horizon
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
                random = torch.Generator().manual_seed(mixed_seed(seed, number, first))
                of_draw = torch.zeros(min(DRAWS_AT_A_TIME, n - first), dtype=torch.int64, device=model.device)
                pace = Pace.first(sampler, model.device)
                parts.append(next_events(sampler, of_draw, begin, begin + horizon, pace, random))
        choices = torch.cat([part.choices for part in parts]).cpu().numpy()
        named = np.array([sampler.name(0, choice) for choice in range(choices.max() + 1)] + [None], dtype=object)
        names = tuple(named[choices].tolist())  # index -1 selects the last name, None
        times = torch.cat([part.times for part in parts]).cpu().numpy()
        cost = sum((part.cost for part in parts), Cost())
        until, said = one.start + horizon, FrameFormat.of(one.history.source, one.history.start)
        found.append(NextEvents(one.history.id, one.start, until, ~np.isnan(times), times, names, cost, said))
    return found


def futures_as_data(
    found: Sequence[Futures],
    histories: Sequence[EventSequence] | None,
    vocabulary: Vocabulary,
    clock: Clock = NO_CLOCK,
    *,
    whole: bool = True,
) -> EventData:
    """Return a sequence for each future, named after its history and its number; if `whole`, the events of `histories` come first.

    A sequence ends at the horizon, or at its last event if it reached the largest number of events.
    """
    names = {name: number for number, name in enumerate(vocabulary.names)}
    sequences = []
    for place, one in enumerate(found):
        past_times, past_types = np.empty(0), np.empty(0, dtype=np.int32)
        about = histories[place].metadata if histories is not None else NO_METADATA
        given = {FACTS: about[FACTS]} if FACTS in about else NO_METADATA
        if histories is not None and whole:
            seen = int(np.searchsorted(histories[place].times, one.start, side="right"))
            past_times, past_types = histories[place].times[:seen], histories[place].types[:seen]
        for number, future in enumerate(one.futures, 1):
            types = [names.setdefault(name, len(names)) for name in future.events]
            times = np.concatenate([past_times, future.times])
            end = one.horizon if future.end == "horizon" else float(future.times[-1])
            kinds = np.concatenate([past_types, np.asarray(types, dtype=np.int32)])
            began = None if histories is None else histories[place].start
            sequences.append(EventSequence(times, kinds, end, f"{one.sequence}-{number}", given, start=began))
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
