"""The pickles of the neural Hawkes line of work: `{"dim_process": K, "train": [[{"time_since_start", …}, …], …]}`.

Each file may carry all split names with lists that are empty but for one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeGuard

from foretell.data.raw import Gatherer
from foretell.data.readers.foreign import Foreign, rows_of, type_count
from foretell.errors import DataError


def matches(content: object) -> TypeGuard[dict[object, object]]:
    """Whether a pickle's content is of this kind."""
    return isinstance(content, dict) and "dim_process" in content


def convert(path: Path, content: object) -> Foreign:
    """The splits of an unpickled file."""
    if not matches(content):
        raise DataError(f"{path}: expected a dict with `dim_process` and a split, found {type(content).__name__}")
    splits = {
        str(key): value for key, value in content.items() if key != "dim_process" and isinstance(value, list) and value
    }
    if not splits:
        raise DataError(f"{path}: no split with sequences; found the keys {', '.join(map(str, content))}")
    raws = {}
    for name, sequences in splits.items():
        label = str(path) if len(splits) == 1 else f"{path}[{name}]"
        gatherer = Gatherer(label, "sequence")
        for number, rows in enumerate(sequences, start=1):
            found = rows_of(gatherer, number, rows, "time_since_start", "type_event")
            if found is not None:
                gatherer.add(number, times=found[0], events=None, types=found[1])
        raws[name] = gatherer.finish()
    return Foreign(raws, type_count(path, content["dim_process"]))
