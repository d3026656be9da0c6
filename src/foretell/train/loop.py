"""The training loop: epochs of shuffled batches, a dev score after each, early stopping, and a state that can be resumed bit for bit.

Nothing random is carried along: the order of an epoch comes from (seed, epoch) and the draws of a step from (seed, step), so a
checkpoint needs only tensors and counters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.buckets import length_buckets
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.train.checkpoint import Checkpoint, Progress
from foretell.train.config import TrainOptions
from foretell.train.lesson import Judged, Lesson, Likelihood


class Interrupted(Exception):  # noqa: N818 (not an error)
    """The user asked to stop; the state is in a checkpoint."""


@dataclass(frozen=True)
class Listener:
    """What the loop tells the outside: steps as they pass, epochs with their record, and when to write a checkpoint."""

    step: Callable[[int, int, int], None]
    epoch: Callable[[dict[str, Any]], None]
    checkpoint: Callable[[Loop], None]
    improved: Callable[[Loop], None]
    stop: Callable[[], bool]


class Loop:
    def __init__(
        self,
        lesson: Lesson,
        train: EventData,
        dev: EventData | None,
        options: TrainOptions,
        listener: Listener,
        resume: Checkpoint | None = None,
    ) -> None:
        self.lesson, self.train, self.dev, self.options, self.listener = lesson, train, dev, options, listener
        self.model, self.stepper = lesson.model, lesson.stepper
        self.progress = Progress(lr=options.lr)
        self.best: dict[str, Tensor] = {}
        self.saved_at = time.monotonic()
        if resume is not None:
            resume.restore(self.model, self.stepper.optimizer)
            self.progress, self.best = resume.progress, resume.best_model
            self.stepper.set_lr(self.progress.lr)

    def run(self) -> Progress:
        """Train to the end; the model is left with its best parameters."""
        try:
            while not self.progress.done:
                self._epoch()
        finally:
            self.model.noise = None
        if self.best:
            self.model.load_state_dict({name: tensor.to(self.model.device) for name, tensor in self.best.items()})
        self.model.eval()
        return self.progress

    def _epoch(self) -> None:
        progress, options = self.progress, self.options
        began = time.monotonic()
        self.model.train()
        rng = np.random.default_rng([options.seed, progress.epoch])
        batches = length_buckets(self.train.lengths, options.batch, rng)
        running = torch.zeros((), dtype=torch.float64, device=self.model.device)
        running += progress.epoch_loss
        while progress.step_in_epoch < len(batches):
            loss, counted = self.lesson.step(batches[progress.step_in_epoch], progress.step)
            running += loss
            progress.epoch_events += counted
            if isinstance(self.lesson, Likelihood):
                progress.states += self.lesson.evaluated.states
                progress.intensities += self.lesson.evaluated.intensities
            progress.step_in_epoch += 1
            progress.step += 1
            self.listener.step(progress.epoch + 1, progress.step_in_epoch, len(batches))
            if self.listener.stop():
                progress.epoch_loss = float(running)
                self.listener.checkpoint(self)
                raise Interrupted
        self._finish_epoch(float(running), time.monotonic() - began)

    def _finish_epoch(self, loss: float, seconds: float) -> None:
        progress, options = self.progress, self.options
        if not math.isfinite(loss):
            raise ForetellError(
                f"the loss is {loss} in epoch {progress.epoch + 1}; lower train.lr (now {progress.lr:g}) or train.clip "
                f"(now {options.clip:g}) and train again"
            )
        train_score = -loss / max(progress.epoch_events, 1)
        progress.epoch += 1
        progress.step_in_epoch, progress.epoch_loss, progress.epoch_events = 0, 0.0, 0
        self.model.eval()
        began = time.monotonic()
        found = None if self.dev is None else self.lesson.judge(self.dev)
        if found is not None and math.isnan(found.score):
            assert self.dev is not None
            raise ForetellError(f"the score of {self.dev.name} is not a number in epoch {progress.epoch}")
        learned: dict[str, Any] = {"train": train_score}
        if isinstance(self.lesson, Likelihood):
            learned = self._of_likelihood(self.lesson, train_score)
        judged = learned["train"] if found is None else found.score
        if progress.best is None or judged > progress.best:
            progress.best, progress.best_epoch, progress.cooled = judged, progress.epoch, progress.epoch
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
            self.listener.improved(self)
        record = {
            "epoch": progress.epoch,
            "step": progress.step,
            "lr": progress.lr,
            **learned,
            "dev": None if found is None else found.score,
            **(found or Judged(judged)).more,
            "best_epoch": progress.best_epoch,
            "train_seconds": seconds,
            "dev_seconds": time.monotonic() - began,
        }
        progress.records.append(record)
        self._cool_or_stop()
        self.listener.epoch(record)
        if self.listener.stop() and not progress.done:
            self.listener.checkpoint(self)
            raise Interrupted
        if progress.done or time.monotonic() - self.saved_at >= options.checkpoint_seconds:
            self.listener.checkpoint(self)
            self.saved_at = time.monotonic()

    def _of_likelihood(self, lesson: Likelihood, train_score: float) -> dict[str, Any]:
        """What was looked at so far and, where the objective is no likelihood, both; without dev data, that of train is what is judged."""
        last = self.progress.records[-1] if self.progress.records else {}
        so_far = {"states": self.progress.states, "intensities": self.progress.intensities}
        looked = so_far | {f"epoch_{name}": count - last.get(name, 0) for name, count in so_far.items()}
        if lesson.noise is None:
            return {"train": train_score, **looked}
        return {"train": lesson.judge(self.train).score if self.dev is None else None, "nce": train_score, **looked}

    def _cool_or_stop(self) -> None:
        progress, options = self.progress, self.options
        waited = progress.epoch - progress.best_epoch
        progress.done = progress.epoch >= options.epochs or bool(options.patience and waited >= options.patience)
        if options.cool and progress.epoch - progress.cooled >= options.cool:
            progress.lr, progress.cooled = progress.lr / 2.0, progress.epoch
            self.stepper.set_lr(progress.lr)
