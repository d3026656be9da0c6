"""Compares runs scored with draws (`drawn_scores.py`) on the same events: their scores and their differences.

The noise of the draws is part of every difference: intervals resample it, and in permutation tests it is part of the exchanged
values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Units
from foretell.evaluate.compare import Difference, compared_pairs, corrected_differences, difference_of, ways_of
from foretell.evaluate.drawn_scores import DrawnScores
from foretell.evaluate.metrics import Metric
from foretell.evaluate.permutation import PERMUTATIONS, Over

NamedScores = tuple[str, DrawnScores]


@dataclass(frozen=True)
class DrawnComparison:
    """Scores of runs and their differences."""

    runs: tuple[NamedScores, ...]
    differences: tuple[Difference, ...]
    untested: str | None  # the reason why a test was not made
    seed: int

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": [{"run": name, **scores.to_json(self.seed)} for name, scores in self.runs],
            "differences": [one.to_json() for one in self.differences],
        }

    def lines(self) -> list[str]:
        """Return the comparison as lines of text."""
        found = []
        for name, scores in self.runs:
            told = scores.estimates(self.seed)
            found.append(
                f"{name}: log-likelihood {told['log_likelihood']} nats per event, rank of what happened {told['rank']}; {scores.way}"
            )
        found += [one.verdict() for one in self.differences]
        return found if self.untested is None else [*found, self.untested]


def compare_drawn(
    runs: Sequence[NamedScores], over: Over | None = None, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> DrawnComparison:
    """Return paired differences of all runs in log-likelihood and in rank, tested `over` events, sequences, or both (None)."""
    if len(runs) < 2:
        raise ForetellError(f"{len(runs)} run: comparing needs two or more")
    first_name, first = runs[0]
    for name, scores in runs[1:]:
        same = first.sequences == scores.sequences and np.array_equal(first.sequence, scores.sequence)
        if not (same and np.array_equal(first.event, scores.event)):
            raise ForetellError(
                f"{first_name} and {name} score {first.events} and {scores.events} events, and not the same ones; "
                "compare runs that score the same events of the same data"
            )
    units, metrics = Units(first.sequence, first.sequences), [drawn_metrics(scores) for _, scores in runs]
    ways, untested = ways_of(over or "both", first.sequences)
    pairs = compared_pairs(metrics)
    tested = [
        difference_of((runs[i][0], runs[j][0]), one, other, units, ways, permutations=permutations, seed=seed)
        for i, j in pairs
        for one, other in zip(metrics[i], metrics[j], strict=True)
    ]
    return DrawnComparison(tuple(runs), tuple(corrected_differences(tested, len(runs), len(pairs))), untested, seed)


def drawn_metrics(scores: DrawnScores) -> list[Metric]:
    one = np.ones(scores.events)
    return [
        Metric(
            "log_likelihood",
            "log-likelihood",
            "nats",
            scores.log_likelihood,
            one,
            scores.integral_variance,
        ),
        Metric("rank", "the rank of what happened", "rank", scores.rank, one, scores.rank_variance),
    ]
