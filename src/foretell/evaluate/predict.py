"""`predict`: a model and a history in, what happens next out: when, what, and who.

By quadrature, the density of the next event is marched through from the end of the history, given that nothing happened up to there; by
samples, the next event is drawn `n` times by exact thinning. Both give the same numbers, as far as they go.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict, Unpack, get_args

import numpy as np
import torch

from foretell.data import EventData, EventSequence, ResultList
from foretell.errors import ForetellError
from foretell.evaluate.likelihood import with_names
from foretell.evaluate.next_event_density import Horizon, Places, Tolerance, march
from foretell.evaluate.next_time import HORIZON, QUANTILES, UNDEFINED_ABOVE, longest_time
from foretell.evaluate.patterns import EventPattern, PossibleNames, never_matches, parse_event_pattern
from foretell.evaluate.prediction import LikelyEvent, MatchingEvents, NextEventDistribution, Prediction
from foretell.ground.impossible import naming_impossible
from foretell.models.base import IntensityModel
from foretell.models.capabilities import HasRules
from foretell.models.rules.rule_model import RuleModel
from foretell.sampling.core.futures import NextEvents, sample_next
from foretell.terms import split
from foretell.train.likelihood_task import batches_of


@dataclass(frozen=True)
class PredictionRequest:
    top: int
    pattern: EventPattern | None


def has_mean(no_event: float) -> bool:
    """Whether the mean is reported."""
    return no_event <= UNDEFINED_ABOVE


@dataclass(frozen=True)
class Moments:
    """When the next event comes, in absolute times; NaN where a time is never reached."""

    mean: float
    mean_error: float
    quantiles: list[float]  # in the order of QUANTILES
    no_event: float
    defined: bool  # whether the mean is
    horizon: float


def _distribution(
    request: PredictionRequest,
    by: Literal["quadrature", "samples"],
    moments: Moments,
    probabilities: dict[str, float],
    possible: int,
    draws: int | None = None,
) -> NextEventDistribution:
    """`probabilities` are those of each event to be the next."""
    defined = moments.defined and math.isfinite(moments.mean)
    times = [None if math.isnan(one) else one for one in moments.quantiles]
    ranked = sorted(((p, name) for name, p in probabilities.items() if p > 0.0), key=lambda one: (-one[0], one[1]))
    return NextEventDistribution(
        by=by,
        mean=moments.mean if defined else None,
        mean_error=moments.mean_error if defined and math.isfinite(moments.mean_error) else None,
        median=times[2],
        interval_50=(times[1], times[3]),
        interval_90=(times[0], times[4]),
        no_event=moments.no_event,
        horizon=moments.horizon,
        possible=possible,
        events=tuple(LikelyEvent(name, p) for p, name in ranked[: request.top]),
        who=None if request.pattern is None else _who(request.pattern, ranked, request.top),
        draws=draws,
    )


def _who(pattern: EventPattern, ranked: list[tuple[float, str]], top: int) -> MatchingEvents:
    matching = [(p, name) for p, name in ranked if pattern.matches(name)]
    total = float(np.sum([p for p, _ in matching])) if matching else 0.0
    best = tuple(LikelyEvent(name, p, p / total) for p, name in matching[:top])
    return MatchingEvents(pattern.text, total, len(matching), best)


By = Literal["quadrature", "samples", "both"]
CLOSE = Tolerance(tolerance=1e-5, finest=1.0 / 512.0)
FIRST_PANEL = 1e-6  # of the longest time, or the shortest gap of the histories if that is less


class PredictOptions(TypedDict, total=False):
    """What is asked; see `predict_each`."""

    start: float | None
    pattern: str | None
    top: int
    by: By
    n: int
    seed: int
    horizon: float | None


def predict(model: IntensityModel, history: EventSequence, **asking: Unpack[PredictOptions]) -> Prediction:
    """The next event of one history, whose types are the model's; `start` is its `t_end` unless another time is given."""
    return predict_each(model, EventData([history], model.vocabulary), **asking)[0]


def predict_each(
    model: IntensityModel,
    data: EventData,
    *,
    start: float | None = None,
    pattern: str | None = None,
    top: int = 5,
    by: By = "quadrature",
    n: int = 1000,
    seed: int = 0,
    horizon: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ResultList[Prediction]:
    """The next event of every sequence of the data: the `top` events, `by` quadrature or from `n` draws, and who matches a `pattern`.

    With a `horizon`, a length of time, probabilities are those of happening next and within it.
    """
    if horizon is not None and not 0.0 < horizon < math.inf:
        raise ForetellError(f"horizon = {horizon}: expected a positive length of time")
    if by not in get_args(By):
        raise ForetellError(f"by = {by!r}: expected one of {', '.join(get_args(By))}")
    for name, value, least in (("top", top, 1), ("n", n, 1), ("seed", seed, 0)):
        if value < least:
            raise ForetellError(f"{name} = {value}: expected {least} or more")
    if data.vocabulary != model.vocabulary:
        raise ForetellError(f"{data.name}: its event types are not those of the model")
    asked = PredictionRequest(top, None if pattern is None else parse_event_pattern(pattern))
    if asked.pattern is not None and not isinstance(model, RuleModel):
        _check(asked.pattern, model.vocabulary.names)  # before anything is computed
    seen = data if start is None else seen_until(data, start)
    program = model.program if isinstance(model, HasRules) else None
    with model.evaluating(), naming_impossible(program, seen):
        longest = HORIZON * longest_time(model, data)
        until = Horizon(FIRST_PANEL * longest / HORIZON, longest if horizon is None else horizon, horizon is not None)
        outlooks = _by_quadrature(model, seen, asked, until, progress)
        drawn: list[NextEventDistribution | None] = [None] * len(seen)
        if by != "quadrature":
            drawn = list(_by_samples(model, seen, asked, outlooks, n, seed))
    made: ResultList[Prediction] = ResultList()
    for sequence, quadrature, samples in zip(seen, outlooks, drawn, strict=True):
        if by == "samples":
            assert samples is not None
            quadrature, samples = samples, None
        history = sequence.id, sequence.t_end, len(sequence)
        made.append(Prediction(*history, quadrature, samples, data.clock, sequence.start, data.frame))
    return made


def seen_until(data: EventData, start: float | Sequence[float]) -> EventData:
    """The same sequences with nothing after `start` (one time, or one for each), and observed until then.

    Where they were not, nothing is taken to have happened.
    """
    starts = [start] * len(data) if isinstance(start, int | float) else list(start)
    for one in starts:
        if not (math.isfinite(one) and one >= 0.0):
            raise ForetellError(f"start = {one}: expected a time from 0 on")
    cut = [
        one.first(int(np.searchsorted(one.times, at, side="right")), at) for one, at in zip(data, starts, strict=True)
    ]
    return replace(data, sequences=cut, origin="window", report=None)


def _check(pattern: EventPattern, names: Iterable[str], may_come: PossibleNames | None = None) -> None:
    problem = never_matches(pattern, names, may_come)
    if problem is not None:
        raise ForetellError(problem)


# By quadrature


def _by_quadrature(
    model: IntensityModel,
    data: EventData,
    asked: PredictionRequest,
    until: Horizon,
    progress: Callable[[int, int], None] | None,
) -> list[NextEventDistribution]:
    wide, possible = _with_all_possible(model, data)
    if asked.pattern is not None and isinstance(model, RuleModel):
        names = (name for name in wide.vocabulary.names if split(name)[0] in model.functors)
        _check(asked.pattern, names, _may_come(model))
    data = replace(data, vocabulary=wide.vocabulary, origin="window")
    gaps = data.gaps()
    until = replace(until, first=float(min(until.first, gaps[gaps > 0.0].min(initial=math.inf))))
    found: list[NextEventDistribution | None] = [None] * len(data)
    done = 0
    for indices, batch in batches_of(data, wide, "all", 1):
        start, seen = batch.t_end.unsqueeze(1), batch.lengths.unsqueeze(1)
        places = Places(start, seen, torch.ones_like(seen, dtype=torch.bool))
        with torch.no_grad():
            marched = march(wide, batch, wide.encode(batch), places, until, CLOSE, QUANTILES)
        for row, index in enumerate(indices):
            begin = data[index].t_end
            masses = marched.masses[row, 0].double().cpu().numpy()
            count = len(possible[index]) if possible is not None else int((masses > 0.0).sum())
            moments = Moments(
                mean=begin + float(marched.mean[row, 0]),
                mean_error=float(marched.error[row, 0]),
                quantiles=[begin + one for one in marched.quantiles[row, 0].tolist()],
                no_event=float(marched.survival[row, 0]),
                defined=has_mean(float(marched.survival[row, 0])),
                horizon=begin + float(marched.end[row, 0]),
            )
            probabilities = dict(zip(wide.vocabulary.names, masses.tolist(), strict=True))
            found[index] = _distribution(asked, "quadrature", moments, probabilities, count)
        done += len(indices)
        if progress is not None:
            progress(done, len(data))
    return [one for one in found if one is not None]


def _with_all_possible(model: IntensityModel, data: EventData) -> tuple[IntensityModel, list[list[str]] | None]:
    """The same model with a name for every event that is possible at the end of some history, and which those are."""
    if not isinstance(model, HasRules):
        return model, None
    # Just after the last event: what it made possible counts.
    possible = [list(model.possible_intensities(one, [math.nextafter(one.t_end, math.inf)])[0]) for one in data]
    return with_names(model, (name for names in possible for name in names)), possible


def _may_come(model: RuleModel) -> PossibleNames:
    """Whatever the program declares an event, about all that its facts and the events so far are about."""
    arities = {name: model.program.functors[name].arity for name in model.functors}
    met = (argument for name in model.vocabulary.names for argument in split(name)[1])
    constants = {*model.histories.grounding.constants, *met}
    return PossibleNames({name: size for name, size in arities.items() if size is not None}, constants)


# By samples


def _by_samples(
    model: IntensityModel,
    data: EventData,
    asked: PredictionRequest,
    quadrature: list[NextEventDistribution],
    n: int,
    seed: int,
) -> list[NextEventDistribution]:
    """With the same horizons, so that both mean the same by `no_event`; each history has random numbers of its own."""
    found = []
    for place, (one, known) in enumerate(zip(data, quadrature, strict=True)):
        (drawn,) = sample_next(model, [one], n=n, horizon=known.horizon - one.t_end, seed=seed_of(seed, place))
        found.append(_drawn_outlook(asked, drawn, known))
    return found


def seed_of(seed: int, place: int) -> int:
    """Of the draws of one history among several."""
    return int(np.random.SeedSequence((seed, place)).generate_state(1, np.uint64)[0])


def _drawn_outlook(
    asked: PredictionRequest, drawn: NextEvents, quadrature: NextEventDistribution
) -> NextEventDistribution:
    """Whether the mean is defined is known from quadrature: how often nothing was drawn is a matter of luck."""
    n = len(drawn.found)
    times = np.where(drawn.found, drawn.times, np.inf)
    happened = times[drawn.found]
    quantiles = np.quantile(times, QUANTILES, method="inverted_cdf")
    counts = Counter(event for event in drawn.events if event is not None)
    moments = Moments(
        mean=float(happened.mean()) if len(happened) else math.nan,
        mean_error=float(happened.std(ddof=1) / math.sqrt(len(happened))) if len(happened) > 1 else math.nan,
        quantiles=[one if math.isfinite(one) else math.nan for one in quantiles.tolist()],
        no_event=1.0 - len(happened) / n,
        defined=has_mean(quadrature.no_event),
        horizon=quadrature.horizon,
    )
    probabilities = {name: count / n for name, count in counts.items()}
    return _distribution(asked, "samples", moments, probabilities, quadrature.possible, n)
