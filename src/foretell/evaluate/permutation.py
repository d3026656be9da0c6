"""A paired permutation test of whether two models differ, from their scores of the same units.

If the models do not differ, exchanging the two scores of a unit changes nothing: their difference has either sign with equal probability.
So signs are flipped at random, and p is the share of sign patterns whose mean difference is at least as far from 0 as the observed one. The
observed pattern is included, so p is never 0: `p = (1 + #{|mean*| >= |mean|}) / (1 + N)`. If there are at most N patterns of signs, all are
enumerated, and p is exact.

A unit is an event with the integral of the gap that it ends, or a whole sequence. The last event of a sequence also has the tail. A
sequence without scored events is one unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from foretell.errors import ForetellError

Over = Literal["events", "sequences"]
PERMUTATIONS = 99_999
AT_A_TIME = 1 << 26  # number of signs in memory, one bit each
LOOKED_UP = 64  # bytes of a pattern at a time: the table of their sums fits a processor's cache
ROUNDING = 1e-12  # times the sum of magnitudes: two sums of the same numbers in different orders are equal up to this


@dataclass(frozen=True)
class PairedTest:
    difference: float  # first minus second: the mean over units, or per event if the number of events is given
    p_value: float  # two-sided
    units: int
    differing: int  # number of units whose two scores differ: only they have a sign to flip
    permutations: int  # number of sign patterns that were compared with the observed one
    exact: bool  # whether these are all patterns


def permutation_test(
    first: ArrayLike, second: ArrayLike, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> PairedTest:
    """A paired permutation test of two models' scores on the same units."""
    if permutations < 1:
        raise ForetellError(f"permutations = {permutations}: expected 1 or more")
    if seed < 0:
        raise ForetellError(f"seed = {seed}: expected 0 or more")
    one, other = _checked(first, "first"), _checked(second, "second")
    if len(one) != len(other):
        raise ForetellError(
            f"{len(one)} scores of the first model and {len(other)} of the second: expected one of each for every unit"
        )
    if not len(one):
        raise ForetellError("no scores: expected one or more units that both models have scored")
    differences = one - other
    signed = differences[differences != 0.0]
    exact = len(signed) < 63 and 2 ** len(signed) <= permutations
    count = 2 ** len(signed) - 1 if exact else permutations
    sums = _all_sums(signed) if exact else _drawn_sums(signed, permutations, np.random.default_rng(seed))
    threshold = abs(signed.sum()) - ROUNDING * np.abs(signed).sum()
    extreme = sum(int((np.abs(part) >= threshold).sum()) for part in sums)
    return PairedTest(
        difference=float(differences.mean()),
        p_value=(1 + extreme) / (1 + count),
        units=len(differences),
        differing=len(signed),
        permutations=count,
        exact=exact,
    )


def compare_values(
    first: np.ndarray,
    second: np.ndarray,
    sequence: np.ndarray,
    over: Over = "events",
    *,
    events: float | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> PairedTest:
    """Return a paired test of the values of two models, row by row; `sequence` is the sequence of each row.

    The reported difference is that of the sums, divided by the number of events.
    """
    one, other = (_units(values, sequence, over) for values in (first, second))
    found = permutation_test(one, other, permutations=permutations, seed=seed)
    count = len(first) if events is None else events
    return replace(found, difference=float((one - other).sum()) / max(count, 1))


def _units(values: np.ndarray, sequence: np.ndarray, over: Over) -> np.ndarray:
    if over not in get_args(Over):
        raise ForetellError(f"over = {over!r}: expected one of {', '.join(get_args(Over))}")
    if over == "events":
        return values
    return np.bincount(np.unique(sequence, return_inverse=True)[1], weights=values)


def _checked(values: ArrayLike, which: str) -> np.ndarray:
    try:
        scores = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ForetellError(f"scores of the {which} model: expected a list of numbers ({error})") from None
    if scores.ndim != 1:
        raise ForetellError(
            f"scores of the {which} model: found the shape {list(scores.shape)}, expected one score a unit"
        )
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        raise ForetellError(
            f"scores of the {which} model: unit {wrong[0]} is {scores[wrong[0]]} ({len(wrong)} of {len(scores)} are not finite); "
            "leave such units out for both models, or compare another score"
        )
    return scores


def _drawn_sums(signed: np.ndarray, permutations: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield sums under random signs, some patterns at a time; their number does not affect the results.

    Eight signs are stored in a byte, and a table has the sum of the values that each byte flips: this needs an eighth of the steps.
    """
    words = -(-len(signed) // 64)
    rows = max(1, AT_A_TIME // (64 * max(words, 1)))
    table = _flipped_by_byte(signed, 8 * words)
    whole = signed.sum()
    for done in range(0, permutations, rows):
        drawn = rng.integers(2**64, size=(min(rows, permutations - done), words), dtype=np.uint64).view(np.uint8)
        flipped = np.zeros(len(drawn))
        for first in range(0, 8 * words, LOOKED_UP):
            part = drawn[:, first : first + LOOKED_UP]
            place = part + 256 * np.arange(part.shape[1], dtype=np.int32)
            flipped += np.take(table[256 * first :], place).sum(1)
        yield whole - 2.0 * flipped


def _flipped_by_byte(signed: np.ndarray, bytes_: int) -> np.ndarray:
    """Return a flat table: for every eight units and each of their 256 sign patterns, the sum of the flipped values."""
    padded = np.zeros(8 * bytes_)
    padded[: len(signed)] = signed
    patterns = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float64)
    return (padded.reshape(bytes_, 8) @ patterns.T).ravel()


def _all_sums(signed: np.ndarray) -> Iterator[np.ndarray]:
    """Yield sums under every pattern of signs except the observed one, some at a time."""
    rows = max(1, AT_A_TIME // (64 * max(len(signed), 1)))
    bits = np.arange(len(signed), dtype=np.int64)
    whole = signed.sum()
    for start in range(1, 2 ** len(signed), rows):
        pattern = np.arange(start, min(start + rows, 2 ** len(signed)), dtype=np.int64)
        yield whole - 2.0 * ((pattern[:, None] >> bits & 1).astype(np.float64) @ signed)
