"""Scores for models with very many possible events: the log-likelihood, and the rank of the observed event.

Models of rules can evaluate a random sample of the possible events. Both scores are then unbiased estimates of their values for all events
(docs/explanation/products.md), with standard errors: everything is drawn twice, independently; the mean of the two is the estimate, and a
quarter of their squared difference is its variance. Without `downsample`, all possible events are evaluated and only the integration times
are drawn; any model can be scored like this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Queries, Sample
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate, Units, estimates
from foretell.models.base import IntensityModel
from foretell.models.rules.rule_model import EVENTS_AT_A_TIME, RuleModel
from foretell.objective.loglik import stratified
from foretell.options import Window
from foretell.wording import counted

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class DrawnScores:
    """One row per scored event, in the order of the data. Integrals are defined as in `EventScores`."""

    sequence: np.ndarray  # int64
    event: np.ndarray  # int64
    log_intensity: np.ndarray  # log λ_{e_i}(t_i), which is exact
    integral: np.ndarray  # estimates that include the tail
    integral_variance: np.ndarray
    rank: np.ndarray  # estimates of 1 + the number of possible events with a higher intensity
    rank_variance: np.ndarray
    downsample: int | None  # None: all possible events were evaluated
    points: int
    data: str
    sequences: int
    bare_integral: float  # the sum of the integrals of sequences without scored events

    @property
    def events(self) -> int:
        return len(self.event)

    @property
    def log_likelihood(self) -> np.ndarray:
        return self.log_intensity - self.integral

    @property
    def standard_error(self) -> float:
        """Return the standard error of the mean log-likelihood that is due to the draws."""
        return float(np.sqrt(self.integral_variance.sum())) / max(self.events, 1)

    @property
    def rank_standard_error(self) -> float:
        """Return the standard error of the mean rank that is due to the draws."""
        return float(np.sqrt(self.rank_variance.sum())) / max(self.events, 1)

    @property
    def way(self) -> str:
        """Return in words how the scores were computed."""
        much = "all possible events" if self.downsample is None else f"{self.downsample} of the possible events"
        return f"estimated from {much} at each time, {counted(self.points, 'point')} per gap, drawn twice"

    def estimates(self, seed: int = 0) -> dict[str, Estimate]:
        """Return the mean log-likelihood and the mean rank; their intervals include the variation of events and of draws."""
        units, one = Units(self.sequence, self.sequences), np.ones(self.events)
        ratios = [
            units.ratio(self.log_likelihood, one, self.integral_variance),
            units.ratio(self.rank, one, self.rank_variance),
        ]
        return dict(zip(("log_likelihood", "rank"), estimates(ratios, units.resampling(seed)), strict=True))

    def to_json(self, seed: int = 0) -> dict[str, Any]:
        found = {name: {"value": e.value, "low": e.low, "high": e.high} for name, e in self.estimates(seed).items()}
        return {
            "data": self.data,
            "sequences": self.sequences,
            "events": self.events,
            "downsample": self.downsample,
            "points": self.points,
            **found,
            "standard_error": self.standard_error,
            "rank_standard_error": self.rank_standard_error,
        }


@torch.no_grad()
def drawn_scores(
    model: IntensityModel,
    data: EventData,
    downsample: int | None,
    *,
    points: int = 2,
    window: Window = "all",
    seed: int = 0,
    progress: Progress | None = None,
) -> DrawnScores:
    """Return log-likelihoods and ranks of the observed events, from `downsample` possible events drawn at each time (None: all).

    Args:
        points: integration times per gap, drawn anew for each of the two estimates.
        progress: called with the number of sequences done and their total.
    """
    if downsample is not None and not isinstance(model, RuleModel):
        raise ForetellError(f"down-sampling of possible events is for models made of rules, not for {model.title}")
    for name, number in (("downsample", downsample), ("points", points)):
        if number is not None and number < 1:
            raise ForetellError(f"{name} = {number}: expected 1 or more")
    generator, rng = torch.Generator(model.device).manual_seed(seed), np.random.default_rng(seed)
    sample, rows, bare = None if downsample is None else Sample(downsample, rng), [], 0.0
    with model.evaluating():
        for place in range(len(data)):
            batch = model.collator.batch(data, [place], window=window, device=model.device, unscored=model.unscored)
            found, left = _sequence(model, batch, sample, points, generator)
            bare += left
            rows.append(np.column_stack([np.full(len(found), place), found]))
            if progress is not None:
                progress(place + 1, len(data))
    table = np.concatenate(rows) if rows else np.zeros((0, 7))
    if not len(table):
        raise ForetellError(f"{data.name}: no event counts in the window {window!r}, so there is nothing to score")
    return DrawnScores(
        sequence=table[:, 0].astype(np.int64),
        event=table[:, 1].astype(np.int64),
        log_intensity=table[:, 2],
        integral=table[:, 3],
        integral_variance=table[:, 4],
        rank=table[:, 5],
        rank_variance=table[:, 6],
        downsample=downsample,
        points=points,
        data=data.name,
        sequences=len(data),
        bare_integral=bare,
    )


def _sequence(
    model: IntensityModel, batch: Batch, sample: Sample | None, points: int, generator: torch.Generator
) -> tuple[np.ndarray, float]:
    """Return the rows of the scored events of one sequence, and its integral if it has no scored event."""
    history = model.encode(batch)
    ends = _ends(model, history, batch)
    gaps, ranks = [], []
    for _ in range(2):
        drawn = stratified(batch, points, generator, short=model.short_time)
        total = _totals(model, history, batch, drawn.queries, sample)
        gaps.append((total * drawn.weights[0]).view(len(batch.gap_length[0]), points).sum(1).cpu().numpy())
        if sample is not None or not ranks:
            ranks.append(_above(model, history, batch, ends, sample).cpu().numpy())
    integral, variance = _mean(gaps)
    rank, spread = _mean([ranks[0], ranks[-1]])
    scored = np.flatnonzero(batch.event_counts[0].cpu().numpy())
    if not len(scored):
        return np.zeros((0, 6)), float(integral.sum())
    # Event g ends gap g. A gap that an unscored event ends belongs to the next scored event, and the tail to the last one.
    owner = np.minimum(np.searchsorted(scored, np.arange(len(integral))), len(scored) - 1)
    own = (np.bincount(owner, one, minlength=len(scored)) for one in (integral, variance))
    log = ends.double().cpu().numpy()[scored]
    columns = torch.from_numpy(scored).to(batch.times.device)
    event = batch.event_of(torch.zeros_like(columns), columns).cpu().numpy()  # expiries also have columns
    return np.column_stack([event, log, *own, 1.0 + rank[scored], spread[scored]]), 0.0


def _ends(model: IntensityModel, history: Any, batch: Batch) -> Tensor:
    """Return the exact log-intensities of the observed events [N]."""
    if isinstance(model, RuleModel):  # every plan contains the observed events
        nothing = Queries.seeing(batch.times[:, :0], batch.types[:, :0])
        return model.ends_and_inside(history, batch, model.collator.plan_queries(batch, nothing), False).log_at_end[0]
    found, first = [], 0
    for part in _parts(model, Queries.of_events(batch), None):
        last = first + part.times.shape[1]
        found.append(model.log_intensity(model.state(history, part), batch.types[:, first:last])[0])
        first = last
    return torch.cat(found) if found else batch.times[0]


def _mean(halves: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return (halves[0] + halves[1]) / 2.0, (halves[0] - halves[1]) ** 2 / 4.0


def _parts(model: IntensityModel, queries: Queries, sample: Sample | None) -> Iterator[Queries]:
    """Split queries into parts, so that the possible events of a part fit the device."""
    if sample is None:
        most = model.queries_at_a_time
    else:
        most = max(1, EVENTS_AT_A_TIME.get(model.device.type, EVENTS_AT_A_TIME["cuda"]) // sample.keep)
    seen = queries.seen().expand_as(queries.times)
    for start in range(0, queries.times.shape[1], most):
        yield Queries.seeing(queries.times[:, start : start + most], seen[:, start : start + most])


def _totals(model: IntensityModel, history: Any, batch: Batch, queries: Queries, sample: Sample | None) -> Tensor:
    """Return the total intensity at every query, or its estimate from a sample: float64 [Q]."""
    found = []
    for part in _parts(model, queries, sample):
        planned = model.collator.plan_queries(batch, part, sample)
        if isinstance(model, RuleModel):
            total = model.ends_and_inside(history, batch, planned, False).total_inside
        else:
            total = model.total(model.state(history, planned))
        found.append(total[0].double())
    return torch.cat(found)


def _above(model: IntensityModel, history: Any, batch: Batch, ends: Tensor, sample: Sample | None) -> Tensor:
    """Return the number of possible events with a higher intensity than the observed one, or its estimate: float64 [N]."""
    found, first = [], 0
    for part in _parts(model, Queries.of_events(batch), sample):
        planned, count = model.collator.plan_queries(batch, part, sample), part.times.shape[1]
        if isinstance(model, RuleModel):
            answer = model.planned(history, planned)
            column, weight = answer.about.column, answer.about.plan.possible_weight
            higher = (answer.possible > ends[first + column]).double()
            higher = higher if weight is None else higher * weight
            found.append(higher.new_zeros(count).index_add(0, column, higher))
        else:
            logs = model.log_intensities(model.state(history, planned))[0]
            found.append((logs > ends[first : first + count, None]).sum(-1).double())
        first += count
    return torch.cat(found) if found else ends.double()
