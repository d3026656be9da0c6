"""What came of the pilot: for each data set every model's log-likelihoods beside those of the truth, and what the paper says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.evaluate.bootstrap import Estimate, estimates
from foretell.evaluate.compare import SIGNIFICANT, Difference, difference_of
from foretell.evaluate.scores import plain
from foretell.reproduce.experiment import Finding, Picture, Results, Section, Summary, Verdict
from foretell.reproduce.rows import Rows, check_same_data, pooled

if TYPE_CHECKING:
    from foretell.reproduce.synthetic import Synthetic

METRICS = {"log_likelihood": "whole", "time_log_likelihood": "times", "type_log_likelihood": "types"}


@dataclass(frozen=True)
class Column:
    """One data set: the truth, and the models that were fitted to it."""

    data: str
    drawn: Mapping[str, Any]  # the record of its drawing
    truth: Rows
    models: Mapping[str, Rows]  # each pooled over its seeds
    seeds: Mapping[str, Sequence[Rows]]
    layers: Mapping[str, int | None]

    def estimate(self, rows: Rows, metric: str) -> Estimate:
        return estimates([rows.by_key[metric].ratio(rows.units)], rows.units.resampling(0))[0]

    def difference(self, first: Rows, second: Rows, metric: str, names: tuple[str, str]) -> Difference:
        """First less second, over the same sequences; p is not corrected."""
        check_same_data([first, second])
        over = "sequences" if first.units.whole_sequences else "events"
        return difference_of(names, first.by_key[metric], second.by_key[metric], first.units, [over])


def columns_of(experiment: Synthetic, results: Results) -> list[Column]:
    from foretell.reproduce.synthetic import drawn_name

    found = []
    for source in experiment.all:
        name = drawn_name(source)
        truth = results.rows(name) if name in results.records else None
        if truth is None:
            continue
        seeds: dict[str, list[Rows]] = {}
        layers: dict[str, int | None] = {}
        for unit in results.units:
            settings = unit.settings
            if settings["part"] == "final" and settings["data"] == source.name and unit.name in results.records:
                rows = results.rows(unit.name)
                if rows is not None:
                    seeds.setdefault(settings["model"], []).append(rows)
                    layers[settings["model"]] = settings["layers"]
        together = {model: pooled(some) for model, some in seeds.items()}
        found.append(Column(source.name, results.records[name], truth, together, seeds, layers))
    return found


def summary_of(experiment: Synthetic, results: Results) -> Summary:
    columns = columns_of(experiment, results)
    sections = [_table(column) for column in columns]
    if columns:
        sections.insert(0, _drawn(columns))
    numbers = {"data_sets": [_numbers(column) for column in columns]}
    picture = Picture("pilot.png", lambda path: draw_pilot(columns, [one.name for one in experiment.families], path))
    findings = _findings(experiment, columns)
    return Summary(sections, findings, plain(numbers), (picture,) if any(c.models for c in columns) else ())


def _drawn(columns: Sequence[Column]) -> Section:
    rows = []
    for one in columns:
        about = one.drawn
        low, mean, high = about["lengths"]
        rows.append(
            [
                one.data,
                f"{about['gain']:g}",
                f"{about['spread']:.2f}",
                f"{about['share_spread']:.2f}",
                " / ".join(str(count) for count in about["events"].values()),
                f"{low} / {mean:.1f} / {high}",
            ]
        )
    head = [
        "drawn from",
        "gain",
        "total varies by",
        "shares vary by",
        "events (train / dev / test)",
        "lengths (min / mean / max)",
    ]
    note = "Paper, all of its data sets in one row: 59904 / 7425 / 7505 events, lengths 49 / 75 / 99."
    return Section("Data", head, rows, note)


def _table(column: Column) -> Section:
    rows = [["truth", "–", "–", *(_shown(column.estimate(column.truth, key)) for key in METRICS), "0"]]
    for name, found in column.models.items():
        values = [one.by_key["log_likelihood"].ratio(one.units).value for one in column.seeds[name]]
        spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
        cells = [_shown(column.estimate(found, key)) for key in METRICS]
        behind = column.difference(found, column.truth, "log_likelihood", (name, "truth")).difference.value
        layers = column.layers[name]
        rows.append(
            [
                name,
                "–" if layers is None else str(layers),
                str(len(values)),
                cells[0] + spread,
                *cells[1:],
                f"{behind:+.3f}",
            ]
        )
    head = ["model", "L", "seeds", "log-likelihood", "of times", "of types", "less truth"]
    note = "Nats an event of test, means over seeds, [95 % bootstrap interval], ± standard deviation over seeds."
    return Section(
        f"{column.data} data", head, [[row[0], *(cell.replace("-", "−") for cell in row[1:])] for row in rows], note
    )


def _shown(one: Estimate) -> str:
    return f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]"


def _numbers(column: Column) -> dict[str, Any]:
    def of(rows: Rows) -> dict[str, Any]:
        return {key: asdict(column.estimate(rows, key)) for key in METRICS}

    models = {
        name: of(rows) | {"seeds": len(column.seeds[name]), "layers": column.layers[name]}
        for name, rows in column.models.items()
    }
    return {"data": column.data, "truth": of(column.truth), "models": models}


# ---- what the paper says -------------------------------------------------------------------------------------------------------------


def _findings(experiment: Synthetic, columns: Sequence[Column]) -> list[Finding]:
    """`rival` is the model that the paper finds worse (THP), `reference` the one it is about (A-NHP)."""
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


def _all_close(columns: Sequence[Column], others: Sequence[str], close: float) -> tuple[Verdict, str, float]:
    apart = {}
    for column in columns:
        values = [column.estimate(column.models[name], "log_likelihood").value for name in others]
        apart[column.data] = max(values) - min(values)
    worst = max(apart.values())
    told = "; ".join(f"{data} data: {value:.3f}" for data, value in apart.items())
    return (
        "holds" if worst <= close else "does not hold",
        f"best less worst, nats an event: {told} (close: up to {close:g})",
        worst,
    )


def _better(columns: Sequence[Column], others: Sequence[str], rival: str) -> tuple[Verdict, str, float]:
    tests = [
        (column.data, column.difference(column.models[name], column.models[rival], "log_likelihood", (name, rival)))
        for column in columns
        if column.data != rival
        for name in others
    ]
    weak = [one for _, one in tests if not one.tests or one.tests[0].test.p_value >= SIGNIFICANT]
    lost = [one for _, one in tests if one.better == rival and one not in weak]
    told = "; ".join(f"{data} data, {one.first}: {one.difference.value:+.3f}" for data, one in tests)
    verdict: Verdict = "does not hold" if lost else "not significant" if weak else "holds"
    return verdict, told, float(len(tests) - len(lost) - len(weak))


def _in_time(columns: Sequence[Column], others: Sequence[str], rival: str) -> tuple[Verdict, str, float]:
    def lead(metric: str) -> float:
        return float(
            np.mean(
                [
                    column.difference(column.models[name], column.models[rival], metric, (name, rival)).difference.value
                    for column in columns
                    if column.data != rival
                    for name in others
                ]
            )
        )

    times, types = lead("time_log_likelihood"), lead("type_log_likelihood")
    told = f"mean lead over {rival} on the other data: {times:+.3f} in times, {types:+.3f} in types"
    return "holds" if times > types and times > 0 else "does not hold", told, times - types


def _misspecified(columns: Sequence[Column], own: str, close: float) -> tuple[Verdict, str, float]:
    behind = {
        column.data: column.difference(
            column.models[own], column.models[column.data], "log_likelihood", (own, column.data)
        ).difference.value
        for column in columns
        if column.data != own
    }
    worst = min(behind.values())
    told = "; ".join(f"{data} data: {value:+.3f}" for data, value in behind.items())
    return "holds" if worst >= -close else "does not hold", f"{own} less the model of the true kind: {told}", worst


# ---- the picture ---------------------------------------------------------------------------------------------------------------------


def draw_pilot(columns: Sequence[Column], names: Sequence[str], path: Path) -> None:
    """As the paper's figure: a column a data set, a row each for the whole, the times and the types."""
    from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure, save_figure

    figure, axes = blank_figure(3, (2.6 * len(columns) + 0.6, 6.6), columns=len(columns))
    for place, (key, title) in enumerate(METRICS.items()):
        for number, column in enumerate(columns):
            panel = axes[place * len(columns) + number]
            truth = column.estimate(column.truth, key)
            panel.axhline(truth.value, color=COLOURS[1], linestyle="--", linewidth=1.0)
            for x, name in enumerate(names):
                if name not in column.models:
                    continue
                one = column.estimate(column.models[name], key)
                colour = COLOURS[1] if name == column.data else COLOURS[0] if name == names[-1] else FAINT
                panel.plot([x, x], [one.low, one.high], color=colour, linewidth=2.0, solid_capstyle="round")
                panel.plot([x], [one.value], "o", color=colour, markersize=6)
                for rows in column.seeds[name]:
                    panel.plot([x + 0.2], [rows.by_key[key].ratio(rows.units).value], ".", color=FAINT, markersize=3)
            panel.set_xticks(range(len(names)), names, fontsize=8)
            panel.set_xlim(-0.5, len(names) - 0.5)
            if place == 0:
                panel.set_title(f"{column.data} data", fontsize=10, color=INK)
            if number == 0:
                panel.set_ylabel(f"{title}, nats an event", fontsize=9, color=INK)
    save_figure(figure, path)
