"""The noise process of a run: fitted to the training data before the first step, and stored in the run folder for resumed training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.hawkes_fit import fit_hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.rules.possible_events import possible_events
from foretell.models.rules.rule_model import RuleModel
from foretell.models.units import PSEUDO_COUNT, mean_gap, scored, scored_counts
from foretell.objective.nce import functor_marks, marks_of_types
from foretell.objective.noise_parts import Noise, Profile, TimedNoise
from foretell.options import NoiseKind
from foretell.train.likelihood_task import scored_alike
from foretell.train.run import RunFolder

STEPS, EVENTS_A_STEP = 64, 8  # at most this many steps, each with at least this many events
WIDTHS = (0.01, 0.1, 1.0)  # in mean gaps
COLUMNS = ("times", "types")  # the columns of a sequence


def start_profile(data: EventData) -> Profile:
    """Return how the rate of each mark depends on the time since the sequence began."""
    when, kinds = (np.concatenate([getattr(one, name)[scored(one, data.origin)] for one in data]) for name in COLUMNS)
    ends = np.array([one.t_end for one in data])
    widths = np.array(WIDTHS) * mean_gap(data)
    return Profile.from_steps([_steps(one, ends, widths) for one in _by_mark(when, kinds, len(data.vocabulary))])


def own_profile(data: EventData) -> Profile:
    """Return how the rate of each mark depends on the time since the last event of that mark.

    An unscored event restarts this time, but is not counted as an event.
    """
    when, kinds = (np.concatenate([getattr(one, name) for one in data]) for name in COLUMNS)
    lengths = [len(one) for one in data]
    sequence, ends = np.repeat(np.arange(len(data)), lengths), np.repeat([one.t_end for one in data], lengths)
    counts = np.concatenate([scored(one, data.origin) for one in data])
    order = np.lexsort((kinds, sequence))  # by sequence and mark; stable, so each group is in order of time
    when, kinds, sequence, ends, counts = (one[order] for one in (when, kinds, sequence, ends, counts))
    again = np.zeros(len(when), dtype=bool)  # True if the previous row has this sequence and mark
    again[1:] = (sequence[1:] == sequence[:-1]) & (kinds[1:] == kinds[:-1])
    watched = np.where(np.roll(again, -1), np.roll(when, -1), ends) - when  # until the next one, or the end
    elapsed, back = when - np.roll(when, 1), again & counts
    marks, widths = len(data.vocabulary), np.array(WIDTHS) * mean_gap(data)
    found = zip(_by_mark(elapsed[back], kinds[back], marks), _by_mark(watched, kinds, marks), strict=True)
    return Profile.from_steps([_steps(*one, widths) for one in found])


def _by_mark(values: np.ndarray, kinds: np.ndarray, marks: int) -> list[np.ndarray]:
    """Split the values into one array per mark."""
    cuts = np.cumsum(np.bincount(kinds, minlength=marks))[:-1]
    return np.split(values[np.argsort(kinds, kind="stable")], cuts)


def _steps(elapsed: np.ndarray, ends: np.ndarray, widths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges and rates of a step function for events at `elapsed` times on clocks that run from 0 until `ends`."""
    if not len(elapsed):
        return np.zeros(1), np.zeros(1)
    count = max(1, min(STEPS, len(elapsed) // EVENTS_A_STEP))
    cuts = np.quantile(elapsed, np.linspace(0.0, 1.0, count + 1))
    begin = np.concatenate([np.maximum(cuts[:-1] - width, 0.0) for width in widths])
    end = np.concatenate([cuts[1:] + width for width in widths])
    watched = _watched(end, ends) - _watched(begin, ends)
    events = len(elapsed) / count / len(widths)  # in each of the widened steps
    rate = np.divide(events, watched, out=np.zeros_like(watched), where=watched > 0.0)
    edges = np.unique(np.concatenate([[0.0], begin, end]))
    covers = (begin[:, None] <= edges) & (edges < end[:, None])
    return edges, rate @ covers


def _watched(times: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return `Σ min(t, T)` over the ends `T`, for each time t."""
    ends = np.sort(ends)
    before = np.concatenate([[0.0], np.cumsum(ends)])
    over = np.searchsorted(ends, times)
    return before[over] + (len(ends) - over) * times


# Noise must occur wherever events may, but not in bursts sharper than the model can follow: these would dominate the loss, and the rest
# of the time would hardly be learned. So the memories of Hawkes noise are fixed, not fitted, and half of the noise is Poisson.
MEMORIES = (1.0, 10.0)  # mean gaps
EXCITED = 0.5
# Timed noise follows the clocks that events may follow. Only a small share of it is Poisson, so it needs more streams than Hawkes noise.
TIMED_MEMORIES = (0.001, 0.03, 1.0, 10.0)  # mean gaps
TIMED_EVEN, TIMED_EXCITED, SINCE_START, SINCE_OWN = 0.2, 0.3, 0.25, 0.25  # Poisson, Hawkes, two step functions
LEAST = 0.5  # smallest factor for frequent marks; rare marks get the timed noise that these lose
HAWKES_ROUNDS = 8  # an inexact fit suffices for noise, and the last rounds change little


def noise_of_run(
    model: IntensityModel,
    train: EventData,
    dev: EventData | None,
    kind: NoiseKind,
    run: RunFolder | None = None,
    resume: bool = False,
) -> Noise:
    """Return the noise process: fitted and stored or, in a resumed run, the stored one."""
    kept = run.noise() if resume and run is not None else None
    if kept is None:
        kept = fit_noise(model, train, dev, kind)
        if run is not None:
            run.save_noise(kept)
    expected = functor_marks(model) if isinstance(model, RuleModel) else model.vocabulary
    if not isinstance(kept, Noise) or kept.kind != kind or kept.vocabulary != expected:
        assert run is not None, "what was just fitted fits"
        raise ForetellError(f"{run.path}: its noise process is not one of the model that config.toml describes")
    return kept


def fit_noise(model: IntensityModel, train: EventData, dev: EventData | None, kind: NoiseKind) -> Noise:
    """Fit a noise process to the types or, for a model made of rules, to the functors of its events."""
    exposed = None
    if isinstance(model, RuleModel):
        exposed = _time_possible(model, train)
        train, dev = by_functor(model, train), None if dev is None else by_functor(model, dev)
    poisson = Poisson(train.vocabulary)
    poisson.fit_closed_form(train)
    counts, observed = scored_counts(train)
    if exposed is not None:  # a mark that is only sometimes possible has a higher rate while it is
        time = np.where(exposed > 0.0, exposed, observed)
        with torch.no_grad():
            poisson.log_rate.copy_(torch.from_numpy(counts / time).log())
    if kind == "poisson":
        return poisson
    if kind == "hawkes":
        return _mixed(poisson, 1.0 - EXCITED, train, dev, MEMORIES, EXCITED)
    hawkes = _mixed(poisson, TIMED_EVEN, train, dev, TIMED_MEMORIES, TIMED_EXCITED)
    factors = torch.from_numpy(levelled(counts))
    with torch.no_grad():
        hawkes.mu.mul_(factors)
        hawkes.alpha.mul_(factors[:, None, None])
    return TimedNoise(
        hawkes, start_profile(train).scaled(SINCE_START * factors), own_profile(train).scaled(SINCE_OWN * factors)
    )


def levelled(counts: np.ndarray) -> np.ndarray:
    """Return the factor for the noise of each mark with these counts, which makes noise proportional to the square root of the count.

    No factor is below LEAST. The total noise stays the same for these counts. Marks without events have factor 1."""
    factors = np.ones_like(counts)
    came = counts > PSEUDO_COUNT
    if not came.any():
        return factors
    root = np.sqrt(counts[came])
    low, high = 0.0, float(root.max())
    while low < (middle := (low + high) / 2.0) < high:
        total = np.maximum(LEAST, middle / root) @ counts[came]
        low, high = (low, middle) if total > counts[came].sum() else (middle, high)
    factors[came] = np.maximum(LEAST, low / root)
    return factors


def _mixed(
    poisson: Poisson,
    even: float,
    train: EventData,
    dev: EventData | None,
    memories: tuple[float, ...],
    excited: float,
) -> Hawkes:
    """Return one process that is a mixture of Poisson noise and a Hawkes process with these memories, in the given shares."""
    hawkes = Hawkes(train.vocabulary, decays=len(memories))
    fit_hawkes(hawkes, train, dev, rounds=HAWKES_ROUNDS, beta=1.0 / (torch.tensor(memories).double() * mean_gap(train)))
    with torch.no_grad():
        hawkes.mu.copy_(even * poisson.log_rate.exp() + excited * hawkes.mu)
        hawkes.alpha.mul_(excited)
    return hawkes


def by_functor(model: RuleModel, data: EventData) -> EventData:
    """Return the events with their functors as types; events that the model does not predict are not scored."""
    marks = functor_marks(model)
    of_type = marks_of_types(model, marks).numpy().astype(np.int32)
    alike = scored_alike(data, model)
    columns = replace(alike.columns, types=of_type[alike.columns.types])
    return replace(alike, sequences=columns, vocabulary=marks, report=None)


def _time_possible(model: RuleModel, data: EventData) -> np.ndarray:
    """Return how long some event of each mark was possible: [marks]."""
    found = np.zeros(len(functor_marks(model)))
    for index in range(len(data)):
        batch = model.collator.batch(data, [index], planned=False)
        count = possible_events(model, batch).count[0]
        found[: len(model.functors)] += batch.gap_length[0].numpy() @ (count > 0)
    return found
