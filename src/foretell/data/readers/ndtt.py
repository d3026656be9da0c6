"""The pickles of the NDTT code: a list of sequences, each `[{"name": …, "time": …}, …]`.

`bos` at time 0 is dropped; the time of `eos`, which is the last event, becomes `t_end`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeGuard

from foretell.data.raw import Gatherer
from foretell.data.readers.foreign import Foreign, rows_of
from foretell.errors import DataError


def matches(content: object) -> TypeGuard[list[object]]:
    """Whether a pickle's content is of this kind."""
    return isinstance(content, list)


def convert(path: Path, content: object) -> Foreign:
    """The one split of an unpickled file."""
    if not matches(content):
        raise DataError(f"{path}: expected a list of sequences, found {type(content).__name__}")
    gatherer = Gatherer(str(path), "sequence")
    for number, rows in enumerate(content, start=1):
        found = rows_of(gatherer, number, rows, "time", "name")
        if found is not None:
            _add(gatherer, number, *found)
    return Foreign({path.stem: gatherer.finish()})


def _add(gatherer: Gatherer, number: int, times: list[Any], names: list[Any]) -> None:
    end = None
    if names and names[-1] == "eos":
        end = times[-1]
        times, names = times[:-1], names[:-1]
    if names and names[0] == "bos":
        if times[0] != 0:
            gatherer.fault(number, f"bos is at {times[0]!r}, expected time 0")
            return
        times, names = times[1:], names[1:]
    for mark, place in (("bos", "first"), ("eos", "last")):
        if mark in names:
            gatherer.fault(number, f"{mark} is event {names.index(mark)} of the others, expected it {place}")
            return
    gatherer.add(number, times=times, events=names, t_end=end)
