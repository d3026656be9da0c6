"""Intensities at chosen times and embeddings of events: what is asked comes back, in the order asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from foretell.errors import ForetellError
from foretell.evaluate.queries import embeddings_of, intensities_at
from foretell.models.attention.anhp import ANHP
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.reference.hawkes import SlowHawkes
from tests.samples import as_history, event_data, random_data, randomise

DATA = event_data([([1.0, 2.0, 2.0, 5.0], [0, 1, 2, 0]), ([], []), ([3.0], [1])])


def hawkes() -> Hawkes:
    model = randomise(Hawkes(DATA.vocabulary), seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    return model


def anhp(**options: object) -> ANHP:
    model = randomise(ANHP(DATA.vocabulary, dim=4, layers=2, dtype=torch.float64, **options), seed=2)  # type: ignore[arg-type]
    model.time.set_range(0.5, 10.0)
    return model


def test_a_time_sees_the_events_with_a_smaller_time():
    answers = intensities_at(hawkes(), DATA, [2.0, 0.5, 2.5, 9.0, 1.0])
    assert answers[0].seen.tolist() == [1, 0, 3, 4, 0]
    assert answers[1].seen.tolist() == [0] * 5
    assert answers[2].seen.tolist() == [0, 0, 0, 1, 0]
    assert [answer.sequence for answer in answers] == ["0", "1", "2"]


def test_the_order_of_the_times_is_kept():
    times = [4.0, 0.5, 4.0, 2.0]
    (answer, *_) = intensities_at(anhp(), DATA, times)
    assert answer.times.tolist() == times
    assert np.array_equal(answer.intensities[0], answer.intensities[2])
    (one, *_) = intensities_at(anhp(), DATA, [2.0])
    np.testing.assert_allclose(answer.intensities[3], one.intensities[0], rtol=1e-12)


def test_intensities_are_those_of_the_slow_twin():
    model, names = hawkes(), DATA.vocabulary.names
    arrays: dict[str, Any] = {name: array.tolist() for name, array in model.named_arrays().items()}
    slow = SlowHawkes(
        {e: arrays[f"mu.{e}"] for e in names},
        {(e, f): arrays[f"alpha.{e}"][place] for e in names for place, f in enumerate(names)},
        arrays["beta"],
    )
    (answer, *_) = intensities_at(model, DATA, [0.3, 2.0, 7.0])
    for time, row in zip(answer.times, answer.intensities, strict=True):
        before = tuple(event for event in as_history(DATA, 0) if event.time < time)
        assert row.tolist() == pytest.approx([slow.intensity(name, time, before) for name in names], rel=1e-12)


def test_a_grid_covers_each_sequence_from_end_to_end():
    data = event_data([([1.0], [0]), ([2.0], [1])], t_end=[4.0, 8.0])
    model = Poisson(data.vocabulary)
    assert [answer.times.tolist() for answer in intensities_at(model, data, [], grid=3)] == [[0, 2, 4], [0, 4, 8]]
    with pytest.raises(ForetellError, match="grid = 1: expected 2 times or more"):
        intensities_at(model, data, [], grid=1)


def test_many_times_are_answered_as_few_are(monkeypatch: pytest.MonkeyPatch):
    from foretell.models import base

    times = np.linspace(0.0, 10.0, 23)
    (whole, *_) = intensities_at(anhp(), DATA, times)
    monkeypatch.setitem(base.QUERIES_AT_A_TIME, "cpu", 5)
    (cut, *_) = intensities_at(anhp(), DATA, times)
    np.testing.assert_allclose(cut.intensities, whole.intensities, rtol=1e-10)
    assert cut.seen.tolist() == whole.seen.tolist()


def test_no_times_give_an_empty_answer():
    (answer, *_) = intensities_at(anhp(), DATA, [])
    assert answer.intensities.shape == (0, 3) and answer.to_json(DATA.vocabulary)["queries"] == []


def test_the_json_names_every_type_and_counts_states_from_one():
    (answer, *_) = intensities_at(hawkes(), DATA, [2.5])
    found = answer.to_json(DATA.vocabulary)
    assert found["sequence"] == "0"
    (query,) = found["queries"]
    assert query["time"] == 2.5 and query["index"] == 4
    assert list(query["intensities"]) == ["a", "b", "c"]
    assert all(value > 0.0 for value in query["intensities"].values())


def test_all_layers_are_the_layers_side_by_side_and_top_is_the_last():
    model = anhp()
    whole, top = embeddings_of(model, DATA, "all"), embeddings_of(model, DATA, "top")
    assert [array.shape for array in whole] == [(4, 12), (0, 12), (1, 12)]
    for one, two in zip(whole, top, strict=True):
        assert np.array_equal(one[:, 8:], two)
    fine = model.named_arrays()["embed.a"].numpy()
    np.testing.assert_allclose(whole[0][0, :4], fine, err_msg="layer 0 is the type's own vector")


def test_embeddings_come_from_what_was_before_the_event():
    model, data = anhp(bos=True), random_data(3, [6])
    longer = embeddings_of(model, data)[0]
    sequence = data[0]
    shorter = event_data([(sequence.times[:4].tolist(), sequence.types[:4].tolist())])
    np.testing.assert_allclose(embeddings_of(model, shorter)[0], longer[:4], rtol=1e-10)


def test_a_model_without_embeddings_says_so():
    with pytest.raises(ForetellError, match="Poisson has no embeddings of events; train an A-NHP"):
        embeddings_of(Poisson(DATA.vocabulary), DATA)


def test_asking_switches_dropout_off():
    model = anhp(dropout=0.5).train()
    first, second = (intensities_at(model, DATA, [3.0])[0].intensities for _ in range(2))
    assert np.array_equal(first, second)
