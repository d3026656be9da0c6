"""Files → `Dataset` and back: splits are found, read, checked together, and given one vocabulary."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from foretell.data import card as cards
from foretell.data import formats
from foretell.data.assembly import assemble_file, assemble_splits
from foretell.data.card import Card, Origin
from foretell.data.dataset import SPLITS, Dataset, EventData
from foretell.data.formats import ColumnMap
from foretell.data.sequence import Vocabulary
from foretell.data.writing import text_file
from foretell.errors import DataError

logger = logging.getLogger("foretell")

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
    data = assemble_file(formats.read(path, columns), None, "window", "train")
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
    return assemble_file(formats.read(path, columns), vocabulary, origin, name or _stem(path))


def save(data: EventData, path: str | Path) -> None:
    """Writes a split as JSON lines (`.jsonl`, `.jsonl.gz`), CSV or Parquet, by the suffix."""
    formats.write(data, Path(path))


def save_dataset(dataset: Dataset, folder: str | Path, suffix: str = ".jsonl.gz") -> None:
    """Writes the splits, the card and, where types have names, `types.json` into a folder."""
    folder = Path(folder)
    vocabulary = dataset.vocabulary
    for name, data in dataset.splits().items():
        save(data, folder / f"{name}{suffix}")
    if not vocabulary.numbered:
        with text_file(folder / TYPES_FILE) as file:
            file.write(json.dumps(vocabulary.names, ensure_ascii=False, indent=0) + "\n")
    with text_file(folder / cards.FILE_NAME) as file:
        file.write(replace(dataset.card, types=len(vocabulary) or None).to_toml())


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
    return set() if folder is None else set(split_files(folder, formats.SUFFIXES))


def _load_folder(folder: Path, columns: ColumnMap | None, name: str, unseen: Sequence[str] = ()) -> Dataset:
    card_file = folder / cards.FILE_NAME
    card = Card.read(card_file, name) if card_file.is_file() else Card(name)
    names_file = folder / TYPES_FILE
    given = _read_names(names_file, card) if names_file.is_file() else None
    files = {split: path for split, path in split_files(folder, formats.SUFFIXES).items() if split not in unseen}
    raws = {split: formats.read(path, columns) for split, path in files.items()}
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
        raise DataError(f"{path}: {len(vocabulary)} names, but {cards.FILE_NAME} says types = {card.types}")
    return vocabulary


def _stem(path: Path) -> str:
    suffix = formats.suffix_of(path)
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
