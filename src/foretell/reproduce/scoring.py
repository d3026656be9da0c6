"""The test scores of one fit: those of `foretell evaluate`, and how much of an interval the paper's Monte-Carlo integral would make up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.data import EventData
from foretell.evaluate.bootstrap import estimates, replicates
from foretell.evaluate.likelihood import EventScores, score_events
from foretell.evaluate.metrics import EventRecord, metrics_of
from foretell.evaluate.participants import guess_participants, parse_pattern
from foretell.evaluate.scores import ScoringOptions, plain
from foretell.evaluate.units import Units
from foretell.models.base import IntensityModel
from foretell.reproduce.bench import Bench

if TYPE_CHECKING:
    from foretell.reproduce.models import Models

SAMPLES_AN_EVENT = 10  # the paper's, for final results


def scores(model: IntensityModel, test: EventData, bench: Bench, experiment: Models) -> dict[str, Any]:
    table = experiment.definition.table
    began = time.perf_counter()
    options = ScoringOptions(predict=experiment.predict, times=bool(table.get("times", True)))
    scored = bench.score(model, test, options)
    found: dict[str, Any] = {"test": scored.evaluation.to_json()}
    if table.get("also_predict"):
        found["also"] = others(model, test, scored.events, table["also_predict"])
    truths = [sequence.metadata.get("nll_true") for sequence in test]
    true = [float(value) for value in truths if isinstance(value, int | float)]
    if len(true) == len(truths):  # simulated data whose process is known
        found["true_log_likelihood"] = -sum(true) / test.event_count
    if table.get("monte_carlo") and not model.closed_form:
        found["monte_carlo"] = monte_carlo(model, test)
    return found | {"score_seconds": round(time.perf_counter() - began, 2)}


def others(model: IntensityModel, test: EventData, events: EventScores, patterns: Sequence[str]) -> dict[str, Any]:
    """Errors of who takes part by patterns that are not in the sum of all: questions of another kind."""
    with model.evaluating():
        guesses = guess_participants(model, test, [parse_pattern(text) for text in patterns])
    units = Units(events.sequence, len(test))
    wanted = {f"participants {one.pattern}": one.pattern for one in guesses}
    metrics = [one for one in metrics_of(EventRecord(events, None, guesses)) if one.key in wanted]
    found = estimates([one.ratio(units) for one in metrics], units.resampling(0))
    return plain({wanted[one.key]: asdict(value) for one, value in zip(metrics, found, strict=True)})


def monte_carlo(model: IntensityModel, test: EventData, samples: int = SAMPLES_AN_EVENT) -> dict[str, Any]:
    """The log-likelihood's interval with the integral from uniform draws: how wide the draws alone make it, and how much wider.

    The standard deviation over replicates stands for an interval's width.
    """
    with model.evaluating():
        events = score_events(model, test, integral="uniform", points=samples)
    metric = metrics_of(EventRecord(events))[0]
    units = Units(events.sequence, len(test))
    exact = units.ratio(metric.values, metric.counts)
    spread = float(np.nanstd(replicates([exact], units.resampling(0))[:, 0]))
    drawn = float(np.sqrt(events.integral_variance.sum()) / max(int(events.is_event.sum()), 1))
    whole = float(np.hypot(spread, drawn))
    return {
        "samples_an_event": samples,
        "standard_error": drawn,
        "of_the_width": drawn / whole if whole else 0.0,
        "wider_by": 1.0 - spread / whole if whole else 0.0,
    }
