"""Whole futures against what happened: optimal transport distance and T-mAP, as the benchmark HoTPP (Karpukhin et al., 2024) has them.

In: a model, held-out data, a horizon and a number of sampled futures. From time to time in each sequence futures are sampled, and the
events of the next `horizon` are compared with them. Out: both scores with their 95 % intervals, and every parameter.

- **Optimal transport distance** (lower is better): of the first `steps` events on either side, averaged over futures.
- **T-mAP** (higher is better): see `temporal_precision`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.data import EventData, EventSequence
from foretell.errors import ForetellError
from foretell.evaluate.alignment import transport_distances
from foretell.evaluate.bootstrap import Estimate, Units, estimates
from foretell.evaluate.temporal_precision import FutureWindow, temporal_precision
from foretell.models.base import IntensityModel

STEPS = 10  # events of the optimal transport distance: HoTPP's `otd_steps`, in all of its data sets
WINDOWS_OF_DELTA = 5.0  # HoTPP on StackOverflow: horizon 10, δ = 2
MOST_STARTS = 1000


@dataclass(frozen=True)
class FutureOptions:
    """What is asked. Without `delta` it is a fifth of the horizon, without `costs` there is one, `delta/2`: HoTPP's proportions."""

    n: int
    horizon: float
    delta: float | None = None
    costs: tuple[float, ...] = ()  # of inserting or deleting an event
    steps: int = STEPS

    def __post_init__(self) -> None:
        if self.n < 2:
            raise ForetellError(f"futures = {self.n}: expected 2 or more, since they score each other")
        for name, value in (("horizon", self.horizon), ("delta", self.window), *(("cost", one) for one in self.prices)):
            if not 0.0 < value < float("inf"):
                raise ForetellError(f"{name} = {value}: expected a time above 0, in the unit of the data")
        if self.steps < 1:
            raise ForetellError(f"steps = {self.steps}: expected 1 or more")

    @property
    def window(self) -> float:
        return self.horizon / WINDOWS_OF_DELTA if self.delta is None else self.delta

    @property
    def prices(self) -> tuple[float, ...]:
        return self.costs or (self.window / 2.0,)


@dataclass(frozen=True)
class TransportDistance:
    cost: float  # of inserting or deleting an event
    distance: Estimate


@dataclass(frozen=True)
class FutureScores:
    horizon: float
    delta: float
    steps: int
    futures: int  # from each start
    starts: int  # times from which futures were sampled
    true_events: int  # within the horizon of a start, together
    predicted_events: float  # of a future within the horizon, on average; and of the truth:
    happened_events: float
    transport: tuple[TransportDistance, ...]  # one for each cost
    t_map: Estimate  # averaged over the types that happen
    t_map_weighted: Estimate  # averaged over events


def score_futures(
    model: IntensityModel,
    data: EventData,
    asked: FutureOptions,
    seed: int = 0,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> FutureScores:
    from foretell.sampling.core.futures import sample_futures

    starts = starting_points(data, asked.horizon)
    if not starts:
        raise ForetellError(
            f"horizon = {asked.horizon:g}: no sequence of {data.name} is watched so long after one of its events; ask for less"
        )
    histories = [_until(data[place], event) for place, event in starts]
    drawn = sample_futures(model, histories, horizon=asked.horizon, n=asked.n, seed=seed, progress=progress)
    numbers = {name: kind for kind, name in enumerate(data.vocabulary.names)}  # and then those that futures alone have
    windows = []
    for (place, event), one in zip(starts, drawn, strict=True):
        futures = tuple((future.times - one.start, _numbered(future.events, numbers)) for future in one.futures)
        windows.append(FutureWindow(place, *_happened(data[place], event, asked.horizon, model.unscored), futures))
    return compare_futures(windows, len(data), asked, seed)


def _numbered(names: Sequence[str], numbers: dict[str, int]) -> np.ndarray:
    """The number of each name; one that was not met before takes the next. (Rules make events possible that no vocabulary has.)"""
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def starting_points(data: EventData, horizon: float) -> list[tuple[int, int]]:
    """(sequence, event): after an event, one horizon after the other, as long as all of it was watched; at most 1,000, evenly chosen."""
    found = []
    for place, sequence in enumerate(data):
        times, after = sequence.times, -np.inf
        while True:
            event = int(np.searchsorted(times, after, side="left"))
            if event >= len(times) or times[event] + horizon > sequence.t_end:
                break
            event = int(np.searchsorted(times, times[event], side="right")) - 1  # the last of those at this time
            found.append((place, event))
            after = np.nextafter(times[event] + horizon, np.inf)
    if len(found) > MOST_STARTS:
        found = [found[int(place)] for place in np.linspace(0, len(found) - 1, MOST_STARTS).round()]
    return found


def _until(sequence: EventSequence, event: int) -> EventSequence:
    unscored = None if sequence.unscored is None else sequence.unscored[: event + 1]
    return EventSequence(
        sequence.times[: event + 1],
        sequence.types[: event + 1],
        float(sequence.times[event]),
        sequence.id,
        sequence.metadata,
        unscored,
    )


def _happened(
    sequence: EventSequence, event: int, horizon: float, unscored: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Times since an event, and types, of the events within a horizon after it that are predicted at all."""
    start = sequence.times[event]
    stop = int(np.searchsorted(sequence.times, start + horizon, side="left"))
    chosen = np.arange(event + 1, stop)
    if sequence.unscored is not None:
        chosen = chosen[~sequence.unscored[chosen]]
    if unscored is not None:
        chosen = chosen[~unscored[sequence.types[chosen]]]
    return sequence.times[chosen] - start, sequence.types[chosen].astype(np.int64)


def compare_futures(
    windows: Sequence[FutureWindow], sequences: int, asked: FutureOptions, seed: int = 0
) -> FutureScores:
    """Scores of sampled futures, with intervals over sequences, or over neighbouring windows where sequences are few."""
    units = Units(np.array([one.sequence for one in windows]), sequences)
    resampling = units.resampling(seed)
    transported = _transport(windows, asked)  # [windows, futures, costs]
    ones = np.ones(len(windows))
    ratios = [
        units.ratio(transported[:, :, place].mean(1), ones, transported[:, :, place].var(1, ddof=1) / asked.n)
        for place in range(len(asked.prices))
    ]
    lengths = np.array([[len(times) for times, _ in one.futures] for one in windows])
    macro, weighted = temporal_precision(windows, units, asked.window, seed)
    return FutureScores(
        horizon=asked.horizon,
        delta=asked.window,
        steps=asked.steps,
        futures=asked.n,
        starts=len(windows),
        true_events=sum(len(one.times) for one in windows),
        predicted_events=float(lengths.mean()),
        happened_events=float(np.mean([len(one.times) for one in windows])),
        transport=tuple(
            TransportDistance(cost, found)
            for cost, found in zip(asked.prices, estimates(ratios, resampling), strict=True)
        ),
        t_map=macro,
        t_map_weighted=weighted,
    )


def _transport(windows: Sequence[FutureWindow], asked: FutureOptions) -> np.ndarray:
    pairs, owner = [], []
    for row, window in enumerate(windows):
        true = _by_type(window.times[: asked.steps], window.types[: asked.steps])
        for number, (times, types) in enumerate(window.futures):
            drawn = _by_type(times[: asked.steps], types[: asked.steps])
            nothing = np.zeros(0)
            for kind in true.keys() | drawn.keys():
                pairs.append((true.get(kind, nothing), drawn.get(kind, nothing)))
                owner.append(row * asked.n + number)
    found = np.zeros((len(windows) * asked.n, len(asked.prices)))
    np.add.at(found, np.asarray(owner, dtype=np.int64), transport_distances(pairs, asked.prices))
    return found.reshape(len(windows), asked.n, -1)


def _by_type(times: np.ndarray, types: np.ndarray) -> dict[int, np.ndarray]:
    return {int(kind): times[types == kind] for kind in np.unique(types)}


def __getattr__(name: str) -> Any:
    if name == "Futuring":
        warnings.warn("Futuring is called FutureOptions now", DeprecationWarning, stacklevel=2)
        return FutureOptions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
