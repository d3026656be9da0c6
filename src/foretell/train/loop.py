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

from foretell.data import EventData, EventSequence
from foretell.data.buckets import length_buckets
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.batch import make_batch
from foretell.train.checkpoint import Checkpoint, Progress
from foretell.train.config import TrainOptions
from foretell.train.score import mean_log_likelihood
from foretell.train.step import StepOptions, Stepper

WIDTH_STEP = 16  # on CUDA, batches are padded to multiples of this, so that few shapes need a graph


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
        model: IntensityModel,
        train: EventData,
        dev: EventData | None,
        options: TrainOptions,
        listener: Listener,
        resume: Checkpoint | None = None,
    ) -> None:
        self.model, self.train, self.dev, self.options, self.listener = model, train, dev, options, listener
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
        self.stepper = Stepper(model, options.lr, step_options)
        self.progress = Progress(lr=options.lr)
        self.best: dict[str, Tensor] = {}
        self.saved_at = time.monotonic()
        if resume is not None:
            resume.restore(model, self.stepper.optimizer)
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
            batch = make_batch(
                self.train,
                batches[progress.step_in_epoch],
                window=options.window,
                device=self.model.device,
                width=self._width(batches[progress.step_in_epoch]),
                unscored=self.model.unscored,
            )
            running += self.stepper(batch, progress.step)
            indices = batches[progress.step_in_epoch]
            progress.epoch_events += sum_scored(self.train, indices, options.window, self.model.unscored)
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
        dev_score = None
        if self.dev is not None:
            dev_score = mean_log_likelihood(
                self.model, self.dev, options.dev_points, options.window, options.downsample
            )
            if math.isnan(dev_score):
                raise ForetellError(f"the log-likelihood of {self.dev.name} is not a number in epoch {progress.epoch}")
        judged = train_score if dev_score is None else dev_score
        if progress.best is None or judged > progress.best:
            progress.best, progress.best_epoch, progress.cooled = judged, progress.epoch, progress.epoch
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
            self.listener.improved(self)
        record = {
            "epoch": progress.epoch,
            "step": progress.step,
            "lr": progress.lr,
            "train": train_score,
            "dev": dev_score,
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

    def _cool_or_stop(self) -> None:
        progress, options = self.progress, self.options
        waited = progress.epoch - progress.best_epoch
        progress.done = progress.epoch >= options.epochs or bool(options.patience and waited >= options.patience)
        if options.cool and progress.epoch - progress.cooled >= options.cool:
            progress.lr, progress.cooled = progress.lr / 2.0, progress.epoch
            self.stepper.set_lr(progress.lr)

    def _width(self, indices: np.ndarray) -> int | None:
        if self.model.device.type == "cpu":
            return None
        longest = int(self.train.lengths[indices].max(initial=0))
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
