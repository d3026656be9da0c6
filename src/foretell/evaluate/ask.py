"""Questions to a model about given histories: intensities at chosen times, embeddings of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from rich.table import Table

from foretell.data import EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.models.anhp import ANHP
from foretell.models.base import IntensityModel, Queries
from foretell.models.batch import make_batch

QUERIES_AT_A_TIME = 1 << 14


@dataclass(frozen=True)
class Answer:
    """The intensities of all types at some times of one sequence."""

    sequence: str
    times: np.ndarray  # [Q], in the order asked
    seen: np.ndarray  # int64 [Q]: events with a smaller time
    intensities: np.ndarray  # [Q, K]

    def to_json(self, vocabulary: Vocabulary) -> dict[str, Any]:
        """`index` is the state of the sequence: 1 + the number of events with a smaller time."""
        queries = [
            {
                "time": float(t),
                "index": 1 + int(n),
                "intensities": dict(zip(vocabulary.names, row.tolist(), strict=True)),
            }
            for t, n, row in zip(self.times, self.seen, self.intensities, strict=True)
        ]
        return {"sequence": self.sequence, "queries": queries}

    def table(self, vocabulary: Vocabulary, top: int) -> Table:
        table = Table(title=f"sequence {self.sequence}", title_justify="left")
        for name in ("time", "events before", "total", f"highest {top}"):
            table.add_column(name, justify="left" if name.startswith("highest") else "right")
        for t, n, row in zip(self.times, self.seen, self.intensities, strict=True):
            best = np.argsort(-row, kind="stable")[:top]
            words = "  ".join(f"{vocabulary.names[k]} {row[k]:.4g}" for k in best)
            table.add_row(f"{t:g}", str(n), f"{row.sum():.4g}", words)
        return table


@torch.no_grad()
def intensities_at(
    model: IntensityModel, data: EventData, times: list[float] | np.ndarray, *, grid: int | None = None
) -> list[Answer]:
    """At the same times for every sequence, or on an even grid over each."""
    model.eval()
    answers = []
    for place, sequence in enumerate(data):
        if grid is not None:
            if grid < 2:
                raise ForetellError(f"grid = {grid}: expected 2 times or more")
            wanted = np.linspace(0.0, sequence.t_end, grid)
        else:
            wanted = np.asarray(times, dtype=np.float64)
        batch = make_batch(data, [place], device=model.device)
        history = model.encode(batch)
        rows, seen = [], []
        for start in range(0, len(wanted), QUERIES_AT_A_TIME):
            chunk = torch.from_numpy(wanted[start : start + QUERIES_AT_A_TIME]).to(model.device)[None]
            queries = Queries.at_times(batch, chunk)
            rows.append(model.intensities(model.state(history, queries))[0].double().cpu().numpy())
            seen.append(queries.seen()[0].cpu().numpy())
        empty = np.empty((0, model.types))
        answers.append(
            Answer(
                sequence.id,
                wanted,
                np.concatenate(seen) if seen else np.empty(0, dtype=np.int64),
                np.concatenate(rows) if rows else empty,
            )
        )
    return answers


@torch.no_grad()
def embeddings_of(model: IntensityModel, data: EventData, layers: Literal["all", "top"] = "all") -> list[np.ndarray]:
    """The embedding of every event, [events, (L + 1)·D] or [events, D]; one array a sequence."""
    if not isinstance(model, ANHP):
        raise ForetellError(f"{model.title} has no embeddings of events; train an A-NHP")
    model.eval()
    found = []
    for place in range(len(data)):
        by_layer = model.embed(make_batch(data, [place], device=model.device))
        chosen = torch.cat(by_layer, dim=-1) if layers == "all" else by_layer[-1]
        found.append(chosen[0].double().cpu().numpy())
    return found
