"""What events came in, and what a single sequence still knows of its data: the clock, and the kind of data frame."""

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
    """The data frame that events came in; results become frames of its kind."""

    kind: FrameKind | None = None  # None: events came in a file, or in Python
    integer_ids: bool = False  # sequences were integers


NO_ORIGIN = FrameOrigin()


@dataclass(frozen=True)
class SequenceSource:
    """The clock and the frame of the data that a sequence is from, by which what is found about it alone has dates."""

    clock: Clock = NO_CLOCK
    frame: FrameOrigin = NO_ORIGIN


NO_SOURCE = SequenceSource()


def source_of(sequences: Sequence[EventSequence], clock: Clock, frame: FrameOrigin) -> dict[str, Clock | FrameOrigin]:
    """The clock and the frame of what all sequences are from, where neither is given."""
    found = {one.source for one in sequences}
    if len(found) != 1 or (clock, frame) != (NO_CLOCK, NO_ORIGIN):
        return {}
    (source,) = found
    return {"clock": source.clock, "frame": source.frame}
