"""FILES ↔ SEQUENCES: events from files, checked once, in flat arrays; and back into files. No torch here."""

from __future__ import annotations

from foretell.data.dataset import Card, Dataset, EventData, LoadReport, Origin
from foretell.data.foreign import load_foreign
from foretell.data.loading import load, load_file, save, save_dataset
from foretell.data.sequence import Columns, EventSequence, Vocabulary
from foretell.data.tables import ColumnMap

__all__ = [
    "Card",
    "ColumnMap",
    "Columns",
    "Dataset",
    "EventData",
    "EventSequence",
    "LoadReport",
    "Origin",
    "Vocabulary",
    "load",
    "load_file",
    "load_foreign",
    "save",
    "save_dataset",
]
