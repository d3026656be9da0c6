"""Questions to a model about given histories: intensities at chosen times, embeddings of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from rich.markup import escape
from rich.table import Table

from foretell.data import EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.models.anhp import ANHP
from foretell.models.base import IntensityModel


@dataclass(frozen=True)
class Answer:
    """The intensities of all types at some times of one sequence."""

    sequence: str
    times: np.ndarray  # [Q], in the order asked
    seen: np.ndarray  # int64 [Q]: events with a smaller time
    intensities: np.ndarray  # [Q, K]
    possible: list[dict[str, float]] | None = None  # where not everything is possible: what is, by name

    def to_json(self, vocabulary: Vocabulary) -> dict[str, Any]:
        """`index` is the state of the sequence: 1 + the number of events with a smaller time."""
        queries = [
            {
                "time": float(t),
                "index": 1 + int(n),
                "intensities": row,
            }
            for t, n, row in zip(self.times, self.seen, self._named(vocabulary), strict=True)
        ]
        return {"sequence": self.sequence, "queries": queries}

    def _named(self, vocabulary: Vocabulary) -> list[dict[str, float]]:
        if self.possible is not None:
            return self.possible
        return [dict(zip(vocabulary.names, row.tolist(), strict=True)) for row in self.intensities]

    def table(self, vocabulary: Vocabulary, top: int) -> Table:
        table = Table(title=escape(f"sequence {self.sequence}"), title_justify="left")
        for name in ("time", "events before", "total", f"highest {top}"):
            table.add_column(name, justify="left" if name.startswith("highest") else "right")
        for t, n, row in zip(self.times, self.seen, self._named(vocabulary), strict=True):
            best = sorted(row.items(), key=lambda pair: -pair[1])[:top]
            words = "  ".join(f"{name} {value:.4g}" for name, value in best)
            table.add_row(f"{t:g}", str(n), f"{sum(row.values()):.4g}", escape(words))
        return table


def intensities_at(
    model: IntensityModel, data: EventData, times: list[float] | np.ndarray, *, grid: int | None = None
) -> list[Answer]:
    """At the same times for every sequence, or on an even grid over each."""
    if grid is not None and grid < 2:
        raise ForetellError(f"grid = {grid}: expected 2 times or more")
    answers = []
    for sequence in data:
        wanted = (
            np.linspace(0.0, sequence.t_end, grid)
            if grid is not None
            else np.atleast_1d(np.asarray(times, dtype=np.float64))
        )
        seen = np.searchsorted(sequence.times, wanted, side="left")
        possible = model.possible_intensities(sequence, wanted)
        answers.append(Answer(sequence.id, wanted, seen, model.intensity(sequence, wanted), possible))
    return answers


def embeddings_of(model: IntensityModel, data: EventData, layers: Literal["all", "top"] = "all") -> list[np.ndarray]:
    """The embedding of every event, [events, (L + 1)·D] or [events, D]; one array a sequence."""
    if not isinstance(model, ANHP):
        raise ForetellError(f"{model.title} has no embeddings of events; train an A-NHP")
    if layers not in ("all", "top"):
        raise ForetellError(f'layers = {layers!r}: expected "all" or "top"')
    return [model.embed(sequence, layers) for sequence in data]
