"""`predict`: takes a model and a history, and returns the distribution of the next event: its time, type and participants.

With "quadrature", the density of the next event is integrated from the start time, given that nothing happened since the last event. With
"samples", the next event is drawn `n` times by exact thinning. Both estimate the same numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict, Unpack, get_args

import numpy as np

from foretell.data import EventData, EventSequence, ResultList
from foretell.data.arguments import check_history, check_split
from foretell.errors import ForetellError
from foretell.evaluate.distribution import Moments, PredictionRequest, distribution_of, has_mean
from foretell.evaluate.next_event_density import Horizon
from foretell.evaluate.next_time import HORIZON, QUANTILES, longest_time
from foretell.evaluate.patterns import parse_event_pattern
from foretell.evaluate.prediction import NextEventDistribution, Prediction
from foretell.evaluate.quadrature_outlook import by_quadrature, check_pattern, in_order, outlook_table
from foretell.ground.impossible import naming_impossible
from foretell.models.base import IntensityModel, check_model
from foretell.models.capabilities import HasRules
from foretell.models.rules.rule_model import RuleModel
from foretell.sampling.core.future import NextEvents
from foretell.sampling.core.futures import sample_next
from foretell.shards.shard_map import ShardItem, Shards, tables_of
from foretell.shards.store import Table

By = Literal["quadrature", "samples", "both"]
FIRST_PANEL = 1e-6  # width as a share of the longest time; the shortest gap of the histories is used if it is smaller


class PredictOptions(TypedDict, total=False):
    """Options of a prediction; see `predict_each`."""

    start: float | None
    pattern: str | None
    top: int
    by: By
    n: int
    seed: int
    horizon: float | None


def predict(model: IntensityModel, history: EventSequence, **asking: Unpack[PredictOptions]) -> Prediction:
    """Predict the next event of one sequence: its time and type, with probabilities.

    Args:
        model: the model.
        history: the events so far; the prediction assumes that nothing happens between the last one and `start`.
        **asking: `start` (default: the history's `t_end`) and the other options of `predict_each`.

    Returns:
        Mean, median and intervals of the next time, and the likeliest events.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"], ["visit"]], [[0.5, 2.0], [1.0]], t_ends=[10.0, 5.0])
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data).model
        >>> answer = ft.predict(model, data[0])
        >>> round(answer.mean - answer.start, 3), answer.events[0].event
        (3.75, 'visit')
    """
    check_model(model)
    check_history(history)
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
    shards: Shards | None = None,
) -> ResultList[Prediction]:
    """Predict the next event of every sequence: its time and type, with probabilities.

    Args:
        model: the model.
        data: the histories.
        start: the time after which the next event is predicted; default: each history's `t_end`.
        pattern: a term with variables, such as `pass(P,Q)`; the result then has the probabilities of the events that match it.
        top: the number of most probable events in the result.
        by: "quadrature", "samples", or "both".
        n: draws per history, if samples are drawn.
        seed: the seed of the draws.
        horizon: a length of time; probabilities are then those of being next and within it.
        progress: called with the number of histories done and their total.
        shards: where predictions are computed, which does not affect the results; default: in this process.

    Returns:
        A prediction per sequence; `to_frame()` has a row for each of the most probable events.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"], ["visit"]], [[0.5, 2.0], [1.0]], t_ends=[10.0, 5.0])
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data).model
        >>> [round(one.events[0].probability, 3) for one in ft.predict_each(model, data, horizon=2.0)]
        [0.258, 0.258]
    """
    check_model(model)
    check_split(data)
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
        check_pattern(asked.pattern, model.vocabulary.names)  # before anything is computed
    seen = data if start is None else seen_until(data, start)
    program = model.program if isinstance(model, HasRules) else None
    with model.evaluating(), naming_impossible(program, seen):
        longest = HORIZON * longest_time(model, data)
        until = Horizon(FIRST_PANEL * longest / HORIZON, longest if horizon is None else horizon, horizon is not None)
        outlooks = by_quadrature(model, seen, asked, until, progress, shards)
        drawn: list[NextEventDistribution | None] = [None] * len(seen)
        if by != "quadrature":
            drawn = list(_by_samples(_Draws(model, seen, asked, outlooks, n, seed), shards))
    made: ResultList[Prediction] = ResultList()
    for sequence, quadrature, samples in zip(seen, outlooks, drawn, strict=True):
        if by == "samples":
            assert samples is not None
            quadrature, samples = samples, None
        history = sequence.id, sequence.t_end, len(sequence)
        made.append(Prediction(*history, quadrature, samples, data.clock, sequence.start, data.frame))
    return made


def seen_until(data: EventData, start: float | Sequence[float]) -> EventData:
    """Return the sequences without events after `start` (one time, or one per sequence), with `t_end` at `start`.

    If a sequence was observed for a shorter time, it is assumed that nothing happened in the rest.
    """
    starts = [start] * len(data) if isinstance(start, int | float) else list(start)
    for one in starts:
        if not (math.isfinite(one) and one >= 0.0):
            raise ForetellError(f"start = {one}: expected a time from 0 on")
    cut = [
        one.first(int(np.searchsorted(one.times, at, side="right")), at) for one, at in zip(data, starts, strict=True)
    ]
    return replace(data, sequences=cut, origin="window", report=None)


# By samples


@dataclass(frozen=True)
class _Draws:
    """The inputs of draws of next events, except the indices of the sequences."""

    model: IntensityModel
    data: EventData
    asked: PredictionRequest
    quadrature: list[NextEventDistribution]  # the draws use their horizons, so that `no_event` means the same in both
    n: int
    seed: int


def _by_samples(draws: _Draws, shards: Shards | None) -> list[NextEventDistribution]:
    items = [ShardItem(place, len(one) + draws.n) for place, one in enumerate(draws.data)]
    return in_order(tables_of("next-event-draws", draw_outlooks, draws, items, shards, None))


def draw_outlooks(draws: _Draws, places: Sequence[int]) -> Iterator[Table]:
    """Yield a table per sequence; the random numbers of a sequence depend only on the seed and its index."""
    for place in places:
        one, known = draws.data[place], draws.quadrature[place]
        with draws.model.evaluating():
            (drawn,) = sample_next(
                draws.model, [one], n=draws.n, horizon=known.horizon - one.t_end, seed=seed_of(draws.seed, place)
            )
        yield outlook_table(np.array([place]), [_drawn_outlook(draws.asked, drawn, known)])


def seed_of(seed: int, place: int) -> int:
    """Return the seed of the draws of the history with index `place`."""
    return int(np.random.SeedSequence((seed, place)).generate_state(1, np.uint64)[0])


def _drawn_outlook(
    asked: PredictionRequest, drawn: NextEvents, quadrature: NextEventDistribution
) -> NextEventDistribution:
    """Return the distribution of the draws. Quadrature decides whether the mean is defined: the share of empty draws is too random."""
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
    return distribution_of(asked, "samples", moments, probabilities, quadrature.possible, n)
