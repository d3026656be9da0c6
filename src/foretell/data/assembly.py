"""What the readers gave (`RawEvents`) + a vocabulary → `EventData`, or every mistake of the file.

The vocabulary of several files together is made here too: a given list of names, numbers up to the largest type,
or the sorted names of all files.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from foretell.data.card import Card, Origin
from foretell.data.dataset import SPLITS, Dataset, EventData, describe_load, not_from_zero
from foretell.data.raw import Problem, RawEvents
from foretell.data.sequence import MOST_TYPES, Columns, Vocabulary
from foretell.errors import DataError

logger = logging.getLogger("foretell")


def vocabulary_of(files: Sequence[RawEvents], size: int | None) -> tuple[Vocabulary, list[str]]:
    """The vocabulary that files without a list of names share; `size` is the card's number of types, if it says."""
    doubts = [message for raw in files if raw.doubt for message in raw.located([raw.doubt])]
    if doubts:
        return Vocabulary(()), doubts
    named = [raw for raw in files if raw.names is not None and len(raw.codes)]
    numbered = [raw for raw in files if raw.names is None and len(raw.codes)]
    if named and numbered:
        return Vocabulary(()), [
            f"{numbered[0].path}: its events are integers, but those of {named[0].path} are names; "
            f"use one of both, or list the names in types.json"
        ]
    if not named:
        top = max((int(raw.codes.max()) for raw in numbered), default=-1)
        if size is None and top >= MOST_TYPES:
            path = next(raw.path for raw in numbered if raw.codes.max() == top)
            return Vocabulary(()), [f"{path}: type {top} is too large; expected integers below {MOST_TYPES}"]
        return Vocabulary.of_size(size if size is not None else top + 1), []
    names = sorted({name for raw in named for name in raw.names or ()})
    problems = _two_meanings(named)
    if size is not None and len(names) > size:
        problems.append(f"{named[0].path}: {len(names)} event names, but the card says types = {size}")
    return Vocabulary(tuple(names)), problems


def assemble(
    raw: RawEvents, vocabulary: Vocabulary, origin: Origin, name: str, ids_fixed: bool = False
) -> tuple[EventData | None, list[str]]:
    """Checked data and no messages, or None and all of the file's mistakes, located.

    `ids_fixed` says that integer types written beside names must be places in the vocabulary.
    """
    problems = raw.mistakes()
    types = _resolve(raw, vocabulary, ids_fixed, problems)
    lengths = np.diff(raw.offsets)
    ends = raw.t_ends.copy()
    missing = ~raw.ends_given & (lengths > 0)
    ends[missing] = raw.times[raw.offsets[1:][missing] - 1]
    columns = Columns(raw.times, types, raw.offsets, ends, raw.ids, raw.metadata)
    if origin == "first-event":
        problems += [
            Problem(int(raw.places[place]), f"{raw.where(place)}: {text}") for place, text in not_from_zero(columns)
        ]
    if problems:
        return None, raw.located(problems)
    report = describe_load(columns, raw.path, int(missing.sum()), raw.ignored_columns)
    for sentence in report.warnings:
        logger.warning("%s: %s", raw.path, sentence)
    return EventData(columns, vocabulary, origin, name, report), []


def assemble_splits(
    files: Mapping[str, RawEvents], card: Card, path: Path, vocabulary: Vocabulary | None = None
) -> Dataset:
    """The files of a data set's splits over one vocabulary: a given one, or that of all files; else a `DataError` with all mistakes."""
    ids_fixed = vocabulary is not None
    problems: list[str] = []
    if vocabulary is None:
        vocabulary, problems = vocabulary_of(list(files.values()), card.types)
    if problems:
        raise DataError([*problems, *(message for raw in files.values() for message in raw.located(raw.mistakes()))])
    splits: dict[str, EventData | None] = dict.fromkeys(SPLITS)
    for split, raw in files.items():
        splits[split], mistakes = assemble(raw, vocabulary, card.origin, split, ids_fixed)
        problems += mistakes
    if problems:
        raise DataError(problems)
    return Dataset(splits["train"], splits["dev"], splits["test"], vocabulary, card, str(path))


def assemble_file(raw: RawEvents, vocabulary: Vocabulary | None, origin: Origin, name: str) -> EventData:
    """One file alone: its data, or a `DataError` with all its mistakes."""
    problems: list[str] = []
    if vocabulary is None:
        vocabulary, problems = vocabulary_of([raw], None)
    if problems:
        raise DataError([*problems, *raw.located(raw.mistakes())])
    data, mistakes = assemble(raw, vocabulary, origin, name)
    if data is None:
        raise DataError(mistakes)
    return data


def _resolve(raw: RawEvents, vocabulary: Vocabulary, ids_fixed: bool, problems: list[Problem]) -> np.ndarray:
    """Codes of a file → types of a vocabulary; what is not in it becomes a problem at its first event."""
    known = len(vocabulary)
    if raw.names is None and raw.textual:
        # 3 in a text table is type 3, unless the vocabulary itself has the names "1", "2", "3", …
        used = np.unique(raw.codes)
        places = [vocabulary.find(str(kind)) for kind in used.tolist()]
        if None not in places:
            return np.array(places, dtype=np.int32)[np.searchsorted(used, raw.codes)]
    if raw.names is None:
        for kind in np.unique(raw.codes[raw.codes >= known]).tolist():
            text = f"type {kind} is not one of the {known} known event types, 0 to {known - 1}"
            problems.append(_at_first(raw, kind, text))
        return raw.codes
    types = np.full(len(raw.names), -1, dtype=np.int32)
    for code, name in enumerate(raw.names):
        place = vocabulary.find(name)
        if place is not None:
            types[code] = place
        elif (raw.codes == code).any():
            # looking for near names is slow; nobody reads more than the first few
            near = len(problems) < 40
            said = vocabulary.unknown(name) if near else f"event `{name}` is not one of the {known} known event types"
            problems.append(_at_first(raw, code, said))
    if ids_fixed:
        for kind, code in raw.type_names.items():
            if 0 <= types[code] != kind:
                problems.append(
                    _at_first(
                        raw,
                        code,
                        f"event `{raw.names[code]}` has type {kind} here, but types.json has it at {types[code]}",
                    )
                )
    return types[raw.codes]


def _at_first(raw: RawEvents, code: int, text: str) -> Problem:
    found = raw.codes == code
    event = int(np.argmax(found))
    sequence = raw.sequence_of(event)
    count = int(found.sum())
    seen = f" ({count} such events)" if count > 1 else ""
    return Problem(raw.place_of(sequence, event - int(raw.offsets[sequence])), f"{raw.where(sequence)}: {text}{seen}")


def _two_meanings(files: Sequence[RawEvents]) -> list[str]:
    """Type ids that stand for different names in different files, and names with different ids."""
    problems: list[str] = []
    name_of: dict[int, tuple[str, str]] = {}
    id_of: dict[str, tuple[int, str]] = {}
    for raw in files:
        for kind, code in raw.type_names.items():
            name = (raw.names or ())[code]
            other, path = name_of.setdefault(kind, (name, raw.path))
            if other != name:
                problems.append(f"{raw.path}: type {kind} is `{name}`, but in {path} it is `{other}`")
            kind_there, path = id_of.setdefault(name, (kind, raw.path))
            if kind_there != kind:
                problems.append(f"{raw.path}: event `{name}` has type {kind}, but in {path} it has {kind_there}")
    return problems
