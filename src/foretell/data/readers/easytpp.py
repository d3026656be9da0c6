"""EasyTPP's JSON: one object a sequence, in a JSON array or one a line, with parallel lists.

Keys used: `time_since_start`, `type_event`, `dim_process`, and, where given, `seq_len` (checked) and `seq_idx`.
"""

from __future__ import annotations

import json
from pathlib import Path

from foretell.data.formats.lines import text_lines
from foretell.data.raw import Gatherer
from foretell.data.readers.foreign import Foreign, type_count

USED = ("time_since_start", "type_event", "time_since_last_event", "dim_process", "seq_len", "seq_idx")


def matches(path: Path) -> bool:
    """Whether a JSON file starts with a sequence of this kind."""
    gatherer = Gatherer(str(path), "line")
    head = ""
    for _, text in text_lines(path, gatherer):
        head += text
        if len(head) > 100_000:
            break
        if head.strip():
            # one line of JSON lines, or the whole of an array that may be spread over many
            if '"time_since_start"' in head:
                return True
            if not head.lstrip().startswith("["):
                return False
    return '"time_since_start"' in head


def read(path: Path) -> Foreign:
    """The one split of a file."""
    gatherer = Gatherer(str(path), "line")
    lines = [(number, text) for number, text in text_lines(path, gatherer) if not text.isspace()]
    records: list[tuple[int, object]] = []
    if lines and lines[0][1].lstrip().startswith("["):
        gatherer.unit = "sequence"
        whole = _parse(gatherer, 0, "".join(text for _, text in lines))
        records = list(enumerate(whole, start=1)) if isinstance(whole, list) else []
    else:
        for number, text in lines:
            record = _parse(gatherer, number, text)
            if record is not None:
                records.append((number, record))
    types: int | None = None
    for place, record in records:
        if not isinstance(record, dict):
            gatherer.fault(place, f"expected an object, found {type(record).__name__}")
            continue
        missing = [key for key in ("time_since_start", "type_event") if key not in record]
        if missing:
            gatherer.fault(place, f"no key {' and no key '.join(map(repr, missing))}; found {', '.join(record)}")
            continue
        times = record["time_since_start"]
        length = record.get("seq_len")
        if length is not None and isinstance(times, list) and length != len(times):
            gatherer.fault(place, f"seq_len is {length!r}, but there are {len(times)} times")
            continue
        types = max(filter(None, (types, type_count(path, record.get("dim_process")))), default=None)
        gatherer.add(
            place,
            times=times,
            events=None,
            types=record["type_event"],
            id=record.get("seq_idx"),
            metadata={key: value for key, value in record.items() if key not in USED},
        )
    name = path.name.removesuffix(".gz").rsplit(".", 1)[0]
    return Foreign({name: gatherer.finish()}, types)


def _parse(gatherer: Gatherer, place: int, text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        gatherer.fault(place, f"not JSON: {error.msg} at line {error.lineno} column {error.colno}")
    except (ValueError, RecursionError) as error:
        gatherer.fault(place, f"not JSON that can be read: {error}")
    return None
