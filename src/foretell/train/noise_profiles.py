"""Step functions that follow clocks: training data in, how often events of each mark come at each elapsed time out.

One clock starts with the sequence (what happens on a date), the other with the last event of the same mark (what comes again). The elapsed
times of a mark's events are cut at their quantiles. Each of these steps is spread to both sides, by several widths in equal parts: where
events come all at once, there is also noise a little earlier and later. A rate is the number of events over the time that was watched.
"""

from __future__ import annotations

import numpy as np

from foretell.data import EventData
from foretell.models.units import mean_gap, scored
from foretell.objective.noise_parts import Profile

STEPS, EVENTS_A_STEP = 64, 8  # at most that many steps, of at least so many events each
WIDTHS = (0.01, 0.1, 1.0)  # mean gaps
COLUMNS = ("times", "types")  # of a sequence


def start_profile(data: EventData) -> Profile:
    """Of the time since the sequence began."""
    when, kinds = (np.concatenate([getattr(one, name)[scored(one, data.origin)] for one in data]) for name in COLUMNS)
    ends = np.array([one.t_end for one in data])
    widths = np.array(WIDTHS) * mean_gap(data)
    return Profile.from_steps([_steps(one, ends, widths) for one in _by_mark(when, kinds, len(data.vocabulary))])


def own_profile(data: EventData) -> Profile:
    """Of the time since the last event of the same mark. Events that are not scored begin such times, too, and end none that counts."""
    when, kinds = (np.concatenate([getattr(one, name) for one in data]) for name in COLUMNS)
    lengths = [len(one) for one in data]
    sequence, ends = np.repeat(np.arange(len(data)), lengths), np.repeat([one.t_end for one in data], lengths)
    counts = np.concatenate([scored(one, data.origin) for one in data])
    order = np.lexsort((kinds, sequence))  # by sequence, then by mark; stable, so in order of time
    when, kinds, sequence, ends, counts = (one[order] for one in (when, kinds, sequence, ends, counts))
    again = np.zeros(len(when), dtype=bool)  # whether the one before is of the same sequence and mark
    again[1:] = (sequence[1:] == sequence[:-1]) & (kinds[1:] == kinds[:-1])
    watched = np.where(np.roll(again, -1), np.roll(when, -1), ends) - when  # until the next one, or the end
    elapsed, back = when - np.roll(when, 1), again & counts
    marks, widths = len(data.vocabulary), np.array(WIDTHS) * mean_gap(data)
    found = zip(_by_mark(elapsed[back], kinds[back], marks), _by_mark(watched, kinds, marks), strict=True)
    return Profile.from_steps([_steps(*one, widths) for one in found])


def _by_mark(values: np.ndarray, kinds: np.ndarray, marks: int) -> list[np.ndarray]:
    """The values of each mark."""
    cuts = np.cumsum(np.bincount(kinds, minlength=marks))[:-1]
    return np.split(values[np.argsort(kinds, kind="stable")], cuts)


def _steps(elapsed: np.ndarray, ends: np.ndarray, widths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges and rates for events at elapsed times, on clocks that were watched from 0 until `ends`."""
    if not len(elapsed):
        return np.zeros(1), np.zeros(1)
    count = max(1, min(STEPS, len(elapsed) // EVENTS_A_STEP))
    cuts = np.quantile(elapsed, np.linspace(0.0, 1.0, count + 1))
    begin = np.concatenate([np.maximum(cuts[:-1] - width, 0.0) for width in widths])
    end = np.concatenate([cuts[1:] + width for width in widths])
    watched = _watched(end, ends) - _watched(begin, ends)
    events = len(elapsed) / count / len(widths)  # in each of the spread steps
    rate = np.divide(events, watched, out=np.zeros_like(watched), where=watched > 0.0)
    edges = np.unique(np.concatenate([[0.0], begin, end]))
    covers = (begin[:, None] <= edges) & (edges < end[:, None])
    return edges, rate @ covers


def _watched(times: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """`Σ min(t, T)` over the ends `T`, for each time."""
    ends = np.sort(ends)
    before = np.concatenate([[0.0], np.cumsum(ends)])
    over = np.searchsorted(ends, times)
    return before[over] + (len(ends) - over) * times
