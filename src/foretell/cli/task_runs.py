"""Runs with other tasks than predicting the next event: their scores and, for classifiers, the labels of data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.cli.input_data import chosen_sequences, piped_content
from foretell.cli.open_run import OpenNetwork, data_for, unfinished
from foretell.cli.result_file import SHOWN, more_rows, write_result
from foretell.cli.show import cell, make_table, out, print_json
from foretell.data.files import text_file
from foretell.data.frame_output import arrow_table
from foretell.errors import ForetellError
from foretell.evaluate.task_scores import (
    LabelEvaluation,
    LabelPrediction,
    MaskedEvaluation,
    predict_labels,
    score_labels,
    score_masked,
)
from foretell.models.task_heads import Classifier, MaskedANHP, TaskHead
from foretell.train.config import PretrainOptions
from foretell.train.fit import choose_device
from foretell.train.run import RunFolder
from foretell.wording import counted, escape

if TYPE_CHECKING:
    import pyarrow
    from rich.table import Table

    from foretell.data import EventData

EVALUATION = "evaluation.json"


def is_task(run: Path) -> bool:
    return RunFolder.open(run).config().task is not None


def evaluate_task(opened: OpenNetwork, seed: int, as_json: bool) -> None:
    """Print the scores of a run, and write `evaluation.json` into its folder."""
    task = opened.run.config().task
    if isinstance(opened.network, Classifier):
        labelled = score_labels(opened.network, opened.data, seed=seed)
        found, table = labelled.to_json(), label_table(labelled)
    else:
        assert isinstance(opened.network, MaskedANHP) and isinstance(task, PretrainOptions)
        masked = score_masked(opened.network, opened.data, mask=task.mask, drop=task.drop, seed=seed)
        found, table = masked.to_json(), masked_table(masked)
    with text_file(opened.run.path / EVALUATION) as file:
        file.write(json.dumps(found, indent=2) + "\n")
    warning = unfinished(opened.run, opened.network)
    if as_json:
        print_json({**found, "unfinished": warning})
        return
    out().print(table)
    if warning is not None:
        out().print(warning, markup=False)


def label_data(
    run: Path,
    data: str | None,
    split: str | None,
    reading: Mapping[str, Any],
    device: str,
    sequence: str | None,
    out_file: Path | None,
    as_json: bool,
) -> None:
    """Print or write the labels that a classifier predicts."""
    folder = RunFolder.open(run)
    network = folder.network(str(choose_device(device)))
    if not isinstance(network, Classifier):
        assert isinstance(network, TaskHead)
        raise ForetellError(f"{run}: this is {network.title}, which predicts nothing; {network.purpose}")
    content = piped_content(data, split)
    events, _ = data_for(folder, network.vocabulary, data, split, reading, content)
    chosen = chosen_sequences(events, sequence)
    found = predict_labels(network, chosen)
    if out_file is not None:
        write_result(out_file, lambda: _label_rows(found, chosen, network), (one.to_json() for one in found))
    if as_json:
        print_json([one.to_json() for one in found])
    elif out_file is not None:
        out().print(f"labels of {counted(len(found), 'sequence')}: {out_file}", markup=False)
    else:
        out().print(_predicted(found, chosen, network))


def label_table(found: LabelEvaluation) -> Table:
    what = f"{counted(found.labels, 'label')} `{found.label}` of {found.of}"
    title = f"{found.data}: {what}, {len(found.classes)} different, history {found.history}"
    caption = f"log-loss in nats, lower is better; [95 % intervals: {found.bootstrap}]"
    table = make_table(title, ["model", "accuracy", "macro-F1", "log-loss"], ["model"], caption)
    for name, scores in ((found.model, found.scores), (f"majority: always {found.majority_label}", found.majority)):
        cells = cell(scores.accuracy, True), cell(scores.macro_f1, False), cell(scores.log_loss, False)
        table.add_row(escape(name), *cells)
    return table


def masked_table(found: MaskedEvaluation) -> Table:
    events = f"{found.masked} masked events of {counted(found.sequences, 'sequence')}"
    caption = (
        f"{100 * found.mask:g} % masked of what is left when {100 * found.drop:g} % are removed; cross-entropy in nats; "
        f"[95 % intervals: {found.bootstrap}]"
    )
    title = f"{found.data}: {events}, in {found.rounds} rounds"
    table = make_table(title, ["model", "accuracy", "cross-entropy"], ["model"], caption)
    table.add_row(escape(found.model), cell(found.accuracy, True), cell(found.cross_entropy, False))
    return table


def _label_rows(found: list[LabelPrediction], data: EventData, model: Classifier) -> pyarrow.Table:
    """Return one row per label: of a sequence, or of an event with its time and type."""
    names = [one.sequence for one in found for _ in one.labels]
    labels = [label for one in found for label in one.labels]
    best = np.concatenate([np.zeros(0), *(one.probabilities.max(1) for one in found)])
    of_events = {"time": data.columns.times, "event": [name for one in data for name in data.names_of(one)]}
    where = of_events if model.of == "events" else {}
    return arrow_table({"sequence": names, **where, "label": labels, "probability": best})


def _predicted(found: list[LabelPrediction], data: EventData, model: Classifier) -> Table:
    """Return a table of the first rows; --json has them all."""
    rows: list[tuple[str, ...]] = []
    for one, sequence in zip(found, data, strict=True):
        for place, label in enumerate(one.labels):
            event = f"{sequence.times[place]:g}", data.vocabulary.names[sequence.types[place]]
            where = event if one.of == "events" else ()
            rows.append((one.sequence, *where, label, f"{100 * one.probabilities[place].max():.1f} %"))
    more = more_rows(len(rows) - SHOWN, "row") or ""
    names = ["sequence", *(() if model.of == "sequences" else ("time", "event")), model.label, "probability"]
    left = [name for name in names if name not in ("time", "probability")]
    table = make_table(f"{data.name}: {model.label} of {model.of}", names, left, more)
    for row in rows[:SHOWN]:
        table.add_row(*map(escape, row))
    return table
