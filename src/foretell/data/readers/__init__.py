"""Foreign formats → `Dataset`, one file a format; pickles only ever through `pickles.load`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from foretell.data.assembly import assemble, vocabulary_of
from foretell.data.card import Card, Origin
from foretell.data.dataset import SPLITS, Dataset, EventData
from foretell.data.raw import RawEvents
from foretell.data.readers import easytpp, gatech, ndtt, pickles
from foretell.data.readers.foreign import Foreign
from foretell.errors import DataError

Reader = Literal["gatech", "easytpp", "ndtt"]
READERS: tuple[Reader, ...] = get_args(Reader)
PICKLE_SUFFIXES = (".pkl", ".pickle")
JSON_SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz")
SPLIT_OF = {"train": "train", "dev": "dev", "test": "test", "valid": "dev", "val": "dev", "validation": "dev"}


def is_foreign(path: Path) -> bool:
    """Whether a file is in one of the foreign formats, as far as its name and its first line tell."""
    if path.suffix in PICKLE_SUFFIXES:
        return True
    return path.name.endswith(JSON_SUFFIXES) and easytpp.matches(path)


def foreign_files(folder: Path) -> dict[str, Path]:
    """The file of each split in a folder of foreign files; `valid` and `val` are read as dev."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        split = SPLIT_OF.get(path.name.split(".")[0])
        if split and is_foreign(path):
            if split in found:
                raise DataError(f"{folder}: two files for {split}: {found[split].name} and {path.name}")
            found[split] = path
    return found


def load_foreign(path: str | Path, reader: Reader | None = None, origin: Origin = "window") -> Dataset:
    """A foreign file, or a folder with `train`, `dev` and `test` of them; `reader=None` finds out which."""
    path = Path(path)
    files = foreign_files(path) if path.is_dir() else {SPLIT_OF.get(path.name.split(".")[0], "train"): path}
    if not files:
        raise DataError(f"{path}: no train, dev or test file in a foreign format ({', '.join(READERS)})")
    raws: dict[str, RawEvents] = {}
    types: list[int] = []
    for split, file in files.items():
        foreign = _read(file, reader)
        types += [foreign.types] if foreign.types else []
        raws |= _place(foreign, split, file, path.is_dir())
    vocabulary, problems = vocabulary_of(list(raws.values()), max(types, default=None))
    if problems:
        raise DataError([*problems, *(message for raw in raws.values() for message in raw.located(raw.mistakes()))])
    splits: dict[str, EventData | None] = dict.fromkeys(SPLITS)
    for split, raw in raws.items():
        splits[split], mistakes = assemble(raw, vocabulary, origin, split)
        problems += mistakes
    if problems:
        raise DataError(problems)
    name = path.resolve().name.split(".")[0]
    card = Card(name, origin, types=len(vocabulary) or None)
    return Dataset(splits["train"], splits["dev"], splits["test"], vocabulary, card, str(path))


def _read(path: Path, reader: Reader | None) -> Foreign:
    if path.suffix not in PICKLE_SUFFIXES:
        if reader not in (None, "easytpp"):
            raise DataError(f"{path}: the {reader} reader takes pickles (.pkl), not {path.suffix}")
        return easytpp.read(path)
    content = pickles.load(path)
    # EasyTPP also spreads its data as pickles, and those are Gatech's
    if reader in ("gatech", "easytpp") or (reader is None and gatech.matches(content)):
        return gatech.convert(path, content)
    if reader == "ndtt" or ndtt.matches(content):
        return ndtt.convert(path, content)
    raise DataError(f"{path}: found a {type(content).__name__}, which neither Gatech nor NDTT files hold")


def _place(foreign: Foreign, split: str, path: Path, in_folder: bool) -> dict[str, RawEvents]:
    """Which split each part of a file is: its own name says so, else the file's name."""
    parts = foreign.splits
    if len(parts) == 1:
        ((name, raw),) = parts.items()
        return {split if in_folder else SPLIT_OF.get(name, split): raw}
    if in_folder and split in parts:
        return {split: parts[split]}
    known = {SPLIT_OF[name]: raw for name, raw in parts.items() if name in SPLIT_OF}
    if in_folder or len(known) < len(parts):
        raise DataError(f"{path}: it holds {', '.join(parts)}; expected one split, or train, dev and test")
    return known
