"""Files ↔ sequences: events are read from files, checked once, stored in flat arrays, and written back. Does not import torch."""

from __future__ import annotations

from foretell.data.clock import Clock
from foretell.data.columns import Attribute, Columns
from foretell.data.dataset import Card, Dataset, EventData, LoadReport, Origin
from foretell.data.foreign import load_foreign
from foretell.data.frame_origin import FrameKind, FrameOrigin
from foretell.data.frame_output import FrameFormat, FrameResult, ResultList
from foretell.data.frames import from_frame
from foretell.data.loading import load, load_file, save, save_dataset
from foretell.data.read_options import ColumnMap, ReadOptions
from foretell.data.sequence import EventSequence, Vocabulary

__all__ = [
    "Attribute",
    "Card",
    "Clock",
    "ColumnMap",
    "Columns",
    "Dataset",
    "EventData",
    "EventSequence",
    "FrameFormat",
    "FrameKind",
    "FrameOrigin",
    "FrameResult",
    "LoadReport",
    "Origin",
    "ReadOptions",
    "ResultList",
    "Vocabulary",
    "from_frame",
    "load",
    "load_file",
    "load_foreign",
    "save",
    "save_dataset",
]
