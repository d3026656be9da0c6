"""The task of all point processes: the log-likelihood of what happens and when, by maximum likelihood or noise contrast.

Every step also counts how much of the model it looks at, the currency in which objectives are compared. A *state* is one evaluation of the
network at one time; an *intensity* is one `λ_k(t)` of one type or possible event; padding is not counted. With `I` scored events and `P`
points in each of their gaps, the likelihood needs `I + (I + 1)·P` states and `I + K·(I + 1)·P` intensities; noise-contrastive estimation
needs one of both for every event that happened and for every event that was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from foretell.batches.batch import what_counts
from foretell.data import EventData
from foretell.models.base import IntensityModel
from foretell.models.rules.possible_events import possible_totals
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.integral import Points
from foretell.objective.nce import NoiseSource
from foretell.train.checkpoint import Progress
from foretell.train.config import TrainOptions
from foretell.train.score import mean_log_likelihood, sum_scored
from foretell.train.step import Adam, StepOptions, Stepper
from foretell.train.task import StepLoss, TaskScore

WIDTH_STEP = 16  # on CUDA, batches are padded to multiples of this, so that few shapes need a graph


class LikelihoodTask:
    def __init__(
        self, model: IntensityModel, train: EventData, options: TrainOptions, noise: NoiseSource | None = None
    ) -> None:
        """With `noise`, steps are of noise-contrastive estimation; the score is the likelihood all the same."""
        self.model, self.train, self.options, self.noise = model, train, options, noise
        step_options = StepOptions(
            integral=options.integral,
            points=options.points,
            clip=options.clip,
            decay=options.decay,
            pseudo_rate=options.pseudo_count / sum(sequence.t_end for sequence in train),
            downsample=options.downsample,
            piece=options.piece,
            capture=options.capture,
            seed=options.seed,
            events=_events_per_step(train, options, model.unscored),
        )
        self.stepper = Stepper(model, options.lr, step_options, noise)

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
        else:
            states, intensities = integral_cost(
                self.model, self.train, indices, events, self.options, self.stepper.uniform
            )
        return StepLoss(loss, events, states, intensities)

    def score(self, data: EventData) -> TaskScore:
        options = self.options
        return TaskScore(mean_log_likelihood(self.model, data, options.dev_points, options.window, options.downsample))

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
    if options.integral == "uniform":
        points = _points_in_gaps(data, indices, uniform)
    else:
        lengths = data.lengths[indices]
        width = int(lengths.max(initial=0))
        _, counts = what_counts(lengths, width, data.origin == "first-event", options.window)
        points = counts.astype(np.int64) * options.points
    queries = int(points.sum())
    if not isinstance(model, RuleModel):
        return events + queries, events + queries * model.types
    intensities = 0
    for row, index in enumerate(indices.tolist()):
        possible = possible_totals(model, data[index])
        if options.downsample:
            possible = np.minimum(possible, options.downsample)
        intensities += int((points[row, : len(possible)] * possible).sum())
    return events + queries, events + intensities


def _points_in_gaps(data: EventData, indices: np.ndarray, drawn: Sequence[Points]) -> np.ndarray:
    """How many of the drawn times lie in each gap: [B, N + 1]; the pieces of a batch follow one another."""
    found = np.zeros((len(indices), int(data.lengths[indices].max(initial=0)) + 1), dtype=np.int64)
    row = 0
    for points in drawn:
        used = points.weights.cpu().numpy() > 0.0
        gap = points.gap.cpu().numpy()
        for one in range(len(used)):
            found[row + one] += np.bincount(gap[one][used[one]], minlength=found.shape[1])[: found.shape[1]]
        row += len(used)
    return found
