"""Intensities of a model at chosen times of given histories, and embeddings of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from rich.table import Table

from foretell.batches.batch import make_batch
from foretell.data import Clock, EventData, FrameFormat, FrameOrigin, FrameResult, ResultList, Vocabulary
from foretell.data.arguments import check_split
from foretell.data.clock import NO_CLOCK
from foretell.data.frame_origin import NO_ORIGIN
from foretell.data.frame_output import FrameColumns
from foretell.data.written_times import event_instants
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.two_sided import checked_sight, embed_rows, event_rows, sight
from foretell.models.base import IntensityModel, check_model
from foretell.models.build import Network
from foretell.models.capabilities import HasRules
from foretell.models.task_heads import Classifier, MaskedANHP, TaskHead
from foretell.options import Sight
from foretell.wording import escape


@dataclass(frozen=True)
class IntensityTable(FrameResult):
    """The intensities of all types at some times of one sequence. The frame has one row per time and event type."""

    sequence: str
    times: np.ndarray  # [Q], in the requested order
    seen: np.ndarray  # int64 [Q]: number of events with a smaller time
    intensities: np.ndarray  # [Q, K]
    possible: list[dict[str, float]] | None = None  # models of rules: possible events and their intensities
    clock: Clock = NO_CLOCK
    began: int | None = None  # the timestamp of time 0, if known
    vocabulary: Vocabulary | None = field(default=None, repr=False, compare=False)
    frame: FrameOrigin = field(default=NO_ORIGIN, repr=False, compare=False)

    @property
    def frame_format(self) -> FrameFormat:
        return FrameFormat(self.frame, self.clock, self.began)

    def frame_columns(self) -> FrameColumns:
        rows = self._named(self.vocabulary or Vocabulary.of_size(self.intensities.shape[1]))
        lengths = [len(row) for row in rows]
        return {
            "sequence": [self.sequence] * sum(lengths),
            "time": self.frame_format.times(np.repeat(self.times, lengths)),
            "event": [name for row in rows for name in row],
            "intensity": np.array([value for row in rows for value in row.values()], dtype=np.float64),
        }

    def to_json(self, vocabulary: Vocabulary) -> dict[str, Any]:
        """Return JSON, in which `index` is the state of the sequence: 1 + the number of events with a smaller time."""
        queries = [
            {"time": float(t), **self._iso(float(t)), "index": 1 + int(n), "intensities": row}
            for t, n, row in zip(self.times, self.seen, self._named(vocabulary), strict=True)
        ]
        return {"sequence": self.sequence, "queries": queries}

    def _iso(self, time: float) -> dict[str, str | None]:
        return {} if self.began is None else {"iso": self.clock.iso(time, self.began)}

    def _named(self, vocabulary: Vocabulary) -> list[dict[str, float]]:
        if self.possible is not None:
            return self.possible
        return [dict(zip(vocabulary.names, row.tolist(), strict=True)) for row in self.intensities]

    def table(self, vocabulary: Vocabulary, top: int, rows: int | None = None) -> Table:
        """Return a table of the first `rows` times (default: all), each with the `top` highest intensities."""
        table = Table(title=escape(f"sequence {self.sequence}"), title_justify="left")
        for name in ("time", "events before", "total", f"highest {top}"):
            table.add_column(name, justify="left" if name.startswith("highest") else "right")
        for t, n, row in list(zip(self.times, self.seen, self._named(vocabulary), strict=True))[:rows]:
            best = sorted(row.items(), key=lambda pair: -pair[1])[:top]
            words = "  ".join(f"{name} {value:.4g}" for name, value in best)
            table.add_row(
                self.clock.short(float(t), self.began) or f"{t:g}", str(n), f"{sum(row.values()):.4g}", escape(words)
            )
        return table


def intensities_at(
    model: IntensityModel,
    data: EventData,
    times: Sequence[float] | Sequence[Sequence[float]] | np.ndarray,
    *,
    grid: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ResultList[IntensityTable]:
    """Compute the intensities of all event types at given times, given the events with a smaller time.

    Args:
        model: the model.
        data: the histories.
        times: one list for all sequences, or one list per sequence.
        grid: replaces `times` by this number of evenly spaced times from 0 to each sequence's `t_end`.
        progress: called with how many sequences are done, and how many there are.

    Returns:
        For each sequence its `times`, the number of earlier events (`seen`), and `intensities`, float64 [times, types].

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"]], [[0.5, 2.0]], t_ends=[10.0])
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data).model
        >>> ft.intensities_at(model, data, [1.0, 5.0])[0].intensities.round(2).tolist()
        [[0.15, 0.15], [0.15, 0.15]]
    """
    check_model(model)
    check_split(data)
    if grid is not None and grid < 2:
        raise ForetellError(f"grid = {grid}: expected 2 times or more")
    answers: ResultList[IntensityTable] = ResultList()
    every = np.asarray(times, dtype=np.float64)
    for place, sequence in enumerate(data):
        wanted = np.atleast_1d(every[place] if every.ndim == 2 else every)
        if grid is not None:
            wanted = np.linspace(0.0, sequence.t_end, grid)
        seen = np.searchsorted(sequence.times, wanted, side="left")
        possible = model.possible_intensities(sequence, wanted) if isinstance(model, HasRules) else None
        found = sequence.id, wanted, seen, model.intensity(sequence, wanted), possible
        answers.append(IntensityTable(*found, data.clock, sequence.start, model.vocabulary, data.frame))
        if progress is not None:
            progress(place + 1, len(data))
    return answers


class EventEmbeddings(list[np.ndarray], FrameResult):
    """The embeddings of events, one array per sequence. The frame has one row per event, with the numbers in `e1`, `e2`, …"""

    def __init__(self, arrays: Iterable[np.ndarray], data: EventData) -> None:
        super().__init__(arrays)
        self.data = data

    @property
    def frame_format(self) -> FrameFormat:
        return FrameFormat.of(self.data)

    def frame_columns(self) -> FrameColumns:
        columns, instants = self.data.columns, event_instants(self.data)
        times = columns.times if instants is None else instants.astype("datetime64[ns]")
        names, width = np.array(self.data.vocabulary.names, dtype=object), self[0].shape[1] if len(self) else 0
        values = np.concatenate([np.zeros((0, width)), *self])
        return {
            "sequence": np.repeat(np.array(columns.ids, dtype=object), columns.lengths).tolist(),
            "time": times,
            "event": names[columns.types].tolist(),
            **{f"e{place + 1}": values[:, place] for place in range(width)},
        }


def embeddings_of(
    model: Network,
    data: EventData,
    layers: Literal["all", "top"] = "all",
    *,
    history: Sight | None = None,
    visible: Sequence[np.ndarray] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EventEmbeddings:
    """Compute the embedding of every event: per sequence an array [events, (L + 1)·D], or [events, D] for the top layer.

    Args:
        model: a model with embeddings, a pretrained encoder or a classifier.
        data: the sequences.
        layers: "all": the embeddings of all layers, concatenated. "top": that of the last layer.
        history: the events that an event sees: "causal" for the past (default for models of the next event), or "two-sided" for all others
            (default for pretrained encoders). A classifier's default is what it was trained with.
        visible: replaces `history` by a bool array [events, events] per sequence: True where the event of the row sees that of the column.
        progress: called with how many sequences are done, and how many there are.

    Returns:
        The arrays, in the order of the data; `to_frame()` has a row per event.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"]], [[0.5, 2.0]], t_ends=[10.0])
        >>> ft.embeddings_of(ft.ANHP(data.vocabulary, dim=8, layers=1), data, "top")[0].shape
        (2, 8)
    """
    check_model(model)
    check_split(data)
    if layers not in ("all", "top"):
        raise ForetellError(f'layers = {layers!r}: expected "all" or "top"')
    known = history if history is not None else _own_history(model)
    encoder = model.encoder if isinstance(model, TaskHead) else model
    if visible is None and known == "causal":
        return EventEmbeddings(_told((encoder.embed(sequence, layers) for sequence in data), len(data), progress), data)
    if not isinstance(encoder, ANHP):
        raise ForetellError(
            f"{encoder.title} has embeddings of the past alone: a history of another kind needs an A-NHP"
        )
    if visible is not None and len(visible) != len(data):
        raise ForetellError(f"visible: found {len(visible)} matrices for {len(data)} sequences, expected one for each")
    seen = [None] * len(data) if visible is None else visible
    made = (_embedded(encoder, data, place, layers, known, own) for place, own in enumerate(seen))
    return EventEmbeddings(_told(made, len(data), progress), data)


def _told(made: Iterable[np.ndarray], of: int, progress: Callable[[int, int], None] | None) -> Iterator[np.ndarray]:
    """Yield the arrays, and report progress after each sequence."""
    for place, one in enumerate(made):
        yield one
        if progress is not None:
            progress(place + 1, of)


def _own_history(model: Network) -> Sight:
    if isinstance(model, MaskedANHP):
        return "two-sided"
    return model.history if isinstance(model, Classifier) else "causal"


@torch.no_grad()
def _embedded(
    encoder: ANHP, data: EventData, place: int, layers: str, history: Sight, visible: np.ndarray | None
) -> np.ndarray:
    batch = make_batch(data, [place], device=encoder.device)
    seen = sight(batch, history) if visible is None else checked_sight(batch, np.asarray(visible)[None])
    with encoder.evaluating():
        by_layer = embed_rows(encoder, event_rows(encoder, batch, seen))
    chosen = torch.cat(by_layer, dim=-1) if layers == "all" else by_layer[-1]
    return chosen[0].double().cpu().numpy()
