"""What a run learns, batch by batch, and how well it has learned it: the part of training that differs from task to task.

The loop knows epochs, early stopping and checkpoints; a lesson knows its loss. `Likelihood` is the lesson of all point processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventData, EventSequence
from foretell.models.base import IntensityModel
from foretell.models.build import Network
from foretell.objective.noise_source import NoiseSource
from foretell.train.config import TrainOptions
from foretell.train.cost import Evaluations, for_integral
from foretell.train.score import mean_log_likelihood
from foretell.train.step import StepOptions, Stepper

WIDTH_STEP = 16  # on CUDA, batches are padded to multiples of this, so that few shapes need a graph


class Steps(Protocol):
    """Holds the optimiser."""

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    def set_lr(self, lr: float) -> None: ...


@dataclass(frozen=True)
class Judged:
    """A score of held-out data, higher is better, and what else is worth a line in the metrics."""

    score: float
    more: dict[str, Any] = field(default_factory=dict)


class Lesson(Protocol):
    @property
    def model(self) -> Network: ...

    @property
    def stepper(self) -> Steps: ...

    def step(self, indices: np.ndarray, number: int) -> tuple[Tensor, int]:
        """Learn from some sequences of the training data: the summed loss, on the device, and of how many things it is the sum."""
        ...

    def judge(self, data: EventData) -> Judged: ...


class Likelihood:
    """The log-likelihood of what happens, and when."""

    def __init__(
        self, model: IntensityModel, train: EventData, options: TrainOptions, noise: NoiseSource | None = None
    ) -> None:
        """With `noise`, steps are of noise-contrastive estimation; what is judged is the likelihood all the same."""
        self.model, self.train, self.options, self.noise = model, train, options, noise
        self.evaluated = Evaluations()  # by the last step
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
            events=events_a_step(train, options, model.unscored),
        )
        self.stepper = Stepper(model, options.lr, step_options, noise)

    def step(self, indices: np.ndarray, number: int) -> tuple[Tensor, int]:
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
            self.evaluated = Evaluations(events + self.stepper.drawn, events + self.stepper.drawn)
        else:
            self.evaluated = for_integral(self.model, self.train, indices, events, self.options, self.stepper.uniform)
        return loss, events

    def judge(self, data: EventData) -> Judged:
        options = self.options
        return Judged(mean_log_likelihood(self.model, data, options.dev_points, options.window, options.downsample))


def padded_width(data: EventData, indices: np.ndarray, device: torch.device) -> int | None:
    """How wide a batch is; None: as its longest sequence."""
    if device.type == "cpu":
        return None
    longest = int(data.lengths[indices].max(initial=0))
    return -(-longest // WIDTH_STEP) * WIDTH_STEP


def events_a_step(data: EventData, options: TrainOptions, unscored: np.ndarray | None = None) -> float:
    """Scored events of a batch of average sequences."""
    scored = sum_scored(data, np.arange(len(data)), options.window, unscored)
    return max(scored, 1) * min(options.batch, len(data)) / len(data)


def sum_scored(data: EventData, indices: np.ndarray, window: str, unscored: np.ndarray | None = None) -> int:
    """Scored events of some sequences, without asking the device; types that are `unscored` [K] are not."""
    first = 1 if window == "events-2-to-I" or data.origin == "first-event" else 0
    if (unscored is None or not unscored.any()) and data.columns.unscored is None:
        return int(np.maximum(data.lengths[indices] - first, 0).sum())
    return sum(int((~history_only(data[int(place)], unscored))[first:].sum()) for place in indices)


def history_only(sequence: EventSequence, unscored: np.ndarray | None) -> np.ndarray:
    """bool [events]: what the data mark so, and events of types that are `unscored` [K]."""
    marked = np.zeros(len(sequence), dtype=bool) if sequence.unscored is None else sequence.unscored
    return marked if unscored is None or not len(unscored) else marked | unscored[sequence.types]
