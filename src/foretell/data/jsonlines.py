"""JSON lines ↔ sequences: one object a line, `{"id": …, "times": […], "events": […], "t_end": …}`.

`types` (integers) may stand in place of `events` or beside it; `id` and `t_end` may be missing; other keys are kept
as metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.data.files import text_file, text_lines
from foretell.data.raw import Gatherer, RawEvents
from foretell.data.sequence import NO_METADATA

if TYPE_CHECKING:
    from foretell.data.dataset import EventData


KEYS = ("id", "times", "events", "types", "t_end")


def read_jsonlines(path: Path) -> RawEvents:
    """All sequences of a file, and all its mistakes."""
    gatherer = Gatherer(str(path), "line")
    for number, line in text_lines(path, gatherer):
        if line.isspace():
            continue
        try:
            record = json.loads(line.rstrip())
        except json.JSONDecodeError as error:
            gatherer.fault(number, f"not JSON: {error.msg} at column {error.colno}")
            continue
        except (ValueError, RecursionError) as error:
            gatherer.fault(number, f"not JSON that can be read: {error}")
            continue
        if not isinstance(record, dict):
            gatherer.fault(number, f"expected an object {{…}} with times and events, found {type(record).__name__}")
            continue
        missing = [key for key in ("times",) if key not in record]
        if "events" not in record and "types" not in record:
            missing.append("events")
        if missing:
            name = f"sequence {record['id']!r}: " if isinstance(record.get("id"), str | int) else ""
            gatherer.fault(
                number,
                f"{name}no key {' and no key '.join(map(repr, missing))}; found {', '.join(record) or 'no keys'}",
            )
            continue
        gatherer.add(
            number,
            times=record["times"],
            events=record.get("events"),
            types=record.get("types"),
            t_end=record.get("t_end"),
            id=record.get("id"),
            metadata={key: value for key, value in record.items() if key not in KEYS} or NO_METADATA,
        )
    return gatherer.finish()


def write_jsonlines(data: EventData, path: Path) -> None:
    """Named types are written as `events`, numbered ones as `types`; floats in full, so that they read back equal."""
    numbered = data.vocabulary.numbered
    with text_file(path) as file:
        for sequence in data:
            kinds = sequence.types.tolist() if numbered else data.names_of(sequence)
            record: dict[str, object] = {
                "id": sequence.id,
                "times": sequence.times.tolist(),
                "types" if numbered else "events": kinds,
                "t_end": sequence.t_end,
            }
            record |= {key: value for key, value in sequence.metadata.items() if key not in KEYS}
            file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=_plain) + "\n")


def _plain(value: object) -> object:
    if hasattr(value, "tolist"):
        return value.tolist()  # type: ignore[attr-defined]
    raise TypeError(f"metadata of type {type(value).__name__} cannot be written as JSON")
