"""The task of networks with a head: the log-probability of labels, which are masked types, or properties of sequences or events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from foretell.batches.buckets import length_buckets
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.task_heads import Headed
from foretell.objective.masked import LabelTerms
from foretell.train.checkpoint import Progress
from foretell.train.config import TrainOptions
from foretell.train.likelihood_task import padded_width
from foretell.train.step import SEED_STRIDE, Adam
from foretell.train.task import StepLoss, TaskScore

HeadedT = TypeVar("HeadedT", bound=Headed)
Terms = Callable[[EventData, np.ndarray, np.random.Generator, "int | None"], LabelTerms]


class LabelTask(Generic[HeadedT]):
    def __init__(
        self,
        model: HeadedT,
        train: EventData,
        options: TrainOptions,
        terms: Terms,
        labels: float,
        rounds: Sequence[Any] = (0,),
    ) -> None:
        """`terms` gives the labels of some sequences of some data, in a batch of a width, with what is random drawn from a generator.

        `labels` is the expected number of labels of the training data; `rounds` are the seeds of the passes over held-out data.
        """
        self.model, self.train, self.options, self.terms, self.rounds = model, train, options, terms, rounds
        self.adam = Adam(model.learned(), options.lr, options.decay, options.clip, model.device)
        self.generator = torch.Generator(model.device)
        self.usual = max(labels * min(options.batch, len(train)) / len(train), 1.0)  # labels of a usual step

    def step(self, indices: np.ndarray, number: int) -> StepLoss:
        self.generator.manual_seed(self.options.seed * SEED_STRIDE + number)
        self.model.noise = self.generator
        rng = np.random.default_rng([self.options.seed, number, 1])
        terms = self.terms(self.train, indices, rng, padded_width(self.train, indices, self.model.device))
        loss = -terms.log_probability.sum()
        self.adam.descend(loss / self.usual)
        return StepLoss(loss.detach().double(), len(terms.right))

    @torch.no_grad()
    def score(self, data: EventData) -> TaskScore:
        """The mean log-probability of a label, with the same draws every time, so that epochs can be compared."""
        total, right, count = 0.0, 0, 0
        for seed in self.rounds:
            rng = np.random.default_rng(seed)
            for indices in length_buckets(data.lengths, self.options.batch, rng):
                terms = self.terms(data, indices, rng, None)
                total, right = total + float(terms.log_probability.double().sum()), right + int(terms.right.sum())
                count += len(terms.right)
        return TaskScore(total / max(count, 1), {"dev_accuracy": right / max(count, 1)})

    def train_metrics(self, mean: float, progress: Progress, dev: EventData | None) -> dict[str, Any]:
        return {"train": mean}


def checked_encoder(model: IntensityModel, caller: str) -> ANHP:
    if not isinstance(model, ANHP):
        raise ForetellError(
            f"{caller}: found {type(model).__name__}, expected an A-NHP: the other models have no two-sided encoder"
        )
    return model
