"""Data sets of the Hugging Face hub, `hf:NAME` or `hf:NAME:CONFIGURATION`, read by `datasets` → `RawEvents` per split.

A data set has one sequence per row, in the format of EasyTPP (`time_since_start`, `type_event`) or of our JSON lines (`times`,
`events`), or it is a long table with one event per row. NAME may also be a folder.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretell.data.event_table import gathered
from foretell.data.foreign import SPLIT_OF, add_easytpp
from foretell.data.gatherer import Gatherer
from foretell.data.jsonlines import add_record
from foretell.data.parquet import arrow_table
from foretell.data.raw import RawEvents
from foretell.data.read_options import ReadOptions
from foretell.errors import DataError, ForetellError

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("foretell")

PREFIX = "hf:"
ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class HubData:
    """The splits of a data set, and its number of event types, if known."""

    splits: Mapping[str, RawEvents]
    types: int | None = None


def read_hub(source: str, options: ReadOptions) -> HubData:
    """Read the splits named train, dev or test; `validation` is dev."""
    name, _, configuration = source.removeprefix(PREFIX).partition(":")
    if not name:
        raise DataError(f"{source}: expected hf:NAME, as in hf:easytpp/taxi")
    found = _loaded(name, configuration or None, source)
    raws: dict[str, RawEvents] = {}
    types: list[int] = []
    for split, data in found.items():
        ours = SPLIT_OF.get(split)
        if ours is None or ours in raws:
            logger.warning("%s: the split %r is not read; expected train, validation and test", source, split)
            continue
        raws[ours], size = _read(data.with_format("arrow")[:], f"{source}[{split}]", options)
        types += [size] if size else []
    if not raws:
        raise DataError(f"{source}: no split train, validation or test; found {', '.join(found) or 'none'}")
    return HubData(raws, max(types, default=None))


def _loaded(name: str, configuration: str | None, source: str) -> dict[str, Any]:
    try:
        import datasets
    except ImportError:
        raise ForetellError(f"{source}: the hub needs the package datasets: pip install 'foretell[hub]'") from None
    try:
        return {str(split): data for split, data in datasets.load_dataset(name, configuration).items()}
    except Exception as error:  # the package passes on all exceptions of its dependencies
        text = " ".join(str(error).split())[:300]
        raise DataError(f"{source}: cannot be loaded: {text or type(error).__name__}") from None


def _read(table: pyarrow.Table, path: str, options: ReadOptions) -> tuple[RawEvents, int | None]:
    """Read one split; return it with its number of types, or with None if this number is unknown."""
    names = set(table.column_names)
    if not {"time_since_start", "times"} & names:
        return gathered(arrow_table(table, path, options), options.terms), None
    gatherer = Gatherer(path, "row", options.zone, options.terms)
    types: list[int] = []
    place = 0
    for batch in table.to_batches(ROWS_AT_ONCE):
        for record in batch.to_pylist():
            place += 1
            if "time_since_start" in names:
                types += filter(None, [add_easytpp(gatherer, place, record)])
            else:
                add_record(gatherer, place, record)
    return gatherer.finish(), max(types, default=None)
