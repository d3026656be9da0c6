"""The list of scores. A score that is registered here appears in `evaluate`, `compare`, `report`, `reproduce` and `--json`.

In: an `EventRecord` (rows of a scored model, predicted times, guessed participants). Out: `Metric`s. The value of a metric is the mean over
the rows that count, or the square root of that mean (`root`). `evaluate` averages metrics, `compare` pairs them, `by_functor` splits them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate, Ratio, Units, estimates
from foretell.evaluate.likelihood import EventScores
from foretell.evaluate.next_time import UNDEFINED_ABOVE, NextTimes
from foretell.evaluate.patterns import Guesses
from foretell.terms import split

Kind = Literal["nats", "time", "share", "rank"]  # nats per event, the data's unit of time, a share of events, a rank
Needs = Literal["events", "times", "participants"]
ALL = "all"  # the name for all patterns of participants together


@dataclass(frozen=True)
class EventRecord:
    """The stored numbers of every scored event, from which all scores are computed."""

    events: EventScores
    times: NextTimes | None = None
    guesses: Sequence[Guesses] = ()

    def of_times(self, column: str, otherwise: float = np.nan) -> np.ndarray:
        """Return a column of the predicted times [rows], with `otherwise` in rows without an event."""
        rows, events = np.flatnonzero(self.events.is_event), self.events
        assert self.times is not None and np.array_equal(events.sequence[rows], self.times.sequence)
        assert np.array_equal(events.event[rows], self.times.event)
        whole = np.full(len(events.event), otherwise)
        whole[rows] = getattr(self.times, column)
        return whole

    def defined_times(self) -> np.ndarray:
        """Return bool [rows]: True where the mean of the next time is defined."""
        return self.of_times("no_event", np.inf) <= UNDEFINED_ABOVE


class ScoreColumns(NamedTuple):
    """The value of a score in each row."""

    values: np.ndarray  # float64 [rows]
    counts: np.ndarray  # [rows]: 1 where a row counts, else 0
    variances: np.ndarray | None = None  # of the values, if random draws estimated a part of them
    root: bool = False  # whether the score is the square root of the mean


Columns = Callable[[EventRecord], ScoreColumns | Mapping[str, ScoreColumns]]
F = TypeVar("F", bound=Columns)


@dataclass(frozen=True)
class ScoreDefinition:
    """A score: its name, unit and direction, how it is computed from an `EventRecord`, and where it is shown.

    If `columns` returns one entry per pattern of participants, the score has one `Metric` per pattern.
    """

    key: str  # as in JSON
    title: str  # in a sentence
    kind: Kind
    higher_is_better: bool
    columns: Columns
    needs: Needs = "events"  # the part of a record that the score is computed from
    heading: str = ""  # the heading of its column in a terminal; default: the title
    page_heading: str = ""  # the heading in the report; default: `heading`
    short: str = ""  # the heading in the tables of experiments; default: `heading`
    main: bool = False  # whether it is also shown by functor, and in experiments without a list of columns
    closer: bool = False  # whether it is in the second table of `evaluate`, "more closely"
    tested: bool = True  # whether `compare` and experiments test differences in it

    def column(self, time_unit: str = "") -> str:
        """Return the heading, with the unit of time if the score is a time."""
        unit = f" ({time_unit})" if self.kind == "time" and time_unit and len(time_unit) < 20 else ""
        return f"{self.heading or self.title}{unit}"

    @property
    def page_column(self) -> str:
        return self.page_heading or self.column()

    @property
    def short_column(self) -> str:
        return (self.short or self.column()) + (", %" if self.kind == "share" else "")

    def metrics(self, record: EventRecord) -> list[Metric]:
        """Return the metrics of a record: none if the record lacks data that the score needs."""
        there = {"events": True, "times": record.times is not None, "participants": bool(record.guesses)}
        found = self.columns(record) if there[self.needs] else {}
        if isinstance(found, ScoreColumns):
            return [self._metric(self.key, self.title, found)]
        titles = {name: self.title if name == ALL else f"{self.title}, {name}" for name in found}
        return [self._metric(f"{self.key} {name}", titles[name], one) for name, one in found.items()]

    def _metric(self, key: str, title: str, found: ScoreColumns) -> Metric:
        return Metric(key, title, self.kind, found.values, found.counts, found.variances, found.root)


@dataclass(frozen=True)
class Metric:
    """A score of one run, with one value per row."""

    key: str  # as in JSON
    title: str  # in words
    kind: Kind
    values: np.ndarray  # float64 [rows]
    counts: np.ndarray  # [rows]: 1 where a row counts, else 0
    variances: np.ndarray | None = None
    root: bool = False

    @property
    def higher_is_better(self) -> bool:
        known = score_of(self.key)  # stored rows may belong to a score that is no longer registered
        return self.kind == "nats" if known is None else known.higher_is_better

    def where(self, chosen: np.ndarray) -> Metric:
        """Return the metric over the chosen rows only."""
        spread = None if self.variances is None else self.variances * chosen
        return replace(self, values=self.values * chosen, counts=self.counts * chosen, variances=spread)

    def ratio(self, units: Units) -> Ratio:
        return units.ratio(self.values, self.counts, self.variances, root=self.root)


def metrics_of(record: EventRecord) -> list[Metric]:
    """Return all scores that can be computed from a record, in the order of the list of scores."""
    return [metric for score in SCORES.values() for metric in score.metrics(record)]


SCORES: dict[str, ScoreDefinition] = {}


def register_score(score: ScoreDefinition) -> ScoreDefinition:
    """Add a score to the list; every command then computes it."""
    if score.key in SCORES:
        raise ForetellError(f"there is a score {score.key!r} already: choose another key")
    SCORES[score.key] = score
    return score


def score_of(key: str) -> ScoreDefinition | None:
    """Return the score that a metric's key belongs to: `participants` for the key `participants pass(+P,-Q)`; None if unknown."""
    return SCORES.get(key) or SCORES.get(key.split(" ")[0])


def plain_scores() -> list[ScoreDefinition]:
    """Return the scores with one value per run: all except those of participants, which have one value per pattern."""
    return [one for one in SCORES.values() if one.needs != "participants"]


def has_times(evaluation: Mapping[str, Any]) -> bool:
    """Return whether an evaluation in JSON has errors of the next time."""
    return any(evaluation.get(one.key) is not None for one in SCORES.values() if one.kind == "time")


def _score(key: str, title: str, kind: Kind, **shown: Any) -> Callable[[F], F]:
    """Register a function that computes the columns of a score. Higher is better for scores in nats, lower for all others."""

    def register(columns: F) -> F:
        register_score(ScoreDefinition(key, title, kind, kind == "nats", columns, **shown))
        return columns

    return register


@_score("log_likelihood", "log-likelihood", "nats", main=True)
def _log_likelihood(record: EventRecord) -> ScoreColumns:
    return ScoreColumns(record.events.log_likelihood, record.events.is_event, record.events.integral_variance)


@_score("time_log_likelihood", "log-likelihood of times", "nats", heading="of times")
def _time_log_likelihood(record: EventRecord) -> ScoreColumns:
    return ScoreColumns(record.events.time_log_likelihood, record.events.is_event, record.events.integral_variance)


@_score("type_log_likelihood", "log-likelihood of types", "nats", heading="of types")
def _type_log_likelihood(record: EventRecord) -> ScoreColumns:
    return ScoreColumns(record.events.type_log_likelihood, record.events.is_event)


@_score("rmse", "RMSE of the next time", "time", needs="times", heading="RMSE of next time", short="RMSE", main=True)
def _squared_time_errors(record: EventRecord) -> ScoreColumns:
    errors = _time_errors(record)
    return errors._replace(values=errors.values**2, root=True)


# Not tested: it says much the same as the RMSE, and every further test makes the correction for multiple tests stricter.
@_score(
    "mae",
    "mean absolute error of the next time",
    "time",
    needs="times",
    heading="MAE of next time",
    closer=True,
    tested=False,
)
def _time_errors(record: EventRecord) -> ScoreColumns:
    defined = record.defined_times()
    return ScoreColumns(np.where(defined, np.abs(record.of_times("predicted") - record.events.time), 0.0), defined)


@_score(
    "error_rate",
    "error of the next type, given its time",
    "share",
    heading="error of next type",
    page_heading="wrong next type",
    short="type error",
    main=True,
)
def _wrong_types(record: EventRecord) -> ScoreColumns:
    real = record.events.is_event
    return ScoreColumns(((record.events.predicted_type != record.events.type) & real).astype(float), real)


@_score(
    "error_rate_without_time",
    "error of the next type, without its time",
    "share",
    needs="times",
    heading="error of next type if not told when",
    page_heading="the same, untold its time",
    short="type error without time",
    closer=True,
)
def _wrong_types_without_time(record: EventRecord) -> ScoreColumns:
    real = record.events.is_event
    return ScoreColumns(((record.of_times("type_without_time", -1) != record.events.type) & real).astype(float), real)


@_score("participants", "error of who", "share", needs="participants", short="participants' error", main=True)
def _wrong_participants(record: EventRecord) -> dict[str, ScoreColumns]:
    """Return the errors of each pattern and, if there are several, of all patterns together."""
    found = {}
    for one in record.guesses:
        rows = _rows_of(record.events, one)
        wrong, asked = np.zeros(len(record.events.event)), np.zeros(len(record.events.event), dtype=bool)
        wrong[rows], asked[rows] = one.wrong, True
        found[one.pattern] = ScoreColumns(wrong, asked)
    if len(found) > 1:
        # An event that matches two patterns counts twice.
        wrong, asked = (np.sum([one[part] for one in found.values()], axis=0) for part in (0, 1))
        found[ALL] = ScoreColumns(wrong, asked)
    return found


def _rows_of(events: EventScores, guesses: Guesses) -> np.ndarray:
    """Return the row index of each guessed event; rows are sorted by (sequence, event)."""
    wide = int(max(events.event.max(initial=0), guesses.event.max(initial=0))) + 2
    keys, wanted = (one.sequence.astype(np.int64) * wide + one.event + 1 for one in (events, guesses))
    rows = np.searchsorted(keys, wanted)
    assert np.array_equal(keys[rows], wanted)
    return rows


@dataclass(frozen=True)
class FunctorScores:
    functor: str
    events: int
    scores: dict[str, tuple[Estimate, ...]]  # by metric, one estimate per run

    def to_json(self) -> dict[str, Any]:
        found = {key: [asdict(one) for one in runs] for key, runs in self.scores.items()}
        return {"functor": self.functor, "events": self.events, **found}


def functors_of(names: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the functors, and for each name the index of its functor."""
    of_name = [split(name)[0] for name in names]
    known = {functor: place for place, functor in enumerate(sorted(set(of_name)))}
    return list(known), np.array([known[functor] for functor in of_name], dtype=np.int64)


def by_functor(
    runs: Sequence[Sequence[Metric]], types: np.ndarray, names: Sequence[str], units: Units, seed: int = 0
) -> list[FunctorScores]:
    """Return the scores of each functor that occurs, most frequent first. `types` [rows] are indices into `names`; -1: no event.

    Runs have the same metrics.
    """
    functors, place = functors_of(names)
    of_row = np.where(types >= 0, place[np.maximum(types, 0)] if len(names) else -1, -1)
    counts = np.bincount(of_row[of_row >= 0], minlength=len(functors))
    order = [int(number) for number in np.argsort(-counts, kind="stable") if counts[number]]
    chosen = [of_row == number for number in order]
    keys = [one.key for one in runs[0]] if runs else []
    ratios = [
        metrics[which].where(rows).ratio(units) for rows in chosen for which in range(len(keys)) for metrics in runs
    ]
    found = iter(estimates(ratios, units.resampling(seed)))
    return [
        FunctorScores(functors[number], int(counts[number]), {key: tuple(next(found) for _ in runs) for key in keys})
        for number in order
    ]
