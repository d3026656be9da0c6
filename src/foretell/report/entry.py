"""The input of a report for one model: its scores on the data, event by event, and the history of its training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from foretell.data import EventData, EventSequence
from foretell.errors import ForetellError
from foretell.evaluate.likelihood import EventScores
from foretell.models.base import IntensityModel


@dataclass(frozen=True)
class Entry:
    name: str  # unique within a report
    model: IntensityModel
    data: EventData  # the data on which this model was scored
    events: EventScores
    evaluation: dict[str, Any]  # from `Evaluation.to_json`
    records: list[dict[str, Any]] = field(default_factory=list)  # records of the epochs
    floor: bool = False  # True: a floor
    settings: str = ""  # the run's configuration, as TOML
    reused: bool = False  # True: the scores are those that `foretell evaluate` stored in the run folder

    @property
    def title(self) -> str:
        return self.name if self.floor or self.name == self.model.title else f"{self.name} ({self.model.title})"


def place_of_same(data: EventData, sequence: EventSequence, run: str) -> int:
    """Return the position in `data` of the sequence with the same id; raises `ForetellError` if there is none."""
    for place, one in enumerate(data):
        if one.id == sequence.id:
            return place
    raise ForetellError(
        f"{run}: its data have no sequence {sequence.id!r}, which another run of this report has; runs must be on the same data "
        "(`data=` names data for all of them)"
    )
