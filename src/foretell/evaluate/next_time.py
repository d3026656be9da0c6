"""MBR (minimum Bayes risk) prediction of the time and type of the next event after each prefix of a sequence.


The time is the mean `E[t − t_prev] = ∫ S(u) du` with the survival function `S = exp(−∫ λ)`, by adaptive quadrature. The median is the
time at which `S` is one half. The most probable next type, whatever its time, is `argmax_e ∫ λ_e S`. The value of `S` at the horizon is
the probability that nothing happens by then (`no_event`); the mean is conditional on an event before the horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from foretell.batches.batch import batch_of
from foretell.batches.carrying import EncodedPart
from foretell.data import EventData
from foretell.evaluate.likelihood import known_types, with_all_names
from foretell.evaluate.next_event_density import NODES, Horizon, Places, Tolerance, march
from foretell.evaluate.silent_future import expires, silent_futures
from foretell.models.base import IntensityModel
from foretell.options import Window
from foretell.shards.shard_map import Shards, tables_of
from foretell.shards.store import Table
from foretell.train.likelihood_task import batch_items, parts_at

SHORT_GAPS = 0.01  # the quantile of the gaps that is the width of the first panel; later panels are wider …
SHORT_GAPS_OF_ONE = 0.05  # … and the quantile for a single sequence
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of a predicted time
HORIZON = 100.0  # in units of the largest observation time of the data
UNDEFINED_ABOVE = 1e-3  # the mean is not reported if `no_event` is above this

# If `λ` is smooth, the tolerance decides, and the mean is correct to five digits. If `λ` oscillates on all scales, about 400 nodes per
# event give the mean with an error of about 1 %, which changes an RMSE by a hundredth of a percent. The few means with larger errors are
# computed again.
QUICK = Tolerance(tolerance=1e-4, finest=1.0 / 16.0)
AGAIN_ABOVE, AGAIN = 0.02, Tolerance(tolerance=1e-4, finest=1.0 / 128.0)


@dataclass(frozen=True)
class NextTimes:
    """Predictions of every scored event from the events before it, in the order of the data.

    After a history that is not scored, the first event is predicted from the start of the scored part, given no event in between.
    """

    sequence: np.ndarray  # int64
    event: np.ndarray  # int64
    predicted: np.ndarray  # the mean; NaN where it is undefined
    no_event: np.ndarray
    error: np.ndarray  # estimated error of the mean by quadrature
    median: np.ndarray  # NaN if the probability of no event is at least one half
    type_without_time: np.ndarray  # int32: the most probable next type; UNMET: an event that is not in the vocabulary


def longest_time(model: IntensityModel, data: EventData) -> float:
    """Return the unit of the horizon: the largest observation time of the training data, or else of `data`."""
    found = model.longest if model.longest is not None else max((sequence.t_end for sequence in data), default=0.0)
    return found if found > 0.0 else 1.0


def predict_next_times(
    model: IntensityModel,
    data: EventData,
    *,
    window: Window = "all",
    cares: tuple[Tolerance, ...] = (QUICK, AGAIN),
    progress: Callable[[int, int], None] | None = None,
    shards: Shards | None = None,
) -> NextTimes:
    """Predict with the first tolerance of `cares`; means whose relative error is then above AGAIN_ABOVE are computed with the next one."""
    last = HORIZON * longest_time(model, data)
    horizon = Horizon(_short_gap(data.gaps(), SHORT_GAPS, last / (100.0 * HORIZON)), last)
    wide = with_all_names(model, data)
    marching = _Marching(model, wide, data, window, horizon, cares[0])
    found = _marched(marching, progress, shards)
    for care in cares[1:]:
        again = (found["error"] > AGAIN_ABOVE * found["wait"]) & (found["no_event"] <= UNDEFINED_ABOVE)
        if not again.any():
            break
        found[again] = _marched(replace(marching, care=care, only=found[again]), None, shards)
    predicted = np.where(found["no_event"] > UNDEFINED_ABOVE, np.nan, found["start"] + found["wait"])
    median = found["start"] + found["median"]
    return NextTimes(
        found["sequence"], found["event"], predicted, found["no_event"], found["error"], median, found["kind"]
    )


# One row per prefix whose next event is predicted, in the order of the data; times count from its start.
_ROW = np.dtype(
    [("sequence", np.int64), ("event", np.int64)]
    + [(name, np.float64) for name in ("start", "wait", "error", "no_event", "median")]
    + [("kind", np.int32)]
)


@dataclass(frozen=True)
class _Marching:
    """The inputs of the integration from the events of a batch, except its sequences."""

    model: IntensityModel
    wide: IntensityModel  # the model with a name for every possible event
    data: EventData
    window: Window
    horizon: Horizon
    care: Tolerance
    only: np.ndarray | None = (
        None  # rows of an earlier result to compute again, with more sequences per batch; None: every scored event
    )

    @cached_property
    def chosen(self) -> np.ndarray:
        """Return the indices of the sequences to compute."""
        return np.arange(len(self.data)) if self.only is None else np.unique(self.only["sequence"])

    @cached_property
    def wanted(self) -> np.ndarray:
        """Return bool [events of the data]: True for events to predict."""
        if self.only is None:
            return np.ones(self.data.event_count, dtype=bool)
        wanted = np.zeros(self.data.event_count, dtype=bool)
        wanted[self.data.columns.offsets[self.only["sequence"]] + self.only["event"]] = True
        return wanted

    @cached_property
    def nodes(self) -> float:
        """Return the mean number of queries per gap."""
        if self.only is None:
            return float(NODES)
        return NODES * len(self.only["event"]) / max(1, int(self.data.lengths[self.chosen].sum()))

    def marks(self, names: np.ndarray, first: int, columns: int) -> torch.Tensor:
        """Return bool [sequences, columns]: which of the events from `first` on are predicted."""
        marks, offsets = np.zeros((len(names), columns), dtype=bool), self.data.columns.offsets
        for row, name in enumerate(names.tolist()):
            own = self.wanted[offsets[name] : offsets[name + 1]][first : first + columns]
            marks[row, : len(own)] = own
        return torch.from_numpy(marks)


def _marched(
    marching: _Marching, progress: Callable[[int, int], None] | None, shards: Shards | None = None
) -> np.ndarray:
    """Return a row for each predicted event, in the order of the data."""
    if expires(marching.model):
        return _by_prefix(marching, progress)
    nodes = max(1, round(marching.nodes))
    items = batch_items(marching.data.select(marching.chosen), marching.model, nodes)
    name = "next-times" if marching.only is None else "next-times-again"
    found = tables_of(name, march_batches, marching, items, shards, progress)
    tables = [np.rec.fromarrays([table[name] for name in _ROW.names or ()], dtype=_ROW) for table in found]
    whole = np.concatenate([np.empty(0, dtype=_ROW), *tables])
    return whole[np.lexsort((whole["event"], whole["sequence"]))]


@torch.no_grad()
def march_batches(marching: _Marching, items: Sequence[np.ndarray]) -> Iterator[Table]:
    """Yield a table per batch of the chosen sequences, with a row for each event."""
    model = marching.model
    for indices in items:
        names = marching.chosen[indices]
        with model.evaluating():
            read = parts_at(marching.data, names, model, marching.window)
            found = [np.empty(0, dtype=_ROW), *(rows for part in read for rows in _march_part(marching, names, part))]
        rows = np.concatenate(found)
        yield {name: np.ascontiguousarray(rows[name]) for name in _ROW.names or ()}


def _march_part(marching: _Marching, names: np.ndarray, read: EncodedPart) -> Iterator[np.ndarray]:
    """Yield rows for the events of a batch, or of a part of its sequences, some columns at a time."""
    model, wide, batch, history = marching.model, marching.wide, read.batch, read.history
    columns = batch.event_counts.shape[1]
    counts = batch.event_counts & marching.marks(names, read.first, columns).to(batch.times.device)
    at_a_time = max(1, int(model.queries_at_a_time // (marching.nodes * len(batch))))
    for first in range(0, columns, at_a_time):
        part = slice(first, min(first + at_a_time, columns))
        start, here = batch.scored_start[:, part], counts[:, part]
        seen = torch.arange(part.start, part.stop, device=start.device).expand_as(start)
        whole = first == 0 and part.stop == columns
        places = Places(start, seen, here, gap_by_gap=whole)
        found = march(wide, batch, history, places, marching.horizon, marching.care, (0.5,))
        row, event = here.nonzero(as_tuple=True)
        times = (one[row, event] for one in (start, found.mean, found.error, found.survival, found.quantiles[..., 0]))
        table = (
            torch.from_numpy(names).to(row.device)[row],
            event + first + read.first,
            *times,
            known_types(found.masses[row, event].argmax(-1), model),
        )
        yield np.rec.fromarrays([column.cpu().numpy() for column in table], dtype=_ROW)


@torch.no_grad()
def _by_prefix(marching: _Marching, progress: Callable[[int, int], None] | None) -> np.ndarray:
    """Return the rows if additions expire: each prefix is integrated separately, since its expiries differ."""
    model, data, horizon, care = marching.model, marching.data, marching.horizon, marching.care
    parts = [np.empty(0, dtype=_ROW)]
    at_a_time = max(1, model.queries_at_a_time // NODES)
    for name, one in enumerate(data):
        batch = batch_of([one], data.origin, window=marching.window, unscored=model.unscored)
        counts = (
            batch.event_counts[0].numpy() & marching.wanted[data.columns.offsets[name] : data.columns.offsets[name + 1]]
        )
        starts = batch.scored_start[0].numpy()
        events = np.flatnonzero(counts)
        for chunk in np.array_split(events, -(-len(events) // at_a_time) or 1):
            if not len(chunk):
                continue
            chosen = [(one, place, float(starts[place])) for place in chunk.tolist()]
            future = silent_futures(model, data, chosen, horizon.last)
            start = torch.from_numpy(starts[chunk]).to(model.device).unsqueeze(1)
            places = Places(start, future.seen, torch.ones_like(future.seen, dtype=torch.bool))
            history = future.model.encode(future.batch)
            found = march(future.model, future.batch, history, places, horizon, care, (0.5,))
            times = (start, found.mean, found.error, found.survival, found.quantiles[..., 0])
            kinds = known_types(found.masses[:, 0].argmax(-1), model)
            columns = (np.full(len(chunk), name), chunk, *(column[:, 0].cpu().numpy() for column in times))
            parts.append(np.rec.fromarrays([*columns, kinds.cpu().numpy()], dtype=_ROW))
        if progress is not None:
            progress(name + 1, len(data))
    return np.concatenate(parts)


def _short_gap(gaps: np.ndarray, quantile: float, otherwise: float) -> float:
    """Return the width of a first panel: after an event, an intensity can jump and fall on the scale of the shortest gaps."""
    positive = gaps[gaps > 0.0]
    return float(np.quantile(positive, quantile)) if len(positive) else otherwise


@torch.no_grad()
def waiting_times(
    model: IntensityModel,
    data: EventData,
    place: int,
    seen: Sequence[int] | np.ndarray,
    quantiles: tuple[float, ...] = QUANTILES,
) -> np.ndarray:
    """Return quantiles of the time to the next event of sequence `place` after its first `seen` events: [len(seen), quantiles].

    NaN if the probability of an event never reaches the quantile.
    """
    rows = [np.empty((0, len(quantiles)))]
    gaps, no_gap = np.diff(data[place].times, prepend=0.0), max(data[place].t_end, 1e-9) / 1000.0
    horizon = Horizon(_short_gap(gaps, SHORT_GAPS_OF_ONE, no_gap), HORIZON * longest_time(model, data))
    with model.evaluating():
        if expires(model):
            return _waiting_by_prefix(model, data, place, seen, horizon, quantiles)
        batch = model.collator.batch(data, [place], device=model.device)
        history = model.encode(batch)
        wanted = torch.as_tensor(np.asarray(seen, dtype=np.int64), device=model.device)
        for chunk in wanted.split(max(1, model.queries_at_a_time // NODES)):
            start = batch.gap_start[0][chunk][None]
            places = Places(start, chunk[None], torch.ones_like(start, dtype=torch.bool))
            rows.append(march(model, batch, history, places, horizon, QUICK, quantiles).quantiles[0].cpu().numpy())
    return np.concatenate(rows)


def _waiting_by_prefix(
    model: IntensityModel,
    data: EventData,
    place: int,
    seen: Sequence[int] | np.ndarray,
    horizon: Horizon,
    quantiles: tuple[float, ...],
) -> np.ndarray:
    """Return what `waiting_times` returns, for models in which additions expire."""
    one, rows = data[place], [np.empty((0, len(quantiles)))]
    starts = np.concatenate([[0.0], one.times])
    counts = np.asarray(seen, dtype=np.int64)
    at_a_time = max(1, model.queries_at_a_time // NODES)
    for first in range(0, len(counts), at_a_time):
        chunk = counts[first : first + at_a_time]
        future = silent_futures(
            model, data, [(one, count, float(starts[count])) for count in chunk.tolist()], horizon.last
        )
        start = torch.from_numpy(starts[chunk]).to(model.device).unsqueeze(1)
        places = Places(start, future.seen, torch.ones_like(future.seen, dtype=torch.bool))
        history = future.model.encode(future.batch)
        found = march(future.model, future.batch, history, places, horizon, QUICK, quantiles)
        rows.append(found.quantiles[:, 0].cpu().numpy())
    return np.concatenate(rows)
