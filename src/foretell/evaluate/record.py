"""The event-by-event scores of an evaluation as a table in the run folder, so that others can recompute every number."""

from __future__ import annotations

import gzip
import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data import EventData
from foretell.data.writing import replacing
from foretell.evaluate.scores import Scored

log = logging.getLogger("foretell")


def write_scores(scored: Scored, data: EventData, folder: Path) -> Path:
    """`scores.parquet`; without pyarrow, `scores.jsonl.gz` with the same columns."""
    columns = score_columns(scored, data)
    with replacing(folder / "evaluation.json") as temporary:
        temporary.write_text(json.dumps(scored.evaluation.to_json(), indent=2) + "\n", encoding="utf-8")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        log.warning("pyarrow is not installed: the scores are written as JSON lines instead of Parquet")
        path = folder / "scores.jsonl.gz"
        rows = zip(*(_plain(column) for column in columns.values()), strict=True)
        with replacing(path) as temporary, gzip.open(temporary, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
        return path
    path = folder / "scores.parquet"
    with replacing(path) as temporary:
        parquet.write_table(pyarrow.table(dict(columns.items())), temporary)
    return path


def score_columns(scored: Scored, data: EventData) -> dict[str, np.ndarray | list[str]]:
    """One row a scored event; the log-likelihood of a sequence is the sum of its rows."""
    events, times = scored.events, scored.times
    names = data.vocabulary.names
    predicted_time = np.full(len(events.event), np.nan)
    no_event = np.full(len(events.event), np.nan)
    if times is not None:
        predicted_time[events.is_event], no_event[events.is_event] = times.predicted, times.no_event
    ids = [sequence.id for sequence in data]
    return {
        "sequence": [ids[place] for place in events.sequence],
        "index": events.event,
        "time": events.time,
        "event": [names[kind] if kind >= 0 else "" for kind in events.type],
        "log_likelihood": events.log_likelihood,
        "log_intensity": events.log_intensity,
        "log_total_intensity": events.log_total,
        "integral": events.integral,
        "tail": events.tail,
        "predicted_event": [names[kind] if kind >= 0 else "" for kind in events.predicted_type],
        "predicted_time": predicted_time,
        "no_event": no_event,
    }


def _plain(column: np.ndarray | list[str]) -> list[Any]:
    if isinstance(column, list):
        return column
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in column.tolist()]
