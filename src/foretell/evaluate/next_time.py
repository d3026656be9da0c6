"""When the next event is expected, and which, from each prefix of a sequence: by adaptive quadrature of the survival function.

`E[t − t_prev] = ∫ S(u) du` with `S = exp(−∫ λ)`; the median is where `S` is one half; the type that is next without a word on when is
`argmax_e ∫ λ_e S`. What is left of `S` at the horizon is the probability that nothing happens by then (`no_event`); the mean is that of
the time given that something does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch

from foretell.data import EventData
from foretell.evaluate.likelihood import known_types, with_all_names
from foretell.evaluate.next_event_density import NODES, Horizon, Places, Tolerance, march
from foretell.models.base import IntensityModel
from foretell.options import Window
from foretell.train.likelihood_task import batches_of

SHORT_GAPS = 0.01  # the quantile of the gaps at which marching begins; panels grow from there
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of a predicted time
HORIZON = 100.0  # in largest observation times of the data
UNDEFINED_ABOVE = 1e-3  # of no_event: the mean is then not reported

# Where `λ` is smooth the tolerance decides, and the mean is good to five digits. Where it wiggles on all scales, some 400 nodes an event
# leave the mean off by about a hundredth of itself: an RMSE changes by a hundredth of a percent. The few that are off by more are
# done again.
QUICK = Tolerance(tolerance=1e-4, finest=1.0 / 16.0)
AGAIN_ABOVE, AGAIN = 0.02, Tolerance(tolerance=1e-4, finest=1.0 / 128.0)


@dataclass(frozen=True)
class NextTimes:
    """For every scored event, in the order of the data: what was predicted given what came before it."""

    sequence: np.ndarray  # int64
    event: np.ndarray  # int64
    predicted: np.ndarray  # the mean; NaN where it is undefined
    no_event: np.ndarray
    error: np.ndarray  # what the mean may be off by, since quadrature is no proof
    median: np.ndarray  # NaN where nothing happens with probability one half
    type_without_time: (
        np.ndarray
    )  # int32: argmax_e of the probability that it is next; UNMET: an event that the vocabulary lacks


def longest_time(model: IntensityModel, data: EventData) -> float:
    """What the horizon is counted in: the largest observation time of the training data, or of these."""
    found = model.longest if model.longest is not None else max((sequence.t_end for sequence in data), default=0.0)
    return found if found > 0.0 else 1.0


def predict_next_times(
    model: IntensityModel,
    data: EventData,
    *,
    window: Window = "all",
    cares: tuple[Tolerance, ...] = (QUICK, AGAIN),
    progress: Callable[[int, int], None] | None = None,
) -> NextTimes:
    """By the first of `cares`; what is then off by more than AGAIN_ABOVE of the wait, by the next."""
    last = HORIZON * longest_time(model, data)
    horizon = Horizon(_first_panel(data, last), last)
    found = _marched(model, data, window, horizon, cares[0], None, progress)
    for care in cares[1:]:
        again = (found.error > AGAIN_ABOVE * found.wait) & (found.no_event <= UNDEFINED_ABOVE)
        if not again.any():
            break
        better = _marched(model, data, window, horizon, care, found.rows(again), None)
        found = found.with_rows(again, better)
    predicted = np.where(found.no_event > UNDEFINED_ABOVE, np.nan, found.start + found.wait)
    return NextTimes(
        found.sequence,
        found.event,
        predicted,
        found.no_event,
        found.error,
        found.start + found.median,
        found.kind,
    )


@dataclass(frozen=True)
class _Table:
    """One row a prefix that was marched from, in the order of the data; times count from its start."""

    sequence: np.ndarray
    event: np.ndarray
    start: np.ndarray
    wait: np.ndarray
    error: np.ndarray
    no_event: np.ndarray
    median: np.ndarray
    kind: np.ndarray

    def columns(self) -> list[np.ndarray]:
        return [getattr(self, field.name) for field in fields(self)]

    def rows(self, chosen: np.ndarray) -> _Table:
        return _Table(*(column[chosen] for column in self.columns()))

    def with_rows(self, chosen: np.ndarray, other: _Table) -> _Table:
        """With others in place of the chosen ones."""
        merged = [column.copy() for column in self.columns()]
        for column, better in zip(merged, other.columns(), strict=True):
            column[chosen] = better
        return _Table(*merged)


@torch.no_grad()
def _marched(
    model: IntensityModel,
    data: EventData,
    window: Window,
    horizon: Horizon,
    care: Tolerance,
    only: _Table | None,
    progress: Callable[[int, int], None] | None,
) -> _Table:
    """From before every scored event, or `only` from before some of them: then more sequences are looked at side by side."""
    chosen = np.arange(len(data)) if only is None else np.unique(only.sequence)
    wanted = np.ones(data.event_count, dtype=bool)
    nodes = float(NODES)
    if only is not None:
        wanted[:] = False
        wanted[data.columns.offsets[only.sequence] + only.event] = True
        nodes *= len(only.event) / max(1, int(data.lengths[chosen].sum()))
    wide = with_all_names(model, data)
    parts: list[list[np.ndarray]] = [_no_rows()]
    done = 0
    for indices, batch in batches_of(data.select(chosen), model, window, max(1, round(nodes))):
        names = chosen[indices]
        columns = batch.event_counts.shape[1]
        marks = np.zeros((len(names), columns), dtype=bool)
        for row, name in enumerate(names.tolist()):
            own = wanted[data.columns.offsets[name] : data.columns.offsets[name + 1]]
            marks[row, : len(own)] = own
        counts = batch.event_counts & torch.from_numpy(marks).to(batch.times.device)
        history = model.encode(batch)
        at_a_time = max(1, int(model.queries_at_a_time // (nodes * len(batch))))
        for first in range(0, columns, at_a_time):
            part = slice(first, min(first + at_a_time, columns))
            start, here = batch.gap_start[:, part], counts[:, part]
            seen = torch.arange(part.start, part.stop, device=start.device).expand_as(start)
            whole = first == 0 and part.stop == columns
            found = march(wide, batch, history, Places(start, seen, here, gap_by_gap=whole), horizon, care, (0.5,))
            row, event = here.nonzero(as_tuple=True)
            times = (
                one[row, event] for one in (start, found.mean, found.error, found.survival, found.quantiles[..., 0])
            )
            table = (
                torch.from_numpy(names).to(row.device)[row],
                event + first,
                *times,
                known_types(found.masses[row, event].argmax(-1), model),
            )
            parts.append([column.cpu().numpy() for column in table])
        done += len(names)
        if progress is not None:
            progress(done, len(chosen))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return _Table(*(column[order] for column in columns))


def _no_rows() -> list[np.ndarray]:
    kinds = (np.int64, np.int64, *[np.float64] * 5, np.int32)
    return [np.empty(0, dtype=kind) for kind in kinds]


def _first_panel(data: EventData, horizon: float) -> float:
    """The shortest gaps: after an event an intensity may jump and fall on their scale, and a wider panel would not see it."""
    gaps = data.gaps()
    positive = gaps[gaps > 0.0]
    return float(np.quantile(positive, SHORT_GAPS)) if len(positive) else horizon / (100.0 * HORIZON)


SHORT_GAPS_OF_ONE = 0.05  # the quantile of the sequence's gaps at which marching begins


@torch.no_grad()
def waiting_times(
    model: IntensityModel,
    data: EventData,
    place: int,
    seen: Sequence[int] | np.ndarray,
    quantiles: tuple[float, ...] = QUANTILES,
) -> np.ndarray:
    """Of sequence `place`, after the first `seen` events each: waiting times [len(seen), quantiles], from the last of these on.

    NaN: so much of the probability is never reached; the event may never come.
    """
    rows = [np.empty((0, len(quantiles)))]
    horizon = Horizon(_first_width(data, place), HORIZON * longest_time(model, data))
    with model.evaluating():
        batch = model.collator.batch(data, [place], device=model.device)
        history = model.encode(batch)
        wanted = torch.as_tensor(np.asarray(seen, dtype=np.int64), device=model.device)
        for chunk in wanted.split(max(1, model.queries_at_a_time // NODES)):
            start = batch.gap_start[0][chunk][None]
            places = Places(start, chunk[None], torch.ones_like(start, dtype=torch.bool))
            rows.append(march(model, batch, history, places, horizon, QUICK, quantiles).quantiles[0].cpu().numpy())
    return np.concatenate(rows)


def _first_width(data: EventData, place: int) -> float:
    """A short gap of the sequence: intensities may jump and fall on that scale after an event."""
    gaps = np.diff(data[place].times, prepend=0.0)
    positive = gaps[gaps > 0.0]
    return float(np.quantile(positive, SHORT_GAPS_OF_ONE)) if len(positive) else max(data[place].t_end, 1e-9) / 1000.0
