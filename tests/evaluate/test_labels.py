"""Scores of labels against definitions written out, and embeddings of a history of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.queries import embeddings_of
from foretell.evaluate.task_scores import predict_labels, score_labels, score_masked
from foretell.models.attention.anhp import ANHP
from foretell.models.recurrent.nhp import NHP
from foretell.models.task_heads import Classifier, MaskedANHP
from tests.samples import random_data, randomise
from tests.train.labelled import data_of, rows


def classifier(data: EventData, **options: object) -> Classifier:
    encoder = ANHP(data.vocabulary, dim=4, layers=1, dtype=torch.float64)
    model = randomise_head(Classifier(randomise(encoder, 1), **options))  # pyright: ignore[reportArgumentType]
    model.counts = np.arange(len(model.labels))[::-1] + 3
    return model


def randomise_head(model: Classifier) -> Classifier:
    with torch.no_grad():
        for parameter in (model.weight, model.level, model.base):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)).double())
    return model


@pytest.mark.parametrize("count", [40, 7])  # over sequences, and too few of them
def test_scores_are_those_of_their_definitions(count: int, tmp_path: Path):
    data = data_of(tmp_path / "a.jsonl", rows(count, 0))
    model = classifier(data, labels=("0", "1", "2", "3"), label="doctor")
    found = score_labels(model, data)
    predicted = [one.labels[0] for one in predict_labels(model, data)]
    chances = [one.to_json()["probabilities"] for one in predict_labels(model, data)]
    true = [str(one.metadata["doctor"]) for one in data]
    right = [p == t for p, t in zip(predicted, true, strict=True)]
    assert found.scores.accuracy.value == pytest.approx(np.mean(right))
    losses = [-np.log(row[t]) for row, t in zip(chances, true, strict=True)]
    assert found.scores.log_loss.value == pytest.approx(np.mean(losses))
    f1 = []
    for label in sorted({*true, *predicted}):
        hits = sum(p == t == label for p, t in zip(predicted, true, strict=True))
        f1.append(2 * hits / (predicted.count(label) + true.count(label)))
    assert found.scores.macro_f1.value == pytest.approx(np.mean(f1))
    for estimate in (found.scores.accuracy, found.scores.macro_f1, found.scores.log_loss):
        assert estimate.low <= estimate.value <= estimate.high
    assert found.majority_label == "0"
    assert found.majority.accuracy.value == pytest.approx(true.count("0") / count)
    shares = (model.counts + 0.5) / (model.counts + 0.5).sum()
    assert found.majority.log_loss.value == pytest.approx(np.mean([-np.log(shares[int(t)]) for t in true]))


def test_events_without_a_label_are_not_scored(tmp_path: Path):
    data = data_of(tmp_path / "a.jsonl", rows(25, 0))
    found = score_labels(classifier(data, labels=("down", "up"), label="mood", of="events"), data)
    kinds = np.concatenate([data.names_of(one) for one in data])
    assert found.labels == int((kinds != "c").sum()) and found.unlabelled == int((kinds == "c").sum())


def test_predictions_do_not_depend_on_what_else_is_in_a_batch(tmp_path: Path):
    data = data_of(tmp_path / "a.jsonl", rows(12, 0))
    for of, label, names in (("sequences", "doctor", ("0", "1", "2")), ("events", "mood", ("down", "up"))):
        model = classifier(data, labels=names, label=label, of=of)
        together = predict_labels(model, data)
        for place, one in enumerate(together):
            (alone,) = predict_labels(model, data.select([place]))
            np.testing.assert_allclose(one.probabilities, alone.probabilities, rtol=1e-12)


def test_masked_scores_count_what_was_masked_and_lie_in_their_intervals():
    data = random_data(0, (6, 3, 0, 8) * 8)
    model = MaskedANHP(randomise(ANHP(data.vocabulary, dim=4, layers=1), 1))
    found = score_masked(model, data, mask=1.0, drop=0.0, rounds=3)
    assert found.masked == 3 * data.event_count
    assert found.accuracy.low <= found.accuracy.value <= found.accuracy.high
    assert found.cross_entropy.value > 0.0
    assert score_masked(model, data, mask=0.3, drop=0.2, rounds=2) == score_masked(
        model, data, mask=0.3, drop=0.2, rounds=2
    )


def test_embeddings_see_what_they_are_told_to_see():
    data = random_data(0, (6, 4))
    model = randomise(ANHP(data.vocabulary, dim=4, layers=2, dtype=torch.float64), 1)
    past = [np.tril(np.ones((n, n), dtype=bool), -1) for n in (6, 4)]
    for one, other in zip(embeddings_of(model, data), embeddings_of(model, data, visible=past), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    others = [~np.eye(n, dtype=bool) for n in (6, 4)]
    two_sided = embeddings_of(model, data, history="two-sided")
    for one, other in zip(two_sided, embeddings_of(MaskedANHP(model), data), strict=True):
        np.testing.assert_array_equal(one, other)  # a pretrained encoder sees both sides by default
    for one, other in zip(two_sided, embeddings_of(model, data, visible=others), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ForetellError, match="found 1 matrices for 2 sequences"):
        embeddings_of(model, data, visible=others[:1])
    with pytest.raises(ForetellError, match=r"expected bool \[sequences, events, events\]"):
        embeddings_of(model, data, visible=[np.ones((3, 3), dtype=bool), others[1]])
    with pytest.raises(ForetellError, match="needs an A-NHP"):
        embeddings_of(NHP(data.vocabulary), data, history="two-sided")
