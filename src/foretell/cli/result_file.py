"""Results of a command → a file of rows: CSV, Parquet, or JSON lines. What is printed beside it is at most a screen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.errors import ForetellError
from foretell.wording import counted

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".csv", ".parquet", ".jsonl")
SHOWN = 20  # rows that are printed
ROWS_AT_A_TIME = 10_000

ResultOption = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Write all rows: FILE.csv, .parquet or .jsonl; default: none, the first are printed."
    ),
]


def check_result_file(path: Path | None) -> None:
    """Refuse a name by which no format can be told."""
    if path is not None and path.suffix not in SUFFIXES:
        raise ForetellError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")


def write_result(path: Path, table: Callable[[], pyarrow.Table], objects: Iterable[Any]) -> None:
    """Write the rows of a table as CSV or Parquet; `.jsonl`: the objects, a line each."""
    from foretell.data.files import replacing, text_file

    if path.suffix == ".jsonl":
        with text_file(path) as file:
            file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in objects)
    elif path.suffix == ".parquet":
        from pyarrow import parquet

        with replacing(path) as temporary:
            parquet.write_table(table(), temporary)
    else:
        _write_csv(path, table())


def row_objects(table: pyarrow.Table) -> Iterable[dict[str, Any]]:
    """The rows of a table, one by one."""
    for batch in table.to_batches(ROWS_AT_A_TIME):
        yield from batch.to_pylist()


def _write_csv(path: Path, table: pyarrow.Table) -> None:
    """A column of vectors becomes a column per number, NAME1, NAME2, …; what is missing is empty."""
    from foretell.data.csv_files import csv_cell
    from foretell.data.files import text_file

    first = next(islice(row_objects(table), 1), {})
    names = [each for name in table.column_names for each in _spread(name, first.get(name))]
    with text_file(path) as file:
        file.write(",".join(map(csv_cell, names)) + "\n")
        for row in row_objects(table):
            values = [each for value in row.values() for each in (value if isinstance(value, list) else [value])]
            file.write(",".join(_text(value, csv_cell) for value in values) + "\n")


def _spread(name: str, value: Any) -> list[str]:
    return [f"{name}{place}" for place in range(1, len(value) + 1)] if isinstance(value, list) else [name]


def _text(value: Any, quoted: Callable[[str], str]) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return quoted(value)
    return value.isoformat() if hasattr(value, "isoformat") else repr(value)


def more_rows(left: int, what: str) -> str | None:
    """What is said of rows that were not printed."""
    return f"and {counted(left, f'more {what}')}: -o FILE.csv writes all, --json prints them" if left > 0 else None
