"""`evaluate`: a model and held-out data in, every score with its 95 % interval out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import (
    ENOUGH_SEQUENCES,
    Estimate,
    Resampling,
    mean_estimate,
    resample_blocks,
    resample_sequences,
)
from foretell.evaluate.likelihood import EventScores, IntegralUsed, score_events
from foretell.evaluate.next_time import UNDEFINED_ABOVE, NextTimes, predict_next_times
from foretell.evaluate.participants import Guesses, check_patterns, guess_participants, parse_pattern
from foretell.ground.impossible import naming_impossible
from foretell.models.andtt import ANDTT
from foretell.models.base import IntensityModel
from foretell.models.batch import Window
from foretell.objective.integral import Integral


@dataclass(frozen=True)
class ParticipantError:
    """Given when, what, and some of the participants: how often the others are wrong."""

    pattern: str
    events: int
    error_rate: Estimate
    candidates: float  # possible events that matched, on average


@dataclass(frozen=True)
class Evaluation:
    """Scores in nats an event (log-likelihoods), in the data's unit of time (RMSE) and as a share (error rate)."""

    model: str
    data: str
    window: Window
    sequences: int
    events: int  # scored events
    log_likelihood: Estimate
    time_log_likelihood: Estimate
    type_log_likelihood: Estimate
    rmse: Estimate | None  # of the next event's time
    undefined_times: int  # events whose expected time is undefined and which are not in the RMSE
    error_rate: Estimate  # of the next event's type, given its time
    integral: IntegralUsed
    bootstrap: str
    unseen_types: int  # types that never occurred in the model's training data and do here
    unseen_events: int  # events of such types
    participants: list[ParticipantError] = field(
        default_factory=list
    )  # one for each pattern asked for, then all together

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; what is not a number is null."""
        return _plain(dataclasses.asdict(self))


@dataclass(frozen=True)
class Scored:
    """An evaluation and the event-by-event numbers behind it."""

    evaluation: Evaluation
    events: EventScores
    times: NextTimes | None


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
    progress: Callable[[str, int, int], None] | None = None,
) -> Evaluation:
    """Log-likelihood (in total, of time, of type), RMSE of the next time, error rate of the next type given its time."""
    return score(
        model,
        data,
        integral=integral,
        points=points,
        window=window,
        times=times,
        seed=seed,
        predict=predict,
        progress=progress,
    ).evaluation


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
    progress: Callable[[str, int, int], None] | None = None,
) -> Scored:
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
    program = model.program if isinstance(model, ANDTT) else None
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
        guesses = guess_participants(model, data, patterns, window) if patterns else []
    rng = np.random.default_rng(seed)
    return Scored(_summarise(model, data, window, events, next_times, guesses, rng), events, next_times)


def _summarise(
    model: IntensityModel,
    data: EventData,
    window: Window,
    events: EventScores,
    times: NextTimes | None,
    guesses: list[Guesses],
    rng: np.random.Generator,
) -> Evaluation:
    by_sequence = len(data) >= ENOUGH_SEQUENCES
    resampling = resample_sequences(len(data), rng) if by_sequence else resample_blocks(events.sequence, rng)

    def summed(values: np.ndarray) -> np.ndarray:
        if not by_sequence:
            return values
        return np.bincount(events.sequence, weights=values, minlength=len(data))

    counts = summed(events.is_event.astype(np.float64))
    noise = summed(events.integral_variance)

    def nats(values: np.ndarray, variances: np.ndarray | None) -> Estimate:
        return mean_estimate(summed(values), counts, resampling, rng, variances=variances)

    rmse, undefined = _rmse(events, times, summed, resampling, rng)
    happened = events.type[events.is_event]
    wrong = (events.predicted_type != events.type) & events.is_event
    return Evaluation(
        model=model.title,
        data=data.name,
        window=window,
        sequences=len(data),
        events=int(events.is_event.sum()),
        log_likelihood=nats(events.log_likelihood, noise),
        time_log_likelihood=nats(events.time_log_likelihood, noise),
        type_log_likelihood=nats(events.type_log_likelihood, None),
        rmse=rmse,
        undefined_times=undefined,
        error_rate=mean_estimate(summed(wrong.astype(np.float64)), counts, resampling, rng),
        integral=events.used,
        bootstrap=resampling.describe(),
        unseen_types=len(set(model.unseen) & set(happened.tolist())),
        unseen_events=int(np.isin(happened, model.unseen).sum()),
        participants=_participants(events, guesses, summed, resampling, rng),
    )


def _participants(
    events: EventScores,
    guesses: list[Guesses],
    summed: Callable[[np.ndarray], np.ndarray],
    resampling: Resampling,
    rng: np.random.Generator,
) -> list[ParticipantError]:
    """Of each pattern, and of all of them together where there are several."""
    place = {pair: row for row, pair in enumerate(zip(events.sequence.tolist(), events.event.tolist(), strict=True))}
    found = []
    all_wrong, all_asked = np.zeros(len(events.event)), np.zeros(len(events.event))
    for one in guesses:
        rows = [place[pair] for pair in zip(one.sequence.tolist(), one.event.tolist(), strict=True)]
        wrong, asked = np.zeros(len(events.event)), np.zeros(len(events.event))
        wrong[rows], asked[rows] = one.wrong, 1.0
        all_wrong, all_asked = all_wrong + wrong, all_asked + asked
        estimate = mean_estimate(summed(wrong), summed(asked), resampling, rng)
        found.append(
            ParticipantError(one.pattern, len(rows), estimate, float(one.candidates.mean()) if len(rows) else 0.0)
        )
    if len(found) > 1:
        count = sum(one.events for one in found)
        mean = sum(one.events * one.candidates for one in found) / max(count, 1)
        estimate = mean_estimate(summed(all_wrong), summed(all_asked), resampling, rng)
        found.append(ParticipantError("all", count, estimate, mean))
    return found


def _rmse(
    events: EventScores,
    times: NextTimes | None,
    summed: Callable[[np.ndarray], np.ndarray],
    resampling: Resampling,
    rng: np.random.Generator,
) -> tuple[Estimate | None, int]:
    if times is None:
        return None, 0
    squared, defined = np.zeros(len(events.event)), np.zeros(len(events.event))
    real = np.flatnonzero(events.is_event)
    assert np.array_equal(events.sequence[real], times.sequence) and np.array_equal(events.event[real], times.event)
    fine = times.no_event <= UNDEFINED_ABOVE
    squared[real[fine]] = (times.predicted[fine] - events.time[real[fine]]) ** 2
    defined[real[fine]] = 1.0
    return mean_estimate(summed(squared), summed(defined), resampling, rng, root=True), int((~fine).sum())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
