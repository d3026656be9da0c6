"""T-mAP (Karpukhin et al., 2024): average precision of sampled events as predictions of true ones, with its 95 % interval.

The events of one sampled future are the predictions. How sure the model is that one of them is of a given type is the share of the other
futures that have an event of this type within `delta` of its time. For each type, predictions are matched with true events of the type
within `delta`, one to one; average precision is over thresholds on that share. Several futures take the part of the prediction, one after
the other, and the scores are averaged. Each replicate of the interval draws its units, and the futures that predict, anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foretell.evaluate.alignment import matched_ranks
from foretell.evaluate.bootstrap import NOTHING, Estimate, Units, interval

PREDICTIONS = 10  # futures that take the part of the prediction; all of them give the scores
REPLICATES = 200
AT_A_TIME = 20  # replicates


@dataclass(frozen=True)
class FutureWindow:
    """The events of one horizon: true ones, and those of each future. Times count from its start."""

    sequence: int
    times: np.ndarray
    types: np.ndarray
    futures: tuple[tuple[np.ndarray, np.ndarray], ...]  # times and types of each


@dataclass
class _Pile:
    """Predictions of one type, one future a window. Those that are sure of nothing are wrong unless they are in `late`."""

    unit: list[int] = field(default_factory=list)
    score: list[float] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    late: list[int] = field(default_factory=list)  # units of right predictions with score 0

    def ranked(self) -> _Ranked:
        order = np.argsort(-np.asarray(self.score, dtype=np.float64), kind="stable")
        score = np.asarray(self.score, dtype=np.float64)[order]
        ends = np.r_[np.flatnonzero(np.diff(score)), len(score) - 1] if len(score) else np.zeros(0, dtype=np.int64)
        unit, right = np.asarray(self.unit, dtype=np.int64)[order], np.asarray(self.right, dtype=np.float64)[order]
        return _Ranked(unit, right, ends, np.asarray(self.late, dtype=np.int64))


@dataclass(frozen=True)
class _Ranked:
    unit: np.ndarray  # int64, best-scored first
    right: np.ndarray  # 0 or 1
    ends: np.ndarray  # the last of each group of equal scores: one threshold
    late: np.ndarray

    def precision(self, weights: np.ndarray, everyone: np.ndarray) -> np.ndarray:
        """Σ precision over true positives [replicates]; `everyone`: how many predictions there are in each replicate."""
        often = weights[:, self.unit]
        hits, seen = (np.cumsum(part, axis=1)[:, self.ends] for part in (often * self.right, often))
        found = (np.diff(hits, axis=1, prepend=0.0) * hits / np.maximum(seen, 1e-300)).sum(1)
        late = weights[:, self.late].sum(1)
        return found + late * ((often * self.right).sum(1) + late) / np.maximum(everyone, 1e-300)


def temporal_precision(
    windows: Sequence[FutureWindow], units: Units, delta: float, seed: int
) -> tuple[Estimate, Estimate]:
    """Averaged over the types that happen, and over events."""
    kinds = sorted({int(kind) for one in windows for kind in one.types})
    if not kinds:
        return NOTHING, NOTHING
    place = units.sequence if units.whole_sequences else np.arange(len(windows))
    count = units.sequences if units.whole_sequences else len(windows)
    predictions = min(len(windows[0].futures), PREDICTIONS)
    number_of = {kind: number for number, kind in enumerate(kinds)}
    targets, made = np.zeros((len(kinds), count)), np.zeros((predictions, count))
    piles = [[_Pile() for _ in kinds] for _ in range(predictions)]
    for unit, one in zip(place.tolist(), windows, strict=True):
        for kind in one.types.tolist():
            targets[number_of[kind], unit] += 1
        _sort_in(one, unit, delta, [dict(zip(kinds, row, strict=True)) for row in piles], made)
    ranked = [[pile.ranked() for pile in row] for row in piles]

    def averaged(weights: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """[replicates, 2] from how often each unit, and each future as a prediction, is in a replicate."""
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
        for rows in range(0, min(len(weights), REPLICATES - done), AT_A_TIME):
            part = weights[rows : min(rows + AT_A_TIME, REPLICATES - done)]
            drawn.append(averaged(part, rng.multinomial(predictions, even, size=len(part)) / predictions))
        done += len(weights)
        if done >= REPLICATES:
            break
    replicates = np.concatenate(drawn)
    # Sequences drawn twice agree with themselves, which makes average precision of replicates too high: their mean is moved to the value.
    replicates += value - replicates.mean(0)
    macro, weighted = (interval(float(value[which]), replicates[:, which]) for which in (0, 1))
    return macro, weighted


def _sort_in(one: FutureWindow, unit: int, delta: float, piles: list[dict[int, _Pile]], made: np.ndarray) -> None:
    """The predictions of a window, each with its score for every type, on the piles of the futures that make them."""
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
