"""`RawEvents` ↔ temporary files, which store a part of a large file until the settings for all parts are known."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data.attributes import Attribute
from foretell.data.raw import Problem, RawEvents, TimeNotes
from foretell.data.sequence import NO_METADATA

ARRAYS = ("times", "codes", "offsets", "t_starts", "t_ends", "score_from", "places", "event_places")


def save_raw(raw: RawEvents, path: Path) -> None:
    """Write a part to `path.npz` and `path.json`."""
    arrays = {name: getattr(raw, name) for name in ARRAYS if getattr(raw, name) is not None}
    tables = {"e": raw.attributes, "s": raw.sequence_attributes}
    arrays |= {f"{key}{n}": one.values for key, table in tables.items() for n, one in enumerate(table.values())}
    np.savez(path.with_suffix(".npz"), **arrays)
    described = {
        "path": raw.path,
        "unit": raw.unit,
        "names": raw.names,
        "ids": raw.ids,
        "metadata": [dict(one) if one else 0 for one in raw.metadata],
        "doubt": raw.doubt,
        "textual": raw.textual,
        "type_names": list(raw.type_names.items()),
        "tables": {key: [(name, one.categories) for name, one in table.items()] for key, table in tables.items()},
        "unused_columns": raw.unused_columns,
        "time_notes": [getattr(raw.time_notes, one.name) for one in fields(TimeNotes)],
        "said": raw.said,
        "problems": raw.problems,
    }
    path.with_suffix(".json").write_text(json.dumps(described), encoding="utf-8")


def load_raw(path: Path) -> RawEvents:
    """Load what `save_raw` wrote."""
    found: dict[str, Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        columns = {name: arrays[name] for name in ARRAYS if name in arrays}
        tables = {
            key: {
                name: Attribute(arrays[f"{key}{n}"], None if categories is None else tuple(categories))
                for n, (name, categories) in enumerate(table)
            }
            for key, table in found["tables"].items()
        }
    return RawEvents(
        **columns,
        path=found["path"],
        unit=found["unit"],
        names=None if found["names"] is None else tuple(found["names"]),
        ids=tuple(found["ids"]),
        metadata=tuple(one or NO_METADATA for one in found["metadata"]),
        doubt=None if found["doubt"] is None else Problem(*found["doubt"]),
        textual=found["textual"],
        type_names=dict(found["type_names"]),
        attributes=tables["e"],
        sequence_attributes=tables["s"],
        unused_columns=tuple(found["unused_columns"]),
        time_notes=TimeNotes(*found["time_notes"]),
        said=tuple(found["said"]),
        problems=tuple(Problem(*one) for one in found["problems"]),
    )


def remove_raw(path: Path) -> None:
    """Remove what `save_raw` wrote."""
    for suffix in (".npz", ".json"):
        path.with_suffix(suffix).unlink(missing_ok=True)
