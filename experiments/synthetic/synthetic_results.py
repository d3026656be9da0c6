"""Results of the pilot: for each data set the log-likelihoods of every model and of the true model, and the paper's claims about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.compare import Difference
from foretell.evaluate.scores import plain
from foretell.reproduce.experiment import (
    ExperimentSummary,
    Finding,
    Picture,
    Results,
    TableSection,
    Verdict,
    estimate_cell,
    verdict_of,
)
from foretell.reproduce.model_difference import correct, model_difference
from foretell.reproduce.rows import ScoreRows, SeedRows, difference_between, estimate_of, seed_rows

if TYPE_CHECKING:
    from .synthetic import Synthetic

WHOLE = "log_likelihood"
METRICS = {WHOLE: "whole", "time_log_likelihood": "times", "type_log_likelihood": "types"}


@dataclass(frozen=True)
class Column:
    """One data set: the true model, and the models that were fitted to it."""

    data: str
    drawn: Mapping[str, Any]  # the record of the unit that drew it
    truth: ScoreRows
    models: Mapping[str, SeedRows]
    layers: Mapping[str, int | None]

    def value(self, model: str) -> float:
        return self.models[model].estimate(WHOLE).value

    def lead(self, first: str, second: str | None, metric: str = WHOLE) -> Difference:
        """Return the lead of one model over another, or (None) over the true model."""
        other = self.truth if second is None else self.models[second].pooled
        return difference_between((first, second or "truth"), self.models[first].pooled, other, metric)


def columns_of(experiment: Synthetic, results: Results) -> list[Column]:
    from .synthetic import drawn_name

    found = []
    for source in experiment.all:
        name = drawn_name(source)
        truth = results.rows(name) if name in results.records else None
        if truth is None:
            continue
        final = [one.settings for one in results.units if one.settings["part"] == "final"]
        layers = {one["model"]: one["layers"] for one in final if one["data"] == source.name}
        models = seed_rows(results, lambda one, data=source.name: _fitted_to(data, one))
        found.append(Column(source.name, results.records[name], truth, models, layers))
    return found


def _fitted_to(data: str, settings: Mapping[str, Any]) -> str | None:
    return settings["model"] if settings["part"] == "final" and settings["data"] == data else None


def summary_of(experiment: Synthetic, results: Results) -> ExperimentSummary:
    columns = columns_of(experiment, results)
    sections = [_table(column) for column in columns]
    if columns:
        sections.insert(0, _drawn(columns))
    numbers = {"data_sets": [_numbers(column) for column in columns]}
    picture = Picture("pilot.png", lambda path: draw_pilot(columns, [one.name for one in experiment.families], path))
    findings = _findings(experiment, columns)
    return ExperimentSummary(sections, findings, plain(numbers), (picture,) if any(c.models for c in columns) else ())


def _drawn(columns: Sequence[Column]) -> TableSection:
    rows = []
    for one in columns:
        about = one.drawn
        low, mean, high = about["lengths"]
        varies = f"{about['gain']:g}", f"{about['spread']:.2f}", f"{about['share_spread']:.2f}"
        events = " / ".join(str(count) for count in about["events"].values())
        rows.append([one.data, *varies, events, f"{low} / {mean:.1f} / {high}"])
    varies = "gain", "total varies by", "shares vary by"
    head = ["drawn from", *varies, "events (train / dev / test)", "lengths (min / mean / max)"]
    note = "Paper, all of its data sets in one row: 59904 / 7425 / 7505 events, lengths 49 / 75 / 99."
    return TableSection("Data", head, rows, note)


def _table(column: Column) -> TableSection:
    rows = [["truth", "–", "–", *(estimate_cell(estimate_of(column.truth, key)) for key in METRICS), "0"]]
    for name, found in column.models.items():
        spreads = {WHOLE: found.spread(WHOLE)}
        cells = [estimate_cell(found.estimate(key), spread=spreads.get(key)) for key in METRICS]
        behind = f"{column.lead(name, None).difference.value:+.3f}".replace("-", "−")
        layers = column.layers[name]
        rows.append([name, "–" if layers is None else str(layers), str(len(found.by_seed)), *cells, behind])
    head = ["model", "L", "seeds", "log-likelihood", "of times", "of types", "less truth"]
    note = "Nats an event of test, means over seeds, [95 % bootstrap interval], ± standard deviation over seeds."
    return TableSection(f"{column.data} data", head, rows, note)


def _numbers(column: Column) -> dict[str, Any]:
    def of(estimate: Callable[[str], Estimate]) -> dict[str, Any]:
        return {key: asdict(estimate(key)) for key in METRICS}

    models = {
        name: of(found.estimate) | {"seeds": len(found.by_seed), "layers": column.layers[name]}
        for name, found in column.models.items()
    }
    return {"data": column.data, "truth": of(lambda key: estimate_of(column.truth, key)), "models": models}


# ---- what the paper says -------------------------------------------------------------------------------------------------------------


def _findings(experiment: Synthetic, columns: Sequence[Column]) -> list[Finding]:
    """Check the findings. `rival` is the model that the paper finds worse (THP), `reference` the paper's model (A-NHP)."""
    table = experiment.definition.table
    close, rival = float(table.get("close", 0.05)), str(table.get("rival", "THP"))
    own = str(table.get("reference", "A-NHP"))
    names = [one.name for one in experiment.all]
    others = [name for name in names if name != rival]
    claims = [
        ("Close", f"{', '.join(others)} have very close performance on all {len(names)} data sets"),
        ("Better than the rival", f"they outperform {rival} on all data but its own"),
        ("Above all in timing", f"{rival} is worse above all at predicting times"),
        ("Misspecified", f"{own} is still a satisfactory choice when it is misspecified"),
    ]
    whole = len(columns) == len(names) and all(set(names) <= set(column.models) for column in columns)
    if not whole:
        return [Finding(name, claim, "pending", "not everything is fitted yet") for name, claim in claims]
    judged = [
        _all_close(columns, others, close),
        _better(columns, others, rival),
        _in_time(columns, others, rival),
        _misspecified(columns, own, close),
    ]
    return [
        Finding(name, claim, verdict, detail, value)
        for (name, claim), (verdict, detail, value) in zip(claims, judged, strict=True)
    ]


CheckOutcome = tuple[Verdict, str, float]


def _all_close(columns: Sequence[Column], others: Sequence[str], close: float) -> CheckOutcome:
    values = {column.data: [column.value(name) for name in others] for column in columns}
    apart = {data: max(some) - min(some) for data, some in values.items()}
    worst = max(apart.values())
    told = "; ".join(f"{data} data: {value:.3f}" for data, value in apart.items())
    detail = f"best less worst, nats an event: {told} (close: up to {close:g})"
    return "holds" if worst <= close else "does not hold", detail, worst


def _leads(columns: Sequence[Column], others: Sequence[str], rival: str, metric: str) -> list[tuple[str, Difference]]:
    """Return the leads of all other models over the rival, on all data except its own."""
    found = [column for column in columns if column.data != rival]
    return [(column.data, column.lead(name, rival, metric)) for column in found for name in others]


def _better(columns: Sequence[Column], others: Sequence[str], rival: str) -> CheckOutcome:
    found = [(column, name) for column in columns if column.data != rival for name in others]
    tests = correct(
        [model_difference((name, rival), one.models[name], one.models[rival], WHOLE) for one, name in found]
    )
    weak = [one for one in tests if not one.significant]
    lost = [one for one in tests if one.leader() == rival]
    told = "; ".join(
        f"{column.data} data, {name}: {one.size()} ({one.p_words()})"
        for (column, name), one in zip(found, tests, strict=True)
    )
    return verdict_of(bool(lost), bool(weak)), told, float(len(tests) - len(lost) - len(weak))


def _in_time(columns: Sequence[Column], others: Sequence[str], rival: str) -> CheckOutcome:
    times, types = (
        float(np.mean([one.difference.value for _, one in _leads(columns, others, rival, f"{of}_log_likelihood")]))
        for of in ("time", "type")
    )
    told = f"mean lead over {rival} on the other data: {times:+.3f} in times, {types:+.3f} in types"
    return "holds" if times > types and times > 0 else "does not hold", told, times - types


def _misspecified(columns: Sequence[Column], own: str, close: float) -> CheckOutcome:
    others = [column for column in columns if column.data != own]
    behind = {column.data: column.lead(own, column.data).difference.value for column in others}
    worst = min(behind.values())
    told = "; ".join(f"{data} data: {value:+.3f}" for data, value in behind.items())
    return "holds" if worst >= -close else "does not hold", f"{own} less the model of the true kind: {told}", worst


# ---- the picture ---------------------------------------------------------------------------------------------------------------------


def draw_pilot(columns: Sequence[Column], names: Sequence[str], path: Path) -> None:
    """Draw the paper's figure: one column per data set, and one row each for the whole, the times and the types."""
    from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure, save_figure

    figure, axes = blank_figure(3, (2.6 * len(columns) + 0.6, 6.6), columns=len(columns))
    for place, (key, title) in enumerate(METRICS.items()):
        for number, column in enumerate(columns):
            panel = axes[place * len(columns) + number]
            truth = estimate_of(column.truth, key)
            panel.axhline(truth.value, color=COLOURS[1], linestyle="--", linewidth=1.0)
            for x, name in enumerate(names):
                if name not in column.models:
                    continue
                one = column.models[name].estimate(key)
                colour = COLOURS[1] if name == column.data else COLOURS[0] if name == names[-1] else FAINT
                panel.plot([x, x], [one.low, one.high], color=colour, linewidth=2.0, solid_capstyle="round")
                panel.plot([x], [one.value], "o", color=colour, markersize=6)
                for value in column.models[name].values(key):
                    panel.plot([x + 0.2], [value], ".", color=FAINT, markersize=3)
            panel.set_xticks(range(len(names)), names, fontsize=8)
            panel.set_xlim(-0.5, len(names) - 0.5)
            if place == 0:
                panel.set_title(f"{column.data} data", fontsize=10, color=INK)
            if number == 0:
                panel.set_ylabel(f"{title}, nats an event", fontsize=9, color=INK)
    save_figure(figure, path)
