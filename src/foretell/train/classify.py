"""`classify`: an A-NHP, pretrained or fresh, and labelled data in, a classifier of sequences or of events out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import make_batch
from foretell.batches.buckets import length_buckets
from foretell.data import EventData
from foretell.data.labels import NO_LABEL, Labels, find_labels, labelled
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.two_sided import Sight
from foretell.models.task_heads import Classifier
from foretell.train.adam import Descent
from foretell.train.config import TrainOptions
from foretell.train.learnable import check_data
from foretell.train.lesson import Judged, padded_width
from foretell.train.run import RunFolder
from foretell.train.step import SEED_STRIDE
from foretell.train.teach import Watched, changed, choose_device, teach

log = logging.getLogger("foretell")


@dataclass(frozen=True)
class Classification:
    """What came of it: the classifier, and the best mean log-probability of a true label on dev (or train)."""

    model: Classifier
    records: list[dict[str, Any]]
    best: float
    best_epoch: int


@dataclass(frozen=True)
class LabelTerms:
    log_probability: Tensor  # [labels]
    right: Tensor  # bool [labels]


class LabelLesson:
    """The labels of sequences, or of events."""

    def __init__(self, model: Classifier, labels: Labels, train: EventData, options: TrainOptions) -> None:
        self.model, self.labels, self.train, self.options = model, labels, train, options
        self.stepper = Descent(model.learned(), options.lr, options.decay, options.clip, model.device)
        self.generator = torch.Generator(model.device)
        self.targets = labels.targets(train)
        known = sum(int((row != NO_LABEL).sum()) for row in self.targets)
        self.usual = max(known * min(options.batch, len(train)) / len(train), 1.0)

    def step(self, indices: np.ndarray, number: int) -> tuple[Tensor, int]:
        self.generator.manual_seed(self.options.seed * SEED_STRIDE + number)
        self.model.noise = self.generator
        width = padded_width(self.train, indices, self.model.device)
        terms, count = self.terms(self.train, self.targets, indices, width)
        loss = -terms.log_probability.sum()
        self.stepper(loss / self.usual)
        return loss.detach().double(), count

    def terms(
        self, data: EventData, targets: list[np.ndarray], indices: np.ndarray, width: int | None = None
    ) -> tuple[LabelTerms, int]:
        batch = make_batch(data, indices, device=self.model.device, width=width)
        logs = self.model.log_probabilities(batch)
        wanted = np.full(logs.shape[:-1] if logs.ndim == 3 else (len(indices), 1), NO_LABEL, dtype=np.int64)
        for row, place in enumerate(indices):
            wanted[row, : len(targets[place])] = targets[place]
        known = wanted != NO_LABEL
        true = torch.from_numpy(wanted[known]).to(logs.device)
        chosen = (logs if logs.ndim == 3 else logs[:, None])[torch.from_numpy(known).to(logs.device)]
        return LabelTerms(chosen.gather(-1, true[:, None]).squeeze(-1), chosen.argmax(-1) == true), int(known.sum())

    @torch.no_grad()
    def judge(self, data: EventData) -> Judged:
        total, right, count = 0.0, 0, 0
        targets = self.labels.targets(data)
        for indices in length_buckets(data.lengths, self.options.batch, np.random.default_rng(0)):
            terms, known = self.terms(data, targets, indices)
            total, right = total + float(terms.log_probability.double().sum()), right + int(terms.right.sum())
            count += known
        return Judged(total / max(count, 1), {"dev_accuracy": right / max(count, 1)})


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
    on_step: Callable[[int, int, int], None] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **changes: Any,
) -> Classification:
    """Learn the property `label` of the sequences' metadata; the A-NHP is trained along, in place.

    `labels`, from `find_labels`, says what labels there are, where train and dev do not have them all. `changes` are single options, as
    in `fit`.
    """
    options = changed(options or TrainOptions(), changes, "classify")
    check_data(model, train, dev, "classify")
    known = find_labels([train] if dev is None else [train, dev], label) if labels is None else labels
    train, dev = _with_labels(known, train), None if dev is None else _with_labels(known, dev)
    counts = _counts(known, train)
    classifier = Classifier(model, known.names, label=label, of=known.of, history=history, seed=options.seed)
    classifier.prepare(train, counts)
    classifier.to(choose_device(options.device))
    lesson = LabelLesson(classifier, known, train, options)
    progress, best = teach(lesson, train, dev, options, Watched(run, resume, on_step, on_epoch, stop))
    return Classification(classifier, progress.records, best, progress.best_epoch)


def _with_labels(labels: Labels, data: EventData) -> EventData:
    """The sequences that have a label; how many have none is said."""
    chosen = labelled(data, labels.targets(data))
    if not len(chosen):
        raise ForetellError(f"{data.name}: no sequence has a label `{labels.field}`")
    if len(chosen) < len(data):
        log.warning(
            "%s: %d of %d sequences have no label `%s` and are left out",
            data.name,
            len(data) - len(chosen),
            len(data),
            labels.field,
        )
    return replace(data.select(chosen.tolist()), name=data.name)


def _counts(labels: Labels, data: EventData) -> np.ndarray:
    every = np.concatenate(labels.targets(data))
    return np.bincount(every[every != NO_LABEL], minlength=len(labels.names))
