"""The same sequence in the data of several runs, which may treat some of its events differently."""

from __future__ import annotations

from foretell.data import EventData, EventSequence
from foretell.errors import ForetellError


def place_of_same(data: EventData, sequence: EventSequence, run: str) -> int:
    """Where `data` have the sequence of this id."""
    for place, one in enumerate(data):
        if one.id == sequence.id:
            return place
    raise ForetellError(
        f"{run}: its data have no sequence {sequence.id!r}, which another run of this report has; runs must be on the same data "
        "(--data names data for all of them)"
    )
