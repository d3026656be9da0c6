"""A table in the run folder with the scores of each event, from which others can recompute every number of an evaluation.

`write_scores` writes the table and the summary. `read_scores` reads them if they are of the same model, data and settings.
Each row has the digest of its summary. So even if writing was interrupted, a table is never read with the summary of another evaluation.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data import EventData
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.evaluate.calibration import residuals
from foretell.evaluate.likelihood import EventScores, IntegralEstimate
from foretell.evaluate.metrics import EventRecord, has_times
from foretell.evaluate.next_time import NextTimes
from foretell.evaluate.scores import ScoredModel, ScoringOptions, plain, summarise
from foretell.models.base import IntensityModel
from foretell.reading import DOCUMENT_BYTES, check_file, open_unpacked, parse_json, read_bytes, read_limits

log = logging.getLogger("foretell")

SUMMARY, TABLE, LINES = "evaluation.json", "scores.parquet", "scores.jsonl.gz"
FLOATS = {
    "time": "time",
    "log_intensity": "log_intensity",
    "log_total": "log_total_intensity",
    "log_predicted": "log_predicted_intensity",
    "integral": "integral",
    "tail": "tail",
    "integral_variance": "integral_variance",
    "tail_variance": "tail_variance",
}
OF_TIMES = {
    "predicted": "predicted_time",
    "no_event": "no_event",
    "error": "predicted_time_error",
    "median": "median_time",
}


@dataclass(frozen=True)
class Origin:
    """The inputs of stored scores. The scores are only valid for these inputs."""

    model: str  # digest of the model's file
    data: str  # digest of the scored events
    window: str
    integral: str
    points: int
    seed: int

    @classmethod
    def of(cls, model_file: Path, data: EventData, options: ScoringOptions) -> Origin:
        with open(model_file, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(digest, digest_of(data), options.window, options.integral, options.points, options.seed)


ROWS_AN_EVENT = 2  # an upper bound: a table has one row per event and one per end of a sequence
AT_A_TIME = 1 << 20  # events


def digest_of(data: EventData) -> str:
    """Return a hash of all data that scores depend on."""
    columns = data.columns
    found = hashlib.sha256(json.dumps([data.origin, list(columns.ids)]).encode())
    used = np.flatnonzero(data.type_counts())
    names = np.array([data.vocabulary.names[kind] for kind in used])  # integers depend on the vocabulary
    found.update(json.dumps(names.tolist()).encode())
    found.update(np.ascontiguousarray(columns.times).data)
    for start in range(0, len(columns.types), AT_A_TIME):
        found.update(np.searchsorted(used, columns.types[start : start + AT_A_TIME]).tobytes())
    for array in (columns.offsets, columns.t_ends):
        found.update(np.ascontiguousarray(array).data)
    if columns.unscored is not None and columns.unscored.any():
        found.update(columns.unscored.tobytes())
    if columns.scored_from is not None and columns.scored_from.any():
        found.update(b"scored from" + columns.scored_from.tobytes())
    return found.hexdigest()


def write_scores(scored: ScoredModel, data: EventData, folder: Path, origin: Origin | None = None) -> Path:
    """Write `scores.parquet` or, without pyarrow, `scores.jsonl.gz` with the same columns, and the summary; return the table's path."""
    summary = scored.evaluation.to_json() | ({} if origin is None else {"computed_from": asdict(origin)})
    text = json.dumps(summary, indent=2) + "\n"
    columns = score_columns(scored, data)
    columns["evaluation"] = [_digest(text.encode())] * len(scored.events.event)
    path = _write_table(columns, folder)
    with replacing(folder / SUMMARY) as temporary:
        temporary.write_bytes(text.encode())
    (folder / (LINES if path.name == TABLE else TABLE)).unlink(missing_ok=True)  # the table of an earlier evaluation
    return path


def _write_table(columns: dict[str, np.ndarray | list[str]], folder: Path) -> Path:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        log.warning("pyarrow is not installed: the scores are written as JSON lines instead of Parquet")
        path = folder / LINES
        lists = (one if isinstance(one, list) else plain(one.tolist()) for one in columns.values())
        rows = zip(*lists, strict=True)
        with replacing(path) as temporary, gzip.open(temporary, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
        return path
    path = folder / TABLE
    with replacing(path) as temporary:
        parquet.write_table(pyarrow.table(dict(columns.items())), temporary)
    return path


def score_columns(scored: ScoredModel, data: EventData) -> dict[str, np.ndarray | list[str]]:
    """Return the columns of a table with one row per scored event; the log-likelihood of a sequence is the sum over its rows."""
    events, times = scored.events, scored.times
    ids, real = [sequence.id for sequence in data], events.is_event

    def spread(values: np.ndarray | None) -> np.ndarray:
        whole = np.full(len(real), np.nan)
        if values is not None:
            whole[real] = values
        return whole

    def named(kinds: np.ndarray) -> list[str]:
        names = (*data.vocabulary.names, "")  # type -1 (no event) becomes ""
        return [names[kind] for kind in kinds.tolist()]

    without_time = np.full(len(real), -1)
    if times is not None:
        without_time[real] = times.type_without_time
    return {
        "sequence": [ids[place] for place in events.sequence],
        "index": events.event,
        "time": events.time,
        "event": named(events.type),
        "log_likelihood": events.log_likelihood,
        **{column: getattr(events, part) for part, column in FLOATS.items() if part != "time"},
        "residual": spread(residuals(events)),
        "predicted_event": named(events.predicted_type),
        "predicted_event_without_time": named(without_time),
        **{column: spread(None if times is None else getattr(times, part)) for part, column in OF_TIMES.items()},
    }


def read_scores(
    folder: Path, model: IntensityModel, data: EventData, origin: Origin, *, times: bool = True
) -> ScoredModel | None:
    """Return the stored scores; None if there are none, or if they are of another model, data or settings, or lack next times."""
    table = next((folder / name for name in (TABLE, LINES) if (folder / name).exists()), None)
    if table is None or not (folder / SUMMARY).exists():
        return None
    try:
        text = read_bytes(folder / SUMMARY, DOCUMENT_BYTES)
        summary = parse_json(text)
        if summary["computed_from"] != asdict(origin) or (times and not has_times(summary)):
            return None
        columns = _read(table, ROWS_AN_EVENT * (data.event_count + len(data)))
        if set(columns["evaluation"]) != {_digest(text)}:
            return None
        events = _events(columns, data, IntegralEstimate(**summary["integral"]))
        next_times = _times(columns, data, events) if times else None
    except (ValueError, LookupError, TypeError, ImportError, OSError, AttributeError, ForetellError):
        return None  # written by another version, or damaged: computing the scores again loses nothing
    if len(events.event) != len(columns["index"]) or summary["events"] != int(events.is_event.sum()):
        return None
    options = ScoringOptions(window=summary["window"], seed=origin.seed)
    return summarise(model, data, options, EventRecord(events, next_times))


def _digest(text: bytes) -> str:
    """Return the hash of a summary, which every row of its table contains."""
    return hashlib.sha256(text).hexdigest()[:16]


def _read(table: Path, most: int) -> dict[str, list[Any]]:
    """Read the columns of a table of at most `most` rows; a larger table, or one that is no regular file, is not read."""
    size = check_file(table).st_size
    if table.name == TABLE:
        from pyarrow import parquet

        with parquet.ParquetFile(table) as file:
            groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
            whole = sum(one.total_byte_size for one in groups)
            if file.metadata.num_rows > most or whole > read_limits().bytes_of(size, packed=True):
                raise ValueError("more rows than there are events")
            return file.read().to_pydict()
    rows: list[dict[str, Any]] = []
    with open_unpacked(table, packed=True) as file:
        for line in file:
            rows.append(parse_json(line))
            if len(rows) > most:
                raise ValueError("more rows than there are events")
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _events(columns: dict[str, list[Any]], data: EventData, used: IntegralEstimate) -> EventScores:
    event = np.asarray(columns["index"], dtype=np.int64)
    # Rows are in the order of the data, and every sequence has one: a new one begins where the id changes or the index does not rise.
    names = np.array(columns["sequence"])
    new = np.r_[True, (names[1:] != names[:-1]) | (event[1:] <= event[:-1])]
    sequence = np.cumsum(new) - 1
    ids = data.columns.ids
    if new.sum() != len(data) or [ids[place] for place in sequence] != columns["sequence"]:
        raise ValueError("rows of other sequences")
    floats = {name: np.asarray(columns[column], dtype=np.float64) for name, column in FLOATS.items()}
    whole = floats["log_intensity"] - floats["integral"] - floats["tail"]
    return EventScores(
        sequence=sequence,
        event=event,
        type=_kinds(columns["event"], data),
        predicted_type=_kinds(columns["predicted_event"], data),
        log_likelihoods=np.bincount(sequence, weights=whole, minlength=len(data)),
        scored=np.bincount(sequence[event >= 0], minlength=len(data)),
        used=used,
        **floats,
    )


def _times(columns: dict[str, list[Any]], data: EventData, events: EventScores) -> NextTimes:
    real = events.is_event
    return NextTimes(
        sequence=events.sequence[real],
        event=events.event[real],
        type_without_time=_kinds(columns["predicted_event_without_time"], data)[real],
        **{part: np.asarray(columns[column], dtype=np.float64)[real] for part, column in OF_TIMES.items()},
    )


def _kinds(names: list[str], data: EventData) -> np.ndarray:
    known = {name: place for place, name in enumerate(data.vocabulary.names)} | {"": -1}
    return np.array([known[name] for name in names], dtype=np.int32)
