"""The task of all point processes: the log-likelihood of events and their times, by maximum likelihood or noise contrast.

Every step also counts its evaluations of the model, because objectives are compared at equal cost. A *state* is one evaluation of the
network at one time; an *intensity* is one `λ_k(t)` of one type or possible event; padding is not counted. With `I` scored events and `P`
points in each of their gaps, the likelihood needs `I + (I + 1)·P` states and `I + K·(I + 1)·P` intensities. Noise-contrastive estimation
needs one state and one intensity for every observed event and for every noise event.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Sample, what_counts
from foretell.batches.carrying import BatchPart, CarriesState, EncodedPart, encoded_parts
from foretell.batches.order import BatchOrder, fitting_order
from foretell.data import EventData, EventSequence
from foretell.errors import ForetellError
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
from foretell.train.ahead import AheadQueue
from foretell.train.checkpoint import Progress
from foretell.train.config import TrainOptions
from foretell.train.processes import ProcessGroup
from foretell.train.step import StepOptions, Stepper
from foretell.train.trainer import StepLoss, TaskScore

EXPIRY_STRIDE = 1_000_003  # difference between the seeds of batches that make their own draws


def batches_of(data: EventData, model: IntensityModel, window: Window, nodes: int) -> Iterator[tuple[list[int], Batch]]:
    """Yield all sequences in batches of similar length, with their indices; `nodes` queries per gap fit on the device."""
    for indices in _fitting(data, model, nodes):
        yield indices.tolist(), batch_at(data, indices, model, window)


def batch_items(data: EventData, model: IntensityModel, nodes: int) -> list[ShardItem]:
    """Return the batches of `batches_of` as shard items with the indices of their sequences."""
    fitting = _fitting(data, model, nodes)
    return [ShardItem(indices, int(data.lengths[indices].sum()) + len(indices), len(indices)) for indices in fitting]


def _fitting(data: EventData, model: IntensityModel, nodes: int) -> BatchOrder:
    return fitting_order(data, model.queries_at_a_time // nodes)


def batch_at(
    data: EventData, indices: np.ndarray, model: IntensityModel, window: Window, part: range | None = None
) -> Batch:
    return model.collator.batch(data, indices, window=window, device=model.device, unscored=model.unscored, part=part)


def parts_at(data: EventData, indices: np.ndarray, model: IntensityModel, window: Window) -> Iterator[EncodedPart]:
    """Encode these sequences: as a whole or, if they are long and the model can continue from a state, part by part."""
    longest = int(data.lengths[indices].max(initial=0))
    return encoded_parts(model, longest, lambda part: batch_at(data, indices, model, window, part))


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
    """Return the log-likelihood per scored event. Every call uses the same stratified draws, so that epochs can be compared.

    The estimate is unbiased for any intensity. Training uses other draws, so the model cannot overfit to these. `downsample` limits
    the number of possible events used at each time, the same at every call. Several `processes` share the batches; with `downsample` each
    process computes all of them, since the draws of a batch depend on earlier batches.
    """
    value, scored = 0.0, 0
    processes = processes if processes is not None and not downsample else ProcessGroup()
    sample = Sample(downsample, np.random.default_rng(seed)) if downsample else None
    generator = torch.Generator().manual_seed(seed)
    for place, indices in enumerate(_fitting(data, model, points_per_gap)):
        exact, own = exact_integral_of(model) is not None, processes.owns(place)
        shape = len(indices), int(data.lengths[indices].max(initial=0)) + 1, points_per_gap
        draws = None if exact else torch.rand(shape, generator=generator, dtype=torch.float64)
        for part in parts_at(data, indices, model, window) if own else ():
            batch = part.batch
            if draws is None:
                value += float(log_likelihood(model, batch, None, history=part.history).log_likelihood().sum())
            else:
                drawn = draws[:, part.first : part.first + batch.gap_length.shape[1]]
                if drawn.shape[:2] != batch.gap_length.shape:  # expiries cut gaps: this batch needs its own draws
                    own_draws = torch.Generator().manual_seed(seed * EXPIRY_STRIDE + place)
                    shape = *batch.gap_length.shape, points_per_gap
                    drawn = torch.rand(shape, generator=own_draws, dtype=torch.float64)
                points = stratified(batch, points_per_gap, None, drawn.to(model.device), model.short_time)
                value += _by_parts(model, part, points, sample)
            scored += int(batch.scored.sum())
    value, scored = processes.total(value, scored)
    return value / max(scored, 1)


def _by_parts(model: IntensityModel, read: EncodedPart, points: Points, sample: Sample | None) -> float:
    """Return the log-likelihood of a batch. If gaps have many points, only some of them are computed at a time."""
    value = 0.0
    for number, part in enumerate(in_parts(points, read.batch.gap_start.shape[1], model.queries_at_a_time)):
        terms = log_likelihood(model, read.batch, part, sample, read.history)
        value -= float(terms.gap_integral.sum())
        value += float(terms.event_log.sum()) if number == 0 else 0.0
    return value


def sum_scored(
    data: EventData,
    indices: np.ndarray,
    window: str,
    unscored: np.ndarray | None = None,
    part: range | None = None,
) -> int:
    """Return the number of scored events of these sequences, or of a `part` of each; types in `unscored` [K] do not count."""
    first = 1 if window == "events-2-to-I" or data.origin == "first-event" else 0
    first, stop = (first, None) if part is None else (max(first, part.start), part.stop)
    columns = data.columns
    if (unscored is None or not unscored.any()) and columns.unscored is None and columns.scored_from is None:
        lengths = data.lengths[indices]
        return int(np.maximum((lengths if stop is None else np.minimum(lengths, stop)) - first, 0).sum())
    return sum(int((~history_only(data[int(place)], unscored))[first:stop].sum()) for place in indices)


def history_only(sequence: EventSequence, unscored: np.ndarray | None) -> np.ndarray:
    """Return bool [events]: True for events that the data mark as history only, and for those of `unscored` [K] types."""
    marked = units.history_only(sequence)
    return marked if unscored is None or not len(unscored) else marked | unscored[sequence.types]


def scored_alike(data: EventData, model: IntensityModel) -> EventData:
    """Return the data with events of types that the model does not predict marked as history only."""
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
        """With `noise`, steps use noise-contrastive estimation; the score is the likelihood in both cases."""
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
            carry=bool(options.carry_events),
        )
        self.stepper = Stepper(model, options.lr, step_options, noise, processes)
        self.steps_ahead = steps_ahead(options, model)
        self.ahead: AheadQueue[tuple[Batch, Mapping[Hashable, Any]]] | None = None
        self.carried: tuple[Tensor, ...] | None = None  # the model's state after the last step's sequences

    @property
    def adam(self) -> Adam:
        return self.stepper.adam

    def step(self, chosen: np.ndarray | BatchPart, number: int) -> StepLoss:
        if self.ahead is None:
            batch = self._batch(chosen)
        else:
            batch, plans = self.ahead.take(chosen)
            self.model.collator.hand(plans)
        indices, part = _parted(chosen)
        if isinstance(chosen, BatchPart) and not chosen.begins:
            batch = replace(batch, carried=self._carried(len(batch)))
        loss = self.stepper(batch, number)
        if part is not None:
            self.carried = self.stepper.carried(len(batch))
        events = sum_scored(self.train, indices, self.options.window, self.model.unscored, part)
        if self.noise is not None:
            states = intensities = events + self.stepper.drawn
        elif self.stepper.exact:
            states = intensities = events
        else:
            asked = self.train, indices, events, self.options, self.stepper.uniform
            states, intensities = integral_cost(self.model, *asked, part)
        return StepLoss(loss, events, states, intensities)

    def _batch(self, chosen: np.ndarray | BatchPart) -> Batch:
        indices, part = _parted(chosen)
        return self.model.collator.batch(
            self.train,
            indices,
            window=self.options.window,
            device=self.model.device,
            width=padded_width(self.train, indices, self.model.device) if part is None else None,
            unscored=self.model.unscored,
            planned=False,
            part=part,
        )

    @contextmanager
    def looking_ahead(self, order: BatchOrder, first: int) -> Iterator[None]:
        """A context in which a thread makes the batches of the steps from `first` on, so that a GPU need not wait for them."""
        if not self.steps_ahead:
            yield
            return

        def made(chosen: np.ndarray | BatchPart) -> tuple[Batch, Mapping[Hashable, Any]]:
            with self.stepper.executor.still:
                batch = self._batch(chosen)
            return batch, self.stepper.plans_ahead(batch)

        chosen = (order.step(place) for place in range(first, len(order)))
        self.ahead = AheadQueue(made, chosen, self.steps_ahead)
        try:
            yield
        finally:
            self.ahead.close()
            self.ahead = None

    def _carried(self, rows: int) -> tuple[Tensor, ...]:
        """Return the state from which the next part of the sequences continues."""
        assert isinstance(self.model, CarriesState)
        sizes = [(rows, size) for size in self.model.carried_sizes()]
        if self.carried is None or [tuple(one.shape) for one in self.carried] != sizes:
            raise ForetellError("the checkpoint lacks the states of the sequences that the next step continues")
        return self.carried

    def kept(self) -> dict[str, Tensor]:
        """Return the tensors, besides the parameters, from which the next step continues."""
        return {} if self.carried is None else {str(place): one for place, one in enumerate(self.carried)}

    def restore(self, kept: dict[str, Tensor]) -> None:
        """Restore the tensors that `kept` returned."""
        model = self.model
        found = tuple(
            kept[name].to(model.device, model.dtype) for name in sorted(kept, key=lambda one: (len(one), one))
        )
        self.carried = found or None

    def score(self, data: EventData) -> TaskScore:
        options = self.options
        settings = options.dev_points, options.window, options.downsample
        return TaskScore(mean_log_likelihood(self.model, data, *settings, processes=self.processes))

    def train_metrics(self, mean: float, progress: Progress, dev: EventData | None) -> dict[str, Any]:
        """Return the training score and evaluation counts. For noise contrast, the likelihood of train is only computed without dev."""
        last = progress.records[-1] if progress.records else {}
        so_far = {"states": progress.states, "intensities": progress.intensities}
        cost = so_far | {f"epoch_{name}": count - last.get(name, 0) for name, count in so_far.items()}
        if self.noise is None:
            return {"train": mean, **cost}
        return {"train": self.score(self.train).score if dev is None else None, "nce": mean, **cost}


def steps_ahead(options: TrainOptions, model: IntensityModel) -> int:
    """Return the number of batches that are made ahead: not 0 only on a GPU for models with rules, whose plans are slow.

    On a CPU it would not help, since thread and steps share the CPU. Batches of other models are made while the GPU is busy in any case.
    """
    return options.ahead if model.device.type == "cuda" and isinstance(model, RuleModel) else 0


def _parted(chosen: np.ndarray | BatchPart) -> tuple[np.ndarray, range | None]:
    """Return the indices of the sequences and the range of their events; None: all events."""
    return (chosen.indices, chosen.events) if isinstance(chosen, BatchPart) else (chosen, None)


def padded_width(data: EventData, indices: np.ndarray, device: torch.device) -> int | None:
    """Return the padded length of a batch; None: the length of its longest sequence."""
    if device.type == "cpu":
        return None
    longest = int(data.lengths[indices].max(initial=0))
    return -(-longest // WIDTH_STEP) * WIDTH_STEP


def _events_per_step(data: EventData, options: TrainOptions, unscored: np.ndarray | None) -> float:
    """Return the number of scored events per step, for a batch of average sequences or of average parts."""
    scored = max(sum_scored(data, np.arange(len(data)), options.window, unscored), 1)
    if not options.carry_events:
        return scored * min(options.batch, len(data)) / len(data)
    longest = np.sort(data.lengths)[::-1][:: options.batch]  # the longest of each batch
    return scored / max(int((-(-longest // options.carry_events)).sum()), 1)


def integral_cost(
    model: IntensityModel,
    data: EventData,
    indices: np.ndarray,
    events: int,
    options: TrainOptions,
    uniform: Sequence[Points] = (),
    part: range | None = None,
) -> tuple[int, int]:
    """Return the numbers of states and intensities of one maximum-likelihood step with this number of scored `events`.

    The step has the sequences `indices`, or a `part` of each; `uniform` are its integration times if these are uniform.
    """
    lengths = data.lengths[indices]
    width = int(lengths.max(initial=0)) if part is None else len(part)
    _, counts = what_counts(lengths, width, data.origin == "first-event", options.window, part)
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
    """Return the number of drawn times in each gap, one array per sequence; `drawn` has one entry per piece, in order."""
    found = []
    for points in drawn:
        used = points.weights.cpu().numpy() > 0.0
        found += [np.bincount(gap[some]) for gap, some in zip(points.gap.cpu().numpy(), used, strict=True)]
    return found
