"""What came of the kind "models": the table with intervals, the tests between models, the sizes that dev chose, and the paper's findings.

Seeds are pooled: each event's score is its mean over the seeds, and intervals and tests see these means. They are over sequences where
there are enough of them, else over events. The spread is the standard deviation of the seeds' scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.evaluate.bootstrap import Estimate, estimates
from foretell.evaluate.compare import SIGNIFICANT, Difference, difference_of, in_words
from foretell.evaluate.metrics import score_of
from foretell.evaluate.permutation import PERMUTATIONS, Over
from foretell.evaluate.scores import plain
from foretell.reproduce.experiment import Picture, Results, Section, Summary
from foretell.reproduce.rows import WHO, Rows, check_same_data, pooled

if TYPE_CHECKING:
    from foretell.reproduce.models import Models

OF_A_SEED = 9_999  # permutations of the test of one seed


@dataclass(frozen=True)
class Score:
    """Of one model in one metric, over its seeds."""

    model: str
    metric: str
    kind: str
    estimate: Estimate
    spread: float | None  # standard deviation over the seeds; None: one seed
    values: tuple[float, ...]  # of each seed


@dataclass(frozen=True)
class Comparison:
    """All that findings can ask about."""

    models: tuple[str, ...]  # with scores
    missing: tuple[str, ...]  # of which no seed is done yet
    seeds: Mapping[str, tuple[int, ...]]
    scores: Mapping[tuple[str, str], Score]  # by (model, metric)
    rows: Mapping[str, Rows]  # pooled
    records: Mapping[str, tuple[Mapping[str, Any], ...]]  # finals, by model
    sizes: Mapping[str, Mapping[str, Any]]  # that dev chose
    singles: Mapping[str, Mapping[int, Rows]] = field(default_factory=dict)  # of each seed
    like: frozenset[str] = frozenset()  # models that have the size of another, and no grid of their own

    def test(self, first: str, second: str, metric: str) -> Difference:
        """First less second, over the same events; p is not corrected."""
        return self._difference(first, second, self.rows[first], self.rows[second], metric, PERMUTATIONS)

    def seed_tests(self, first: str, second: str, metric: str) -> dict[int, Difference]:
        """Seed by seed; a model of which there is one fit meets every seed of the other."""
        one, other = self.singles.get(first, {}), self.singles.get(second, {})
        found = {}
        for seed in sorted({*one, *other}):
            pair = [some.get(seed) or (next(iter(some.values())) if len(some) == 1 else None) for some in (one, other)]
            if pair[0] is not None and pair[1] is not None:
                found[seed] = self._difference(first, second, pair[0], pair[1], metric, OF_A_SEED)
        return found

    def _difference(
        self, first: str, second: str, one: Rows, other: Rows, metric: str, permutations: int
    ) -> Difference:
        check_same_data([one, other])
        over: Over = "sequences" if one.units.whole_sequences else "events"
        key = self.key(first, metric)
        metrics = one.by_key[key], other.by_key[key]
        return difference_of((first, second), *metrics, one.units, [over], permutations=permutations)

    def key(self, model: str, metric: str) -> str:
        return who(self.rows[model]) if metric == WHO else metric


def compare_models(experiment: Models, results: Results) -> Comparison:
    finals: dict[str, list[Mapping[str, Any]]] = {one.name: [] for one in experiment.entrants}
    rows: dict[str, list[Rows]] = {one.name: [] for one in experiment.entrants}
    sizes: dict[str, Mapping[str, Any]] = {}
    for unit in results.units:
        if unit.settings["part"] != "final":
            continue
        if unit.settings["size"]:
            sizes[unit.settings["model"]] = unit.settings["size"]
        record = results.records.get(unit.name)
        found = results.rows(unit.name) if record is not None else None
        if record is not None and found is not None:
            finals[unit.settings["model"]].append(record)
            rows[unit.settings["model"]].append(found)
    there = tuple(name for name, some in finals.items() if some)
    together = {name: pooled(rows[name]) for name in there}
    scores = {(one.model, one.metric): one for name in there for one in _scores(name, rows[name], together[name])}
    return Comparison(
        models=there,
        missing=tuple(name for name in finals if name not in there),
        seeds={name: tuple(one["seed"] for one in finals[name]) for name in there},
        scores=scores,
        rows=together,
        records={name: tuple(finals[name]) for name in there},
        sizes=sizes,
        singles={name: dict(zip((one["seed"] for one in finals[name]), rows[name], strict=True)) for name in there},
        like=frozenset(one.name for one in experiment.entrants if one.sized_by != one.name),
    )


def _scores(name: str, rows: Sequence[Rows], together: Rows) -> list[Score]:
    units = together.units
    found = estimates([one.ratio(units) for one in together.metrics], units.resampling(0))
    made = []
    for metric, estimate in zip(together.metrics, found, strict=True):
        values = tuple(one.by_key[metric.key].ratio(one.units).value for one in rows)
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        made.append(Score(name, metric.key, metric.kind, estimate, spread, values))
    return made


def who(rows: Rows) -> str:
    keys = [key for key in rows.by_key if key.startswith(f"{WHO} ")]
    return next((key for key in keys if key == f"{WHO} all"), keys[0] if keys else WHO)


@dataclass(frozen=True)
class _Tests:
    """Of two models in one score: with the seeds pooled, and of each seed."""

    pooled: Difference
    seeds: Mapping[int, Difference]

    def to_json(self) -> dict[str, Any]:
        """As in `foretell compare`, but for p, which is not corrected here."""
        found: dict[str, Any] = self.pooled.to_json() | {"seeds": self.seeds_json()}
        for one in found["tests"]:
            del one["p_holm"]
        tests = self.pooled.tests
        return found | {"significant": bool(tests) and tests[0].test.p_value < SIGNIFICANT}

    def seeds_json(self) -> dict[str, Any]:
        return {
            str(seed): {"difference": one.difference.value, "p": one.tests[0].test.p_value if one.tests else None}
            for seed, one in self.seeds.items()
        }

    def better_seeds(self) -> str:
        """How often the pooled verdict's better one is ahead, and how often significantly."""
        ahead = [one for one in self.seeds.values() if one.better is not None and one.better == self.pooled.better]
        clear = [one for one in ahead if one.tests and one.tests[0].test.p_value < SIGNIFICANT]
        return f"{len(ahead)} of {len(self.seeds)}, {len(clear)}"


def summary_of(experiment: Models, results: Results) -> Summary:
    from foretell.reproduce.findings import find
    from foretell.reproduce.score_picture import draw_scores

    table = experiment.definition.table
    found = compare_models(experiment, results)
    columns = experiment.columns
    pairs = _pairs(table.get("compare"), found.models)
    asked = [
        (first, second, metric)
        for first, second in pairs
        if first in found.models and second in found.models
        for metric in columns
    ]
    tests = [_Tests(found.test(*one), found.seed_tests(*one)) for one in asked]
    grid = [
        {**{key: record[key] for key in ("model", "size", "seed", "dev", "fit_seconds")}}
        for record in results.records.values()
        if record["part"] == "grid"
    ]
    numbers = {
        "scores": [asdict(one) for one in found.scores.values()],
        "tests": [one.to_json() for one in tests],
        "grid": grid,
        "chosen": {name: dict(size) for name, size in found.sizes.items()},
    }
    sections = [_score_table(found, columns), *_test_table(tests), *_grid_table(grid, found)]
    findings = [find(one, found, results) for one in table.get("finding", ())]
    picture = Picture("scores.png", lambda path: draw_scores(found, columns, experiment.definition.title, path))
    return Summary(sections, findings, plain(numbers), (picture,) if found.models else ())


def _pairs(asked: Any, models: Sequence[str]) -> list[tuple[str, str]]:
    """All of them; or one model with each of the others; or those that are listed."""
    if asked is None:
        return list(combinations(models, 2))
    if isinstance(asked, str):
        return [(asked, other) for other in models if other != asked]
    return [(first, second) for first, second in asked]


def title_of(metric: str) -> str:
    known = score_of(metric)
    return metric if known is None else known.short_column


def _score_table(found: Comparison, columns: Sequence[str]) -> Section:
    rows = []
    for name in found.models:
        scores = [found.scores.get((name, found.key(name, column))) for column in columns]
        seconds = [one["fit_seconds"] for one in found.records[name]]
        size = found.sizes.get(name) or _own_size(found.records[name][0])
        told = ", ".join(str(size[key]) for key in ("dim", "layers") if key in size) or "–"
        rows.append(
            [
                name,
                told,
                str(len(seconds)),
                *("–" if one is None else shown(one) for one in scores),
                f"{np.mean(seconds):.3g}",
            ]
        )
    head = ["model", "D, L", "seeds", *(title_of(one) for one in columns), "fit, s"]
    note = "Means over the seeds, [95 % bootstrap interval], ± standard deviation over the seeds."
    return Section("Scores on test", head, rows, note)


def _own_size(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return record["settings"]["config"]["model"]


def shown(one: Score) -> str:
    scale, digits = (100.0, 1) if one.kind == "share" else (1.0, 3)
    value, low, high = (f"{scale * part:.{digits}f}".replace("-", "−") for part in asdict(one.estimate).values())
    spread = "" if one.spread is None else f" ± {scale * one.spread:.{digits}f}"
    return f"{value} [{low}, {high}]{spread}"


def _test_table(tests: Sequence[_Tests]) -> list[Section]:
    if not tests:
        return []
    rows = []
    for both in tests:
        one = both.pooled
        scale, digits = (100.0, 1) if one.kind == "share" else (1.0, 3)
        size = f"{scale * one.difference.value:+.{digits}f}".replace("-", "−")
        test = one.tests[0] if one.tests else None
        p = "–" if test is None else in_words(test.test.p_value, test.test).removeprefix("= ")
        better = one.better if one.better and test is not None and test.test.p_value < SIGNIFICANT else "–"
        rows.append([one.first, one.second, title_of(one.metric), size, p, better, both.better_seeds()])
    first = tests[0].pooled
    over = first.tests[0].over if first.tests else "events"
    note = (
        f"First less second. p of a paired permutation test over {over}, each with its mean over the seeds; not corrected "
        "for the number of tests. The better one is named where p < 0.05. "
        "The last column: in how many seeds the same one is ahead, and in how many significantly."
    )
    return [
        Section(
            "Differences",
            ["first", "second", "score", "difference", "p", "better", "seeds ahead, significantly"],
            rows,
            note,
        )
    ]


def _grid_table(grid: Sequence[Mapping[str, Any]], found: Comparison) -> list[Section]:
    if not grid:
        return []
    best: dict[str, list[Mapping[str, Any]]] = {}
    for one in grid:
        best.setdefault(one["model"], []).append(one)
    rows = []
    for name, some in best.items():
        some = sorted((one for one in some if one["dev"] is not None), key=lambda one: -one["dev"])
        if not some:
            continue
        told = "; ".join(f"{_size(one['size'])}: {one['dev']:.4f}".replace("-", "−") for one in some[:3])
        rows.append([name, str(len(some)), told, f"{some[-1]['dev']:.4f}".replace("-", "−")])
    head = ["model", "sizes tried", "best three on dev", "worst"]
    return [Section("Sizes, chosen on dev", head, rows, "Log-likelihood an event on dev, one seed.")]


def _size(size: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{'D' if key == 'dim' else 'L' if key == 'layers' else key} {value}" for key, value in size.items()
    )
