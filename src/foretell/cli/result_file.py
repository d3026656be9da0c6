"""Writes the rows of a result to CSV, Parquet, or JSON lines. At most a screen of them is printed."""

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
SHOWN = 20  # the most rows that are printed
ROWS_AT_A_TIME = 10_000

ResultOption = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Write all rows: FILE.csv, .parquet or .jsonl; default: none, the first are printed."
    ),
]


def check_result_file(path: Path | None) -> None:
    """Raise `ForetellError` for a name whose ending is no known format."""
    if path is not None and path.suffix not in SUFFIXES:
        raise ForetellError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")


def write_result(path: Path, table: Callable[[], pyarrow.Table], objects: Iterable[Any]) -> None:
    """Write the rows of a table as CSV or Parquet; for `.jsonl`, write the objects instead, one per line."""
    from foretell.data.files import replacing, text_file

    if path.suffix == ".jsonl":
        with text_file(path) as file:
            file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in objects)
    elif path.suffix == ".parquet":
        from foretell.data.parquet import pyarrow_modules

        _, parquet = pyarrow_modules()
        with replacing(path) as temporary:
            parquet.write_table(table(), temporary)
    else:
        _write_csv(path, table())


def row_objects(table: pyarrow.Table) -> Iterable[dict[str, Any]]:
    """Yield the rows of a table."""
    for batch in table.to_batches(ROWS_AT_A_TIME):
        yield from batch.to_pylist()


def _write_csv(path: Path, table: pyarrow.Table) -> None:
    """Write a CSV file. A column of vectors becomes columns NAME1, NAME2, …, one per number; missing values are empty."""
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
    """Return a line about the number of rows that were not printed; None if there are none."""
    return f"and {counted(left, f'more {what}')}: -o FILE.csv writes all, --json prints them" if left > 0 else None
