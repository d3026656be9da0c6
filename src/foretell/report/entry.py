"""What a report knows of one model: its scores on the data, event by event, and how it was trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from foretell.data import EventData, EventSequence
from foretell.errors import ForetellError
from foretell.evaluate.likelihood import EventScores
from foretell.models.base import IntensityModel


@dataclass(frozen=True)
class Entry:
    name: str  # no two of a report have the same
    model: IntensityModel
    data: EventData  # as this model was scored on it
    events: EventScores
    evaluation: dict[str, Any]  # as `Evaluation.to_json` gives it
    records: list[dict[str, Any]] = field(default_factory=list)  # of the epochs
    floor: bool = False  # True: a simple model to compare with
    settings: str = ""  # of its run, as TOML
    reused: bool = False  # True: the scores are those that `foretell evaluate` left in the run folder

    @property
    def title(self) -> str:
        return self.name if self.floor or self.name == self.model.title else f"{self.name} ({self.model.title})"


def place_of_same(data: EventData, sequence: EventSequence, run: str) -> int:
    """Where `data` have the sequence of this id."""
    for place, one in enumerate(data):
        if one.id == sequence.id:
            return place
    raise ForetellError(
        f"{run}: its data have no sequence {sequence.id!r}, which another run of this report has; runs must be on the same data "
        "(`data=` names data for all of them)"
    )
