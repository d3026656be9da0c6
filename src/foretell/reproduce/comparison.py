"""What came of the kind "models": the table with intervals, the tests between models, the sizes that dev chose, and the paper's findings.

Seeds are pooled: each event's score is its mean over the seeds, and intervals and tests see these means. They are over sequences where
there are enough of them, else over events. The spread is the standard deviation of the seeds' scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.evaluate.bootstrap import Estimate, estimates
from foretell.evaluate.compare import Difference, in_words
from foretell.evaluate.metrics import score_of
from foretell.evaluate.scores import plain
from foretell.reproduce.experiment import ExperimentSummary, Picture, Results, TableSection, estimate_cell
from foretell.reproduce.rows import (
    WHO,
    ScoreRows,
    SeedRows,
    difference_between,
    is_significant,
    participants_key,
    seed_rows,
)

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
class ModelComparison:
    """All that findings can ask about."""

    models: tuple[str, ...]  # with scores
    missing: tuple[str, ...]  # of which no seed is done yet
    seeds: Mapping[str, tuple[int, ...]]
    scores: Mapping[tuple[str, str], Score]  # by (model, metric)
    rows: Mapping[str, ScoreRows]  # pooled
    records: Mapping[str, tuple[Mapping[str, Any], ...]]  # finals, by model
    sizes: Mapping[str, Mapping[str, Any]]  # that dev chose
    singles: Mapping[str, Mapping[int, ScoreRows]] = field(default_factory=dict)  # of each seed
    like: frozenset[str] = frozenset()  # models that have the size of another, and no grid of their own

    def test(self, first: str, second: str, metric: str) -> Difference:
        """First less second, over the same events; p is not corrected."""
        return difference_between((first, second), self.rows[first], self.rows[second], self.key(first, metric))

    def seed_tests(self, first: str, second: str, metric: str) -> dict[int, Difference]:
        """Seed by seed; a model of which there is one fit meets every seed of the other."""
        one, other = self.singles.get(first, {}), self.singles.get(second, {})
        found = {}
        for seed in sorted({*one, *other}):
            pair = [some.get(seed) or (next(iter(some.values())) if len(some) == 1 else None) for some in (one, other)]
            if pair[0] is not None and pair[1] is not None:
                key = self.key(first, metric)
                found[seed] = difference_between((first, second), pair[0], pair[1], key, OF_A_SEED)
        return found

    def key(self, model: str, metric: str) -> str:
        return participants_key(self.rows[model]) if metric == WHO else metric


def compare_models(experiment: Models, results: Results) -> ModelComparison:
    finals = [one for one in results.units if one.settings["part"] == "final"]
    rows = seed_rows(results, lambda settings: settings["model"] if settings["part"] == "final" else None)
    there = tuple(one.name for one in experiment.entrants if one.name in rows)

    records: dict[str, list[Mapping[str, Any]]] = {name: [] for name in there}
    for one in finals:
        if one.name in results.records and results.rows(one.name) is not None:
            records[one.settings["model"]].append(results.records[one.name])
    scores = [one for name in there for one in _scores(name, rows[name])]
    return ModelComparison(
        models=there,
        missing=tuple(one.name for one in experiment.entrants if one.name not in rows),
        seeds={name: tuple(rows[name].by_seed) for name in there},
        scores={(one.model, one.metric): one for one in scores},
        rows={name: rows[name].pooled for name in there},
        records={name: tuple(some) for name, some in records.items()},
        sizes={one.settings["model"]: one.settings["size"] for one in finals if one.settings["size"]},
        singles={name: rows[name].by_seed for name in there},
        like=frozenset(one.name for one in experiment.entrants if one.sized_by != one.name),
    )


def _scores(name: str, rows: SeedRows) -> list[Score]:
    units, metrics = rows.pooled.units, rows.pooled.metrics
    found = estimates([one.ratio(units) for one in metrics], units.resampling(0))
    return [
        Score(name, one.key, one.kind, estimate, rows.spread(one.key), rows.values(one.key))
        for one, estimate in zip(metrics, found, strict=True)
    ]


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
        return found | {"significant": is_significant(self.pooled)}

    def seeds_json(self) -> dict[str, Any]:
        return {
            str(seed): {"difference": one.difference.value, "p": one.tests[0].test.p_value if one.tests else None}
            for seed, one in self.seeds.items()
        }

    def better_seeds(self) -> str:
        """How often the pooled verdict's better one is ahead, and how often significantly."""
        ahead = [one for one in self.seeds.values() if one.better is not None and one.better == self.pooled.better]
        return f"{len(ahead)} of {len(self.seeds)}, {sum(map(is_significant, ahead))}"


def summary_of(experiment: Models, results: Results) -> ExperimentSummary:
    from foretell.reproduce.findings import find

    table = experiment.definition.table
    found = compare_models(experiment, results)
    columns = experiment.columns
    pairs = _pairs(table.get("compare"), found.models)
    there = [(first, second) for first, second in pairs if first in found.models and second in found.models]
    asked = [(*pair, metric) for pair in there for metric in columns]
    tests = [_Tests(found.test(*one), found.seed_tests(*one)) for one in asked]
    grid = [
        {key: record[key] for key in ("model", "size", "seed", "dev", "fit_seconds")}
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
    return ExperimentSummary(sections, findings, plain(numbers), (picture,) if found.models else ())


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


def _score_table(found: ModelComparison, columns: Sequence[str]) -> TableSection:
    rows = []
    for name in found.models:
        scores = [found.scores.get((name, found.key(name, column))) for column in columns]
        seconds = [one["fit_seconds"] for one in found.records[name]]
        size = found.sizes.get(name) or found.records[name][0]["settings"]["config"]["model"]
        told = ", ".join(str(size[key]) for key in ("dim", "layers") if key in size) or "–"
        rows.append(
            [
                name,
                told,
                str(len(seconds)),
                *("–" if one is None else estimate_cell(one.estimate, one.kind, one.spread) for one in scores),
                f"{np.mean(seconds):.3g}",
            ]
        )
    head = ["model", "D, L", "seeds", *(title_of(one) for one in columns), "fit, s"]
    note = "Means over the seeds, [95 % bootstrap interval], ± standard deviation over the seeds."
    return TableSection("Scores on test", head, rows, note)


def _test_table(tests: Sequence[_Tests]) -> list[TableSection]:
    if not tests:
        return []
    rows = []
    for both in tests:
        one = both.pooled
        scale, digits = (100.0, 1) if one.kind == "share" else (1.0, 3)
        size = f"{scale * one.difference.value:+.{digits}f}".replace("-", "−")
        test = one.tests[0] if one.tests else None
        p = "–" if test is None else in_words(test.test.p_value, test.test).removeprefix("= ")
        better = one.better if one.better and is_significant(one) else "–"
        rows.append([one.first, one.second, title_of(one.metric), size, p, better, both.better_seeds()])
    first = tests[0].pooled
    over = first.tests[0].over if first.tests else "events"
    note = (
        f"First less second. p of a paired permutation test over {over}, each with its mean over the seeds; not corrected "
        "for the number of tests. The better one is named where p < 0.05. "
        "The last column: in how many seeds the same one is ahead, and in how many significantly."
    )
    head = ["first", "second", "score", "difference", "p", "better", "seeds ahead, significantly"]
    return [TableSection("Differences", head, rows, note)]


def _grid_table(grid: Sequence[Mapping[str, Any]], found: ModelComparison) -> list[TableSection]:
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
    return [TableSection("Sizes, chosen on dev", head, rows, "Log-likelihood an event on dev, one seed.")]


def _size(size: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{'D' if key == 'dim' else 'L' if key == 'layers' else key} {value}" for key, value in size.items()
    )


def draw_scores(found: ModelComparison, columns: Sequence[str], title: str, path: Path) -> None:
    """The paper's figures: one panel per score, one dot per model, with its 95 % interval; small dots are single seeds."""
    from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure, save_figure

    figure, axes = blank_figure(1, (3.1 * len(columns), 1.2 + 0.42 * len(found.models)), columns=len(columns))
    for axis, column in zip(axes, columns, strict=True):
        axis.grid(visible=False)
        axis.grid(axis="x", color="#eeeeee", linewidth=0.8)
        for place, name in enumerate(found.models):
            score = found.scores.get((name, found.key(name, column)))
            if score is None:
                continue
            scale = 100.0 if score.kind == "share" else 1.0
            colour = COLOURS[place % len(COLOURS)]
            low, high = scale * score.estimate.low, scale * score.estimate.high
            axis.plot([low, high], [place, place], color=colour, linewidth=2.0, solid_capstyle="round")
            axis.plot([scale * score.estimate.value], [place], "o", color=colour, markersize=7)
            if len(score.values) > 1:
                seeds = [scale * value for value in score.values]
                axis.plot(seeds, [place + 0.22] * len(seeds), "o", color=FAINT, markersize=2.5)
        axis.set_yticks(range(len(found.models)), found.models if axis is axes[0] else [])
        axis.set_ylim(len(found.models) - 0.5, -0.5)
        known = score_of(column)
        better = "higher" if known is not None and known.higher_is_better else "lower"
        axis.set_xlabel(f"{title_of(column)} ({better} is better)", fontsize=9, color=INK)
    figure.suptitle(title, fontsize=10, color=INK)
    save_figure(figure, path)
