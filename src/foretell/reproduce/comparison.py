"""Results of experiments of the kind "models": a table with intervals, tests between models, the sizes chosen on dev, and
findings of the paper.

Seeds are pooled: the score of an event is its mean over the seeds, and intervals and permutation tests use these means. The units are
sequences if there are enough, else events. The spread is the standard deviation of the seeds' scores. All comparisons of the table and
of findings are one family for Holm's correction. If the units of a model are missing, its scores and tests are taken from the published
results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.evaluate.bootstrap import Estimate, estimates
from foretell.evaluate.metrics import ALL, score_of
from foretell.evaluate.scores import plain
from foretell.reproduce.experiment import ExperimentSummary, Picture, Results, TableSection, estimate_cell
from foretell.reproduce.model_difference import (
    ModelDifference,
    correct,
    difference_from_json,
    model_difference,
    student_quantile,
)
from foretell.reproduce.rows import WHO, SeedRows, seed_rows

if TYPE_CHECKING:
    from foretell.reproduce.models import Models

Comparand = tuple[str, str, str]  # two models and a score


@dataclass(frozen=True)
class Score:
    """The score of one model in one metric, over its seeds."""

    model: str
    metric: str
    kind: str
    estimate: Estimate
    spread: float | None  # standard deviation over the seeds; None: one seed
    values: tuple[float, ...]  # one per seed


@dataclass(frozen=True)
class ModelComparison:
    """The results that findings use."""

    models: tuple[str, ...]  # models that have scores
    scores: Mapping[tuple[str, str], Score]  # by (model, metric)
    records: Mapping[str, tuple[Mapping[str, Any], ...]]  # records of final fits, by model
    sizes: Mapping[str, Mapping[str, Any]]  # the sizes that were chosen on dev, by model
    grid: Sequence[Mapping[str, Any]] = ()  # every size that was tried: model, size, seed, dev
    rows: Mapping[str, SeedRows] = field(default_factory=dict)
    earlier: Mapping[Comparand, Mapping[str, Any]] = field(default_factory=dict)  # tests of an earlier `results.json`
    like: frozenset[str] = frozenset()  # models without a grid, which have the size of another model
    constant: frozenset[str] = frozenset()  # models whose fit does not depend on the seed
    differences: Mapping[Comparand, ModelDifference] = field(default_factory=dict)  # the family, with corrected p

    def test(self, first: str, second: str, metric: str) -> ModelDifference:
        """Return the difference first minus second over the same events; it must be in the family."""
        key = self.key(first, metric)
        if (first, second, key) in self.differences:
            return self.differences[first, second, key]
        if (second, first, key) not in self.differences:
            raise KeyError((first, second, key))
        return self.differences[second, first, key].reversed()

    def key(self, model: str, metric: str) -> str:
        """Return the metric's key; `participants` becomes that of all patterns, or of the only pattern."""
        keys = [key for name, key in self.scores if name == model and key.startswith(f"{WHO} ")]
        return metric if metric != WHO else f"{WHO} {ALL}" if f"{WHO} {ALL}" in keys else keys[0] if keys else WHO

    def measured(self, asked: Iterable[Comparand]) -> ModelComparison:
        """Return a copy with the requested tests, corrected for their number; the same pair in either order is tested once."""
        found: dict[Comparand, ModelDifference] = {}
        for first, second, metric in asked:
            key = self.key(first, metric)
            if (second, first, key) not in found and (first, second, key) not in found:
                one = self._difference(first, second, key)
                found |= {} if one is None else {(first, second, key): one}
        return replace(self, differences=dict(zip(found, correct(list(found.values())), strict=True)))

    def _difference(self, first: str, second: str, key: str) -> ModelDifference | None:
        constant = [name in self.constant for name in (first, second)]
        if first in self.rows and second in self.rows:
            return model_difference((first, second), self.rows[first], self.rows[second], key, constant)
        values = [self.scores[name, key].values for name in (first, second)]
        for turned, names in ((False, (first, second)), (True, (second, first))):
            if (*names, key) in self.earlier:
                order = -1 if turned else 1
                made = difference_from_json(self.earlier[*names, key], values[::order], constant[::order])
                return made.reversed() if turned else made
        return None  # neither computed here nor published, so `test` does not find it


def compare_models(experiment: Models, results: Results) -> ModelComparison:
    finals = [one for one in results.units if one.settings["part"] == "final" and one.name in results.records]
    rows = seed_rows(results, lambda settings: settings["model"] if settings["part"] == "final" else None)
    fits = Counter(one.settings["model"] for one in finals)
    rows = {name: some for name, some in rows.items() if len(some.by_seed) == fits[name]}
    scores = {(name, one.metric): one for name, some in rows.items() for one in _scores(name, some)}
    published = fits.keys() - rows.keys()  # models with known scores but without files
    for one in results.earlier.get("scores", ()):
        if one["model"] in published:
            made = {**one, "estimate": Estimate(**one["estimate"]), "values": tuple(one["values"])}
            scores[one["model"], one["metric"]] = Score(**made)
    there = tuple(one.name for one in experiment.entrants if any(name == one.name for name, _ in scores))
    records = {
        name: tuple(results.records[one.name] for one in finals if one.settings["model"] == name) for name in there
    }
    return ModelComparison(
        models=there,
        scores=scores,
        records=records,
        sizes={one.settings["model"]: one.settings["size"] for one in finals if one.settings["size"]},
        grid=[
            {key: record[key] for key in ("model", "size", "seed", "dev", "fit_seconds")}
            for record in results.records.values()
            if record["part"] == "grid"
        ],
        rows=rows,
        earlier={(one["first"], one["second"], one["metric"]): one for one in results.earlier.get("tests", ())},
        like=frozenset(one.name for one in experiment.entrants if one.sized_by != one.name),
        constant=frozenset(one.name for one in experiment.entrants if one.without_chance),
    )


def _scores(name: str, rows: SeedRows) -> list[Score]:
    units, metrics = rows.pooled.units, rows.pooled.metrics
    found = estimates([one.ratio(units) for one in metrics], units.resampling(0))
    return [
        Score(name, one.key, one.kind, estimate, rows.spread(one.key), rows.values(one.key))
        for one, estimate in zip(metrics, found, strict=True)
    ]


def summary_of(experiment: Models, results: Results) -> ExperimentSummary:
    from foretell.reproduce.findings import comparands, find

    table = experiment.definition.table
    found = compare_models(experiment, results)
    columns, findings = experiment.columns, table.get("finding", ())
    pairs = _pairs(table.get("compare"), found.models)
    asked = [(*pair, metric) for pair in pairs for metric in columns]
    asked += [one for finding in findings for one in comparands(finding)]
    found = found.measured(one for one in asked if one[0] in found.models and one[1] in found.models)
    numbers = {
        "scores": [asdict(one) for one in found.scores.values()],
        "tests": [one.to_json() for one in found.differences.values()],
        "grid": list(found.grid),
        "chosen": {name: dict(size) for name, size in found.sizes.items()},
    }
    sections = [_score_table(found, columns), *_test_table(list(found.differences.values())), *_grid_table(found)]
    picture = Picture("scores.png", lambda path: draw_scores(found, columns, experiment.definition.title, path))
    judged = [find(one, found) for one in findings]
    return ExperimentSummary(sections, judged, plain(numbers), (picture,) if found.models else ())


def _pairs(asked: Any, models: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs to test: all pairs, one model with each of the others, or the listed pairs."""
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


def _test_table(tests: Sequence[ModelDifference]) -> list[TableSection]:
    if not tests:
        return []
    rows = [[one.pooled.first, one.pooled.second, title_of(one.pooled.metric), *one.cells()] for one in tests]
    first = tests[0].pooled
    over = first.tests[0].over if first.tests else "events"
    vacuous = sum(one.vacuous for one in tests)
    left = f", but for {vacuous} in which nothing differs" if vacuous else ""
    note = (
        f"First less second. p of a paired permutation test over {over}, each with its mean over the seeds; p over seeds by Welch's t-test "
        f"of the seeds' scores. Corrected: the larger of the two by Holm's method, for all {len(tests)} comparisons here{left}. The better "
        "one is named where that is below 0.05. The last column: in how many seeds the same one is ahead, and in how many significantly."
    )
    head = ["first", "second", "score", "difference", "p", "p over seeds", "corrected", "better"]
    return [TableSection("Differences", [*head, "seeds ahead, significantly"], rows, note)]


@dataclass(frozen=True)
class SizeChoice:
    """The dev scores of a model's sizes, each fitted with one seed."""

    tried: tuple[Mapping[str, Any], ...]  # the grid's entries with a score, best first
    noise: float | None  # 95 % of differences on dev between fits of one size are below; None: one seed

    @property
    def unresolved(self) -> list[Mapping[str, Any]]:
        """Return the best size and all sizes whose distance to it could be due to the seeds alone."""
        return [one["size"] for one in self.tried if one["dev"] >= self.tried[0]["dev"] - (self.noise or 0.0)]


def size_choice(found: ModelComparison, name: str) -> SizeChoice:
    """Return the sizes of a model. The noise is the standard deviation of the final fits on dev, times √2 times Student's quantile."""
    tried = sorted(
        (one for one in found.grid if one["model"] == name and one["dev"] is not None), key=lambda one: -one["dev"]
    )
    dev = [one["dev"] for one in found.records.get(name, ())]
    noise = student_quantile(0.95, len(dev) - 1) * 2**0.5 * float(np.std(dev, ddof=1)) if len(dev) > 1 else None
    return SizeChoice(tuple(tried), noise)


def _grid_table(found: ModelComparison) -> list[TableSection]:
    rows = []
    for name in dict.fromkeys(one["model"] for one in found.grid):
        choice = size_choice(found, name)
        if not choice.tried:
            continue
        best, worst = choice.tried[:3], choice.tried[-1]
        told = "; ".join(f"{_size(one['size'])}: {one['dev']:.4f}".replace("-", "−") for one in best)
        within = "–" if choice.noise is None else f"{len(choice.unresolved)} (within {choice.noise:.3f})"
        rows.append([name, str(len(choice.tried)), told, within, f"{worst['dev']:.4f}".replace("-", "−")])
    head = ["model", "sizes tried", "best three on dev", "not resolved from the best", "worst"]
    note = (
        "Log-likelihood an event on dev, one seed. Not resolved: sizes that are no further behind the best than two fits of one size may "
        "be apart by their seeds (95 %, from the final fits' scores on dev)."
    )
    return [TableSection("Sizes, chosen on dev", head, rows, note)] if rows else []


def _size(size: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{'D' if key == 'dim' else 'L' if key == 'layers' else key} {value}" for key, value in size.items()
    )


def draw_scores(found: ModelComparison, columns: Sequence[str], title: str, path: Path) -> None:
    """Draw the paper's figure: one panel per score, one dot per model with its 95 % interval; small dots are single seeds."""
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
