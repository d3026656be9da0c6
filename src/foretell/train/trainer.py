"""The trainer: epochs of shuffled batches, a dev score after each, early stopping, callbacks, and checkpoints for resuming bit for bit.

There is no random state: the order of an epoch is seeded by (seed, epoch) and the draws of a step by (seed, step). So a checkpoint needs
only tensors and counters.
"""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from foretell.batches.carrying import PartOrder
from foretell.batches.order import BatchOrder, epoch_order
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.models.build import Network
from foretell.train.adam import Adam
from foretell.train.callbacks import Callback
from foretell.train.checkpoint import Progress, load_checkpoint, save_checkpoint
from foretell.train.config import TrainOptions, make_config
from foretell.train.interrupting import TrainingInterrupt, interruptible
from foretell.train.processes import ProcessGroup, own_device
from foretell.train.run import RunFolder
from foretell.train.weight_average import WeightAverage


@dataclass(frozen=True)
class TaskScore:
    """A score on held-out data (higher is better), and additional entries for the metrics."""

    score: float
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepLoss:
    """The result of one update: its loss and its counts of work."""

    loss: Tensor  # summed over terms, on the device
    count: int  # number of terms in the sum
    states: int = 0  # evaluations of the network at a time
    intensities: int = 0  # evaluations of single intensities


ModelT_co = TypeVar("ModelT_co", covariant=True)


class Task(Protocol[ModelT_co]):
    """The learning problem; the trainer calls `step` for every batch, and `score` after every epoch."""

    @property
    def model(self) -> ModelT_co: ...

    @property
    def adam(self) -> Adam: ...

    def step(self, chosen: Any, number: int) -> StepLoss:
        """Update the parameters once, on these sequences (or parts) of the training data; `number` seeds the step's random draws."""
        ...

    def looking_ahead(self, order: BatchOrder, first: int) -> AbstractContextManager[None]:
        """A context in which steps follow `order` from `first` on, so that their batches may be made ahead."""
        ...

    def kept(self) -> dict[str, Tensor]:
        """Return the tensors, besides the parameters, from which the next step continues."""
        ...

    def restore(self, kept: dict[str, Tensor]) -> None:
        """Restore the tensors that `kept` returned."""
        ...

    def score(self, data: EventData) -> TaskScore: ...

    def train_metrics(self, mean: float, progress: Progress, dev: EventData | None) -> dict[str, Any]:
        """Return the entries of an epoch's record about training, from the negative mean loss; `train` is the training score."""
        ...


ModelT = TypeVar("ModelT", bound=Network)


@dataclass(frozen=True)
class TrainingResult(Generic[ModelT]):
    """The trained model, the records of its epochs, and the best epoch's score on dev (on train where there is no dev)."""

    model: ModelT
    records: list[dict[str, Any]]
    best: float
    best_epoch: int
    floors: list[Any] = field(default_factory=list)  # `FittedFloor`s, if requested


class Trainer(Generic[ModelT]):
    """Trains the model of a task; with a run folder, it writes everything to disk during training."""

    def __init__(
        self,
        task: Task[ModelT],
        train: EventData,
        dev: EventData | None,
        options: TrainOptions,
        callback: Callback,
        run: RunFolder | None = None,
        resume: bool = False,
        processes: ProcessGroup | None = None,
    ) -> None:
        self.task, self.train, self.dev, self.options = task, train, dev, options
        self.processes = processes or ProcessGroup()
        self.callback, self.run_folder = callback, run if self.processes.first else None
        self.model, self.adam = task.model, task.adam
        self.progress = Progress(lr=options.lr)
        self.best: dict[str, Tensor] = {}  # parameters of the best epoch
        self.saved_at = time.monotonic()
        checkpoint = load_checkpoint(run.checkpoint) if resume and run is not None else None
        if checkpoint is not None:
            checkpoint.restore(self.model, self.adam.optimizer)
            self.progress, self.best = checkpoint.progress, checkpoint.best_model
            task.restore(checkpoint.carried)
            self.adam.set_lr(self.progress.lr)
            if self.progress.done:  # a finished run continues if its number of epochs was raised
                self.progress.done = self._is_over()
        self.processes.equalise(self.model)
        self.average = WeightAverage(self.model, options.average)
        if checkpoint is not None:
            self.average.restore(checkpoint)

    def run(self) -> TrainingResult[ModelT]:
        """Train to the end, and leave the model with its best parameters."""
        try:
            while not self.progress.done:
                self._epoch()
        finally:
            self.model.noise = None
        if self.best:
            self.model.load_state_dict({name: tensor.to(self.model.device) for name, tensor in self.best.items()})
        self.model.eval()
        progress = self.progress
        assert progress.best is not None
        return TrainingResult(self.model, progress.records, progress.best, progress.best_epoch)

    def _epoch(self) -> None:
        progress, options = self.progress, self.options
        began = time.monotonic()
        self.model.train()
        rng = np.random.default_rng([options.seed, progress.epoch])
        batches = epoch_order(self.train, options.batch, rng, options.buffer)
        batches = PartOrder(batches, options.carry_events) if options.carry_events else batches
        running = torch.zeros((), dtype=torch.float64, device=self.model.device)
        running += progress.epoch_loss
        with self.task.looking_ahead(batches, progress.step_in_epoch):
            self._steps(batches, running)
        self._finish_epoch(float(running), time.monotonic() - began)

    def _steps(self, batches: BatchOrder, running: Tensor) -> None:
        """Take the remaining steps of the epoch; their losses are added to `running`."""
        progress, options = self.progress, self.options
        while progress.step_in_epoch < len(batches):
            if options.schedule == "cosine":
                progress.lr = options.lr * cosine(progress.step, options.epochs * len(batches))
                self.adam.set_lr(progress.lr)
            try:
                found = self.task.step(batches.step(progress.step_in_epoch), progress.step)
            except TrainingInterrupt:  # in the middle of a step, whose partial results are dropped
                progress.epoch_loss = float(running)
                self._checkpoint()
                raise
            self.average.follow(progress.step)
            running += found.loss
            progress.epoch_events += found.count
            progress.states += found.states
            progress.intensities += found.intensities
            progress.step_in_epoch += 1
            progress.step += 1
            batches.passed(progress.step_in_epoch)
            try:
                self.callback.on_step(progress.epoch + 1, progress.step_in_epoch, len(batches))
                if self.processes.any(self.callback.stop()):
                    raise TrainingInterrupt
            except Exception:
                progress.epoch_loss = float(running)
                self._checkpoint()
                raise
            if options.checkpoint_seconds and time.monotonic() - self.saved_at >= options.checkpoint_seconds:
                progress.epoch_loss = float(running)
                self._checkpoint()

    def _finish_epoch(self, loss: float, seconds: float) -> None:
        progress, options = self.progress, self.options
        if not math.isfinite(loss):
            raise ForetellError(
                f"the loss is {loss} in epoch {progress.epoch + 1}; lower train.lr (now {progress.lr:g}) or train.clip "
                f"(now {options.clip:g}) and train again"
            )
        mean = -loss / max(progress.epoch_events, 1)
        progress.epoch_loss = loss
        unscored = replace(progress)
        progress.epoch += 1
        progress.step_in_epoch, progress.epoch_loss, progress.epoch_events = 0, 0.0, 0
        try:
            with self.average.in_place(), interruptible():
                record = self._scored_record(mean, seconds)
        except TrainingInterrupt:  # the epoch will be scored when the run is resumed
            self.progress = unscored
            self._checkpoint()
            raise
        progress.records.append(record)
        self._cool_or_stop()
        try:
            self.callback.on_epoch(progress.records[-1])
            if self.processes.any(self.callback.stop()) and not progress.done:
                raise TrainingInterrupt
        except Exception:
            self._checkpoint()
            raise
        if progress.done or time.monotonic() - self.saved_at >= options.checkpoint_seconds:
            self._checkpoint()

    def _scored_record(self, mean: float, seconds: float) -> dict[str, Any]:
        """Score the epoch, store its parameters if they are the best so far, and return its record for the metrics."""
        progress = self.progress
        self.model.eval()
        began = time.monotonic()
        found = None if self.dev is None else self.task.score(self.dev)
        if found is not None and math.isnan(found.score):
            said = f"the score of {self.dev and self.dev.name} is not a number in epoch {progress.epoch}"
            raise ForetellError(f"{said}: numbers overflowed; lower train.lr (now {progress.lr:g}) and train again")
        training = self.task.train_metrics(mean, progress, self.dev)
        score = training["train"] if found is None else found.score
        if progress.best is None or score > progress.best:
            progress.best, progress.best_epoch, progress.cooled = score, progress.epoch, progress.epoch
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
            if self.run_folder is not None:
                self.run_folder.save_model(self.model)
        return {
            "epoch": progress.epoch,
            "step": progress.step,
            "lr": progress.lr,
            **training,
            "dev": None if found is None else found.score,
            **(found or TaskScore(score)).more,
            "best_epoch": progress.best_epoch,
            "train_seconds": seconds,
            "dev_seconds": time.monotonic() - began,
        }

    def _cool_or_stop(self) -> None:
        progress, options = self.progress, self.options
        progress.done = self._is_over()
        if options.schedule == "cool" and options.cool and progress.epoch - progress.cooled >= options.cool:
            progress.lr, progress.cooled = progress.lr / 2.0, progress.epoch
            self.adam.set_lr(progress.lr)

    def _is_over(self) -> bool:
        """Whether all epochs were trained, or the last `patience` epochs brought no improvement."""
        progress, options = self.progress, self.options
        waited = progress.epoch - progress.best_epoch
        return progress.epoch >= options.epochs or bool(options.patience and waited >= options.patience)

    def _checkpoint(self) -> None:
        self.saved_at = time.monotonic()
        if self.run_folder is None:
            return
        path = self.run_folder.checkpoint
        kept = {"model": self.model.state_dict(), "best": self.best, "average": self.average.tensors}
        kept["carried"] = self.task.kept()
        save_checkpoint(path, self.progress, kept, self.adam.optimizer)
        self.run_folder.write_metrics(self.progress.records)
        self.callback.on_checkpoint(path)


WARM_UP = 0.02  # share of all steps


def cosine(step: int, steps: int) -> float:
    """Return the factor of the learning rate: a linear rise to 1, then half a cosine wave to 0 (Loshchilov & Hutter 2017)."""
    return min(1.0, (step + 1) / (WARM_UP * steps + 1)) * 0.5 * (1.0 + math.cos(math.pi * step / steps))


def changed_options(options: TrainOptions | None, changes: dict[str, Any], caller: str) -> TrainOptions:
    """Return the options with some of them changed; raises `ForetellError` for unknown names and wrong values."""
    options = options or TrainOptions()
    return make_config({"train": asdict(options) | changes}, caller).train if changes else options


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device(own_device("cuda") if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(own_device(name))
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("expected cpu, cuda, cuda:1 or auto")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ForetellError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return device
