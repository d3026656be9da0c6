"""Is one model better than another, or was it luck? Two models' scores of the same units in, a paired permutation test out.

If it does not matter which model a score came from, exchanging the two scores of a unit changes nothing: the differences may have either
sign. So signs are flipped at random, and p is the share of patterns whose mean difference is at least as far from 0 as the one that was
found. That one counts as well, so p is never 0: `p = (1 + #{|mean*| >= |mean|}) / (1 + N)`. Where N covers all patterns of signs they are
enumerated instead, and p is exact.

A unit is an event with the integral of the gap that it ends, or a whole sequence. The last event of a sequence carries the tail too; a
sequence without scored events is a unit of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from foretell.errors import ForetellError
from foretell.evaluate.likelihood import EventScores
from foretell.evaluate.participants import Guesses

Over = Literal["events", "sequences"]
PERMUTATIONS = 99_999
AT_A_TIME = 1 << 22  # signs in memory
ROUNDING = 1e-12  # of the summed magnitudes: sums of one set of numbers in two orders are equal up to this


@dataclass(frozen=True)
class PairedTest:
    difference: float  # first less second: the mean of units, or an event's share where events are what is counted
    p_value: float  # two-sided
    units: int
    differing: int  # units whose two scores are not the same: the others have no sign to flip
    permutations: int  # patterns of signs that were compared with the one found
    exact: bool  # True: those are all there are


def permutation_test(
    first: ArrayLike, second: ArrayLike, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> PairedTest:
    """Of two models' scores, place by place of the same units."""
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


def compare_log_likelihoods(
    first: EventScores,
    second: EventScores,
    over: Over = "events",
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> PairedTest:
    """The difference is in nats an event."""
    _check_same(first, second)
    one, other = (_units(scores.log_likelihood, scores.sequence, over) for scores in (first, second))
    return _an_event(one, other, int(first.is_event.sum()), permutations, seed)


def compare_errors(
    first: EventScores,
    second: EventScores,
    over: Over = "events",
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> PairedTest:
    """Of the next type given its time. The difference is one of error rates: below 0, the first model errs less."""
    _check_same(first, second)
    real = first.is_event
    one, other = (
        _units((scores.predicted_type != scores.type)[real].astype(np.float64), scores.sequence[real], over)
        for scores in (first, second)
    )
    return _an_event(one, other, int(real.sum()), permutations, seed)


def compare_participants(
    first: Sequence[Guesses],
    second: Sequence[Guesses],
    over: Over = "events",
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> PairedTest:
    """Of the events of all patterns together. The difference is one of error rates: below 0, the first model errs less."""
    asked, asked_too = ([guesses.pattern for guesses in guessed] for guessed in (first, second))
    if asked != asked_too:
        raise ForetellError(
            f"patterns {', '.join(asked)} and {', '.join(asked_too)}: expected the same for both models"
        )
    for one, other in zip(first, second, strict=True):
        if not (np.array_equal(one.sequence, other.sequence) and np.array_equal(one.event, other.event)):
            raise ForetellError(
                f"pattern {one.pattern!r}: the models guessed at different events; score them on the same data"
            )
    sequence = np.concatenate([guesses.sequence for guesses in first]) if first else np.zeros(0, dtype=np.int64)
    one, other = (
        _units(np.concatenate([g.wrong for g in guessed]).astype(np.float64), sequence, over)
        if len(sequence)
        else np.zeros(0)
        for guessed in (first, second)
    )
    return _an_event(one, other, len(sequence), permutations, seed)


def _an_event(one: np.ndarray, other: np.ndarray, events: int, permutations: int, seed: int) -> PairedTest:
    found = permutation_test(one, other, permutations=permutations, seed=seed)
    return replace(found, difference=float((one - other).sum()) / max(events, 1))


def _units(values: np.ndarray, sequence: np.ndarray, over: Over) -> np.ndarray:
    if over not in get_args(Over):
        raise ForetellError(f"over = {over!r}: expected one of {', '.join(get_args(Over))}")
    if over == "events":
        return values
    return np.bincount(np.unique(sequence, return_inverse=True)[1], weights=values)


def _check_same(first: EventScores, second: EventScores) -> None:
    same = all(
        np.array_equal(one, other)
        for one, other in (
            (first.sequence, second.sequence),
            (first.event, second.event),
            (first.time, second.time),
            (first.type, second.type),
        )
    )
    if not same:
        raise ForetellError(
            f"{len(first.event)} rows of scores and {len(second.event)} of other events: "
            "score both models on the same data, in the same window"
        )


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
    """Sums under random signs, some patterns at a time; how many at a time does not change them."""
    words = -(-len(signed) // 64)
    rows = max(1, AT_A_TIME // (64 * words))
    whole = signed.sum()
    for done in range(0, permutations, rows):
        drawn = rng.integers(2**64, size=(min(rows, permutations - done), words), dtype=np.uint64)
        flipped = np.unpackbits(drawn.view(np.uint8), axis=1, count=len(signed))
        yield whole - 2.0 * (flipped.astype(np.float64) @ signed)


def _all_sums(signed: np.ndarray) -> Iterator[np.ndarray]:
    """Sums under every pattern of signs but the one found, some at a time."""
    rows = max(1, AT_A_TIME // max(len(signed), 1))
    bits = np.arange(len(signed), dtype=np.int64)
    whole = signed.sum()
    for start in range(1, 2 ** len(signed), rows):
        pattern = np.arange(start, min(start + rows, 2 ** len(signed)), dtype=np.int64)
        yield whole - 2.0 * ((pattern[:, None] >> bits & 1).astype(np.float64) @ signed)
