"""Which events a command is asked about: a file, a folder, embedded data; some of its splits; one of its sequences. No torch."""

from __future__ import annotations

from pathlib import Path

from foretell.data import ColumnMap, EventData, load, load_file
from foretell.errors import ForetellError


def open_data(path: str, split: str | None = None, columns: str = "") -> list[EventData]:
    """A file as it is; of a data set the named split, or all of them in order."""
    mapped = ColumnMap.parse(columns) if columns else None
    if Path(path).is_file():
        if split is not None:
            raise ForetellError(f"{path}: this is one file and has no split {split!r}")
        return [load_file(path, columns=mapped)]
    splits = load(path, columns=mapped).splits()
    if split is None:
        return list(splits.values())
    if split not in splits:
        raise ForetellError(f"{path}: there is no split {split!r}; there are {', '.join(splits)}")
    return [splits[split]]


def chosen_sequences(data: EventData, sequence: str | None) -> EventData:
    """All sequences, or the one with this id or (if no id matches) this place."""
    return chosen_among([data], sequence)[0]


def chosen_among(parts: list[EventData], sequence: str | None) -> list[EventData]:
    """The same over several splits; places count through all of them."""
    if sequence is None:
        return parts
    for data in parts:
        by_id = [place for place, one in enumerate(data) if one.id == sequence]
        if by_id:
            return [data.select(by_id[:1])]
    if sequence.isdecimal():
        place = int(sequence)
        for data in parts:
            if place < len(data):
                return [data.select([place])]
            place -= len(data)
    ids = [one.id for data in parts for one in data]
    some = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
    names = ", ".join(data.name for data in parts)
    raise ForetellError(
        f"{names}: no sequence {sequence!r}; there are {len(ids)}: {some}; other splits are asked for with --split"
    )
