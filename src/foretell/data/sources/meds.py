"""MEDS folders (Medical Event Data Standard, https://medical-event-data-standard.github.io) → an `EventTable` per split.

`data/**/*.parquet` has `subject_id`, `time` and `code` of each measurement; `metadata/subject_splits.parquet` has the split of each
subject. Measurements without a time are facts about the subject, and are kept in its metadata under `static`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretell.data.event_table import EventTable
from foretell.data.parquet import arrow_table, check_size, pyarrow_modules
from foretell.data.raw import Problem
from foretell.data.read_options import ColumnMap, ReadOptions
from foretell.data.sequence import NO_METADATA
from foretell.data.tables import empty_table
from foretell.errors import DataError, ForetellError, short
from foretell.reading import open_regular, read_json
from foretell.wording import counted

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("foretell")

SPLIT_OF = {"train": "train", "tuning": "dev", "held_out": "test"}
SPLITS_FILE = Path("metadata") / "subject_splits.parquet"
ABOUT_FILE = Path("metadata") / "dataset.json"
NEEDED = {"subject_id": "an integer", "time": "a timestamp", "code": "text"}
STATIC = "static"


def is_meds(folder: Path) -> bool:
    """Whether a folder has the MEDS layout."""
    return any((folder / "data").rglob("*.parquet")) and not any(folder.glob("train.*"))


def read_meds(folder: Path, options: ReadOptions) -> dict[str, EventTable]:
    """Read the splits, determined by `subject_splits`, else by the folders of the files; otherwise all subjects are `train`."""
    shards, problems = _shards(folder)
    splits = _subject_splits(folder, problems)
    if problems:
        raise DataError(problems)
    folders = {path.relative_to(folder / "data").parts[0] for path in shards}
    if splits is not None:
        parts = _parted(folder, _joined(shards.values()), splits)
        if not parts:
            raise DataError(f"{folder / SPLITS_FILE}: no split with subjects; expected {', '.join(SPLIT_OF)}")
    elif folders <= set(SPLIT_OF):
        logger.warning("%s: no %s; splits are the folders %s", folder, SPLITS_FILE, ", ".join(sorted(folders)))
        parts = {
            SPLIT_OF[name]: _joined(_inside(shards, folder / "data" / name)) for name in SPLIT_OF if name in folders
        }
    else:
        parts = {"train": _joined(shards.values())}
    given, usual = options.columns, ColumnMap()
    event = given.event if given.event != usual.event else "code"
    columns = replace(given, sequence=given.sequence or "subject_id", event=event)
    return {name: _table(f"{folder}[{name}]", part, replace(options, columns=columns)) for name, part in parts.items()}


def _joined(tables: Iterable[pyarrow.Table]) -> pyarrow.Table:
    return pyarrow_modules()[0].concat_tables(tables, promote_options="permissive").unify_dictionaries()


def _inside(shards: Mapping[Path, pyarrow.Table], folder: Path) -> list[pyarrow.Table]:
    return [table for path, table in shards.items() if path.is_relative_to(folder)]


def dataset_name(folder: Path) -> str:
    """Return the name of the data set from its metadata, or else the folder's name."""
    try:
        about = read_json(folder / ABOUT_FILE)
        name = about["dataset_name"]
    except (ForetellError, KeyError, TypeError):
        return folder.resolve().name
    return name if isinstance(name, str) and name else folder.resolve().name


def _shards(folder: Path) -> tuple[dict[Path, pyarrow.Table], list[str]]:
    """Read the files with data; return their tables by path, and messages about mistakes."""
    pa, _ = pyarrow_modules()
    tables: dict[Path, pyarrow.Table] = {}
    problems: list[str] = []
    home: dict[int, Path] = {}
    for path in sorted((folder / "data").rglob("*.parquet")):
        table = _read(path, problems)
        if table is None:
            continue
        before = len(problems)
        rights = {"subject_id": pa.types.is_integer, "time": pa.types.is_timestamp, "code": _is_text}
        for name, expected in NEEDED.items():
            if table.column_names.count(name) != 1:
                problems.append(f"{path}: expected one column {name!r}, found {', '.join(table.column_names[:10])}")
            elif not rights[name](kind := table.schema.field(name).type) and not (
                name == "time" and pa.types.is_null(kind)
            ):
                problems.append(f"{path}: column {name!r} has type {kind}, expected {expected}")
            elif name != "time" and table.column(name).null_count:
                problems.append(f"{path}: column {name!r} is empty in {counted(table.column(name).null_count, 'row')}")
        if len(problems) > before:
            continue
        for subject in table.column("subject_id").unique().to_pylist():
            if home.setdefault(subject, path) != path:
                problems.append(
                    f"{path}: subject {subject} has rows in {home[subject].name}, too; a subject is in one file"
                )
        tables[path] = table
    return tables, problems


def _is_text(kind: pyarrow.DataType) -> bool:
    types = pyarrow_modules()[0].types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind)


def _read(path: Path, problems: list[str]) -> pyarrow.Table | None:
    pa, pq = pyarrow_modules()
    try:
        with open_regular(path) as file:
            check_size(pq.ParquetFile(file).metadata, path)
            return pq.read_table(file)
    except (pa.ArrowException, OSError, ValueError, ForetellError) as error:
        problems.append(f"{path}: not a Parquet file that can be read: {(str(error).splitlines() or [''])[0]}")
        return None


def _subject_splits(folder: Path, problems: list[str]) -> dict[int, str] | None:
    """Return the split of each subject; None if there is no file of splits."""
    path = folder / SPLITS_FILE
    if not path.is_file():
        return None
    table = _read(path, problems)
    if table is None or not {"subject_id", "split"} <= set(table.column_names):
        problems += (
            [] if table is None else [f"{path}: expected the columns subject_id and split, found {table.column_names}"]
        )
        return None
    splits: dict[int, str] = {}
    for subject, given in zip(table.column("subject_id").to_pylist(), table.column("split").to_pylist(), strict=True):
        split = "" if given is None else str(given)
        if splits.setdefault(subject, split) != split:
            problems.append(f"{path}: subject {short(subject)} is in {splits[subject]} and in {split}")
    return splits


def _parted(folder: Path, whole: pyarrow.Table, splits: Mapping[int, str]) -> dict[str, pyarrow.Table]:
    """Return the rows of each split. Rows of unknown splits, and of subjects without a split, are left out and counted."""
    pa, _ = pyarrow_modules()
    subjects, place = np.unique(whole.column("subject_id").to_numpy(), return_inverse=True)
    names = np.array([splits.get(subject, "") for subject in subjects.tolist()], dtype=object)
    for other in sorted(set(names.tolist()) - set(SPLIT_OF)):
        of = f"in the split {other!r}" if other else "in no split"
        left, wanted = counted(int((names == other).sum()), "subject"), ", ".join(SPLIT_OF)
        logger.warning("%s: %s %s left out; the splits that are read are %s", folder, left, of, wanted)
    return {
        ours: whole.filter(pa.array((names == theirs)[place]))
        for theirs, ours in SPLIT_OF.items()
        if (names == theirs).any()
    }


def _table(path: str, rows: pyarrow.Table, options: ReadOptions) -> EventTable:
    """Return the events of a split, with facts about its subjects as metadata."""
    known = rows.column("time").is_valid()
    events, facts = rows.filter(known), rows.filter(rows.column("time").is_null())
    columns = options.columns
    table = arrow_table(events, path, options)
    if not len(table.ids) and not table.problems:
        return empty_table(path, "row", [Problem(0, "no row has a time: there is nothing to learn about when")])
    static: dict[str, list[dict[str, object]]] = {}
    assert columns.sequence is not None
    for row in facts.to_pylist():
        kept = {
            name: value for name, value in row.items() if value is not None and name not in (columns.sequence, "time")
        }
        static.setdefault(str(row[columns.sequence]), []).append(kept)
    without = len(set(static) - set(table.ids))
    if without:
        logger.warning("%s: %s without a row that has a time left out", path, counted(without, "subject"))
    if not static:
        return table
    return replace(table, metadata=[{STATIC: static[name]} if name in static else NO_METADATA for name in table.ids])
