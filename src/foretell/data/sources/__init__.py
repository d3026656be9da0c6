"""Event data of other communities → our sequences: XES, OCEL 2.0, MEDS, the Hugging Face hub, and SQL; and XES from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from foretell.data.event_table import gathered
from foretell.data.files import Mistakes, byte_chunks
from foretell.data.raw import RawEvents
from foretell.data.read_options import ReadOptions
from foretell.data.sequence import Vocabulary

XES_SUFFIXES = (".xes", ".xes.gz")
OCEL_SUFFIXES = (".jsonocel", ".jsonocel.gz", ".sqlite", ".sqlite3", ".db")
JSON_SUFFIXES = (".json", ".json.gz")
OCEL_MARKS = (b'"objectTypes"', b'"eventTypes"', b'"objectId"', b'"ocel:')  # in the first megabyte of a log in JSON
SOURCES = ("hf:", "sql:")


@dataclass(frozen=True)
class ForeignSplits:
    """The splits of a data set that is no folder of files of ours."""

    name: str
    splits: Mapping[str, RawEvents]
    types: int | None = None


def is_source(path: str) -> bool:
    """Whether a name means a data set of the hub or a query instead of a file."""
    return path.startswith(SOURCES)


def whole_source(path: str) -> str:
    """A source whose file or folder, where it names one, is named from the root, so that it is found from anywhere."""
    prefix = next(one for one in SOURCES if path.startswith(one))
    place, mark, rest = path.removeprefix(prefix).partition("|" if prefix == "sql:" else ":")
    return f"{prefix}{Path(place).resolve() if place and Path(place).exists() else place}{mark}{rest}"


def read_source(path: str, options: ReadOptions) -> ForeignSplits:
    """A data set of the hub, or the rows of a query."""
    if path.startswith("hf:"):
        from foretell.data.sources.hub import read_hub

        found = read_hub(path, options)
        name = path.removeprefix("hf:").partition(":")[0].rstrip("/").rpartition("/")[2]
        return ForeignSplits(name, found.splits, found.types)
    from foretell.data.parquet import arrow_table
    from foretell.data.sources.sql import query, short_name

    table = arrow_table(query(path), short_name(path), options)
    return ForeignSplits(short_name(path), {"train": gathered(table, options.terms)})


def is_foreign_folder(folder: Path) -> bool:
    """Whether a folder is laid out as another community lays it out."""
    from foretell.data.sources.meds import is_meds

    return is_meds(folder)


def read_folder(folder: Path, options: ReadOptions) -> ForeignSplits | None:
    """A folder that is laid out as MEDS lays it out; None if it is not."""
    from foretell.data.sources.meds import dataset_name, is_meds, read_meds

    if not is_meds(folder):
        return None
    tables = read_meds(folder, options)
    return ForeignSplits(dataset_name(folder), {name: gathered(table, options.terms) for name, table in tables.items()})


def is_xes(path: Path) -> bool:
    """Whether a file's name says that it is XES."""
    return path.name.lower().endswith(XES_SUFFIXES)


def is_ocel(path: Path) -> bool:
    """Whether a file is an object-centric log: its name says so or, where that says JSON, its beginning."""
    name = path.name.lower()
    if name.endswith(OCEL_SUFFIXES):
        return True
    if not name.endswith(JSON_SUFFIXES):
        return False
    start = next(byte_chunks(path, Mistakes()), b"")
    return any(mark in start for mark in OCEL_MARKS)


def read_files(
    files: Mapping[str, Path], options: ReadOptions, vocabulary: Vocabulary | None = None
) -> dict[str, RawEvents]:
    """The files of a data set that are in a format of another community, by split."""
    found: dict[str, RawEvents] = {}
    logs = {split: path for split, path in files.items() if is_xes(path)}
    if logs:
        from foretell.data.sources.xes import read_xes

        found |= {split: gathered(one, options.terms) for split, one in read_xes(logs, options, vocabulary).items()}
    for split, path in files.items():
        if split not in logs and is_ocel(path):
            from foretell.data.sources.ocel import read_ocel

            found[split] = gathered(read_ocel(path, options), options.terms)
    return found
