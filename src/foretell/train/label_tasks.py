"""Training of networks with a task head, by the log-probability of labels: masked types, or properties of sequences or events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, length_buckets, make_batch
from foretell.batches.order import BatchOrder
from foretell.data import EventData
from foretell.data.labels import NO_LABEL, Labels, find_labels, labelled
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.start import start_intensities
from foretell.models.base import IntensityModel
from foretell.models.covariates import say_unused
from foretell.models.task_heads import Classifier, MaskedANHP, TaskHead
from foretell.objective.masked import LabelTerms, corrupt, masked_terms
from foretell.options import Sight
from foretell.train.adam import Adam
from foretell.train.arguments import check_arguments, check_data
from foretell.train.callbacks import Callback, CallbackList, run_settings
from foretell.train.checkpoint import Progress
from foretell.train.config import PretrainOptions, TrainOptions
from foretell.train.likelihood_task import padded_width
from foretell.train.progress import with_progress
from foretell.train.run import RunFolder, held
from foretell.train.step import SEED_STRIDE
from foretell.train.trainer import (
    StepLoss,
    TaskScore,
    Trainer,
    TrainingResult,
    changed_options,
    choose_device,
)

TaskHeadT = TypeVar("TaskHeadT", bound=TaskHead)
Terms = Callable[[EventData, np.ndarray, np.random.Generator, "int | None"], LabelTerms]


class LabelTask(Generic[TaskHeadT]):
    def __init__(
        self,
        model: TaskHeadT,
        train: EventData,
        options: TrainOptions,
        terms: Terms,
        labels: float,
        rounds: Sequence[Any] = (0,),
    ) -> None:
        """`terms(data, indices, rng, width)` returns the labels of these sequences, padded to `width`, with random draws from `rng`.

        `labels` is the expected number of labels of the training data; `rounds` are the seeds of the passes over held-out data.
        """
        self.model, self.train, self.options, self.terms, self.rounds = model, train, options, terms, rounds
        self.adam = Adam(model.learned(), options.lr, options.decay, options.clip, model.device)
        self.generator = torch.Generator(model.device)
        self.usual = max(labels * min(options.batch, len(train)) / len(train), 1.0)  # labels of an average step

    def step(self, chosen: np.ndarray, number: int) -> StepLoss:
        self.generator.manual_seed(self.options.seed * SEED_STRIDE + number)
        self.model.noise = self.generator
        rng = np.random.default_rng([self.options.seed, number, 1])
        terms = self.terms(self.train, chosen, rng, padded_width(self.train, chosen, self.model.device))
        loss = -terms.log_probability.sum()
        self.adam.descend(loss / self.usual)
        return StepLoss(loss.detach().double(), len(terms.right))

    @torch.no_grad()
    def score(self, data: EventData) -> TaskScore:
        """Return the mean log-probability per label. The draws are the same every time, so that epochs can be compared."""
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

    def looking_ahead(self, order: BatchOrder, first: int) -> AbstractContextManager[None]:
        """A context that does nothing: each step makes its own batch."""
        return nullcontext()

    def kept(self) -> dict[str, torch.Tensor]:
        """Return an empty dict: a step depends on no state besides the parameters."""
        return {}

    def restore(self, kept: dict[str, torch.Tensor]) -> None:
        """Do nothing: there is no state to restore."""


def checked_encoder(model: IntensityModel, caller: str, train: EventData) -> ANHP:
    if not isinstance(model, ANHP):
        raise ForetellError(
            f"{caller}: found {type(model).__name__}, expected an A-NHP: the other models have no two-sided encoder"
        )
    if model.covariates is not None:
        raise ForetellError(f"{caller}: the model has covariates, which this task cannot use; start from one without")
    say_unused(train, f"{caller} cannot use covariates")
    return model


Visibility = Callable[[Batch], Tensor]  # bool [B, N, N]: True where the event of the row sees the event of the column
Pretraining = TrainingResult[MaskedANHP]


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
    callbacks: Iterable[Callback] = (),
    on_step: Callable[[int, int, int], None] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[], bool] | None = None,
    progress: bool | None = None,
    **changes: Any,
) -> Pretraining:
    """Pretrain the encoder of an A-NHP in place by predicting masked types; `fit` and `classify` can then continue from it.

    Every step and epoch masks and removes different events.

    Args:
        model: the A-NHP.
        train: the events to learn from.
        dev: the events on which epochs are compared; without it, they are compared by the training score.
        options: how to train, as a complete `TrainOptions`.
        mask: share of the events whose type is hidden and predicted.
        drop: share of the events that are removed.
        dev_rounds: how often dev is masked anew for a score.
        visible: which events see which others; default: every event sees all.
        run: a folder that is written during training.
        resume: continue from the checkpoint of `run`.
        callbacks: as in `fit`.
        on_step: as in `fit`.
        on_epoch: as in `fit`.
        stop: as in `fit`.
        progress: as in `fit`.
        **changes: single training options.

    Returns:
        The encoder with its head for masked types (`model`), and the records of its epochs.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test", "visit"]], [[0.5, 2.0, 3.0]], t_ends=[10.0])
        >>> pretrained = ft.pretrain(ft.ANHP(data.vocabulary, dim=8, heads=1), data, epochs=1, mask=0.5)
        >>> pretrained.model.title
        'A-NHP, masked pretraining'
    """
    check_arguments(model, train, dev)
    wrong = [one.removeprefix("task.") for one in PretrainOptions(mask, drop, dev_rounds).mistakes()]
    if wrong:
        raise ForetellError("\n".join(wrong))
    options = changed_options(options, changes, "pretrain")
    check_data(checked_encoder(model, "pretrain", train), train, dev)
    if not model.fitted:
        model.prepare(train)
    masked = MaskedANHP(model, options.seed)
    masked.start_levels(train.type_counts())
    masked.to(choose_device(options.device))

    def terms(data: EventData, indices: np.ndarray, rng: np.random.Generator, width: int | None) -> LabelTerms:
        batch = make_batch(data, indices, device=masked.device, width=width)
        drawn = corrupt(data.lengths[indices], batch.times.shape[1], rng, mask=mask, drop=drop, device=masked.device)
        return masked_terms(masked, batch, drawn, None if visible is None else visible(batch))

    rounds = [[number, 2] for number in range(dev_rounds)]
    task = LabelTask(masked, train, options, terms, mask * (1.0 - drop) * train.event_count, rounds)
    with held(run), with_progress(callbacks, progress, options.epochs, options.patience) as told:
        callback = CallbackList(told, on_step, on_epoch, stop)
        with callback.around(run_settings(masked, options, train, dev, kind="pretrain", mask=mask, drop=drop)):
            result = Trainer(task, train, dev, options, callback, run, resume).run()
    start_intensities(model, torch.Generator().manual_seed(options.seed))  # for the vectors that pretraining learned
    model.start_rates(train)
    return result


log = logging.getLogger("foretell")

Classification = TrainingResult[Classifier]


def classify(
    model: ANHP,
    train: EventData,
    dev: EventData | None = None,
    options: TrainOptions | None = None,
    *,
    label: str,
    history: Sight = "two-sided",
    labels: Labels | None = None,
    run: RunFolder | None = None,
    resume: bool = False,
    callbacks: Iterable[Callback] = (),
    on_step: Callable[[int, int, int], None] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[], bool] | None = None,
    progress: bool | None = None,
    **changes: Any,
) -> Classification:
    """Train a classifier for a property of sequences or events; this also trains the A-NHP in place.

    Args:
        model: the A-NHP, fresh or pretrained.
        train: sequences whose metadata contain the label.
        dev: the sequences on which epochs are compared; without it, they are compared by the training score.
        options: how to train, as a complete `TrainOptions`.
        label: the key of the metadata: one value per sequence, or a list with one per event.
        history: which events an event sees: all ("two-sided"), or earlier ones ("causal").
        labels: all possible labels, from `find_labels`, if train and dev do not contain each of them.
        run: a folder that is written during training.
        resume: continue from the checkpoint of `run`.
        callbacks: as in `fit`.
        on_step: as in `fit`.
        on_epoch: as in `fit`.
        stop: as in `fit`.
        progress: as in `fit`.
        **changes: single training options.

    Returns:
        The classifier (`model`), and the records of its epochs.

    Example:
        >>> one = ft.EventSequence([0.5], [0], t_end=2.0, id="a", metadata={"ill": "yes"})
        >>> two = ft.EventSequence([0.7], [1], t_end=2.0, id="b", metadata={"ill": "no"})
        >>> data = ft.EventData([one, two], ft.Vocabulary(("visit", "test")))
        >>> ft.classify(ft.ANHP(data.vocabulary, dim=8, heads=1), data, label="ill", epochs=1).model.labels
        ('no', 'yes')
    """
    check_arguments(model, train, dev)
    options = changed_options(options, changes, "classify")
    check_data(checked_encoder(model, "classify", train), train, dev)
    known = find_labels([train] if dev is None else [train, dev], label) if labels is None else labels
    train, dev = _with_labels(known, train), None if dev is None else _with_labels(known, dev)
    targets = [(data, known.targets(data)) for data in (train, dev) if data is not None]
    every = np.concatenate(targets[0][1])
    counts = np.bincount(every[every != NO_LABEL], minlength=len(known.names))
    classifier = Classifier(model, known.names, label=label, of=known.of, history=history, seed=options.seed)
    classifier.prepare(train, counts)
    classifier.to(choose_device(options.device))

    def terms(data: EventData, indices: np.ndarray, rng: np.random.Generator, width: int | None) -> LabelTerms:
        found = next(found for part, found in targets if part is data)
        return _label_terms(classifier, data, [found[place] for place in indices], indices, width)

    task = LabelTask(classifier, train, options, terms, int(counts.sum()))
    with held(run), with_progress(callbacks, progress, options.epochs, options.patience) as told:
        callback = CallbackList(told, on_step, on_epoch, stop)
        with callback.around(run_settings(classifier, options, train, dev, kind="classify", label=label)):
            return Trainer(task, train, dev, options, callback, run, resume).run()


def _label_terms(
    model: Classifier, data: EventData, targets: list[np.ndarray], indices: np.ndarray, width: int | None
) -> LabelTerms:
    """Return the terms of the known labels of these sequences, or of their events."""
    batch = make_batch(data, indices, device=model.device, width=width)
    logs = model.log_probabilities(batch)
    wanted = np.full(logs.shape[:-1] if logs.ndim == 3 else (len(indices), 1), NO_LABEL, dtype=np.int64)
    for row, target in enumerate(targets):
        wanted[row, : len(target)] = target
    known = wanted != NO_LABEL
    true = torch.from_numpy(wanted[known]).to(logs.device)
    chosen = (logs if logs.ndim == 3 else logs[:, None])[torch.from_numpy(known).to(logs.device)]
    return LabelTerms(chosen.gather(-1, true[:, None]).squeeze(-1), chosen.argmax(-1) == true)


def _with_labels(labels: Labels, data: EventData) -> EventData:
    """Return the sequences that have a label; a warning says how many have none."""
    chosen = labelled(data, labels.targets(data))
    if not len(chosen):
        raise ForetellError(f"{data.name}: no sequence has a label `{labels.field}`")
    if len(chosen) < len(data):
        missing = len(data) - len(chosen)
        log.warning(
            "%s: %d of %d sequences have no label `%s` and are left out", data.name, missing, len(data), labels.field
        )
    return replace(data.select(chosen.tolist()), name=data.name)
