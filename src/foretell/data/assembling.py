"""`RawEvents` of one or several files → `EventData` over one vocabulary and one clock, or a `DataError` with all their mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretell.data.columns import Columns
from foretell.data.covariate_columns import with_covariates
from foretell.data.dataset import OTHER, SPLITS, Card, Dataset, EventData, Origin, describe_load, not_from_zero
from foretell.data.placing import PlacedEvents, placed
from foretell.data.raw import MOST_SHOWN, Problem, RawEvents
from foretell.data.read_options import ReadOptions
from foretell.data.remarks import once_per_kind
from foretell.data.sequence import MOST_TYPES, Vocabulary
from foretell.errors import DataError
from foretell.terms import LONGEST_NAME
from foretell.wording import shown

UNKNOWN_HINT = ' (`unknown="skip"` leaves such events out)'


def vocabulary_of(files: Sequence[RawEvents], size: int | None) -> tuple[Vocabulary, list[str]]:
    """Return the common vocabulary of files, and messages about mistakes; `size` is the number of types in the card, or None."""
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
    place: int, made: PlacedEvents, vocabulary: Vocabulary, name: str, options: ReadOptions, ids_fixed: bool = False
) -> tuple[EventData | None, list[str]]:
    """Return the checked data of one placed file and no messages, or None and messages about all of its mistakes.

    `ids_fixed`: integer types next to names in the file must be the names' indices in the vocabulary.
    """
    raw, origin = made.files[place], made.origin
    problems = raw.mistakes()
    types, unknown = _resolve(raw, vocabulary, ids_fixed, problems, options)
    problems += _endless_ids(raw)
    ends = raw.t_ends.copy()
    assumed = ~raw.ends_given & (np.diff(raw.offsets) > 0)
    ends[assumed] = raw.times[raw.offsets[1:][assumed] - 1]
    ends[np.isnan(ends)] = 0.0  # no events and no end: a mistake that is already noted
    columns = Columns(
        raw.times,
        np.maximum(types, 0),
        raw.offsets,
        ends,
        raw.ids,
        raw.metadata,
        starts=made.starts[place],
        scored_from=_scored_from(raw, ends, problems),
        ends_assumed=assumed if assumed.any() else None,
        attributes=raw.attributes,
        sequence_attributes=raw.sequence_attributes,
    )
    columns = _with_covariates(raw, columns, options, problems)
    if origin == "first-event":
        problems += [
            Problem(int(raw.places[where]), f"{raw.where(where)}: {text}") for where, text in not_from_zero(columns)
        ]
    if problems:
        return None, raw.located(problems)
    if (types < 0).any():
        columns, origin = without_unknown(columns, types >= 0, origin)
    report = describe_load(
        columns,
        raw.path,
        attributes=tuple(
            name for name in (*raw.attributes, *raw.sequence_attributes) if name not in options.covariate_names.columns
        ),
        unused_columns=raw.unused_columns,
        unknown_types=unknown,
        unknown=options.unknown,
    )
    for sentence in (*raw.said, *report.warnings):
        options.tell(raw.path, sentence)
    return EventData(columns, vocabulary, origin, name, report, made.clock, covariates=options.covariate_names), []


def _endless_ids(raw: RawEvents) -> list[Problem]:
    found = [place for place, one in enumerate(raw.ids) if len(one) > LONGEST_NAME]
    said = "the id {} has {:,} characters, at most {:,} are read"
    return [
        Problem(int(raw.places[place]), said.format(shown(raw.ids[place]), len(raw.ids[place]), LONGEST_NAME))
        for place in found
    ]


def _scored_from(raw: RawEvents, ends: np.ndarray, problems: list[Problem]) -> np.ndarray | None:
    """Return the times up to which sequences are history, or None if all are scored from 0; mistakes are added to `problems`."""
    later = np.where(np.isnan(raw.score_from), 0.0, raw.score_from)
    for sequence in np.flatnonzero((later != 0.0) & ~((later > 0.0) & (later <= ends)))[:MOST_SHOWN].tolist():
        found = f"score_from is {later[sequence]:g}, expected a time from 0 to t_end = {ends[sequence]:g}"
        problems.append(Problem(int(raw.places[sequence]), f"{raw.where(sequence)}: {found}"))
        later[sequence] = 0.0
    return later if later.any() else None


def _with_covariates(raw: RawEvents, columns: Columns, options: ReadOptions, problems: list[Problem]) -> Columns:
    """Return the columns with all named covariates as attributes; mistakes are added to `problems`."""
    if not options.covariate_names:
        return columns

    def tell(sentence: str) -> None:
        options.tell(raw.path, sentence)

    try:
        return with_covariates(
            columns, options.covariate_names, raw.unused_columns, tell, trained=options.clock is not None
        )
    except DataError as error:
        problems += [Problem(0, text) for text in error.problems]
        return columns


def without_unknown(columns: Columns, known: np.ndarray, origin: Origin) -> tuple[Columns, Origin]:
    """Keep only known events. If first events at time 0 are dropped, the origin becomes "window", and the other first events unscored."""
    kept = columns.keep(known)
    if origin == "window" or not not_from_zero(kept):
        return kept, origin
    first = np.zeros(len(columns.times), dtype=bool)
    first[columns.offsets[:-1][columns.lengths > 0]] = True
    return replace(columns, unscored=first).keep(known), "window"


def assemble_splits(
    files: Mapping[str, RawEvents],
    card: Card,
    path: Path,
    vocabulary: Vocabulary | None = None,
    options: ReadOptions | None = None,
) -> Dataset:
    """Assemble the files of all splits with one clock and one vocabulary (given, or that of all files); raise all mistakes."""
    ids_fixed, options = vocabulary is not None, ReadOptions() if options is None else options
    made = placed(list(files.values()), options, card.time_unit, card.origin)
    problems = list(made.problems)
    if vocabulary is None:
        vocabulary, mistakes = vocabulary_of(list(files.values()), card.types)
        problems += mistakes
    if problems:
        raise DataError([*problems, *_other_mistakes(made)])
    splits: dict[str, EventData | None] = dict.fromkeys(SPLITS)
    remarks: list[tuple[str, str]] = []
    for place, split in enumerate(files):
        splits[split], mistakes = assemble(place, made, vocabulary, split, replace(options, kept=remarks), ids_fixed)
        problems += mistakes
    if problems:
        raise DataError(problems)
    for file, sentence in once_per_kind(remarks):
        options.tell(file, sentence)
    for sentence in made.said:
        options.tell(path, sentence)
    card = replace(card, origin=made.origin, time_unit=card.time_unit or made.clock.unit)
    return Dataset(splits["train"], splits["dev"], splits["test"], vocabulary, card, str(path))


def assemble_file(
    raw: RawEvents, vocabulary: Vocabulary | None, origin: Origin, name: str, options: ReadOptions | None = None
) -> EventData:
    """Assemble one file; raise a `DataError` with all its mistakes."""
    options = ReadOptions() if options is None else options
    made = placed([raw], options, given_origin=origin)
    problems = list(made.problems)
    if vocabulary is None:
        vocabulary, mistakes = vocabulary_of([raw], None)
        problems += mistakes
    if problems:
        raise DataError([*problems, *_other_mistakes(made)])
    data, mistakes = assemble(0, made, vocabulary, name, options)
    if data is None:
        raise DataError(mistakes)
    for sentence in made.said:
        options.tell(raw.path, sentence)
    return data


def _other_mistakes(made: PlacedEvents) -> list[str]:
    """Return the other mistakes of files whose times or vocabulary could not be determined."""
    return [message for raw in made.files for message in raw.located(raw.problems if made.problems else raw.mistakes())]


def _resolve(
    raw: RawEvents, vocabulary: Vocabulary, ids_fixed: bool, problems: list[Problem], options: ReadOptions
) -> tuple[np.ndarray, tuple[tuple[str, int], ...]]:
    """Return the types of all events, -1 for events that are left out, and each unknown type with its number of events.

    `options.unknown`: an unknown type is a mistake at its first event, or its events are left out, or they become `other`.
    """
    known = len(vocabulary)
    codes, names = raw.codes, raw.names
    if names is None:
        # 3 in a text table is type 3, unless one of the numbers used is a name in the vocabulary
        used = np.unique(codes)
        places = [vocabulary.find(str(kind)) for kind in used.tolist()] if raw.textual else [None]
        if all(place is None for place in places):
            places = [kind if kind < known else None for kind in used.tolist()]
        codes, written = np.searchsorted(used, codes), [f"type {kind}" for kind in used.tolist()]
        among = f"known event types, 0 to {known - 1}"
    else:
        used = np.unique(codes)
        there = np.zeros(len(names), dtype=bool)
        there[used[used < len(names)]] = True  # events of a file without any valid name still have codes
        places = [vocabulary.find(name) for name in names]
        places = [place if here else 0 for place, here in zip(places, there.tolist(), strict=True)]
        written, among = [f"event `{name}`" for name in names], "known event types"
    types = np.array([-1 if place is None else place for place in places], dtype=np.int32)
    missing = [number for number, place in enumerate(places) if place is None]
    # A file without a known event is another log, or its columns are confused, and skipping would remove all events.
    if options.unknown == "error" or (options.unknown == "skip" and len(missing) == len(places) > 0):
        for number in missing:
            said = f"{written[number]} is not one of the {known} {among}"
            if (
                names is not None and len(problems) < 40
            ):  # only for the first messages, because the search for similar names is slow
                said = vocabulary.unknown(names[number])
            hint = UNKNOWN_HINT if options.clock is not None and len(missing) < len(places) else ""
            problems.append(_at_first(raw, codes, number, f"{said}{hint}"))
    elif missing and options.unknown == "other":
        other = vocabulary.find(OTHER)
        if other is None:
            said = f'`unknown="other"`: the model has no event type `{OTHER}`; train it with `unknown="other"`, or use `unknown="skip"`'
            problems.append(Problem(0, said))
        else:
            types[missing] = other
    if ids_fixed and names is not None:
        for kind, code in raw.type_names.items():
            if 0 <= types[code] != kind:
                said = f"event `{names[code]}` has type {kind} here, but types.json has it at {types[code]}"
                problems.append(_at_first(raw, codes, code, said))
    counts = np.bincount(codes, minlength=len(places))
    unknown = tuple((written[number].removeprefix("event ").strip("`"), int(counts[number])) for number in missing)
    return (types[codes] if len(types) else codes.astype(np.int32)), unknown


def _at_first(raw: RawEvents, codes: np.ndarray, code: int, text: str) -> Problem:
    found = codes == code
    event = int(np.argmax(found))
    sequence = raw.sequence_of(event)
    count = int(found.sum())
    seen = f" ({count} such events)" if count > 1 else ""
    return Problem(raw.place_of(sequence, event - int(raw.offsets[sequence])), f"{raw.where(sequence)}: {text}{seen}")


def _two_meanings(files: Sequence[RawEvents]) -> list[str]:
    """Return a message for each type id with different names in different files, and each name with different ids."""
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
