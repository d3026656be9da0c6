"""Scores, with 95 % intervals, of classifiers (labels) and of pretrained encoders (types of masked events).

The baseline of a classifier always predicts the most frequent label. Macro-F1 is the mean of F1 over the labels that occur or are
predicted. The log-loss of the baseline is computed from the frequencies of labels in the training data.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from foretell.batches.batch import length_buckets, make_batch
from foretell.data import EventData
from foretell.data.arguments import check_split
from foretell.data.labels import NO_LABEL, Labels, Of
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate, Resampling, Units, estimates, interval
from foretell.evaluate.scores import plain
from foretell.models.base import check_model
from foretell.models.task_heads import PSEUDO_COUNT, Classifier, MaskedANHP
from foretell.objective.masked import corrupt, masked_terms

EVENTS_AT_A_TIME = 1 << 13  # largest number of events per batch, including padding


@dataclass(frozen=True)
class LabelScores:
    accuracy: Estimate
    macro_f1: Estimate
    log_loss: Estimate  # nats per label, lower is better


@dataclass(frozen=True)
class LabelEvaluation:
    model: str
    data: str
    label: str
    of: Of
    history: str
    sequences: int
    labels: int  # number of scored labels
    unlabelled: int  # number of sequences or events without a label
    classes: tuple[str, ...]
    scores: LabelScores
    majority: LabelScores
    majority_label: str
    bootstrap: str

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; what is not a number is null."""
        return plain(dataclasses.asdict(self))


@dataclass(frozen=True)
class LabelPrediction:
    """The probabilities of all labels for one sequence: one row, or one row per event."""

    sequence: str
    of: Of
    classes: tuple[str, ...]
    probabilities: np.ndarray  # [rows, classes]

    @property
    def labels(self) -> list[str]:
        return [self.classes[place] for place in self.probabilities.argmax(-1)]

    def to_json(self) -> dict[str, Any]:
        rows = [dict(zip(self.classes, row.tolist(), strict=True)) for row in self.probabilities]
        if self.of == "sequences":
            return {"sequence": self.sequence, "label": self.labels[0], "probabilities": rows[0]}
        return {"sequence": self.sequence, "labels": self.labels, "probabilities": rows}


@torch.no_grad()
def predict_labels(model: Classifier, data: EventData) -> list[LabelPrediction]:
    """Return the probabilities of all labels, for each sequence or each of its events.

    Args:
        model: a classifier, from `classify`.
        data: the sequences.

    Returns:
        One prediction per sequence, in the order of the data.

    Example:
        >>> one = ft.EventSequence([0.5], [0], t_end=2.0, id="a", metadata={"ill": "yes"})
        >>> two = ft.EventSequence([0.7], [1], t_end=2.0, id="b", metadata={"ill": "no"})
        >>> data = ft.EventData([one, two], ft.Vocabulary(("visit", "test")))
        >>> model = ft.classify(ft.ANHP(data.vocabulary, dim=8, heads=1), data, label="ill", epochs=1).model
        >>> [answer.probabilities.shape for answer in ft.predict_labels(model, data)]
        [(1, 2), (1, 2)]
    """
    check_model(model)
    check_split(data)
    found: list[LabelPrediction | None] = [None] * len(data)
    with model.evaluating():
        rng = np.random.default_rng(0)
        for indices in length_buckets(data.lengths + 1, max(1, len(data)), rng, max_tokens=EVENTS_AT_A_TIME):
            logs = model.log_probabilities(make_batch(data, indices, device=model.device)).double().cpu().numpy()
            for row, place in enumerate(indices.tolist()):
                rows = logs[row][None] if model.of == "sequences" else logs[row, : len(data[place])]
                found[place] = LabelPrediction(data[place].id, model.of, model.labels, np.exp(rows))
    return [one for one in found if one is not None]


def score_labels(model: Classifier, data: EventData, *, seed: int = 0) -> LabelEvaluation:
    """Compute accuracy, macro-F1 and log-loss of a classifier, with intervals, and those of always predicting the most frequent label.

    Intervals resample sequences if there are enough, else blocks of labels.

    Args:
        model: a classifier, from `classify`.
        data: sequences with labels; sequences without labels are counted and left out.
        seed: the seed of the bootstrap.

    Returns:
        The scores.

    Raises:
        ForetellError: no sequence has a label.

    Example:
        >>> one = ft.EventSequence([0.5], [0], t_end=2.0, id="a", metadata={"ill": "yes"})
        >>> two = ft.EventSequence([0.7], [1], t_end=2.0, id="b", metadata={"ill": "no"})
        >>> data = ft.EventData([one, two], ft.Vocabulary(("visit", "test")))
        >>> model = ft.classify(ft.ANHP(data.vocabulary, dim=8, heads=1), data, label="ill", epochs=1).model
        >>> ft.score_labels(model, data).labels
        2
    """
    check_model(model)
    check_split(data)
    targets = Labels(model.label, model.of, model.labels).targets(data)
    every = np.concatenate([np.zeros(0, dtype=np.int64), *targets])
    known = every != NO_LABEL
    if not known.any():
        raise ForetellError(f"{data.name}: no sequence has a label `{model.label}`, so there is nothing to score")
    sequence = np.repeat(np.arange(len(data)), [len(row) for row in targets])[known]
    true = every[known]
    nothing = np.zeros((0, len(model.labels)))
    probabilities = np.concatenate([nothing, *(one.probabilities for one in predict_labels(model, data))])[known]
    units = Units(sequence, len(data))
    resampling = units.resampling(seed)
    counts = model.counts + PSEUDO_COUNT
    common = int(model.counts.argmax())
    shares = np.broadcast_to(counts / counts.sum(), probabilities.shape)
    return LabelEvaluation(
        model=model.title,
        data=data.name,
        label=model.label,
        of=model.of,
        history=model.history,
        sequences=len(data),
        labels=len(true),
        unlabelled=int((~known).sum()),
        classes=model.labels,
        scores=_scores(true, probabilities.argmax(-1), probabilities, units, resampling),
        majority=_scores(true, np.full(len(true), common), shares, units, resampling),
        majority_label=model.labels[common],
        bootstrap=resampling.describe(),
    )


def _scores(
    true: np.ndarray, guessed: np.ndarray, probabilities: np.ndarray, units: Units, resampling: Resampling
) -> LabelScores:
    one = np.ones(len(true))
    losses = -np.log(np.maximum(probabilities[np.arange(len(true)), true], np.finfo(np.float64).tiny))
    accuracy, log_loss = estimates([units.ratio(true == guessed, one), units.ratio(losses, one)], resampling)
    return LabelScores(accuracy, _macro_f1(true, guessed, units, resampling), log_loss)


def _macro_f1(true: np.ndarray, guessed: np.ndarray, units: Units, resampling: Resampling) -> Estimate:
    classes = np.union1d(true, guessed)
    hits = np.stack([units.summed((true == one) & (guessed == one)) for one in classes], axis=1)
    both = np.stack([units.summed((true == one).astype(np.int64) + (guessed == one)) for one in classes], axis=1)
    drawn = [_mean_f1(weights @ hits, weights @ both) for weights in resampling.parts()]
    return interval(float(_mean_f1(hits.sum(0)[None], both.sum(0)[None])[0]), np.concatenate(drawn))


def _mean_f1(hits: np.ndarray, both: np.ndarray) -> np.ndarray:
    """Return `2·hits / (occurrences + predictions)`, averaged over the labels for which this is defined: [replicates]."""
    there = both > 0
    f1 = np.where(there, 2.0 * hits / np.maximum(both, 1.0), 0.0)
    return f1.sum(1) / np.maximum(there.sum(1), 1)


ROUNDS = 10  # the number of times that the data are corrupted


@dataclass(frozen=True)
class MaskedEvaluation:
    model: str
    data: str
    sequences: int
    masked: int  # number of masked events in all rounds
    rounds: int
    mask: float
    drop: float
    accuracy: Estimate
    cross_entropy: Estimate  # nats per masked event, lower is better
    bootstrap: str

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; what is not a number is null."""
        return plain(dataclasses.asdict(self))


@torch.no_grad()
def score_masked(
    model: MaskedANHP, data: EventData, *, mask: float, drop: float, rounds: int = ROUNDS, seed: int = 0
) -> MaskedEvaluation:
    """Compute accuracy and cross-entropy of a pretrained encoder's predictions of masked types, with intervals.

    Each round masks and removes different events; the bootstrap keeps the rounds of a sequence together.

    Args:
        model: a pretrained encoder, from `pretrain`.
        data: the sequences.
        mask: share of the events that lose their type.
        drop: share of the events that are removed.
        rounds: the number of times that the data are masked.
        seed: the seed of masks and of the bootstrap.

    Returns:
        The scores.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test", "visit"]], [[0.5, 2.0, 3.0]], t_ends=[10.0])
        >>> model = ft.pretrain(ft.ANHP(data.vocabulary, dim=8, heads=1), data, epochs=1, mask=0.5).model
        >>> ft.score_masked(model, data, mask=0.5, drop=0.0, rounds=3).rounds
        3
    """
    check_model(model)
    check_split(data)
    sequences, rights, losses = [], [], []
    with model.evaluating():
        for number in range(rounds):
            rng = np.random.default_rng([seed, number])
            for indices in length_buckets(data.lengths, max(1, len(data)), rng, max_tokens=EVENTS_AT_A_TIME):
                batch = make_batch(data, indices, device=model.device)
                width = batch.times.shape[1]
                drawn = corrupt(data.lengths[indices], width, rng, mask=mask, drop=drop, device=model.device)
                terms = masked_terms(model, batch, drawn)
                row = drawn.masked.nonzero()[:, 0].cpu().numpy()
                sequences.append(indices[row])
                rights.append(terms.right.cpu().numpy())
                losses.append(-terms.log_probability.double().cpu().numpy())
    sequence, right, loss = (np.concatenate([np.zeros(0), *parts]) for parts in (sequences, rights, losses))
    order = np.argsort(sequence, kind="stable")
    units = Units(sequence[order].astype(np.int64), len(data))
    resampling = units.resampling(seed)
    one = np.ones(len(order))
    accuracy, cross_entropy = estimates([units.ratio(right[order], one), units.ratio(loss[order], one)], resampling)
    return MaskedEvaluation(
        model=model.title,
        data=data.name,
        sequences=len(data),
        masked=len(order),
        rounds=rounds,
        mask=mask,
        drop=drop,
        accuracy=accuracy,
        cross_entropy=cross_entropy,
        bootstrap=resampling.describe(),
    )
