"""Tests the difference between two models: from the scores of all seeds it computes one corrected p.

Two kinds of chance can explain a difference: the choice of test events (a paired permutation test over events, seeds pooled), and the
seeds of the fits (Welch's t-test over the seeds' scores). Both must be ruled out, so the larger of the two p counts. Holm's method corrects
it for the number of comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.compare import SIGNIFICANT, CorrectedTest, Difference, holm, in_words
from foretell.evaluate.metrics import ALL, score_of
from foretell.evaluate.permutation import PERMUTATIONS, PairedTest
from foretell.reproduce.rows import SeedRows, difference_between

OF_A_SEED = 9_999  # number of permutations in the test of one seed


class SeedDifference(NamedTuple):
    """The difference first minus second for one seed, and the p of its permutation test."""

    value: float
    p: float | None


@dataclass(frozen=True)
class ModelDifference:
    """The difference between two models in one score: first minus second."""

    pooled: Difference  # of the means over seeds; `corrected` of its test belongs to `p_larger`
    seeds: Mapping[int, SeedDifference]
    p_seeds: float | None  # p of Welch's t-test over the seeds' scores; None: no model has more than one seed

    @property
    def p(self) -> float:
        """Return the p of the permutation test alone."""
        return self.pooled.tests[0].test.p_value if self.pooled.tests else 1.0

    @property
    def p_larger(self) -> float:
        return self.p if self.p_seeds is None else max(self.p, self.p_seeds)

    @property
    def p_corrected(self) -> float:
        return self.pooled.tests[0].corrected if self.pooled.tests else 1.0

    @property
    def significant(self) -> bool:
        return self.p_corrected < SIGNIFICANT

    @property
    def suspected(self) -> bool:
        """Return whether the uncorrected permutation test alone is significant."""
        return self.p < SIGNIFICANT

    @property
    def vacuous(self) -> bool:
        """Return whether the two scores of every unit are equal, so that there is nothing to test."""
        return not self.pooled.tests or self.pooled.tests[0].test.differing == 0

    def leader(self, significantly: bool = True) -> str | None:
        """Return the better model if the difference is significant (or, with `significantly=False`, suspected); else None."""
        return self.pooled.better if (self.significant if significantly else self.suspected) else None

    def reversed(self) -> ModelDifference:
        """Return the difference second minus first."""
        one = self.pooled
        turned = Estimate(-one.difference.value, -one.difference.high, -one.difference.low)
        tests = tuple(replace(test, test=replace(test.test, difference=-test.test.difference)) for test in one.tests)
        pooled = replace(one, first=one.second, second=one.first, difference=turned, tests=tests)
        return replace(self, pooled=pooled, seeds={k: SeedDifference(-d, p) for k, (d, p) in self.seeds.items()})

    def size(self) -> str:
        value = self.pooled.difference.value
        return f"{100 * value:+.1f} points" if self.pooled.kind == "share" else f"{value:+.3f}"

    def p_words(self) -> str:
        """Return the p in words: `p = 0.0089, over seeds 0.0014, corrected 0.23`."""
        over = "" if self.p_seeds is None else f", over seeds {self.p_seeds:.2g}"
        return f"p = {self.p:.2g}{over}, corrected {self.p_corrected:.2g}"

    def cells(self) -> list[str]:
        """Return table cells: difference, p over events or sequences, p over seeds, corrected p, the better model, seeds ahead."""
        one = self.pooled
        scale, digits = (100.0, 1) if one.kind == "share" else (1.0, 3)
        size = f"{scale * one.difference.value:+.{digits}f}".replace("-", "−")
        test = one.tests[0].test if one.tests else None
        p = "–" if test is None else in_words(test.p_value, test).removeprefix("= ")
        over_seeds = "–" if self.p_seeds is None else f"{self.p_seeds:.2g}"
        return [size, p, over_seeds, f"{self.p_corrected:.2g}", self.leader() or "–", self.seeds_ahead()]

    def seeds_ahead(self) -> str:
        """Return in how many seeds the better model is ahead, and in how many of these the test of the seed is significant."""
        whole = self.pooled.difference.value if self.pooled.better is not None else 0.0
        ahead = [one for one in self.seeds.values() if one.value * whole > 0.0]
        found = sum(one.p is not None and one.p < SIGNIFICANT for one in ahead)
        return f"{len(ahead)} of {len(self.seeds)}, {found}"

    def to_json(self) -> dict[str, Any]:
        made = self.pooled.to_json() | {"significant": self.significant, "p_seeds": self.p_seeds}
        made["tests"] = [
            one.to_json() | {"differing": one.test.differing} for one in self.pooled.tests
        ]  # p_holm: corrected from the larger of p and p_seeds
        return made | {"seeds": {str(k): {"difference": d, "p": p} for k, (d, p) in self.seeds.items()}}


def model_difference(
    names: tuple[str, str], first: SeedRows, second: SeedRows, metric: str, constant: Sequence[bool] = (False, False)
) -> ModelDifference:
    """Compute a difference from the scores of every event and seed; p is not yet corrected."""
    pooled = difference_between(names, first.pooled, second.pooled, metric)
    p_seeds = seeds_p(first.values(metric), second.values(metric), constant=constant)
    return ModelDifference(pooled, seed_differences(first, second, metric), p_seeds)


def seed_differences(first: SeedRows, second: SeedRows, metric: str) -> dict[int, SeedDifference]:
    """Compare seed by seed; a model with a single fit is compared with every seed of the other."""
    one, other = first.by_seed, second.by_seed
    found = {}
    for seed in sorted({*one, *other}):
        pair = [some.get(seed) or (next(iter(some.values())) if len(some) == 1 else None) for some in (one, other)]
        if pair[0] is not None and pair[1] is not None:
            made = difference_between(("first", "second"), pair[0], pair[1], metric, OF_A_SEED)
            found[seed] = SeedDifference(made.difference.value, made.tests[0].test.p_value if made.tests else None)
    return found


def difference_from_json(
    table: Mapping[str, Any], values: Sequence[Sequence[float]], constant: Sequence[bool]
) -> ModelDifference:
    """Read a difference from `results.json`. p over seeds is computed from `values`, the scores by seed; p is not yet corrected."""
    known = score_of(table["metric"])
    assert known is not None, table["metric"]
    pattern = table["metric"].removeprefix(known.key).strip()
    title = known.title if pattern in ("", ALL) else f"{known.title}, {pattern}"
    tests = []
    for one in table["tests"]:
        count = 2 ** one["units"] - 1 if one["exact"] else PERMUTATIONS
        difference = table["difference"]["value"]
        differing = one.get("differing", one["units"])  # missing in old files: all units count
        test = PairedTest(difference, one["p"], one["units"], differing, count, one["exact"])
        tests.append(CorrectedTest(one["over"], test, 1.0))
    about = table["metric"], title, known.kind, table["first"], table["second"]
    pooled = Difference(*about, Estimate(**table["difference"]), table["events"], tuple(tests), table["better"])
    seeds = {int(k): SeedDifference(one["difference"], one["p"]) for k, one in table["seeds"].items()}
    return ModelDifference(pooled, seeds, seeds_p(*values, constant=constant))


def correct(found: Sequence[ModelDifference]) -> list[ModelDifference]:
    """Correct p by Holm's method, for the number of differences that are not vacuous."""
    family = [one for one in found if not one.vacuous]
    values = iter(holm([one.p_larger for one in family]))
    made = []
    for one in found:
        p = 1.0 if one.vacuous else next(values)
        tests = tuple(replace(test, corrected=p) for test in one.pooled.tests)
        made.append(replace(one, pooled=replace(one.pooled, tests=tests)))
    return made


def seeds_p(
    first: Sequence[float], second: Sequence[float], *, constant: Sequence[bool] = (False, False)
) -> float | None:
    """Return the p of Welch's t-test between the seeds' scores of two models; None if no model has more than one seed.

    A model whose fit does not depend on the seed (`constant`) has no spread. Any other model with a single fit gets the spread of the other
    model.
    """
    sides = [np.asarray(one, dtype=np.float64) for one in (first, second)]
    if max(map(len, sides)) < 2:
        return None
    spreads = [float(one.var(ddof=1)) if len(one) > 1 else math.nan for one in sides]
    known = [value for value in spreads if not math.isnan(value)]
    shares, degrees = [], []
    for side, spread, fixed in zip(sides, spreads, constant, strict=True):
        if fixed:
            continue
        single = math.isnan(spread)
        shares.append((known[0] if single else spread) / len(side))
        degrees.append(max(map(len, sides)) - 1 if single else len(side) - 1)
    error = sum(shares)
    difference = abs(float(sides[0].mean() - sides[1].mean()))
    if error <= 0.0:
        return 1.0 if difference == 0.0 else 0.0
    freedom = error**2 / sum(share**2 / degree for share, degree in zip(shares, degrees, strict=True))
    return student_p(difference / math.sqrt(error), freedom)


def student_p(t: float, freedom: float) -> float:
    """Return `P(|T| >= t)` for Student's distribution: `∫ sin^(ν−1)` from 0 to `arctan(√ν / t)`, divided by the integral up to π/2."""
    nodes, weights = _legendre()
    end = math.pi / 2 if t == 0.0 else math.atan(math.sqrt(freedom) / abs(t))
    inside = end * float(weights @ np.sin(end * nodes) ** (freedom - 1.0))
    whole = math.sqrt(math.pi) / 2 * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    return min(1.0, inside / whole)


def student_quantile(share: float, freedom: float) -> float:
    """Return the `t` with `P(|T| < t) = share`, found by bisection."""
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if 1.0 - student_p(middle, freedom) < share else (low, middle)
    return (low + high) / 2


@cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss-Legendre nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return (nodes + 1.0) / 2, weights / 2
