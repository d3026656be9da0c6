"""`evaluate`: takes a model and held-out data, and returns every score with its 95 % interval."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from foretell.data import EventData, FrameFormat, FrameResult
from foretell.data.arguments import check_split
from foretell.data.frame_output import NO_FORMAT, FrameColumns
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate, Units, estimates
from foretell.evaluate.calibration import Calibration, RescalingTest, calibrate, rescaling_test, residuals
from foretell.evaluate.likelihood import EventScores, IntegralEstimate, score_events
from foretell.evaluate.long_horizon import FutureOptions, FutureScores, score_futures
from foretell.evaluate.metrics import SCORES, EventRecord, Metric, metrics_of, plain_scores
from foretell.evaluate.next_time import NextTimes, predict_next_times
from foretell.evaluate.patterns import Guesses, check_patterns, guess_participants, parse_pattern
from foretell.ground.impossible import naming_impossible
from foretell.models.base import IntensityModel, check_model
from foretell.models.capabilities import GrowsVocabulary, HasRules, UnseenGroups
from foretell.options import Integral, Window
from foretell.shards.shard_map import Shards

UNSEEN_GROUPS = ("unseen_groups", "unseen_group_events")  # keys that are in the JSON only if their counts are not 0


@dataclass(frozen=True)
class ParticipantError:
    """How often the predicted participants of an event are wrong, given its time, its functor and its other participants."""

    pattern: str
    events: int
    error_rate: Estimate
    candidates: float  # the mean number of possible events that match


@dataclass(frozen=True)
class Evaluation(FrameResult):
    """All scores that `evaluate.metrics.SCORES` lists, with 95 % intervals, and notes for the reader.

    Scores are attributes by their keys: `log_likelihood`, `time_log_likelihood` and `type_log_likelihood` (nats per event), `rmse` and
    `mae` of the next event's time (in the data's unit of time), `error_rate` of its type given the time and
    `error_rate_without_time` (shares).
    """

    model: str
    data: str
    window: Window
    sequences: int
    events: int  # scored events
    scores: Mapping[str, Estimate | None]  # by key; None if a score needs next times and these were not requested
    undefined_times: int  # events whose expected time is undefined; `rmse` and `mae` leave them out
    rescaling: RescalingTest
    calibration: Calibration
    integral: IntegralEstimate
    bootstrap: str
    unseen_types: int  # types that occur in these data but never in the training data
    unseen_events: int  # events of such types
    unseen_groups: int = 0  # parameter groups of rules that training never used; they get the mean of trained ones
    unseen_group_events: int = 0  # events whose intensities depend on such groups
    participants: list[ParticipantError] = field(default_factory=list)  # one per pattern, then one for all patterns
    futures: FutureScores | None = None
    format: FrameFormat = field(default=NO_FORMAT, repr=False, compare=False)

    def frame_columns(self) -> FrameColumns:
        """Return the columns of a frame with one row per score and interval."""
        rows: dict[str, Estimate] = {key: one for key, one in self.scores.items() if one is not None}
        rows |= {f"participants {one.pattern}": one.error_rate for one in self.participants}
        if self.futures is not None:
            rows |= {f"transport_distance {one.cost:g}": one.distance for one in self.futures.transport}
            rows |= {"t_map": self.futures.t_map, "t_map_weighted": self.futures.t_map_weighted}
        numbers = {name: np.array([getattr(one, name) for one in rows.values()]) for name in ("value", "low", "high")}
        return {"model": [self.model] * len(rows), "data": [self.data] * len(rows), "score": list(rows), **numbers}

    def __getattr__(self, key: str) -> Any:
        scores = self.__dict__.get("scores", {})
        if key not in scores:
            raise AttributeError(f"an evaluation has no {key!r}; its scores are {', '.join(scores)}")
        return scores[key]

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as JSON: non-finite values are null, scores have their keys. The number of undefined times follows the
        errors of times."""
        scores, made = {}, {}
        for key, value in self.scores.items():
            scores[key] = None if value is None else dataclasses.asdict(value)
            if SCORES[key].kind == "time":
                scores.pop("undefined_times", None)
                scores["undefined_times"] = self.undefined_times
        for name, value in dataclasses.asdict(dataclasses.replace(self, format=NO_FORMAT)).items():
            if name == "format" or (name in UNSEEN_GROUPS and not self.unseen_groups):
                continue
            made |= scores if name == "scores" else {name: value}
        return plain(made)


@dataclass(frozen=True)
class ScoringOptions:
    """How a model is scored.

    `predict` lists patterns such as `pass(+P,-Q)`; with `futures`, sampled futures are compared with the true events.
    """

    integral: Integral = "quadrature"
    points: int = 10  # per gap; for uniform draws, per event
    window: Window = "all"
    times: bool = True  # whether next times are predicted, which takes most of the time
    seed: int = 0
    predict: Sequence[str] = ()
    futures: FutureOptions | None = None

    def __post_init__(self) -> None:
        if self.integral not in get_args(Integral):
            raise ForetellError(f"integral = {self.integral!r}: expected one of {', '.join(get_args(Integral))}")
        if self.seed < 0:
            raise ForetellError(f"seed = {self.seed}: expected 0 or more")
        object.__setattr__(self, "predict", (self.predict,) if isinstance(self.predict, str) else tuple(self.predict))


@dataclass(frozen=True)
class ScoredModel:
    """An evaluation and the event-by-event numbers behind it."""

    evaluation: Evaluation
    record: EventRecord

    @property
    def events(self) -> EventScores:
        return self.record.events

    @property
    def times(self) -> NextTimes | None:
        return self.record.times

    def metrics(self) -> list[Metric]:
        return metrics_of(self.record)


Progress = Callable[[str, int, int], None]  # called with the name of the task, the number done and the total


def evaluate(
    model: IntensityModel,
    data: EventData,
    *,
    integral: Integral = "quadrature",
    points: int = 10,
    window: Window = "all",
    times: bool = True,
    seed: int = 0,
    predict: Sequence[str] = (),
    futures: FutureOptions | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score a model on held-out data: log-likelihood with its time and type parts, next times and types, goodness of fit, with intervals.

    Args:
        model: the model.
        data: a split such as `data.test`, over the model's vocabulary.
        integral: how the intensity is integrated: "quadrature" (draws if doubling its nodes changes the result), "stratified" or "uniform".
        points: nodes or draws per gap.
        window: "all", or "events-2-to-I", which leaves out the first event and the tail.
        times: whether to predict next times, which is the slowest part.
        seed: the seed of draws and of the bootstrap.
        predict: patterns such as `pass(+P,-Q)`, where `-` marks the participants to predict.
        futures: if given, futures are sampled and compared with the true events.
        progress: called with the name of the task, the number of items done, and the total.

    Returns:
        The scores; `print` shows them, `to_frame()` and `to_json()` return them as data.

    Raises:
        ForetellError: the event types of the data are not those of the model.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"], ["visit"]], [[0.5, 2.0], [1.0]], t_ends=[10.0, 5.0])
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data).model
        >>> round(ft.evaluate(model, data).log_likelihood.value, 3)
        -3.295
    """
    options = ScoringOptions(integral, points, window, times, seed, predict, futures)
    return score(model, data, options, progress=progress).evaluation


def score(
    model: IntensityModel,
    data: EventData,
    options: ScoringOptions | None = None,
    *,
    progress: Progress | None = None,
    shards: Shards | None = None,
) -> ScoredModel:
    """Return what `evaluate` returns and the numbers of every event; where `shards` compute them does not affect the results."""
    check_model(model)
    check_split(data)
    if data.vocabulary != model.vocabulary:
        raise ForetellError(f"{data.name}: its event types are not those of the model")
    options = ScoringOptions() if options is None else options
    patterns = [parse_pattern(text) for text in options.predict]
    check_patterns(model, patterns)  # before hours are spent on the rest
    window, seed = options.window, options.seed

    def told(what: str) -> Callable[[int, int], None]:
        return lambda done, of: None if progress is None else progress(what, done, of)

    program = model.program if isinstance(model, HasRules) else None
    with model.evaluating(), naming_impossible(program, data):
        how = {"integral": options.integral, "points": options.points, "window": window, "seed": seed}
        events = score_events(model, data, **how, progress=told("log-likelihood"), shards=shards)
        if not events.is_event.any():
            raise ForetellError(f"{data.name}: no event counts in the window {window!r}, so there is nothing to score")
        times = None
        if options.times:
            times = predict_next_times(model, data, window=window, progress=told("next times"), shards=shards)
        guesses = tuple(guess_participants(model, data, patterns, window, shards)) if patterns else ()
        futures = None
        if options.futures is not None:
            futures = score_futures(model, data, options.futures, seed, progress=told("futures"), shards=shards)
    return summarise(model, data, options, EventRecord(events, times, guesses), futures)


def summarise(
    model: IntensityModel,
    data: EventData,
    options: ScoringOptions,
    record: EventRecord,
    futures: FutureScores | None = None,
) -> ScoredModel:
    """Compute every score and its interval from a record; all scores use the same bootstrap replicates."""
    events = record.events
    units = Units(events.sequence, len(data))
    resampling = units.resampling(options.seed)
    metrics = metrics_of(record)
    values = estimates([one.ratio(units) for one in metrics], resampling)
    found = {one.key: value for one, value in zip(metrics, values, strict=True)}
    happened = events.type[events.is_event]
    groups = model.unseen_groups(data) if isinstance(model, GrowsVocabulary) else UnseenGroups((), 0)
    evaluation = Evaluation(
        model=model.title,
        data=data.name,
        window=options.window,
        sequences=len(data),
        events=len(happened),
        scores={one.key: found.get(one.key) for one in plain_scores()},
        undefined_times=0 if record.times is None else len(happened) - int(record.defined_times().sum()),
        rescaling=rescaling_test(residuals(events)),
        calibration=calibrate(events, units, resampling),
        integral=events.used,
        bootstrap=resampling.describe(),
        unseen_types=len(set(model.unseen) & set(happened.tolist())),
        unseen_events=int(np.isin(happened, model.unseen).sum()),
        unseen_groups=len(groups.names),
        unseen_group_events=groups.events,
        participants=_participants(record.guesses, found),
        futures=futures,
        format=FrameFormat.of(data),
    )
    return ScoredModel(evaluation, record)


def _participants(guesses: Sequence[Guesses], found: dict[str, Estimate]) -> list[ParticipantError]:
    """Return the errors of each pattern and, if there are several, of all patterns together."""
    made = [
        ParticipantError(
            one.pattern,
            len(one.event),
            found[f"participants {one.pattern}"],
            float(one.candidates.mean()) if len(one.event) else 0.0,
        )
        for one in guesses
    ]
    if len(made) > 1:
        count = sum(one.events for one in made)
        mean = sum(one.events * one.candidates for one in made) / max(count, 1)
        made.append(ParticipantError("all", count, found["participants all"], mean))
    return made


def plain(value: Any) -> Any:
    """Replace numbers that are not finite by None, for JSON."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
