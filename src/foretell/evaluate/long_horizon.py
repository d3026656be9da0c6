"""Compares sampled futures with the true events: optimal transport distance and T-mAP, as in HoTPP (Karpukhin et al., 2024).

In: a model, held-out data, a horizon and a number of sampled futures. At several times of each sequence, futures are sampled and compared
with the true events of the next `horizon`. Out: both scores with 95 % intervals, and every parameter.
- **Optimal transport distance** (`transport_distances`, lower is better): distance of the first `steps` events, averaged over futures.
- **T-mAP** (`temporal_precision`, higher is better): average precision of sampled events as predictions of true ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretell.data import EventData, EventSequence
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import NOTHING, Estimate, Units, estimates, interval
from foretell.models.base import IntensityModel
from foretell.shards.shard_map import Shards

STEPS = 10  # number of events in the optimal transport distance: HoTPP's `otd_steps` for all its data sets
WINDOWS_OF_DELTA = 5.0  # HoTPP on StackOverflow: horizon 10, δ = 2
MOST_STARTS = 1000
MOST_IN_A_STEP = 1 << 22  # entries of a table of the dynamic programme, for all pairs that are solved together
PREDICTIONS = 10  # number of futures that serve as the prediction in turn; all futures determine how confident it is
REPLICATES = 200  # for the interval of T-mAP
AT_A_TIME = 20  # replicates


@dataclass(frozen=True)
class FutureOptions:
    """Options of sampled futures. By default `delta` is a fifth of the horizon, and the only cost is `delta/2`, as in HoTPP."""

    n: int
    horizon: float
    delta: float | None = None
    costs: tuple[float, ...] = ()  # costs of inserting or deleting an event
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
    cost: float  # the cost of inserting or deleting an event
    distance: Estimate


@dataclass(frozen=True)
class FutureScores:
    horizon: float
    delta: float
    steps: int
    futures: int  # number of futures per start
    starts: int  # number of times from which futures were sampled
    true_events: int  # number of true events within the horizon, summed over starts
    predicted_events: float  # mean number of events of a future within the horizon
    happened_events: float  # mean number of true events within the horizon
    transport: tuple[TransportDistance, ...]  # one per cost
    t_map: Estimate  # averaged over the types that happen
    t_map_weighted: Estimate  # averaged over events


@dataclass(frozen=True)
class FutureWindow:
    """The true events of one horizon, and the events of each future. Times are since the start of the horizon."""

    sequence: int
    times: np.ndarray
    types: np.ndarray
    futures: tuple[tuple[np.ndarray, np.ndarray], ...]  # times and types of each


def score_futures(
    model: IntensityModel,
    data: EventData,
    asked: FutureOptions,
    seed: int = 0,
    *,
    progress: Callable[[int, int], None] | None = None,
    shards: Shards | None = None,
) -> FutureScores:
    from foretell.sampling.core.futures import sample_futures

    starts = starting_points(data, asked.horizon)
    if not starts:
        short = f"no sequence of {data.name} is watched so long after one of its events; ask for less"
        raise ForetellError(f"horizon = {asked.horizon:g}: {short}")
    histories = [data[place].first(event + 1, float(data[place].times[event])) for place, event in starts]
    asking: Any = {"horizon": asked.horizon, "n": asked.n, "seed": seed, "progress": progress, "shards": shards}
    drawn = sample_futures(model, histories, **asking)
    numbers = {name: kind for kind, name in enumerate(data.vocabulary.names)}  # names only in futures come later
    windows = []
    for (place, event), one in zip(starts, drawn, strict=True):
        futures = tuple((future.times - one.start, _numbered(future.events, numbers)) for future in one.futures)
        windows.append(FutureWindow(place, *_happened(data[place], event, asked.horizon, model.unscored), futures))
    return compare_futures(windows, len(data), asked, seed)


def _numbered(names: Sequence[str], numbers: dict[str, int]) -> np.ndarray:
    """Return the number of each name; a new name gets the next number. (Rules may allow events that are not in the vocabulary.)"""
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def starting_points(data: EventData, horizon: float) -> list[tuple[int, int]]:
    """Return pairs (sequence, event): starts after an event, one horizon apart and fully observed; at most 1,000, evenly chosen."""
    found = []
    for place, sequence in enumerate(data):
        times, after = sequence.times, sequence.scored_from
        while True:
            event = int(np.searchsorted(times, after, side="left"))
            if event >= len(times) or times[event] + horizon > sequence.t_end:
                break
            event = int(np.searchsorted(times, times[event], side="right")) - 1  # the last event at this time
            found.append((place, event))
            after = np.nextafter(times[event] + horizon, np.inf)
    if len(found) > MOST_STARTS:
        found = [found[int(place)] for place in np.linspace(0, len(found) - 1, MOST_STARTS).round()]
    return found


def _happened(
    sequence: EventSequence, event: int, horizon: float, unscored: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the times since an event, and the types, of the scored events within a horizon after it."""
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
    """Return the scores of sampled futures. Intervals resample sequences or, if there are few, blocks of neighbouring windows."""
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


def transport_distances(pairs: Sequence[tuple[np.ndarray, np.ndarray]], costs: Sequence[float]) -> np.ndarray:
    """Return the distances between pairs of ascending times of one type: [pairs, costs] (Mei, Qin and Eisner, 2019).

    A distance is the least cost of turning one sequence into the other: moving an event costs the time that it moves, inserting or deleting
    one costs `cost`. Events of different types are never matched, and an optimal matching of times does not cross. So an exact dynamic
    programme solves each type; many are solved at once.
    """
    found = np.empty((len(pairs), len(costs)))
    sizes = np.array([[len(one), len(other)] for one, other in pairs], dtype=np.int64).reshape(-1, 2)
    alone = (sizes == 0).any(1)
    found[alone] = sizes[alone].sum(1)[:, None] * np.asarray(costs)
    rest = np.flatnonzero(~alone)
    rest = rest[np.lexsort((sizes[rest, 1], sizes[rest, 0]))]  # similar sizes side by side: little padding
    start = 0
    while start < len(rest):
        stop = start + 1
        width = sizes[rest[start]] + 1
        while stop < len(rest):
            wider = np.maximum(width, sizes[rest[stop]] + 1)
            if wider.max() > 2 * width.max() or (stop - start) * int(wider.prod()) > MOST_IN_A_STEP:
                break
            width, stop = wider, stop + 1
        chosen = rest[start:stop]
        found[chosen] = _aligned([pairs[place] for place in chosen], sizes[chosen], costs)
        start = stop
    return found


def _aligned(pairs: Sequence[tuple[np.ndarray, np.ndarray]], sizes: np.ndarray, costs: Sequence[float]) -> np.ndarray:
    most, others = sizes.max(0)
    one, other = np.zeros((len(pairs), most)), np.zeros((len(pairs), others))
    for row, (first, second) in enumerate(pairs):
        one[row, : len(first)], other[row, : len(second)] = first, second
    apart = np.abs(one[:, :, None] - other[:, None, :])[..., None]  # [pairs, most, others, 1]
    cost = np.asarray(costs, dtype=np.float64)
    best = np.empty((len(pairs), most + 1, others + 1, len(cost)))
    best[:, :, 0] = np.arange(most + 1)[:, None] * cost
    best[:, 0] = np.arange(others + 1)[:, None] * cost
    for i in range(1, most + 1):
        for j in range(1, others + 1):
            unmatched = np.minimum(best[:, i - 1, j], best[:, i, j - 1]) + cost
            best[:, i, j] = np.minimum(unmatched, best[:, i - 1, j - 1] + apart[:, i - 1, j - 1])
    return best[np.arange(len(pairs)), sizes[:, 0], sizes[:, 1]]


def matched_ranks(predicted: np.ndarray, true: np.ndarray, delta: float) -> np.ndarray:
    """Return bool [predictions], highest score first: True if this prediction lets one more true event be matched.

    Matches are one to one, each within `delta`.
    The first `k` predictions then have the largest possible number of matches for every `k`, since the sets of predictions that can be
    matched together are a matroid. So at every threshold on the score the number of true positives is the largest possible.
    """
    low, high = np.searchsorted(true, predicted - delta, "left"), np.searchsorted(true, predicted + delta, "right")
    owner = np.full(len(true), -1)
    found = np.zeros(len(predicted), dtype=bool)
    for place in range(len(predicted)):
        found[place] = _augment(place, low, high, owner, set())
    return found


def _augment(place: int, low: np.ndarray, high: np.ndarray, owner: np.ndarray, tried: set[int]) -> bool:
    """Match a prediction with a true event, if necessary by matching that event's present owner with another; return whether it worked."""
    for target in range(low[place], high[place]):
        if target not in tried:
            tried.add(target)
            if owner[target] < 0 or _augment(int(owner[target]), low, high, owner, tried):
                owner[target] = place
                return True
    return False


@dataclass
class _Pile:
    """Predictions of one type, from one future per window. Predictions with score 0 are wrong unless `late` has them."""

    unit: list[int] = field(default_factory=list)
    score: list[float] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    late: list[int] = field(default_factory=list)  # units of right predictions with score 0

    def ranked(self) -> _Ranked:
        unit, score, right = (np.asarray(one, dtype=np.float64) for one in (self.unit, self.score, self.right))
        order = np.argsort(-score, kind="stable")
        ends = np.flatnonzero(np.diff(score[order], append=np.nan))
        return _Ranked(unit[order].astype(np.int64), right[order], ends, np.asarray(self.late, dtype=np.int64))


@dataclass(frozen=True)
class _Ranked:
    unit: np.ndarray  # int64, best-scored first
    right: np.ndarray  # 0 or 1
    ends: np.ndarray  # index of the last prediction of each group of equal scores, which is one threshold
    late: np.ndarray

    def precision(self, weights: np.ndarray, everyone: np.ndarray) -> np.ndarray:
        """Return Σ precision over true positives [replicates]; `everyone` [replicates] is the number of predictions."""
        often = weights[:, self.unit]
        hits, seen = (np.cumsum(part, axis=1)[:, self.ends] for part in (often * self.right, often))
        found = (np.diff(hits, axis=1, prepend=0.0) * hits / np.maximum(seen, 1e-300)).sum(1)
        late = weights[:, self.late].sum(1)
        return found + late * ((often * self.right).sum(1) + late) / np.maximum(everyone, 1e-300)


def temporal_precision(
    windows: Sequence[FutureWindow], units: Units, delta: float, seed: int
) -> tuple[Estimate, Estimate]:
    """Return T-mAP (Karpukhin et al., 2024), averaged over the types that occur, and averaged over events.

    The events of one sampled future are the predictions. The score of a prediction for a type is the share of the other futures that have
    an event of this type within `delta` of its time. For each type, predictions are matched one to one with true events of the type within
    `delta`; average precision is over thresholds on the score. Several futures serve as the prediction in turn, and their results are
    averaged. Each replicate of the interval resamples the units and the futures that predict.
    """
    kinds = sorted({int(kind) for one in windows for kind in one.types})
    if not kinds:
        return NOTHING, NOTHING
    place = units.sequence if units.whole_sequences else np.arange(len(windows))
    count = units.sequences if units.whole_sequences else len(windows)
    predictions = min(len(windows[0].futures), PREDICTIONS)
    targets, made = np.zeros((len(kinds), count)), np.zeros((predictions, count))
    piles = [[_Pile() for _ in kinds] for _ in range(predictions)]
    for unit, one in zip(place.tolist(), windows, strict=True):
        np.add.at(targets[:, unit], np.searchsorted(kinds, one.types), 1)
        _sort_in(one, unit, delta, [dict(zip(kinds, row, strict=True)) for row in piles], made)
    ranked = [[pile.ranked() for pile in row] for row in piles]

    def averaged(weights: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return [replicates, 2], given how often each replicate has each unit, and each future as a prediction."""
        happened = weights @ targets.T  # [replicates, kinds]
        gained = np.zeros_like(happened)
        for number, row in enumerate(ranked):
            everyone = weights @ made[number]
            for which, one in enumerate(row):
                gained[:, which] += chosen[:, number] * one.precision(weights, everyone)
        share = np.where(happened > 0, gained / np.maximum(happened, 1e-300), 0.0)
        macro = share.sum(1) / np.maximum((happened > 0).sum(1), 1)
        return np.stack([macro, gained.sum(1) / np.maximum(happened.sum(1), 1e-300)], axis=1)

    even = np.full(predictions, 1.0 / predictions)
    value = averaged(np.ones((1, count)), even[None])[0]
    rng = np.random.default_rng([seed, 2])
    drawn, done = [], 0
    for weights in units.resampling(seed).parts():
        weights = weights[: REPLICATES - done]
        for rows in range(0, len(weights), AT_A_TIME):
            part = weights[rows : rows + AT_A_TIME]
            drawn.append(averaged(part, rng.multinomial(predictions, even, size=len(part)) / predictions))
        done += len(weights)
        if done == REPLICATES:
            break
    replicates = np.concatenate(drawn)
    # A sequence that is drawn twice agrees with itself, so replicates are too high on average: their mean is shifted to the value.
    replicates += value - replicates.mean(0)
    macro, weighted = (interval(float(value[which]), replicates[:, which]) for which in (0, 1))
    return macro, weighted


def _sort_in(one: FutureWindow, unit: int, delta: float, piles: list[dict[int, _Pile]], made: np.ndarray) -> None:
    """Add the predictions of a window, with their scores for every type, to the piles of their futures."""
    future = np.repeat(np.arange(len(one.futures)), [len(times) for times, _ in one.futures])
    times = np.concatenate([times for times, _ in one.futures])
    types = np.concatenate([types for _, types in one.futures])
    made[:, unit] += np.bincount(future, minlength=len(one.futures))[: len(made)]
    mine = np.flatnonzero(future < len(made))
    if not len(mine):
        return
    order = np.lexsort((future, types))
    group = np.flatnonzero(np.diff(types[order], prepend=-1) | np.diff(future[order], prepend=-1))
    near = np.abs(times[mine][:, None] - times[order][None, :]) <= delta
    said = np.logical_or.reduceat(near, group, axis=1)  # [predictions, groups of one type in one future]
    said &= future[order][group][None, :] != future[mine][:, None]
    kind_of = types[order][group]
    first = np.flatnonzero(np.diff(kind_of, prepend=-1))
    sure = np.add.reduceat(said, first, axis=1, dtype=np.float64) / max(1, len(one.futures) - 1)
    column = {int(kind): place for place, kind in enumerate(kind_of[first])}
    nothing = np.zeros(len(mine))
    for kind in set(column) & set(piles[0]) | set(one.types.tolist()):
        score = sure[:, column[kind]] if kind in column else nothing
        true = one.times[one.types == kind]
        for number, pile in enumerate(row[kind] for row in piles):
            own = np.flatnonzero(future[mine] == number)
            own = own[np.argsort(-score[own], kind="stable")]
            right = matched_ranks(times[mine][own], true, delta) if len(true) else np.zeros(len(own), dtype=bool)
            some = int((score[own] > 0).sum())
            pile.unit += [unit] * some
            pile.score += score[own][:some].tolist()
            pile.right += right[:some].tolist()
            pile.late += [unit] * int(right[some:].sum())


def __getattr__(name: str) -> Any:
    if name == "Futuring":
        warnings.warn("Futuring is called FutureOptions now", DeprecationWarning, stacklevel=2)
        return FutureOptions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
