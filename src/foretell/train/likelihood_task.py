"""The task of all point processes: the log-likelihood of what happens and when, by maximum likelihood or noise contrast.

Every step also counts how much of the model it looks at, the currency in which objectives are compared. A *state* is one evaluation of the
network at one time; an *intensity* is one `λ_k(t)` of one type or possible event; padding is not counted. With `I` scored events and `P`
points in each of their gaps, the likelihood needs `I + (I + 1)·P` states and `I + K·(I + 1)·P` intensities; noise-contrastive estimation
needs one of both for every event that happened and for every event that was drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from foretell.batches.batch import Batch, Sample, what_counts
from foretell.batches.order import BatchOrder, fitting_order
from foretell.data import EventData, EventSequence
from foretell.models import units
from foretell.models.base import IntensityModel
from foretell.models.capabilities import exact_integral_of
from foretell.models.rules.possible_events import gaps_of_events, possible_totals
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.loglik import Points, in_parts, log_likelihood, stratified
from foretell.objective.nce import NoiseSource
from foretell.options import Window
from foretell.shards.shard_map import ShardItem
from foretell.train.adam import Adam
from foretell.train.checkpoint import Progress
from foretell.train.config import TrainOptions
from foretell.train.processes import ProcessGroup
from foretell.train.step import StepOptions, Stepper
from foretell.train.trainer import StepLoss, TaskScore

EXPIRY_STRIDE = 1_000_003  # between the seeds of evaluations where batches draw for themselves


def batches_of(data: EventData, model: IntensityModel, window: Window, nodes: int) -> Iterator[tuple[list[int], Batch]]:
    """All sequences, in batches of similar length that fit the device with `nodes` queries per gap."""
    for indices in _fitting(data, model, nodes):
        yield indices.tolist(), batch_at(data, indices, model, window)


def batch_items(data: EventData, model: IntensityModel, nodes: int) -> list[ShardItem]:
    """The sequences of each batch of `batches_of`, as pieces of a work that may be shared out."""
    fitting = _fitting(data, model, nodes)
    return [ShardItem(indices, int(data.lengths[indices].sum()) + len(indices), len(indices)) for indices in fitting]


def _fitting(data: EventData, model: IntensityModel, nodes: int) -> BatchOrder:
    return fitting_order(data, model.queries_at_a_time // nodes)


def batch_at(data: EventData, indices: np.ndarray, model: IntensityModel, window: Window) -> Batch:
    return model.collator.batch(data, indices, window=window, device=model.device, unscored=model.unscored)


@torch.no_grad()
def mean_log_likelihood(
    model: IntensityModel,
    data: EventData,
    points_per_gap: int,
    window: Window = "all",
    downsample: int = 0,
    seed: int = 0,
    processes: ProcessGroup | None = None,
) -> float:
    """With the same stratified draws at every call: unbiased for any intensity, and comparable from epoch to epoch.

    (Nothing is trained on these draws, so nothing can learn to be quiet at just those times.) With `downsample`, only so many of the events
    possible at each time are looked at, again the same at every call. Several `processes` share the batches; with `downsample` each
    computes all of them, since what is drawn in one batch depends on those before.
    """
    value, scored = 0.0, 0
    processes = processes if processes is not None and not downsample else ProcessGroup()
    sample = Sample(downsample, np.random.default_rng(seed)) if downsample else None
    generator = torch.Generator().manual_seed(seed)
    for place, indices in enumerate(_fitting(data, model, points_per_gap)):
        exact, own = exact_integral_of(model) is not None, processes.owns(place)
        shape = len(indices), int(data.lengths[indices].max(initial=0)) + 1, points_per_gap
        draws = None if exact else torch.rand(shape, generator=generator, dtype=torch.float64)
        if not own:
            continue
        batch = batch_at(data, indices, model, window)
        if (
            draws is not None and draws.shape[:2] != batch.gap_length.shape
        ):  # expiries cut gaps: a batch draws for itself
            own_draws = torch.Generator().manual_seed(seed * EXPIRY_STRIDE + place)
            draws = torch.rand(*batch.gap_length.shape, points_per_gap, generator=own_draws, dtype=torch.float64)
        if draws is None:
            value += float(log_likelihood(model, batch, None).log_likelihood().sum())
        else:
            points = stratified(batch, points_per_gap, None, draws.to(model.device), model.short_time)
            value += _by_parts(model, batch, points, sample)
        scored += int(batch.scored.sum())
    value, scored = processes.total(value, scored)
    return value / max(scored, 1)


def _by_parts(model: IntensityModel, batch: Batch, points: Points, sample: Sample | None) -> float:
    """The log-likelihood of a batch, with some of each gap's points at a time where they are many."""
    value = 0.0
    for number, part in enumerate(in_parts(points, batch.gap_start.shape[1], model.queries_at_a_time)):
        terms = log_likelihood(model, batch, part, sample)
        value -= float(terms.gap_integral.sum())
        value += float(terms.event_log.sum()) if number == 0 else 0.0
    return value


def sum_scored(data: EventData, indices: np.ndarray, window: str, unscored: np.ndarray | None = None) -> int:
    """Scored events of some sequences, without asking the device; types that are `unscored` [K] are not."""
    first = 1 if window == "events-2-to-I" or data.origin == "first-event" else 0
    columns = data.columns
    if (unscored is None or not unscored.any()) and columns.unscored is None and columns.scored_from is None:
        return int(np.maximum(data.lengths[indices] - first, 0).sum())
    return sum(int((~history_only(data[int(place)], unscored))[first:].sum()) for place in indices)


def history_only(sequence: EventSequence, unscored: np.ndarray | None) -> np.ndarray:
    """bool [events]: what the data say so of, and events of types that are `unscored` [K]."""
    marked = units.history_only(sequence)
    return marked if unscored is None or not len(unscored) else marked | unscored[sequence.types]


def scored_alike(data: EventData, model: IntensityModel) -> EventData:
    """The data with events of types that the model does not predict as history, for every model."""
    types = model.unscored
    if types is None or not types.any():
        return data
    return replace(data, sequences=[replace(one, unscored=history_only(one, types)) for one in data], report=None)


WIDTH_STEP = 16  # on CUDA, batches are padded to multiples of this, so that few shapes need a graph


class LikelihoodTask:
    def __init__(
        self,
        model: IntensityModel,
        train: EventData,
        options: TrainOptions,
        noise: NoiseSource | None = None,
        processes: ProcessGroup | None = None,
    ) -> None:
        """With `noise`, steps are of noise-contrastive estimation; the score is the likelihood all the same."""
        self.model, self.train, self.options, self.noise = model, train, options, noise
        self.processes = processes
        step_options = StepOptions(
            integral=options.integral,
            points=options.points,
            clip=options.clip,
            decay=options.decay,
            pseudo_rate=options.pseudo_count / sum(train.columns.t_ends.tolist()),
            downsample=options.downsample,
            piece=options.piece,
            capture=options.capture,
            seed=options.seed,
            events=_events_per_step(train, options, model.unscored),
        )
        self.stepper = Stepper(model, options.lr, step_options, noise, processes)

    @property
    def adam(self) -> Adam:
        return self.stepper.adam

    def step(self, indices: np.ndarray, number: int) -> StepLoss:
        batch = self.model.collator.batch(
            self.train,
            indices,
            window=self.options.window,
            device=self.model.device,
            width=padded_width(self.train, indices, self.model.device),
            unscored=self.model.unscored,
            planned=False,
        )
        loss = self.stepper(batch, number)
        events = sum_scored(self.train, indices, self.options.window, self.model.unscored)
        if self.noise is not None:
            states = intensities = events + self.stepper.drawn
        elif self.stepper.exact:
            states = intensities = events
        else:
            states, intensities = integral_cost(
                self.model, self.train, indices, events, self.options, self.stepper.uniform
            )
        return StepLoss(loss, events, states, intensities)

    def score(self, data: EventData) -> TaskScore:
        options = self.options
        settings = options.dev_points, options.window, options.downsample
        return TaskScore(mean_log_likelihood(self.model, data, *settings, processes=self.processes))

    def train_metrics(self, mean: float, progress: Progress, dev: EventData | None) -> dict[str, Any]:
        """With the evaluations so far and of the epoch; for noise contrast the likelihood of train only where it is needed."""
        last = progress.records[-1] if progress.records else {}
        so_far = {"states": progress.states, "intensities": progress.intensities}
        cost = so_far | {f"epoch_{name}": count - last.get(name, 0) for name, count in so_far.items()}
        if self.noise is None:
            return {"train": mean, **cost}
        return {"train": self.score(self.train).score if dev is None else None, "nce": mean, **cost}


def padded_width(data: EventData, indices: np.ndarray, device: torch.device) -> int | None:
    """How wide a batch is; None: as its longest sequence."""
    if device.type == "cpu":
        return None
    longest = int(data.lengths[indices].max(initial=0))
    return -(-longest // WIDTH_STEP) * WIDTH_STEP


def _events_per_step(data: EventData, options: TrainOptions, unscored: np.ndarray | None) -> float:
    """Scored events of a batch of average sequences."""
    scored = sum_scored(data, np.arange(len(data)), options.window, unscored)
    return max(scored, 1) * min(options.batch, len(data)) / len(data)


def integral_cost(
    model: IntensityModel,
    data: EventData,
    indices: np.ndarray,
    events: int,
    options: TrainOptions,
    uniform: Sequence[Points] = (),
) -> tuple[int, int]:
    """States and intensities of one step of maximum likelihood with that many scored `events`; `uniform` are its draws of that kind."""
    lengths = data.lengths[indices]
    _, counts = what_counts(lengths, int(lengths.max(initial=0)), data.origin == "first-event", options.window)
    points = [row.astype(np.int64) * options.points for row in counts]
    if options.integral == "uniform":
        points = _points_in_gaps(uniform)
    elif isinstance(model, RuleModel) and model.program.expires:
        chosen = (gaps_of_events(model, data[index]) for index in indices.tolist())
        points = [row[gaps] for row, gaps in zip(points, chosen, strict=True)]
    queries = sum(int(row.sum()) for row in points)
    if not isinstance(model, RuleModel):
        return events + queries, events + queries * model.types
    intensities = 0
    for row, index in enumerate(indices.tolist()):
        possible = possible_totals(model, data[index])
        if options.downsample:
            possible = np.minimum(possible, options.downsample)
        some = min(len(possible), len(points[row]))
        intensities += int((points[row][:some] * possible[:some]).sum())
    return events + queries, events + intensities


def _points_in_gaps(drawn: Sequence[Points]) -> list[np.ndarray]:
    """How many of the drawn times lie in each gap, sequence by sequence; the pieces of a batch follow one another."""
    found = []
    for points in drawn:
        used = points.weights.cpu().numpy() > 0.0
        found += [np.bincount(gap[some]) for gap, some in zip(points.gap.cpu().numpy(), used, strict=True)]
    return found
