"""Files ↔ `Dataset`: find the files of the splits, read them, check them together, and make one vocabulary."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretell.data.assembling import assemble_file, assemble_splits
from foretell.data.csv_files import read_csv, write_csv
from foretell.data.dataset import CARD_FILE, SPLITS, Card, Dataset, EventData, Origin
from foretell.data.files import text_file
from foretell.data.jsonlines import read_jsonlines, write_jsonlines
from foretell.data.packed.opening import is_packed, open_packed
from foretell.data.packed.opening import split_names as packed_splits
from foretell.data.parquet import read_parquet, write_parquet
from foretell.data.raw import RawEvents
from foretell.data.read_options import ColumnMap, ReadOptions, read_options
from foretell.data.sequence import Vocabulary
from foretell.data.sources import (
    OCEL_SUFFIXES,
    ForeignSplits,
    is_foreign_folder,
    is_source,
    read_files,
    read_folder,
    read_source,
)
from foretell.data.sources.xes_writer import write_xes
from foretell.data.timestamps import unix_format
from foretell.errors import DataError, ForetellError
from foretell.reading import check_regular, parse_json, read_document, read_limits

logger = logging.getLogger("foretell")

SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".xes", ".xes.gz")
READ_SUFFIXES = (*SUFFIXES, *OCEL_SUFFIXES)
TYPES_FILE = "types.json"
EMBEDDED = Path(__file__).parent / "embedded"
OTHER_NAMES_OF_DEV = ("valid", "val", "validation")


def embedded_names() -> tuple[str, ...]:
    """Return the names of the data sets inside the package, which `load` accepts instead of a path."""
    return tuple(sorted(path.parent.name for path in EMBEDDED.glob("*/dataset.toml")))


def embedded_folder(name: str) -> Path | None:
    """Return the folder of an embedded data set, or None if the name is unknown."""
    return EMBEDDED / name if name in embedded_names() else None


def load(
    path_or_name: str | Path,
    *,
    columns: ColumnMap | Mapping[str, str] | None = None,
    unseen: Sequence[str] = (),
    options: ReadOptions | None = None,
) -> Dataset:
    """Read a data set: a folder of splits, one file, embedded data, or a source such as the Hugging Face hub or SQL.

    Formats are recognised by the file's name: JSON lines, CSV, TSV, Parquet, XES, OCEL, MEDS. A single file becomes the split `train`.

    Args:
        path_or_name: a folder with `train`, `dev` and `test` files, a file, the name of embedded data (`"robocup"`), `hf:NAME`, or
            `sql:DATABASE|SELECT …`.
        columns: the names of the columns of a long table: `{"sequence": "patient", "time": "when", "event": "code"}`.
        unseen: names of splits that are not read. Event types that only occur there are known if the card or `types.json` lists them.
        options: how to read times, windows, covariates and unknown events; replaces `columns`.

    Returns:
        The data set.

    Raises:
        DataError: all mistakes of the files at once, each with its place.

    Example:
        >>> ft.load("robocup").vocabulary[0]
        'kickoff(purple1)'
    """
    path, options = Path(path_or_name), read_options(columns, options)
    if is_source(str(path_or_name)):
        return _assembled(read_source(str(path_or_name), options), str(path_or_name), options, unseen)
    if path.is_dir():
        if is_packed(path):
            return open_packed(path, options, unseen)
        foreign = read_folder(path, options)
        if foreign is not None:
            return _assembled(foreign, str(path), options, unseen)
        return _load_folder(path, options, path.resolve().name, unseen)
    if not path.exists():
        embedded = embedded_folder(str(path_or_name))
        if embedded is None:
            raise DataError(_not_found(path, embedded_names()))
        return _load_folder(embedded, ReadOptions(), str(path_or_name), unseen)
    data = assemble_file(read(path, options), None, "window", "train", options)
    card = Card(_stem(path), data.origin, data.clock.unit, len(data.vocabulary))
    return Dataset(data, None, None, data.vocabulary, card, str(path))


def _assembled(found: ForeignSplits, path: str, options: ReadOptions, unseen: Sequence[str]) -> Dataset:
    raws = {split: raw for split, raw in found.splits.items() if split not in unseen}
    called = Path(found.name if path.startswith("sql:") else path)  # an SQL query would be too long as a name
    made = assemble_splits(raws, Card(found.name, types=found.types), called, None, options)
    return replace(made, card=replace(made.card, types=len(made.vocabulary) or None), path=path)


def load_file(
    path: str | Path,
    vocabulary: Vocabulary | None = None,
    *,
    columns: ColumnMap | None = None,
    origin: Origin = "window",
    name: str | None = None,
    options: ReadOptions | None = None,
) -> EventData:
    """Read one file as a split.

    Args:
        path: a file in any format that `load` reads.
        vocabulary: the event types, such as those of a model; `options.unknown` says what happens to other types (default: an error).
            None: the types that occur in the file.
        columns: as in `load`.
        origin: "window", or "first-event" if each sequence starts with an event at time 0 that is not scored.
        name: the name of the data in messages; default: the file's name.
        options: as in `load`.

    Returns:
        The events.

    Raises:
        DataError: all mistakes of the file at once, each with its place.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"]], [[0.5, 2.0]], t_ends=[10.0])
        >>> ft.save(data, "visits.csv")
        >>> ft.load_file("visits.csv", data.vocabulary)
        EventData('visits', 1 sequences, 2 events)
    """
    path, options = Path(path), read_options(columns, options)
    if path.is_dir():
        raise DataError(f"{path}: this is a folder, expected a file of events")
    if not path.exists():
        raise DataError(_not_found(path, ()))
    return assemble_file(read(path, options, vocabulary), vocabulary, origin, name or _stem(path), options)


def save(data: EventData, path: str | Path) -> None:
    """Write a split as JSON lines, CSV, TSV, Parquet or XES.

    The file is replaced when the new one is complete; after an error, an old file is unchanged.

    Args:
        data: the events.
        path: the file; its suffix is the format: `.jsonl`, `.jsonl.gz`, `.csv`, `.csv.gz`, `.tsv`, `.tsv.gz`, `.parquet`, `.xes`,
            `.xes.gz`.

    Raises:
        DataError: the suffix is unknown.

    Example:
        >>> ft.save(ft.load("robocup").test, "final.jsonl.gz")
    """
    writers = {
        ".jsonl": write_jsonlines,
        ".csv": write_csv,
        ".tsv": write_csv,
        ".parquet": write_parquet,
        ".xes": write_xes,
    }
    writers[_format(Path(path))](data, Path(path))


def save_dataset(dataset: Dataset, folder: str | Path, suffix: str = ".jsonl.gz") -> None:
    """Write the splits of a data set and its card into a folder, and also `types.json` if types have names.

    Args:
        dataset: the data set.
        folder: the folder; it is created if it does not exist.
        suffix: the format of the splits, as in `save`.

    Example:
        >>> ft.save_dataset(ft.load("robocup"), "robocup-csv", ".csv")
        >>> ft.load("robocup-csv").train.event_count
        2192
    """
    folder = Path(folder)
    vocabulary = dataset.vocabulary
    for name, data in dataset.splits().items():
        save(data, folder / f"{name}{suffix}")
    if not vocabulary.numbered:
        with text_file(folder / TYPES_FILE) as file:
            file.write(json.dumps(vocabulary.names, ensure_ascii=False, indent=0) + "\n")
    with text_file(folder / CARD_FILE) as file:
        file.write(_card_written(dataset).to_toml())


def _card_written(dataset: Dataset) -> Card:
    """Return the card without the source's time format and start, because dates are written as ISO 8601 in UTC, starts included."""
    clock, parts = dataset.clock, dataset.splits().values()
    card = replace(dataset.card, types=len(dataset.vocabulary) or None, time_format="", timezone="", start="")
    if clock.absolute:
        return replace(card, timezone="" if clock.zone == "UTC" else clock.zone)
    looks_unix = not card.time_unit and unix_format([data.columns.times for data in parts]) is not None
    return replace(card, time_format="number" if looks_unix else "")


def suffix_of(path: Path) -> str | None:
    """Return the suffix that determines the format, or None if the format is unknown."""
    name = path.name.lower()
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), None)


def read(path: Path, options: ReadOptions, vocabulary: Vocabulary | None = None) -> RawEvents:
    """Read a file's sequences and mistakes; times stay as written. In XES, the vocabulary decides which of two names an event gets."""
    return read_splits({"train": path}, options, vocabulary)["train"]


def read_splits(
    files: Mapping[str, Path], options: ReadOptions, vocabulary: Vocabulary | None = None
) -> dict[str, RawEvents]:
    """Read the files of a data set; return their contents by split."""
    readers = {".jsonl": read_jsonlines, ".csv": read_csv, ".tsv": read_csv, ".parquet": read_parquet}
    for path in files.values():
        check_regular(path)
    foreign = read_files(files, options, vocabulary)
    ours = {split: readers[_format(path)](path, options) for split, path in files.items() if split not in foreign}
    found = {split: foreign[split] if split in foreign else ours[split] for split in files}
    most = read_limits().max_events
    for split, raw in found.items():
        if most is not None and len(raw.times) > most:
            raise DataError(f"{files[split]}: it has {len(raw.times):,} events, more than `max_events={most}`")
    return found


def _format(path: Path) -> str:
    suffix = suffix_of(path)
    if suffix is None:
        hint = "; convert it first: foretell data convert" if path.suffix in (".pkl", ".json", ".pickle") else ""
        if path.suffix in (".log", ".txt"):
            hint = "; lines of text are taken apart by a query: see docs/guide/sql.md, A log of a web server"
        raise DataError(f"{path}: unknown format {path.suffix!r}, expected one of {', '.join(SUFFIXES)}{hint}")
    return suffix.removesuffix(".gz")


def split_files(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """Return the file of each split in a folder; raise if a split has two files, or if the folder has no split."""
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
    """Return the names of the splits in a folder or embedded data set; empty for a single file."""
    path = Path(path_or_name)
    folder = path if path.is_dir() else None if path.exists() else embedded_folder(str(path_or_name))
    if folder is not None and is_packed(folder):
        return packed_splits(folder)
    return set() if folder is None else set(split_files(folder, READ_SUFFIXES))


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a data set before they are read: one per split, the card, the names in `types.json`, and the options.

    `card` is None if the data set is a single file.
    """

    files: Mapping[str, Path]
    card: Card | None
    vocabulary: Vocabulary | None
    options: ReadOptions


def dataset_files(path_or_name: str | Path, options: ReadOptions, unseen: Sequence[str] = ()) -> DatasetFiles | None:
    """Return the files that `load` would read, or None if the data set is in another format, or not made of files."""
    path = Path(path_or_name)
    if is_source(str(path_or_name)) or (path.is_dir() and (is_packed(path) or is_foreign_folder(path))):
        return None
    if path.is_dir():
        return _folder_files(path, options, path.resolve().name, unseen)
    if path.exists():
        return DatasetFiles({"train": path}, None, None, options)
    embedded = embedded_folder(str(path_or_name))
    if embedded is None:
        raise DataError(_not_found(path, embedded_names()))
    return _folder_files(embedded, ReadOptions(), str(path_or_name), unseen)


def _folder_files(folder: Path, options: ReadOptions, name: str, unseen: Sequence[str]) -> DatasetFiles:
    card_file = folder / CARD_FILE
    card = Card.read(card_file, name) if card_file.is_file() else Card(name)
    names_file = folder / TYPES_FILE
    given = _read_names(names_file, card) if names_file.is_file() else None
    files = {split: path for split, path in split_files(folder, READ_SUFFIXES).items() if split not in unseen}
    return DatasetFiles(files, card, given, _with_card(options, card, card_file))


def _load_folder(folder: Path, options: ReadOptions, name: str, unseen: Sequence[str] = ()) -> Dataset:
    found = _folder_files(folder, options, name, unseen)
    assert found.card is not None
    raws = read_splits(found.files, found.options, found.vocabulary)
    return assemble_splits(raws, found.card, folder, found.vocabulary, found.options)


def _with_card(options: ReadOptions, card: Card, path: Path) -> ReadOptions:
    """Fill in options for times and covariates from the card where the user has not set them."""
    keys = ("time_format", "timezone", "start", "covariates", "static")
    said = {key: value for key in keys if (value := getattr(card, key))}
    try:
        return replace(options, **{key: value for key, value in said.items() if not getattr(options, key)})
    except DataError:
        raise
    except ForetellError as error:
        raise DataError(f"{path}: {error}") from None


def _read_names(path: Path, card: Card) -> Vocabulary:
    try:
        names = parse_json(read_document(path))
    except ValueError as error:
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
    """Return the message `no such file`, with similar names in the folder or among the embedded data sets."""
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
