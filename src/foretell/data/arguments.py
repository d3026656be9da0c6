"""Checks of the arguments of public functions. If an argument is no split or sequence, the message says how to get one."""

from __future__ import annotations

from foretell.data.dataset import Dataset, EventData
from foretell.data.sequence import EventSequence
from foretell.errors import ForetellError


def check_split(value: object, name: str = "data") -> EventData:
    """Return the value if it is one split (`EventData`); raise an error otherwise."""
    if isinstance(value, EventData):
        return value
    raise ForetellError(f"{name}: expected the events of one split, an EventData, found {_kind(value)}; {_way(value)}")


def check_history(value: object, name: str = "history") -> EventSequence:
    """Return the value if it is one sequence; raise an error otherwise."""
    if isinstance(value, EventSequence):
        return value
    way = "give one of its sequences, such as data.test[0]" if isinstance(value, EventData | Dataset) else _way(value)
    raise ForetellError(f"{name}: expected one sequence, an EventSequence, found {_kind(value)}; {way}")


def check_histories(value: object, name: str = "histories") -> None:
    """Raise an error if the value is neither a split nor a list of sequences."""
    if isinstance(value, list | tuple):
        for place, one in enumerate(value):
            check_history(one, f"{name}[{place}]")
    else:
        check_split(value, name)


def _kind(value: object) -> str:
    if value is None:
        return "None"
    kind = type(value)
    known = kind.__module__.partition(".")[0]
    return kind.__name__ if known in ("builtins", "foretell") else f"{known}.{kind.__name__}"


def _way(value: object) -> str:
    if value is None:
        return "the data set may have no such split"
    if isinstance(value, Dataset):
        return f"give one of its splits: {', '.join(value.splits())}"
    if isinstance(value, EventSequence):
        return "give EventData([sequence], vocabulary)"
    if isinstance(value, str):
        return "load or load_file reads a file"
    if hasattr(value, "columns") or hasattr(value, "__arrow_c_stream__"):
        return "from_frame reads a data frame"
    return "load reads files, from_frame data frames, EventData.from_names lists"
