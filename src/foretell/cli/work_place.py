"""`--on`: the place where the shards of a command are computed, and the folder of a run that stores their results."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from foretell.data import EventData
from foretell.evaluate.record import digest_of
from foretell.models.base import IntensityModel
from foretell.models.capabilities import HasRules
from foretell.shards.place import WorkPlace
from foretell.shards.shard_map import Shards, open_shards
from foretell.train.run import MODEL

FOLDER = "shards"


@dataclass(frozen=True)
class RunQuestion:
    """All inputs on which the result of a command depends: the run, its model, the data and the options."""

    run: Path
    model: IntensityModel
    data: EventData
    asked: Mapping[str, Any]

    def origin(self) -> dict[str, Any]:
        with open(self.run / MODEL, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        columns = self.data.columns
        tables = [columns.attributes, columns.sequence_attributes]
        return {
            "foretell": metadata.version("foretell"),
            "model": digest,
            "device": self.model.device.type,
            "data": digest_of(self.data),
            "attributes": [{name: vars(one) for name, one in table.items()} for table in tables],
            "metadata": [sorted((name, repr(value)) for name, value in one.items()) for one in columns.metadata],
            "asked": dict(self.asked),
            **({"program": self.model.program.digest} if isinstance(self.model, HasRules) else {}),
        }


@contextmanager
def shards_at(place: WorkPlace, question: RunQuestion, quiet: bool = False) -> Iterator[Shards | None]:
    """A context with the shards of a command; None if the work is done in this process."""

    def tell(line: str) -> None:
        if not quiet:
            sys.stderr.write(f"{line}\n")

    origin = {} if place.kind == "this" else question.origin()
    gpu = question.model.device.type == "cuda"
    with open_shards(place, question.run / FOLDER, origin, tell, gpu=gpu) as shards:
        yield shards
