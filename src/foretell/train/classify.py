"""`classify`: an A-NHP, pretrained or fresh, and labelled data in, a classifier of sequences or of events out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from foretell.batches.batch import make_batch
from foretell.data import EventData
from foretell.data.labels import NO_LABEL, Labels, find_labels, labelled
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.two_sided import Sight
from foretell.models.task_heads import Classifier
from foretell.objective.masked import LabelTerms
from foretell.train.callbacks import Callback, CallbackList, FunctionCallback
from foretell.train.config import TrainOptions
from foretell.train.label_task import LabelTask, checked_encoder
from foretell.train.run import RunFolder
from foretell.train.trainer import Trainer, TrainingResult, changed_options, check_data, choose_device

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
    **changes: Any,
) -> Classification:
    """Learn the property `label` of the sequences' metadata; the A-NHP is trained along, in place.

    `labels`, from `find_labels`, are all labels that there are, where train and dev do not have every one. `changes` are single options,
    and `callbacks` as in `fit`.
    """
    options = changed_options(options, changes, "classify")
    check_data(checked_encoder(model, "classify"), train, dev)
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
    callback = CallbackList([FunctionCallback(on_step, on_epoch, stop), *callbacks])
    return Trainer(task, train, dev, options, callback, run, resume).run()


def _label_terms(
    model: Classifier, data: EventData, targets: list[np.ndarray], indices: np.ndarray, width: int | None
) -> LabelTerms:
    """The known labels of some sequences, or of their events."""
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
    """The sequences that have a label; a warning says how many have none."""
    chosen = labelled(data, labels.targets(data))
    if not len(chosen):
        raise ForetellError(f"{data.name}: no sequence has a label `{labels.field}`")
    if len(chosen) < len(data):
        missing = len(data) - len(chosen)
        log.warning(
            "%s: %d of %d sequences have no label `%s` and are left out", data.name, missing, len(data), labels.field
        )
    return replace(data.select(chosen.tolist()), name=data.name)
