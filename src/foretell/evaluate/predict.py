"""`predict`: a model and a history in, what happens next out: when, what, and who.

By quadrature, the density of the next event is marched through from the end of the history, given that nothing happened up to there; by
samples, the next event is drawn `n` times by exact thinning. Both give the same numbers, as far as they go.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypedDict, Unpack, get_args

import numpy as np
import torch

from foretell.batches.batch import Batch
from foretell.data import EventData, EventSequence, ResultList
from foretell.data.arguments import check_history, check_split
from foretell.errors import ForetellError
from foretell.evaluate.likelihood import with_names
from foretell.evaluate.next_event_density import Horizon, Places, Tolerance, march
from foretell.evaluate.next_time import HORIZON, QUANTILES, UNDEFINED_ABOVE, longest_time
from foretell.evaluate.patterns import EventPattern, PossibleNames, never_matches, parse_event_pattern
from foretell.evaluate.prediction import LikelyEvent, MatchingEvents, NextEventDistribution, Prediction
from foretell.evaluate.silent_future import expires, silent_futures
from foretell.ground.impossible import naming_impossible
from foretell.models.base import IntensityModel, check_model
from foretell.models.capabilities import HasRules
from foretell.models.rules.rule_model import RuleModel
from foretell.sampling.core.future import NextEvents
from foretell.sampling.core.futures import sample_next
from foretell.shards.shard_map import ShardItem, Shards, tables_of
from foretell.shards.store import Table
from foretell.terms import split
from foretell.train.likelihood_task import batch_at, batch_items


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
    """What happens next in one sequence, and when, with probabilities.

    Args:
        model: the model.
        history: what has happened so far; nothing happens between its last event and `start`.
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
    """What happens next in every sequence, and when, with probabilities.

    Args:
        model: the model.
        data: the histories.
        start: the time from which on the next event is expected; default: each history's `t_end`.
        pattern: a term with variables, `pass(P,Q)`: how likely each event that matches it is to be the next.
        top: how many of the likeliest events are named.
        by: "quadrature", "samples", or "both".
        n: draws per history, where samples are drawn.
        seed: of the draws.
        horizon: a length of time; probabilities are then those of happening next and within it.
        progress: called with how many histories are done, and how many there are.
        shards: where they are computed, which changes no number; default: here.

    Returns:
        A prediction for each sequence; `to_frame()` has a row for each of the likeliest events.

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
        _check(asked.pattern, model.vocabulary.names)  # before anything is computed
    seen = data if start is None else seen_until(data, start)
    program = model.program if isinstance(model, HasRules) else None
    with model.evaluating(), naming_impossible(program, seen):
        longest = HORIZON * longest_time(model, data)
        until = Horizon(FIRST_PANEL * longest / HORIZON, longest if horizon is None else horizon, horizon is not None)
        outlooks = _by_quadrature(model, seen, asked, until, progress, shards)
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
    """The sequences with nothing after `start` (one time, or one for each), and observed until then.

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
    shards: Shards | None,
) -> list[NextEventDistribution]:
    wide, possible = _with_all_possible(model, data)
    if asked.pattern is not None and isinstance(model, RuleModel):
        names = (name for name in wide.vocabulary.names if split(name)[0] in model.functors)
        _check(asked.pattern, names, _may_come(model))
    data = replace(data, vocabulary=wide.vocabulary, origin="window")
    gaps = data.gaps()
    until = replace(until, first=float(min(until.first, gaps[gaps > 0.0].min(initial=math.inf))))
    counts = None if possible is None else [len(names) for names in possible]
    asking = _Quadrature(wide, data, asked, until, counts)
    tables = tables_of("next-events", outlook_batches, asking, batch_items(data, wide, 1), shards, progress)
    return _in_order(tables)


@dataclass(frozen=True)
class _Quadrature:
    """What the outlook from the ends of sequences needs beside their numbers."""

    wide: IntensityModel  # with a name for every event that is possible
    data: EventData
    asked: PredictionRequest
    until: Horizon
    possible: list[int] | None  # events that may be next in each sequence; None: those that have a probability


@torch.no_grad()
def outlook_batches(asking: _Quadrature, items: Sequence[np.ndarray]) -> Iterator[Table]:
    """A table for each batch, with the outlook of each of its sequences."""
    wide, data, until = asking.wide, asking.data, asking.until
    for indices in items:
        with wide.evaluating():
            own, batch, places = _ends(wide, data, indices, until)
            marched = march(own, batch, own.encode(batch), places, until, CLOSE, QUANTILES)
        found = []
        for row, index in enumerate(indices.tolist()):
            begin = data[index].t_end
            masses = marched.masses[row, 0].double().cpu().numpy()
            count = asking.possible[index] if asking.possible is not None else int((masses > 0.0).sum())
            moments = Moments(
                mean=begin + float(marched.mean[row, 0]),
                mean_error=float(marched.error[row, 0]),
                quantiles=[begin + one for one in marched.quantiles[row, 0].tolist()],
                no_event=float(marched.survival[row, 0]),
                defined=has_mean(float(marched.survival[row, 0])),
                horizon=begin + float(marched.end[row, 0]),
            )
            probabilities = dict(zip(own.vocabulary.names, masses.tolist(), strict=True))
            found.append(_distribution(asking.asked, "quadrature", moments, probabilities, count))
        yield _outlook_table(indices, found)


def _outlook_table(sequences: np.ndarray, found: Sequence[NextEventDistribution]) -> Table:
    """Outlooks as they are kept: JSON, in which every float comes back as it was."""
    return {"sequence": np.asarray(sequences), "outlook": [json.dumps(asdict(one)) for one in found]}


def _in_order(tables: Sequence[Table]) -> list[NextEventDistribution]:
    rows = [row for table in tables for row in zip(table["sequence"].tolist(), table["outlook"], strict=True)]
    return [NextEventDistribution.from_dict(json.loads(text)) for _, text in sorted(rows)]


def _ends(
    model: IntensityModel, data: EventData, indices: np.ndarray, until: Horizon
) -> tuple[IntensityModel, Batch, Places]:
    """A batch of whole histories, whose ends are looked at, and the model with all names that are needed there."""
    if expires(model):
        chosen = [(data[one], len(data[one]), data[one].t_end) for one in indices.tolist()]
        future = silent_futures(model, data, chosen, until.last)
        start = torch.tensor([[end] for _, _, end in chosen], dtype=torch.float64, device=model.device)
        return future.model, future.batch, Places(start, future.seen, torch.ones_like(start, dtype=torch.bool))
    batch = batch_at(data, indices, model, "all")
    start, seen = batch.t_end.unsqueeze(1), batch.lengths.unsqueeze(1)
    return model, batch, Places(start, seen, torch.ones_like(seen, dtype=torch.bool))


def _with_all_possible(model: IntensityModel, data: EventData) -> tuple[IntensityModel, list[list[str]] | None]:
    """The model with a name for every event that is possible at the end of some history, and which those are."""
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


@dataclass(frozen=True)
class _Draws:
    """What draws of next events need beside the numbers of the sequences."""

    model: IntensityModel
    data: EventData
    asked: PredictionRequest
    quadrature: list[NextEventDistribution]  # with the same horizons, so that both mean the same by `no_event`
    n: int
    seed: int


def _by_samples(draws: _Draws, shards: Shards | None) -> list[NextEventDistribution]:
    items = [ShardItem(place, len(one) + draws.n) for place, one in enumerate(draws.data)]
    return _in_order(tables_of("next-event-draws", draw_outlooks, draws, items, shards, None))


def draw_outlooks(draws: _Draws, places: Sequence[int]) -> Iterator[Table]:
    """A table for each sequence; each has random numbers of its own."""
    for place in places:
        one, known = draws.data[place], draws.quadrature[place]
        with draws.model.evaluating():
            (drawn,) = sample_next(
                draws.model, [one], n=draws.n, horizon=known.horizon - one.t_end, seed=seed_of(draws.seed, place)
            )
        yield _outlook_table(np.array([place]), [_drawn_outlook(draws.asked, drawn, known)])


def seed_of(seed: int, place: int) -> int:
    """The seed of the draws of one history among several."""
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
