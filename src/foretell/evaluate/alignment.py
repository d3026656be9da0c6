"""How far a predicted sequence of events is from the true one, and which of its events are right.

`transport_distances`: the optimal transport distance of Mei, Qin and Eisner (2019): the cheapest way to turn one sequence into the other by
moving an event in time (the distance moved) and by inserting or deleting one (`cost` each). Events of different types are never matched,
and in one dimension an optimal matching does not cross, so each type is an exact dynamic programme; many are solved at once.

`matched_ranks`: for average precision, the most true events that the best-scored predictions can be matched with, one to one, each within
`delta` of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_IN_A_STEP = 1 << 22  # entries of one table of the programme, over all pairs that are solved together


def transport_distances(pairs: Sequence[tuple[np.ndarray, np.ndarray]], costs: Sequence[float]) -> np.ndarray:
    """Of pairs of ascending times, each of one type: [pairs, costs]."""
    found = np.empty((len(pairs), len(costs)))
    sizes = np.array([[len(one), len(other)] for one, other in pairs], dtype=np.int64).reshape(-1, 2)
    alone = (sizes == 0).any(1)
    found[alone] = sizes[alone].sum(1)[:, None] * np.asarray(costs)
    rest = np.flatnonzero(~alone)
    rest = rest[np.lexsort((sizes[rest, 1], sizes[rest, 0]))]  # neighbours are of about one size: little padding
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
    """bool [predictions], best-scored first: True where one more true event can be matched than without this prediction.

    Whatever matching is chosen among the best, the first `k` predictions then have as many matches as they can have at all (the sets of
    predictions that can be matched together are a matroid), so every threshold on the score sees its largest number of true positives.
    """
    low, high = np.searchsorted(true, predicted - delta, "left"), np.searchsorted(true, predicted + delta, "right")
    owner = np.full(len(true), -1)
    found = np.zeros(len(predicted), dtype=bool)
    for place in range(len(predicted)):
        found[place] = _augment(place, low, high, owner, set())
    return found


def _augment(place: int, low: np.ndarray, high: np.ndarray, owner: np.ndarray, tried: set[int]) -> bool:
    """Give this prediction a true event, if need be by giving its present owner another."""
    for target in range(low[place], high[place]):
        if target not in tried:
            tried.add(target)
            if owner[target] < 0 or _augment(int(owner[target]), low, high, owner, tried):
                owner[target] = place
                return True
    return False
