"""The trainer: epochs of shuffled batches, a dev score after each, early stopping, callbacks, and a state that can be resumed bit for bit.

Nothing random is carried along: the order of an epoch comes from (seed, epoch) and the draws of a step from (seed, step), so a
checkpoint needs only tensors and counters.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from foretell.batches.batch import length_buckets
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.build import Network
from foretell.train.config import TrainOptions, make_config
from foretell.train.run import Progress, RunFolder, load_checkpoint, save_checkpoint


class Adam:
    """AdamW with clipped gradients, in which matrices and embeddings shrink and levels and scales do not."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, decay: float, clip: float, device: torch.device
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.clip, self.on_cuda = clip, device.type == "cuda"
        kept, free = ([p for p in self.parameters if (p.ndim > 1) == matrix] for matrix in (True, False))
        groups = [{"params": kept, "weight_decay": decay}, {"params": free, "weight_decay": 0.0}]
        rate = torch.tensor(lr, device=device) if self.on_cuda else lr  # a captured graph reads it anew each time
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=rate, fused=True, capturable=self.on_cuda
        )

    def clear(self) -> None:
        """Before a backward pass. On CUDA the first gradient is taken as it is, and not added to zeros."""
        for parameter in self.parameters:
            if self.on_cuda:
                parameter.grad = None
            elif parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_zero_(gradients)  # pyright: ignore[reportPrivateImportUsage]

    def finish(self) -> None:
        """After a backward pass: parameters that the loss does not touch have a gradient of zero, and the norm is clipped."""
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)

    def descend(self, loss: Tensor) -> None:
        """One whole update from a loss."""
        self.clear()
        loss.backward()
        self.finish()
        self.optimizer.step()

    def set_lr(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def start(self) -> None:
        """Make the moments, all zero, without moving a parameter: a captured graph must find them in place."""
        if self.optimizer.state:
            return
        lr = float(self.optimizer.param_groups[0]["lr"])
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.set_lr(0.0)
        self.optimizer.step()
        self.set_lr(lr)
        for state in self.optimizer.state.values():
            state["step"].zero_()


@dataclass(frozen=True)
class TaskScore:
    """A score of held-out data, higher is better, and further entries for the metrics."""

    score: float
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepLoss:
    """What one update reports."""

    loss: Tensor  # summed, on the device
    count: int  # terms of the sum
    states: int = 0  # evaluations of the network at a time
    intensities: int = 0  # evaluations of single intensities


ModelT_co = TypeVar("ModelT_co", covariant=True)


class Task(Protocol[ModelT_co]):
    """What is learned and scored; the trainer calls `step` for every batch and `score` after every epoch."""

    @property
    def model(self) -> ModelT_co: ...

    @property
    def adam(self) -> Adam: ...

    def step(self, indices: np.ndarray, number: int) -> StepLoss:
        """Update the parameters once, from these sequences of the training data; `number` seeds what is drawn."""
        ...

    def score(self, data: EventData) -> TaskScore: ...

    def train_metrics(self, mean: float, progress: Progress, dev: EventData | None) -> dict[str, Any]:
        """The entries of an epoch's record about training, given the negative mean loss; `train` is its score."""
        ...


class Callback:
    """Base class of callbacks for `fit`, `pretrain` and `classify`; override what is of interest.

    Example:
        >>> class DevScores(Callback):
        ...     def __init__(self) -> None:
        ...         self.scores = []
        ...     def on_epoch(self, record: dict) -> None:
        ...         self.scores.append(record["dev"])
    """

    def on_step(self, epoch: int, step: int, steps: int) -> None:
        """Called after every update: the epoch (from 1), and how many of its steps are done."""

    def on_epoch(self, record: dict[str, Any]) -> None:
        """Called after every epoch with its line of `metrics.jsonl`."""

    def on_checkpoint(self, path: Path) -> None:
        """Called after a checkpoint was written (only with a run folder)."""

    def stop(self) -> bool:
        """Asked after every step and epoch; True ends the run with a checkpoint and `TrainingInterrupt`."""
        return False


class CallbackList(Callback):
    """Single functions and callbacks as one callback; each gets a copy of the records."""

    def __init__(
        self,
        callbacks: Iterable[Callback],
        on_step: Callable[[int, int, int], None] | None = None,
        on_epoch: Callable[[dict[str, Any]], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.callbacks = tuple(callbacks)
        self.steps = [*([on_step] if on_step else []), *(one.on_step for one in self.callbacks)]
        self.epochs = [*([on_epoch] if on_epoch else []), *(one.on_epoch for one in self.callbacks)]
        self.stops = [*([stop] if stop else []), *(one.stop for one in self.callbacks)]

    def on_step(self, epoch: int, step: int, steps: int) -> None:
        for tell in self.steps:
            tell(epoch, step, steps)

    def on_epoch(self, record: dict[str, Any]) -> None:
        for tell in self.epochs:
            tell(dict(record))

    def on_checkpoint(self, path: Path) -> None:
        for one in self.callbacks:
            one.on_checkpoint(path)

    def stop(self) -> bool:
        return any([ask() for ask in self.stops])  # all of them are asked


@contextmanager
def stopping() -> Iterator[dict[str, bool]]:
    """Turns SIGINT and SIGTERM into a flag that long loops poll, `{"stop": False}`; a second signal raises KeyboardInterrupt."""
    flag = {"stop": False}

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if flag["stop"]:
            raise KeyboardInterrupt
        flag["stop"] = True

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class TrainingInterrupt(Exception):  # noqa: N818 (not an error)
    """A callback or the user asked to stop; the state is in a checkpoint."""


ModelT = TypeVar("ModelT", bound=Network)


@dataclass(frozen=True)
class TrainingResult(Generic[ModelT]):
    """The trained model, the records of its epochs, and the best epoch's score on dev (on train where there is no dev)."""

    model: ModelT
    records: list[dict[str, Any]]
    best: float
    best_epoch: int
    floors: list[Any] = field(default_factory=list)  # `FittedFloor`s, where they were asked for


class Trainer(Generic[ModelT]):
    """Trains the model of a task; with a run folder, all of it on disk as it goes."""

    def __init__(
        self,
        task: Task[ModelT],
        train: EventData,
        dev: EventData | None,
        options: TrainOptions,
        callback: Callback,
        run: RunFolder | None = None,
        resume: bool = False,
    ) -> None:
        self.task, self.train, self.dev, self.options = task, train, dev, options
        self.callback, self.run_folder = callback, run
        self.model, self.adam = task.model, task.adam
        self.progress = Progress(lr=options.lr)
        self.best: dict[str, Tensor] = {}  # the parameters of the best epoch
        self.saved_at = time.monotonic()
        if resume and run is not None:
            checkpoint = load_checkpoint(run.checkpoint)
            checkpoint.restore(self.model, self.adam.optimizer)
            self.progress, self.best = checkpoint.progress, checkpoint.best_model
            self.adam.set_lr(self.progress.lr)

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
        batches = length_buckets(self.train.lengths, options.batch, rng)
        running = torch.zeros((), dtype=torch.float64, device=self.model.device)
        running += progress.epoch_loss
        while progress.step_in_epoch < len(batches):
            if options.schedule == "cosine":
                progress.lr = options.lr * cosine(progress.step, options.epochs * len(batches))
                self.adam.set_lr(progress.lr)
            found = self.task.step(batches[progress.step_in_epoch], progress.step)
            running += found.loss
            progress.epoch_events += found.count
            progress.states += found.states
            progress.intensities += found.intensities
            progress.step_in_epoch += 1
            progress.step += 1
            try:
                self.callback.on_step(progress.epoch + 1, progress.step_in_epoch, len(batches))
                if self.callback.stop():
                    raise TrainingInterrupt
            except Exception:
                progress.epoch_loss = float(running)
                self._checkpoint()
                raise
        self._finish_epoch(float(running), time.monotonic() - began)

    def _finish_epoch(self, loss: float, seconds: float) -> None:
        progress, options = self.progress, self.options
        if not math.isfinite(loss):
            raise ForetellError(
                f"the loss is {loss} in epoch {progress.epoch + 1}; lower train.lr (now {progress.lr:g}) or train.clip "
                f"(now {options.clip:g}) and train again"
            )
        mean = -loss / max(progress.epoch_events, 1)
        progress.epoch += 1
        progress.step_in_epoch, progress.epoch_loss, progress.epoch_events = 0, 0.0, 0
        progress.records.append(self._scored_record(mean, seconds))
        self._cool_or_stop()
        try:
            self.callback.on_epoch(progress.records[-1])
            if self.callback.stop() and not progress.done:
                raise TrainingInterrupt
        except Exception:
            self._checkpoint()
            raise
        if progress.done or time.monotonic() - self.saved_at >= options.checkpoint_seconds:
            self._checkpoint()
            self.saved_at = time.monotonic()

    def _scored_record(self, mean: float, seconds: float) -> dict[str, Any]:
        """Score the epoch, keep its parameters if they are the best so far, and return its line of the metrics."""
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
        waited = progress.epoch - progress.best_epoch
        progress.done = progress.epoch >= options.epochs or bool(options.patience and waited >= options.patience)
        if options.schedule == "cool" and options.cool and progress.epoch - progress.cooled >= options.cool:
            progress.lr, progress.cooled = progress.lr / 2.0, progress.epoch
            self.adam.set_lr(progress.lr)

    def _checkpoint(self) -> None:
        if self.run_folder is None:
            return
        path = self.run_folder.checkpoint
        save_checkpoint(path, self.progress, self.model, self.best, self.adam.optimizer)
        self.run_folder.write_metrics(self.progress.records)
        self.callback.on_checkpoint(path)


WARM_UP = 0.02  # of all steps


def cosine(step: int, steps: int) -> float:
    """What the learning rate is multiplied by: up to 1 over the first steps, then half a wave down to 0 (Loshchilov & Hutter 2017)."""
    return min(1.0, (step + 1) / (WARM_UP * steps + 1)) * 0.5 * (1.0 + math.cos(math.pi * step / steps))


def check_data(model: IntensityModel, train: EventData, dev: EventData | None) -> None:
    """Refuse data that cannot be learned from: no events, no time, or other types; also notes in the model what it is about to see."""
    if train.event_count == 0:
        raise ForetellError(f"{train.name}: there is no event to learn from")
    for data in (train, dev):
        if data is not None and data.vocabulary != model.vocabulary:
            raise ForetellError(f"{data.name}: its event types are not those of the model")
    model.unseen = tuple(int(kind) for kind in np.flatnonzero(train.type_counts() == 0))
    model.longest = float(train.columns.t_ends.max())
    if model.longest <= 0.0:
        raise ForetellError(f"{train.name}: every sequence ends at time 0, so there is no time to learn from")


def changed_options(options: TrainOptions | None, changes: dict[str, Any], caller: str) -> TrainOptions:
    """The options with single ones changed, their names and values checked."""
    options = options or TrainOptions()
    return make_config({"train": asdict(options) | changes}, caller).train if changes else options


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("expected cpu, cuda, cuda:1 or auto")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ForetellError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return device
