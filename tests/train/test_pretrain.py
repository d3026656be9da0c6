"""Masked pretraining and classification from Python: what is learned, what is left alone, and that stopping changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foretell as ft
from foretell.batches.batch import Batch
from foretell.errors import ForetellError
from foretell.models.attention.two_sided import sight
from foretell.models.build import load_model, load_network, save_model
from foretell.models.task_heads import Classifier, MaskedANHP
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.label_tasks import classify, pretrain
from tests.train.labelled import data_of, rows
from tests.train.small import exciting, options, same_tensors, small_model
from tests.train.test_resume import StopAfter, new_run, same_run, without_seconds

TRAIN, DEV = exciting(24, 0), exciting(8, 1)


def copying(count: int, seed: int, types: int = 4) -> ft.EventData:
    """Sequences of one type each: a masked event is whatever the others are."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        length = int(rng.integers(4, 8))
        kind = np.full(length, rng.integers(types), dtype=np.int32)
        made.append(ft.EventSequence(np.sort(rng.uniform(0.0, 9.0, length)), kind, 10.0, str(number)))
    return ft.EventData(made, ft.Vocabulary(("a", "b", "c", "d")), name="copying")


def test_pretraining_learns_what_the_others_tell():
    model = ft.ANHP(copying(1, 0).vocabulary, dim=8, layers=1)
    found = pretrain(model, copying(60, 0), copying(20, 1), options(epochs=15, batch=10, lr=2e-2), drop=0.2)
    assert found.records[found.best_epoch - 1]["dev_accuracy"] > 0.95
    assert found.best > -0.4  # chance is log(1/4) = -1.39
    assert found.model.encoder is model


def test_with_nothing_in_sight_nothing_but_frequencies_can_be_learned():
    def blind(batch: Batch) -> torch.Tensor:
        return torch.zeros_like(sight(batch, "two-sided"))

    model = ft.ANHP(copying(1, 0).vocabulary, dim=8, layers=1)
    found = pretrain(model, copying(60, 0), copying(20, 1), options(epochs=6, batch=10, lr=2e-2), visible=blind)
    assert found.best == pytest.approx(np.log(0.25), abs=0.1)


@pytest.mark.parametrize("asked", [1, 4, 7, 12])
def test_stopping_anywhere_and_resuming_changes_nothing(asked: int, tmp_path: Path):
    chosen = options(epochs=4, cool=1)

    def make() -> ft.ANHP:
        return small_model(TRAIN, dropout=0.2)

    undisturbed, disturbed = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    expected = pretrain(make(), TRAIN, DEV, chosen, run=undisturbed)
    with pytest.raises(TrainingInterrupt):
        pretrain(make(), TRAIN, DEV, chosen, run=disturbed, stop=StopAfter(asked))
    found = pretrain(make(), TRAIN, DEV, chosen, run=disturbed, resume=True)
    assert without_seconds(found.records) == without_seconds(expected.records)
    assert same_tensors(found.model.state_dict(), expected.model.state_dict())
    assert same_run(undisturbed.path, disturbed.path)


def test_a_classifier_that_was_stopped_ends_where_an_undisturbed_one_ends(tmp_path: Path):
    data = data_of(tmp_path / "a.jsonl", rows(20, 0))
    chosen = options(epochs=3)

    def go(name: str, **more: Any) -> Classifier:
        run = more.pop("run", None) or new_run(tmp_path / name)
        return classify(small_model(data, dropout=0.2), data, data, chosen, label="kind", run=run, **more).model

    expected = go("one")
    run = new_run(tmp_path / "two")
    with pytest.raises(TrainingInterrupt):
        go("two", run=run, stop=StopAfter(6))
    assert same_tensors(go("two", run=run, resume=True).state_dict(), expected.state_dict())


def test_every_epoch_hides_other_events(monkeypatch: pytest.MonkeyPatch):
    from foretell.train import label_tasks as module

    drawn = []
    original = module.corrupt

    def watched(*args: Any, **more: Any) -> Any:
        drawn.append(original(*args, **more))
        return drawn[-1]

    monkeypatch.setattr(module, "corrupt", watched)
    one = exciting(1, 3)
    pretrain(small_model(one), one, None, options(epochs=6))
    hidden = {tuple(found.masked.flatten().tolist()) for found in drawn}
    assert len(drawn) == 6 and len(hidden) >= 5


def test_the_process_keeps_its_random_state():
    before = torch.random.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    pretrain(small_model(TRAIN, dropout=0.1), TRAIN, DEV, options(epochs=1))
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert str(np.random.get_state()) == before[1]  # noqa: NPY002


def test_pretraining_moves_the_encoder_and_fitting_goes_on_from_it():
    model, fresh = small_model(TRAIN), small_model(TRAIN)
    fresh.prepare(TRAIN)
    pretrain(model, TRAIN, DEV, options())
    assert not torch.equal(model.fine, fresh.fine) and not torch.equal(model.layer_list()[0].Q, fresh.layer_list()[0].Q)
    assert torch.equal(model.coarse_base, fresh.coarse_base) and not model.log_tau.any()
    fine = model.fine.clone()
    result = fit(model, TRAIN, DEV, options(lr=1e-12))
    torch.testing.assert_close(model.fine, fine)  # fit did not start it anew
    assert np.isfinite(result.best)


def test_before_anything_is_seen_rates_are_those_of_the_data_after_pretraining():
    model = small_model(TRAIN)
    pretrain(model, TRAIN, DEV, options())
    silent = ft.EventSequence(np.zeros(0), np.zeros(0, dtype=np.int32), 8.0)
    rates = (TRAIN.type_counts() + 0.5) / sum(one.t_end for one in TRAIN)
    np.testing.assert_allclose(model.intensity(silent, [1.0])[0], rates, rtol=1e-4)


def test_files_of_heads_come_back_as_they_were_and_hostile_ones_are_refused(tmp_path: Path):
    masked = pretrain(small_model(TRAIN), TRAIN, DEV, options(epochs=1)).model
    save_model(masked, tmp_path / "m.safetensors")
    back = load_network(tmp_path / "m.safetensors")
    assert isinstance(back, MaskedANHP) and same_tensors(back.state_dict(), masked.state_dict())
    assert back.encoder.time.m == masked.encoder.time.m and back.encoder.fitted
    with pytest.raises(ForetellError, match="masked pretraining, which has no intensities"):
        load_model(tmp_path / "m.safetensors")
    data = data_of(tmp_path / "a.jsonl", rows(12, 0))
    model = classify(small_model(data), data, None, options(epochs=1), label="doctor").model
    save_model(model, tmp_path / "c.safetensors")
    again = load_network(tmp_path / "c.safetensors")
    assert isinstance(again, Classifier) and again.labels == model.labels and (again.counts == model.counts).all()
    content = (tmp_path / "c.safetensors").read_bytes()
    (tmp_path / "d.safetensors").write_bytes(content.replace(b'\\"counts\\"', b'\\"cuonts\\"'))
    with pytest.raises(ForetellError, match="not a foretell model"):
        load_network(tmp_path / "d.safetensors")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_pretraining_and_classifying_give_what_they_give_on_a_cpu(tmp_path: Path):
    data = data_of(tmp_path / "a.jsonl", rows(24, 0))

    def best(device: str) -> tuple[float, float]:
        model = small_model(data, dtype=torch.float64)
        masked = pretrain(model, data, data, options(epochs=3, device=device))
        return masked.best, classify(model, data, data, options(epochs=3, device=device), label="kind").best

    assert best("cuda") == pytest.approx(best("cpu"), rel=1e-9)


def test_what_has_no_encoder_of_both_sides_is_refused():
    with pytest.raises(ForetellError, match="expected an A-NHP"):
        pretrain(ft.Poisson(TRAIN.vocabulary), TRAIN)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ForetellError, match="mask = 0"):
        pretrain(small_model(TRAIN), TRAIN, mask=0.0)
    with pytest.raises(ForetellError, match=r"unknown key `train\.epoch`"):
        pretrain(small_model(TRAIN), TRAIN, epoch=3)
    with pytest.raises(ForetellError, match="event types are not those of the model"):
        pretrain(small_model(TRAIN), copying(3, 0))
