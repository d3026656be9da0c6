"""`evaluate`: a model and held-out data in, every score with its 95 % interval out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, get_args

import numpy as np

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate, estimates
from foretell.evaluate.calibration import Calibration, calibrate
from foretell.evaluate.likelihood import EventScores, IntegralUsed, score_events
from foretell.evaluate.long_horizon import FutureScores, Futuring, score_futures
from foretell.evaluate.metrics import Metric, defined_times, metrics_of
from foretell.evaluate.next_time import NextTimes, predict_next_times
from foretell.evaluate.participants import Guesses, check_patterns, guess_participants, parse_pattern
from foretell.evaluate.residuals import RescalingTest, rescaling_test, residuals
from foretell.evaluate.units import Units
from foretell.ground.impossible import naming_impossible
from foretell.models.base import IntensityModel
from foretell.models.rules.rule_model import RuleModel
from foretell.options import Integral, Window

P = ParamSpec("P")


@dataclass(frozen=True)
class ParticipantError:
    """Given when, what, and some of the participants: how often the others are wrong."""

    pattern: str
    events: int
    error_rate: Estimate
    candidates: float  # possible events that matched, on average


@dataclass(frozen=True)
class Evaluation:
    """Scores in nats an event (log-likelihoods), in the data's unit of time (RMSE, MAE) and as shares (error rates)."""

    model: str
    data: str
    window: Window
    sequences: int
    events: int  # scored events
    log_likelihood: Estimate
    time_log_likelihood: Estimate
    type_log_likelihood: Estimate
    rmse: Estimate | None  # of the next event's time
    mae: Estimate | None
    undefined_times: int  # events whose expected time is undefined and which are in neither
    error_rate: Estimate  # of the next event's type, given its time
    error_rate_without_time: Estimate | None  # of the next event's type, its time not given: another question
    rescaling: RescalingTest
    calibration: Calibration
    integral: IntegralUsed
    bootstrap: str
    unseen_types: int  # types that never occurred in the model's training data and do here
    unseen_events: int  # events of such types
    participants: list[ParticipantError] = field(
        default_factory=list
    )  # one for each pattern asked for, then all together
    futures: FutureScores | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; what is not a number is null."""
        return plain(dataclasses.asdict(self))


@dataclass(frozen=True)
class Scored:
    """An evaluation and the event-by-event numbers behind it."""

    evaluation: Evaluation
    events: EventScores
    times: NextTimes | None
    guesses: tuple[Guesses, ...] = ()

    def metrics(self) -> list[Metric]:
        return metrics_of(self.events, self.times, self.guesses)


def score(
    model: IntensityModel,
    data: EventData,
    *,
    integral: Integral = "quadrature",
    points: int = 10,
    window: Window = "all",
    times: bool = True,
    seed: int = 0,
    predict: Sequence[str] = (),
    futures: Futuring | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Scored:
    """Log-likelihood (in total, of time, of type), next times, next types given the time and without it, goodness of fit.

    `predict` are patterns such as `pass(+P,-Q)`; `futures` asks for sampled futures and how far they are from what happened.
    """
    if not isinstance(data, EventData):
        raise ForetellError(f"no data to score: expected a split such as data.test, found {data!r}")
    if integral not in get_args(Integral):
        raise ForetellError(f"integral = {integral!r}: expected one of {', '.join(get_args(Integral))}")
    if data.vocabulary != model.vocabulary:
        raise ForetellError(f"{data.name}: its event types are not those of the model")
    if seed < 0:
        raise ForetellError(f"seed = {seed}: expected 0 or more")
    patterns = [parse_pattern(text) for text in ([predict] if isinstance(predict, str) else predict)]
    check_patterns(model, patterns)  # before hours are spent on the rest
    told = progress or (lambda what, done, of: None)
    program = model.program if isinstance(model, RuleModel) else None
    with model.evaluating(), naming_impossible(program, data):
        events = score_events(
            model,
            data,
            integral=integral,
            points=points,
            window=window,
            seed=seed,
            progress=lambda done, of: told("log-likelihood", done, of),
        )
        if not events.is_event.any():
            raise ForetellError(f"{data.name}: no event counts in the window {window!r}, so there is nothing to score")
        next_times = None
        if times:
            next_times = predict_next_times(
                model, data, window=window, progress=lambda done, of: told("next times", done, of)
            )
        guesses = tuple(guess_participants(model, data, patterns, window)) if patterns else ()
        future_scores = None
        if futures is not None:
            future_scores = score_futures(
                model, data, futures, seed, progress=lambda done, of: told("futures", done, of)
            )
    return Scored(
        summarise(model, data, window, events, next_times, guesses, future_scores, seed), events, next_times, guesses
    )


def _in_short(scoring: Callable[P, Scored]) -> Callable[P, Evaluation]:
    @wraps(scoring)
    def evaluate(*args: P.args, **options: P.kwargs) -> Evaluation:
        return scoring(*args, **options).evaluation

    return evaluate


evaluate = _in_short(score)


def summarise(
    model: IntensityModel,
    data: EventData,
    window: Window,
    events: EventScores,
    times: NextTimes | None,
    guesses: Sequence[Guesses],
    futures: FutureScores | None,
    seed: int,
) -> Evaluation:
    """Every score with its interval; all of them see the same replicates."""
    units = Units(events.sequence, len(data))
    resampling = units.resampling(seed)
    metrics = metrics_of(events, times, guesses)
    found = dict(
        zip(
            (one.key for one in metrics),
            estimates([one.ratio(units) for one in metrics], resampling),
            strict=True,
        )
    )
    happened = events.type[events.is_event]
    return Evaluation(
        model=model.title,
        data=data.name,
        window=window,
        sequences=len(data),
        events=len(happened),
        log_likelihood=found["log_likelihood"],
        time_log_likelihood=found["time_log_likelihood"],
        type_log_likelihood=found["type_log_likelihood"],
        rmse=found.get("rmse"),
        mae=found.get("mae"),
        undefined_times=0 if times is None else len(happened) - int(defined_times(events, times).sum()),
        error_rate=found["error_rate"],
        error_rate_without_time=found.get("error_rate_without_time"),
        rescaling=rescaling_test(residuals(events)),
        calibration=calibrate(events, units, resampling),
        integral=events.used,
        bootstrap=resampling.describe(),
        unseen_types=len(set(model.unseen) & set(happened.tolist())),
        unseen_events=int(np.isin(happened, model.unseen).sum()),
        participants=_participants(guesses, found),
        futures=futures,
    )


def _participants(guesses: Sequence[Guesses], found: dict[str, Estimate]) -> list[ParticipantError]:
    """Of each pattern, and of all of them together where there are several."""
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
    """For JSON: what is not a finite number is null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
