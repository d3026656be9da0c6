"""Event data in formats of other communities → sequences: XES, OCEL 2.0, MEDS, the Hugging Face hub, and SQL. XES is also written."""

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
OCEL_MARKS = (b'"objectTypes"', b'"eventTypes"', b'"objectId"', b'"ocel:')  # one is in the first MB of JSON
SOURCES = ("hf:", "sql:")


@dataclass(frozen=True)
class ForeignSplits:
    """The splits of a data set in a format of another community."""

    name: str
    splits: Mapping[str, RawEvents]
    types: int | None = None


def is_source(path: str) -> bool:
    """Whether a name is a data set of the hub or an SQL query, and not a path."""
    return path.startswith(SOURCES)


def whole_source(path: str) -> str:
    """Return a source with an absolute path in place of a relative one, so that it does not depend on the current folder."""
    prefix = next(one for one in SOURCES if path.startswith(one))
    place, mark, rest = path.removeprefix(prefix).partition("|" if prefix == "sql:" else ":")
    return f"{prefix}{Path(place).resolve() if place and Path(place).exists() else place}{mark}{rest}"


def read_source(path: str, options: ReadOptions) -> ForeignSplits:
    """Read a data set of the hub, or the rows of an SQL query."""
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
    """Whether a folder has the layout of another community's format."""
    from foretell.data.sources.meds import is_meds

    return is_meds(folder)


def read_folder(folder: Path, options: ReadOptions) -> ForeignSplits | None:
    """Read a folder with the MEDS layout; return None if the layout is another."""
    from foretell.data.sources.meds import dataset_name, is_meds, read_meds

    if not is_meds(folder):
        return None
    tables = read_meds(folder, options)
    return ForeignSplits(dataset_name(folder), {name: gathered(table, options.terms) for name, table in tables.items()})


def is_xes(path: Path) -> bool:
    """Whether a file is XES, judged by its name."""
    return path.name.lower().endswith(XES_SUFFIXES)


def is_ocel(path: Path) -> bool:
    """Whether a file is an OCEL log, judged by its name or, for JSON, by its first megabyte."""
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
    """Read the files of a data set that are XES or OCEL; return their contents by split."""
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
