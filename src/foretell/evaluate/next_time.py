"""When the next event is expected, and which, from each prefix of a sequence: by adaptive quadrature of the survival function.

`E[t − t_prev] = ∫ S(u) du` with `S = exp(−∫ λ)`; the median is where `S` is one half; the type that is next without a word on when is
`argmax_e ∫ λ_e S`. What is left of `S` at the horizon is the probability that nothing happens by then (`no_event`); the mean is that of
the time given that something does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from foretell.data import EventData
from foretell.evaluate.likelihood import known_types, with_all_names
from foretell.evaluate.next_event_density import NODES, Horizon, Places, Tolerance, march
from foretell.models.base import IntensityModel
from foretell.options import Window
from foretell.train.likelihood_task import batches_of

SHORT_GAPS = 0.01  # the quantile of the gaps at which marching begins; panels grow from there …
SHORT_GAPS_OF_ONE = 0.05  # … and where one sequence alone is looked at
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
    """For every scored event, in the order of the data: what was predicted given what came before it.

    The first one after a history that is not scored is predicted from where the scored part begins, given silence until then.
    """

    sequence: np.ndarray  # int64
    event: np.ndarray  # int64
    predicted: np.ndarray  # the mean; NaN where it is undefined
    no_event: np.ndarray
    error: np.ndarray  # what the mean may be off by, since quadrature is no proof
    median: np.ndarray  # NaN where nothing happens with probability one half
    type_without_time: np.ndarray  # int32: the most probable next type; UNMET: an event that the vocabulary lacks


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
    horizon = Horizon(_short_gap(data.gaps(), SHORT_GAPS, last / (100.0 * HORIZON)), last)
    found = _marched(model, data, window, horizon, cares[0], None, progress)
    for care in cares[1:]:
        again = (found["error"] > AGAIN_ABOVE * found["wait"]) & (found["no_event"] <= UNDEFINED_ABOVE)
        if not again.any():
            break
        found[again] = _marched(model, data, window, horizon, care, found[again], None)
    predicted = np.where(found["no_event"] > UNDEFINED_ABOVE, np.nan, found["start"] + found["wait"])
    median = found["start"] + found["median"]
    return NextTimes(
        found["sequence"], found["event"], predicted, found["no_event"], found["error"], median, found["kind"]
    )


# One row per prefix that was marched from, in the order of the data; times count from its start.
_ROW = np.dtype(
    [("sequence", np.int64), ("event", np.int64)]
    + [(name, np.float64) for name in ("start", "wait", "error", "no_event", "median")]
    + [("kind", np.int32)]
)


@torch.no_grad()
def _marched(
    model: IntensityModel,
    data: EventData,
    window: Window,
    horizon: Horizon,
    care: Tolerance,
    only: np.ndarray | None,
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    """From before every scored event, or `only` from before some of them: then more sequences are looked at side by side."""
    chosen = np.arange(len(data)) if only is None else np.unique(only["sequence"])
    wanted = np.ones(data.event_count, dtype=bool)
    nodes = float(NODES)
    if only is not None:
        wanted[:] = False
        wanted[data.columns.offsets[only["sequence"]] + only["event"]] = True
        nodes *= len(only["event"]) / max(1, int(data.lengths[chosen].sum()))
    wide = with_all_names(model, data)
    parts = [np.empty(0, dtype=_ROW)]
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
            start, here = batch.scored_start[:, part], counts[:, part]
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
            parts.append(np.rec.fromarrays([column.cpu().numpy() for column in table], dtype=_ROW))
        done += len(names)
        if progress is not None:
            progress(done, len(chosen))
    whole = np.concatenate(parts)
    return whole[np.lexsort((whole["event"], whole["sequence"]))]


def _short_gap(gaps: np.ndarray, quantile: float, otherwise: float) -> float:
    """Width of a first panel: after an event an intensity may jump and fall on the scale of the shortest gaps."""
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
    """Of sequence `place`, after the first `seen` events each: waiting times [len(seen), quantiles], from the last of these on.

    NaN: so much of the probability is never reached; the event may never come.
    """
    rows = [np.empty((0, len(quantiles)))]
    gaps, no_gap = np.diff(data[place].times, prepend=0.0), max(data[place].t_end, 1e-9) / 1000.0
    horizon = Horizon(_short_gap(gaps, SHORT_GAPS_OF_ONE, no_gap), HORIZON * longest_time(model, data))
    with model.evaluating():
        batch = model.collator.batch(data, [place], device=model.device)
        history = model.encode(batch)
        wanted = torch.as_tensor(np.asarray(seen, dtype=np.int64), device=model.device)
        for chunk in wanted.split(max(1, model.queries_at_a_time // NODES)):
            start = batch.gap_start[0][chunk][None]
            places = Places(start, chunk[None], torch.ones_like(start, dtype=torch.bool))
            rows.append(march(model, batch, history, places, horizon, QUICK, quantiles).quantiles[0].cpu().numpy())
    return np.concatenate(rows)
