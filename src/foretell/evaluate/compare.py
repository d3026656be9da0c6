"""Compares runs that are scored on the same events: which is better, by how much, and whether the difference is significant.

Every difference has a 95 % interval (both runs use the same bootstrap replicates) and paired permutation tests: over events and, if there
are enough, over sequences. Some of many differences look significant by chance, so Holm's method corrects p for all comparisons over the
same units. With many runs, the best is compared with each of the others. The same scores choose the best run, so p is then corrected for
all pairs of runs. A score that is equal for all runs in every unit (such as that of types, if there is only one type) does not count as a
comparison. A difference is called significant if its corrected p is below 0.05 over all requested units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from math import comb
from typing import Any, Literal

import numpy as np

from foretell.data import EventData, FrameFormat, FrameResult
from foretell.data.frame_output import FrameColumns
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate, Units, interval, replicates
from foretell.evaluate.metrics import ALL, FunctorScores, Metric, by_functor, score_of
from foretell.evaluate.permutation import PERMUTATIONS, Over, PairedTest, compare_values
from foretell.evaluate.scores import Evaluation, ScoredModel, plain
from foretell.wording import counted

FEWEST_SEQUENCES = 6  # with fewer sequences, p cannot be below 0.05
SIGNIFICANT = 0.05
ALL_PAIRS_UP_TO = 4  # runs; if there are more, each is only compared with the best


@dataclass(frozen=True)
class ComparedRun:
    """A run's name and its scores."""

    name: str
    scored: ScoredModel
    data: EventData


@dataclass(frozen=True)
class CorrectedTest:
    over: Over
    test: PairedTest
    corrected: float  # p by Holm's method

    def to_json(self) -> dict[str, Any]:
        found = self.test
        sizes = {"units": found.units, "exact": found.exact}
        return {"over": self.over, "p": found.p_value, "p_holm": self.corrected, **sizes}


@dataclass(frozen=True)
class Difference:
    """The difference between two runs in one metric: first minus second."""

    metric: str
    title: str
    kind: str  # "nats", "time", "share" or "rank"
    first: str
    second: str
    difference: Estimate
    events: int
    tests: tuple[CorrectedTest, ...]
    better: str | None  # the run with the better score; None where they are equal

    @property
    def significant(self) -> bool:
        return bool(self.tests) and all(one.corrected < SIGNIFICANT for one in self.tests)

    def verdict(self, time_unit: str = "") -> str:
        """Return the verdict as a sentence."""
        told = ", ".join(f"p {in_words(one.corrected, one.test)} over {one.over}" for one in self.tests)
        if self.better is None or not self.tests:
            return f"{self.first} and {self.second} do not differ in {self.title}"
        other = self.second if self.better == self.first else self.first
        size = f"{self._amount(abs(self.difference.value), time_unit)} ({told})"
        if self.significant:
            return f"{self.better} is better than {other} in {self.title}, by {size}"
        found = [one.over for one in self.tests if one.corrected < SIGNIFICANT]
        if found:
            return f"{self.better} is better than {other} in {self.title} over {found[0]} alone, by {size}"
        return f"no significant difference between {self.first} and {self.second} in {self.title}: {size}"

    def _amount(self, value: float, time_unit: str) -> str:
        if self.kind == "share":
            return f"{100.0 * value:.1f} percentage points"
        units = {"time": time_unit, "rank": "places"}
        return f"{value:.3g} {units.get(self.kind, 'nats per event')}".rstrip()

    def to_json(self) -> dict[str, Any]:
        made = asdict(self) | {"tests": [one.to_json() for one in self.tests], "significant": self.significant}
        return {name: value for name, value in made.items() if name not in ("title", "kind")}


@dataclass(frozen=True)
class RunComparison(FrameResult):
    """Runs scored on the same events, and their differences. The frame has one row per difference."""

    names: tuple[str, ...]
    evaluations: tuple[Evaluation, ...]
    differences: tuple[Difference, ...]
    functors: tuple[FunctorScores, ...]
    untested: str | None  # the reason why a test was not made
    permutations: int
    comparisons: int  # number of comparisons that p is corrected for

    @property
    def frame_format(self) -> FrameFormat:
        return self.evaluations[0].format

    def frame_columns(self) -> FrameColumns:
        rows = self.differences
        tests: list[Over] = ["events", "sequences"]
        p = {over: [{one.over: one.corrected for one in row.tests}.get(over, np.nan) for row in rows] for over in tests}
        sizes = ("value", "low", "high")
        return {
            "score": [row.metric for row in rows],
            "first": [row.first for row in rows],
            "second": [row.second for row in rows],
            **{name: np.array([getattr(row.difference, name) for row in rows], dtype=np.float64) for name in sizes},
            **{f"p_{over}": np.array(values, dtype=np.float64) for over, values in p.items()},
            "significant": np.array([row.significant for row in rows], dtype=bool),
            "better": [row.better for row in rows],
        }

    def named(self) -> list[Evaluation]:
        """Return the evaluations with the names of their runs, for a table."""
        return [replace(one, model=name) for name, one in zip(self.names, self.evaluations, strict=True)]

    def to_json(self) -> dict[str, Any]:
        found = {
            "runs": [{"run": name, **one.to_json()} for name, one in zip(self.names, self.evaluations, strict=True)],
            "differences": [one.to_json() for one in self.differences],
            "by_functor": [one.to_json() for one in self.functors],
            "significance": SIGNIFICANT,
            "permutations": self.permutations,
            "comparisons": self.comparisons,
        }
        return plain(found)


def compare(
    runs: Sequence[ComparedRun],
    over: Literal["events", "sequences", "both"] = "both",
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> RunComparison:
    if len(runs) < 2:
        raise ForetellError(f"{len(runs)} run: comparing needs two or more")
    types, names = check_comparable(runs)
    first = runs[0].scored.events
    units = Units(first.sequence, len(runs[0].data))
    metrics = [one.scored.metrics() for one in runs]
    keys = [one.key for one in metrics[0]]
    if any([one.key for one in other] != keys for other in metrics[1:]):
        raise ForetellError("the runs were scored in different ways; score all of them with the same options")
    ways, untested = ways_of(over, len(runs[0].data))
    pairs = compared_pairs(metrics)
    tested = [
        difference_of((runs[i].name, runs[j].name), one, other, units, ways, permutations=permutations, seed=seed)
        for i, j in pairs
        for one, other in zip(metrics[i], metrics[j], strict=True)
        if (known := score_of(one.key)) is None or known.tested
    ]
    wider = _wider(len(runs), len(pairs))
    return RunComparison(
        names=tuple(one.name for one in runs),
        evaluations=tuple(one.scored.evaluation for one in runs),
        differences=tuple(corrected_differences(tested, len(runs), len(pairs))),
        functors=tuple(by_functor([_of_functors(one) for one in metrics], types, names, units, seed)),
        untested=untested,
        permutations=permutations,
        comparisons=round(wider * sum(bool(one.tests) and one.metric in differing_metrics(tested) for one in tested)),
    )


def check_comparable(runs: Sequence[ComparedRun]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Check that all runs score the same events; return the type of each row, and the names of the types."""
    first = runs[0]
    names = first.data.vocabulary.names
    for other in runs[1:]:
        one, two = first.scored.events, other.scored.events
        pair = f"{first.name} and {other.name}"
        if len(first.data) != len(other.data):
            raise ForetellError(
                f"{pair} are scored on {len(first.data)} and {len(other.data)} sequences; name the data for all of them (`data=`)"
            )
        same = np.array_equal(one.sequence, two.sequence) and np.array_equal(one.event, two.event)
        if not same:
            counts = [int(scores.is_event.sum()) for scores in (one, two)]
            raise ForetellError(
                f"{pair} score {counts[0]} and {counts[1]} events of the same data: what one of them takes as history, or leaves out as "
                "impossible, the other predicts. Compare runs that score the same events: train both on data without the others, or "
                "declare these exogenous in both programs"
            )
        kinds = [
            [run.data.vocabulary.names[kind] if kind >= 0 else "" for kind in run.scored.events.type.tolist()]
            for run in (first, other)
        ]
        if not np.array_equal(one.time, two.time) or kinds[0] != kinds[1]:
            raise ForetellError(f"{pair} are scored on different events; name the data for all of them (`data=`)")
        if first.scored.evaluation.window != other.scored.evaluation.window:
            raise ForetellError(f"{pair} are scored in different windows; score both in the same")
    return first.scored.events.type, names


def ways_of(over: Literal["events", "sequences", "both"], sequences: int) -> tuple[list[Over], str | None]:
    """Return the units over which differences are tested, and the reason if there are too few sequences to test over them."""
    few = sequences < FEWEST_SEQUENCES
    said = None
    if few:
        said = f"no test over sequences: {counted(sequences, 'sequence')} cannot show anything, {FEWEST_SEQUENCES} can"
    if over == "events":
        return ["events"], None
    if over == "sequences":
        if few:
            raise ForetellError(f"{said}; compare over events")
        return ["sequences"], None
    return (["events"] if few else ["events", "sequences"]), said


def compared_pairs(metrics: Sequence[Sequence[Metric]]) -> list[tuple[int, int]]:
    """Return the pairs of runs to compare: all pairs of a few runs, or the best in log-likelihood with each of the others."""
    if len(metrics) <= ALL_PAIRS_UP_TO:
        return list(combinations(range(len(metrics)), 2))
    best = int(np.argmax([one[0].values.sum() for one in metrics]))
    return [(best, other) for other in range(len(metrics)) if other != best]


def difference_of(
    names: tuple[str, str],
    one: Metric,
    other: Metric,
    units: Units,
    ways: Sequence[Over],
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Difference:
    """Return the difference between two runs in one metric, with its interval and tests; p is not yet corrected."""
    both = (one.counts > 0) & (other.counts > 0) if one.kind == "time" else np.ones(len(one.counts), dtype=bool)
    one, other = one.where(both), other.where(both)  # rows that count for only one of them are left out
    ratios = [one.ratio(units), other.ratio(units)]
    spread = replicates(ratios, units.resampling(seed))
    difference = interval(ratios[0].value - ratios[1].value, spread[:, 0] - spread[:, 1])
    asked = (one.counts > 0) | (one.values != 0.0) | (other.values != 0.0)
    first, second, sequence = (part[asked] for part in (one.values, other.values, units.sequence))
    tests = tuple(
        CorrectedTest(way, compare_values(first, second, sequence, way, permutations=permutations, seed=seed), 1.0)
        for way in ways
        if asked.any()
    )
    better = None
    if difference.value and not np.isnan(difference.value):
        better = names[0] if (difference.value > 0.0) == one.higher_is_better else names[1]
    events = int(one.counts.sum())
    return Difference(one.key, one.title, one.kind, names[0], names[1], difference, events, tests, better)


def in_words(corrected: float, test: PairedTest) -> str:
    """Return `= 0.012`, or `< …` if no drawn pattern of signs was as extreme: then only an upper limit of p is known."""
    shown = float(f"{corrected:.2g}")
    if not test.exact and test.p_value <= 1.0 / (1 + test.permutations):
        unit = 10.0 ** np.floor(np.log10(corrected))
        shown = float(f"{unit * np.floor(corrected / unit * 1.000001 + 1.0):.1g}")  # the next round number above it
        return f"< {np.format_float_positional(shown, trim='-')}"
    return f"= {np.format_float_positional(shown, trim='-')}"


def holm(p_values: Sequence[float], family: int | None = None) -> list[float]:
    """Return p corrected by Holm's method: the probability of any false alarm among all tests stays below the level.

    If the tests were chosen from a larger `family`, each is corrected at least as much as among all tests of that family.
    """
    order = np.argsort(np.asarray(p_values), kind="stable")
    family = len(p_values) if family is None else family
    found, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order.tolist()):
        largest = max(largest, min(1.0, (family - rank) * p_values[place]))
        found[place] = largest
    return found


def differing_metrics(differences: Sequence[Difference]) -> set[str]:
    """Return the scores in which some pair of runs differs in some unit; only these count as comparisons."""
    return {one.metric for one in differences for test in one.tests if test.test.differing}


def _wider(runs: int, pairs: int) -> float:
    """Return the ratio of all pairs of runs to the shown pairs: all pairs count, since the best run was chosen among them."""
    return comb(runs, 2) / pairs


def corrected_differences(differences: Sequence[Difference], runs: int, pairs: int) -> list[Difference]:
    """Correct p by Holm's method, separately over events and over sequences; the family contains all pairs of runs."""
    made, counted_in, wider = {}, differing_metrics(differences), _wider(runs, pairs)
    for way in ("events", "sequences"):
        found = [
            (row, column)
            for row, one in enumerate(differences)
            for column, test in enumerate(one.tests)
            if test.over == way and one.metric in counted_in
        ]
        p_values = [differences[row].tests[column].test.p_value for row, column in found]
        values = holm(p_values, round(wider * len(found)))
        made |= dict(zip(found, values, strict=True))
    return [
        replace(
            one,
            tests=tuple(replace(test, corrected=made.get((row, column), 1.0)) for column, test in enumerate(one.tests)),
        )
        for row, one in enumerate(differences)
    ]


def _of_functors(metrics: Sequence[Metric]) -> list[Metric]:
    """Return the main scores. A score with several patterns is taken for all of them together, since each pattern has one functor."""
    by_score: dict[str, list[Metric]] = {}
    for one in metrics:
        known = score_of(one.key)
        if known is not None and known.main:
            by_score.setdefault(known.key, []).append(one)
    return [one for key, some in by_score.items() for one in some if len(some) == 1 or one.key == f"{key} {ALL}"]
