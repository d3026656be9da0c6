"""JSON lines ↔ sequences: one object per line, `{"id": …, "times": […], "events": […], "t_end": …}`.

Times, `t_start`, `t_end` and `score_from` are numbers, or ISO 8601 text. `types` (integers) may replace or accompany `events`.
The keys `id`, `t_start`, `t_end` and `score_from` are optional; other keys are kept as metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.data.files import text_file, text_lines
from foretell.data.gatherer import Gatherer
from foretell.data.raw import RawEvents
from foretell.data.read_options import BOUNDS, ReadOptions
from foretell.data.sequence import NO_METADATA
from foretell.data.written_attributes import free_names, plain_values
from foretell.data.written_times import written_bounds, written_score_from, written_times
from foretell.reading import check_nesting

if TYPE_CHECKING:
    from foretell.data.dataset import EventData


KEYS = ("id", "times", "events", "types", *BOUNDS)


def read_jsonlines(path: Path, options: ReadOptions) -> RawEvents:
    """Read all sequences and mistakes of a file."""
    gatherer = Gatherer(str(path), "line", options.zone, options.terms)
    for number, line in text_lines(path, gatherer):
        add_line(gatherer, number, line)
    return gatherer.finish()


def add_line(gatherer: Gatherer, number: int, line: str) -> None:
    """Parse one line and add its sequence to the gatherer; blank lines are skipped."""
    if line.isspace():
        return
    try:
        record = json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        gatherer.fault(number, f"not JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:
        gatherer.fault(number, f"not JSON that can be read: {error}")
    else:
        add_record(gatherer, number, record)


def add_record(gatherer: Gatherer, number: int, record: object) -> None:
    """Add one sequence, the object from line `number`, to the gatherer; its mistakes are noted."""
    if not isinstance(record, dict):
        gatherer.fault(number, f"expected an object {{…}} with times and events, found {type(record).__name__}")
        return
    metadata = {key: value for key, value in record.items() if key not in KEYS} or NO_METADATA
    try:
        check_nesting(metadata)
    except ValueError as error:
        gatherer.fault(number, f"not JSON that can be read: {error}")
        return
    missing = [key for key in ("times",) if key not in record]
    if "events" not in record and "types" not in record:
        missing.append("events")
    if missing:
        name = f"sequence {record['id']!r}: " if isinstance(record.get("id"), str | int) else ""
        gatherer.fault(
            number,
            f"{name}no key {' and no key '.join(map(repr, missing))}; found {', '.join(record) or 'no keys'}",
        )
        return
    gatherer.add(
        number,
        times=record["times"],
        events=record.get("events"),
        types=record.get("types"),
        bounds=record,
        id=record.get("id"),
        metadata=metadata,
    )


def write_jsonlines(data: EventData, path: Path) -> None:
    """Write a split. Named types become `events`, numbered types become `types`. Floats have all digits, so that they round-trip.

    Attributes are additional keys, with a list for attributes of events, and one value for attributes of sequences.
    """
    numbered, stamped = data.vocabulary.numbered, data.columns.starts is not None
    times = written_times(data) if stamped else []
    starts, ends = written_bounds(data)
    later = written_score_from(data)
    attributes = free_names(data.columns.attributes, KEYS)
    of_events = {key: plain_values(one) for key, one in attributes.items()}
    further = free_names(data.columns.sequence_attributes, {*KEYS, *attributes})
    of_sequences = {key: plain_values(one) for key, one in further.items()}
    with text_file(path) as file:
        for place, sequence in enumerate(data):
            first, last = data.columns.offsets[place], data.columns.offsets[place + 1]
            kinds = sequence.types.tolist() if numbered else data.names_of(sequence)
            record: dict[str, object] = {
                "id": sequence.id,
                "times": times[first:last] if stamped else sequence.times.tolist(),
                "types" if numbered else "events": kinds,
            }
            if starts:
                record["t_start"] = starts[place]
            if ends and ends[place]:
                record["t_end"] = ends[place] if stamped else sequence.t_end
            if later and later[place]:
                record["score_from"] = later[place] if stamped else sequence.scored_from
            record |= {key: value for key, value in sequence.metadata.items() if key not in KEYS}
            record |= {key: values[first:last] for key, values in of_events.items()}
            record |= {key: values[place] for key, values in of_sequences.items() if values[place] is not None}
            file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=_plain) + "\n")


def _plain(value: object) -> object:
    if hasattr(value, "tolist"):
        return value.tolist()  # type: ignore[attr-defined]
    raise TypeError(f"metadata of type {type(value).__name__} cannot be written as JSON")
