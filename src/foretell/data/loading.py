"""Files → `Dataset` and back: splits are found, read, checked together, and given one vocabulary."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretell.data.dataset import CARD_FILE, SPLITS, Card, Dataset, EventData, Origin, describe_load, not_from_zero
from foretell.data.files import text_file
from foretell.data.jsonlines import read_jsonlines, write_jsonlines
from foretell.data.parquet import read_parquet, write_parquet
from foretell.data.raw import Problem, RawEvents
from foretell.data.sequence import MOST_TYPES, Columns, Vocabulary
from foretell.data.tables import ColumnMap, read_csv, write_csv
from foretell.errors import DataError

logger = logging.getLogger("foretell")

SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet")
TYPES_FILE = "types.json"
EMBEDDED = Path(__file__).parent / "embedded"
OTHER_NAMES_OF_DEV = ("valid", "val", "validation")


def embedded_names() -> tuple[str, ...]:
    """The data sets that ship inside the package, which `load` knows without a file."""
    return tuple(sorted(path.parent.name for path in EMBEDDED.glob("*/dataset.toml")))


def embedded_folder(name: str) -> Path | None:
    """The folder of an embedded data set, or None if there is none of this name."""
    return EMBEDDED / name if name in embedded_names() else None


def load(
    path_or_name: str | Path,
    *,
    columns: ColumnMap | Mapping[str, str] | None = None,
    unseen: Sequence[str] = (),
) -> Dataset:
    """A data set: a folder of splits, one file (its events are `train`), or the name of an embedded one.

    `columns` says which column of a long table plays which part: `{"sequence": "patient", "time": "when", "event": "code"}`. Files of
    splits that are to stay `unseen` are not opened; types that only they have are known if the card or `types.json` tells of them.
    """
    path = Path(path_or_name)
    if columns is not None and not isinstance(columns, ColumnMap):
        columns = ColumnMap.parse(",".join(f"{part}={name}" for part, name in columns.items()))
    if path.is_dir():
        return _load_folder(path, columns, path.resolve().name, unseen)
    if not path.exists():
        embedded = embedded_folder(str(path_or_name))
        if embedded is None:
            raise DataError(_not_found(path, embedded_names()))
        return _load_folder(embedded, None, str(path_or_name), unseen)
    data = assemble_file(read(path, columns), None, "window", "train")
    return Dataset(data, None, None, data.vocabulary, Card(_stem(path), types=len(data.vocabulary)), str(path))


def load_file(
    path: str | Path,
    vocabulary: Vocabulary | None = None,
    *,
    columns: ColumnMap | None = None,
    origin: Origin = "window",
    name: str | None = None,
) -> EventData:
    """One file as a split; with a vocabulary (a model's, say), events outside it are mistakes."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path}: this is a folder, expected a file of events")
    if not path.exists():
        raise DataError(_not_found(path, ()))
    return assemble_file(read(path, columns), vocabulary, origin, name or _stem(path))


def save(data: EventData, path: str | Path) -> None:
    """Writes a split as JSON lines (`.jsonl`, `.jsonl.gz`), CSV or Parquet, by the suffix."""
    writers = {".jsonl": write_jsonlines, ".csv": write_csv, ".parquet": write_parquet}
    writers[_format(Path(path))](data, Path(path))


def save_dataset(dataset: Dataset, folder: str | Path, suffix: str = ".jsonl.gz") -> None:
    """Writes the splits, the card and, where types have names, `types.json` into a folder."""
    folder = Path(folder)
    vocabulary = dataset.vocabulary
    for name, data in dataset.splits().items():
        save(data, folder / f"{name}{suffix}")
    if not vocabulary.numbered:
        with text_file(folder / TYPES_FILE) as file:
            file.write(json.dumps(vocabulary.names, ensure_ascii=False, indent=0) + "\n")
    with text_file(folder / CARD_FILE) as file:
        file.write(replace(dataset.card, types=len(vocabulary) or None).to_toml())


def suffix_of(path: Path) -> str | None:
    """The suffix that says the format, or None if the file is in none of them."""
    name = path.name.lower()
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), None)


def read(path: Path, columns: ColumnMap | None = None) -> RawEvents:
    """A file's sequences and mistakes, before a vocabulary is known."""
    form = _format(path)
    if form == ".jsonl":
        return read_jsonlines(path)
    return (read_csv if form == ".csv" else read_parquet)(path, columns or ColumnMap())


def _format(path: Path) -> str:
    suffix = suffix_of(path)
    if suffix is None:
        hint = "; convert it first: foretell data convert" if path.suffix in (".pkl", ".json", ".pickle") else ""
        raise DataError(f"{path}: unknown format {path.suffix!r}, expected one of {', '.join(SUFFIXES)}{hint}")
    return suffix.removesuffix(".gz")


def split_files(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """The file of each split in a folder; two for one split are a mistake, and so is none at all."""
    problems: list[str] = []
    found: dict[str, Path] = {}
    for name in SPLITS:
        files = [path for suffix in suffixes if (path := folder / f"{name}{suffix}").is_file()]
        if len(files) > 1:
            problems.append(f"{folder}: {name} exists {len(files)} times: {', '.join(path.name for path in files)}")
        elif files:
            found[name] = files[0]
    if not found and not problems:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:10]) or "nothing"
        wanted = ", ".join(f"train{suffix}" for suffix in suffixes)
        problems.append(f"{folder}: no train, dev or test file; found {there}; expected {wanted}")
    if problems:
        raise DataError(problems)
    for other in OTHER_NAMES_OF_DEV:
        if "dev" not in found and any((folder / f"{other}{suffix}").is_file() for suffix in suffixes):
            logger.warning("%s: `%s` is not read; the split for choosing a model is called dev", folder, other)
    return found


def split_names(path_or_name: str | Path) -> set[str]:
    """The splits that a folder or embedded data set has files of; of a single file, none."""
    path = Path(path_or_name)
    folder = path if path.is_dir() else None if path.exists() else embedded_folder(str(path_or_name))
    return set() if folder is None else set(split_files(folder, SUFFIXES))


def _load_folder(folder: Path, columns: ColumnMap | None, name: str, unseen: Sequence[str] = ()) -> Dataset:
    card_file = folder / CARD_FILE
    card = Card.read(card_file, name) if card_file.is_file() else Card(name)
    names_file = folder / TYPES_FILE
    given = _read_names(names_file, card) if names_file.is_file() else None
    files = {split: path for split, path in split_files(folder, SUFFIXES).items() if split not in unseen}
    raws = {split: read(path, columns) for split, path in files.items()}
    return assemble_splits(raws, card, folder, given)


def _read_names(path: Path, card: Card) -> Vocabulary:
    try:
        names = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from None
    if not isinstance(names, list):
        raise DataError(f"{path}: expected a list of event names, found {type(names).__name__}")
    try:
        vocabulary = Vocabulary(tuple(names))
    except DataError as error:
        raise DataError(f"{path}: {problem}" for problem in error.problems) from None
    if card.types not in (None, len(vocabulary)):
        raise DataError(f"{path}: {len(vocabulary)} names, but {CARD_FILE} says types = {card.types}")
    return vocabulary


def _stem(path: Path) -> str:
    suffix = suffix_of(path)
    return path.name[: -len(suffix)] if suffix else path.stem


def _not_found(path: Path, embedded: Sequence[str]) -> str:
    """`no such file`, and what may have been meant: near names in the folder, or among the embedded data sets."""
    try:
        there = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"{path}: no such file; the folder {path.parent} does not exist"
    near = difflib.get_close_matches(path.name, there, n=3, cutoff=0.5)
    near += [f"{name} (embedded)" for name in difflib.get_close_matches(str(path), embedded, n=1)]
    if near:
        hint = f"; did you mean {' or '.join(near)}?"
    elif embedded and path.parent == Path("."):
        hint = f"; embedded data sets: {', '.join(embedded)}"
    else:
        hint = ""
    return f"{path}: no such file or folder{hint}"


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
                there = f"event `{raw.names[code]}` has type {kind} here, but types.json has it at {types[code]}"
                problems.append(_at_first(raw, code, there))
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
