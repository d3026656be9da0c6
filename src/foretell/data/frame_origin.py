"""The kind of data frame that events come from, and the properties of the data that a single sequence keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from foretell.data.clock import NO_CLOCK, Clock

if TYPE_CHECKING:
    from foretell.data.sequence import EventSequence

FrameKind = Literal["pandas", "polars", "pyarrow", "duckdb"]
FRAME_KINDS: tuple[FrameKind, ...] = get_args(FrameKind)


@dataclass(frozen=True)
class FrameOrigin:
    """The kind of data frame that events come from; results are returned in the same kind."""

    kind: FrameKind | None = None  # None: events come from a file or from Python
    integer_ids: bool = False  # True: the ids of sequences were integers


NO_ORIGIN = FrameOrigin()


@dataclass(frozen=True)
class SequenceSource:
    """The clock and the kind of frame of a sequence's data; results about this sequence alone use them, for example for dates."""

    clock: Clock = NO_CLOCK
    frame: FrameOrigin = NO_ORIGIN


NO_SOURCE = SequenceSource()


def source_of(sequences: Sequence[EventSequence], clock: Clock, frame: FrameOrigin) -> dict[str, Clock | FrameOrigin]:
    """Return keyword arguments with the common clock and frame of all sequences, unless `clock` or `frame` is given."""
    found = {one.source for one in sequences}
    if len(found) != 1 or (clock, frame) != (NO_CLOCK, NO_ORIGIN):
        return {}
    (source,) = found
    return {"clock": source.clock, "frame": source.frame}
