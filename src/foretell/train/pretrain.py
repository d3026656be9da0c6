"""`pretrain`: an A-NHP and data in, the same A-NHP out, with an encoder that tells hidden types from what is around them.

The paper's end of section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, make_batch
from foretell.batches.buckets import length_buckets
from foretell.data import EventData
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.start import start_intensities
from foretell.models.task_heads import MaskedANHP
from foretell.objective.masked import MaskedTerms, check_shares, corrupt, masked_terms
from foretell.train.adam import Descent
from foretell.train.config import TrainOptions
from foretell.train.learnable import check_data
from foretell.train.lesson import Judged, padded_width
from foretell.train.run import RunFolder
from foretell.train.step import SEED_STRIDE
from foretell.train.task import PretrainOptions
from foretell.train.teach import Watched, changed, choose_device, teach

Visibility = Callable[[Batch], Tensor]  # bool [B, N, N]: True where the row sees the column


@dataclass(frozen=True)
class Pretraining:
    """What came of it: the encoder with its mask vector and head, and the best mean log-probability of a masked type on dev (or train)."""

    model: MaskedANHP
    records: list[dict[str, Any]]
    best: float
    best_epoch: int


class MaskedLesson:
    """The types of masked events; every step and epoch masks and removes others."""

    def __init__(
        self,
        model: MaskedANHP,
        train: EventData,
        options: TrainOptions,
        task: PretrainOptions,
        visible: Visibility | None,
    ) -> None:
        self.model, self.train, self.options, self.task, self.visible = model, train, options, task, visible
        self.stepper = Descent(model.learned(), options.lr, options.decay, options.clip, model.device)
        self.generator = torch.Generator(model.device)
        sequences = min(options.batch, len(train))
        self.usual = max(task.mask * (1.0 - task.drop) * train.event_count * sequences / len(train), 1.0)

    def step(self, indices: np.ndarray, number: int) -> tuple[Tensor, int]:
        self.generator.manual_seed(self.options.seed * SEED_STRIDE + number)
        self.model.noise = self.generator
        rng = np.random.default_rng([self.options.seed, number, 1])
        terms, count = self.terms(self.train, indices, rng, padded_width(self.train, indices, self.model.device))
        loss = -terms.log_probability.sum()
        self.stepper(loss / self.usual)
        return loss.detach().double(), count

    def terms(
        self, data: EventData, indices: np.ndarray, rng: np.random.Generator, width: int | None = None
    ) -> tuple[MaskedTerms, int]:
        batch = make_batch(data, indices, device=self.model.device, width=width)
        task = self.task
        drawn = corrupt(
            data.lengths[indices], batch.times.shape[1], rng, mask=task.mask, drop=task.drop, device=self.model.device
        )
        visible = None if self.visible is None else self.visible(batch)
        return masked_terms(self.model, batch, drawn, visible), drawn.count

    @torch.no_grad()
    def judge(self, data: EventData) -> Judged:
        """With the same corruptions every time, so that epochs can be compared."""
        total, right, count = 0.0, 0, 0
        for number in range(self.task.dev_rounds):
            rng = np.random.default_rng([number, 2])
            for indices in length_buckets(data.lengths, self.options.batch, rng):
                terms, masked = self.terms(data, indices, rng)
                total, right = total + float(terms.log_probability.double().sum()), right + int(terms.right.sum())
                count += masked
        return Judged(total / max(count, 1), {"dev_accuracy": right / max(count, 1)})


def pretrain(
    model: ANHP,
    train: EventData,
    dev: EventData | None = None,
    options: TrainOptions | None = None,
    *,
    mask: float = PretrainOptions.mask,
    drop: float = PretrainOptions.drop,
    dev_rounds: int = PretrainOptions.dev_rounds,
    visible: Visibility | None = None,
    run: RunFolder | None = None,
    resume: bool = False,
    on_step: Callable[[int, int, int], None] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **changes: Any,
) -> Pretraining:
    """Train the encoder in place; `fit` and `classify` then go on from it. `visible` is a history of one's own instead of all other events.

    `mask` of the events that stay lose their type, which is to be told; `drop` of all are removed. `changes` are single options, as in
    `fit`.
    """
    check_shares(mask, drop)
    options = changed(options or TrainOptions(), changes, "pretrain")
    check_data(model, train, dev, "pretrain")
    if not model.fitted:
        model.prepare(train)
    masked = MaskedANHP(model, options.seed)
    masked.start_levels(train.type_counts())
    masked.to(choose_device(options.device))
    lesson = MaskedLesson(masked, train, options, PretrainOptions(mask, drop, dev_rounds), visible)
    progress, best = teach(lesson, train, dev, options, Watched(run, resume, on_step, on_epoch, stop))
    start_intensities(model, torch.Generator().manual_seed(options.seed))  # for the vectors that were learned
    model.start_rates(train)
    return Pretraining(masked, progress.records, best, progress.best_epoch)
