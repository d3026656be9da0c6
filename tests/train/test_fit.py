"""Training: from one seed always the same model, a better one than it began with, and stopped when dev says so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from foretell.batches.batch import Collator
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.rules.andtt import ANDTT
from foretell.train import likelihood_task
from foretell.train import step as training
from foretell.train.fit import TrainingInterrupt, choose_device, fit
from foretell.train.likelihood_task import mean_log_likelihood, sum_scored
from tests.samples import event_data
from tests.train.small import exciting, in_unit, options, same_tensors, small_model

TRAIN, DEV = exciting(24, 0), exciting(8, 1)


def scores(records: list[dict[str, Any]]) -> list[tuple[float, float]]:
    return [(record["train"], record["dev"]) for record in records]


def trained(seed: int = 0, **changes: Any):
    model = small_model(TRAIN, seed=seed, dropout=changes.pop("dropout", 0.0))
    return fit(model, TRAIN, DEV, options(seed=seed, **changes))


@pytest.mark.parametrize("kind", [Poisson, Hawkes])
def test_down_sampling_is_refused_where_there_are_no_rules_and_not_ignored(kind: type[Poisson] | type[Hawkes]):
    with pytest.raises(ForetellError, match="down-sampling of possible events is for models made of rules, not for"):
        fit(kind(TRAIN.vocabulary), TRAIN, DEV, downsample=2)


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.3}, {"integral": "uniform"}, {"decay": 0.1}])
def test_equal_seeds_give_equal_models_bit_for_bit(changes: dict[str, Any]):
    one, two = trained(**changes), trained(**changes)
    assert same_tensors(one.model.state_dict(), two.model.state_dict())
    assert scores(one.records) == scores(two.records)


def test_different_seeds_give_different_models():
    assert not same_tensors(trained(0).model.state_dict(), trained(1).model.state_dict())


def test_the_seed_of_training_matters_beside_that_of_the_model():
    one = fit(small_model(TRAIN), TRAIN, DEV, options(seed=0))
    two = fit(small_model(TRAIN), TRAIN, DEV, options(seed=1))
    assert scores(one.records) != scores(two.records)


def test_every_epoch_sees_all_sequences_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch):
    seen: list[list[int]] = []
    batched = Collator.batch

    def watched(self: Collator, data: EventData, indices: np.ndarray, **more: Any):
        seen[-1].extend(indices.tolist())
        return batched(self, data, indices, **more)

    monkeypatch.setattr(Collator, "batch", watched)
    seen.append([])
    fit(small_model(TRAIN), TRAIN, None, options(epochs=3), on_epoch=lambda _: seen.append([]))
    assert all(sorted(order) == list(range(24)) for order in seen[:3]) and not seen[3]
    assert seen[0] != seen[1] != seen[2] != seen[0]


def test_training_leaves_the_random_state_of_the_process_alone():
    before, numpy_before = torch.get_rng_state(), np.random.get_state(legacy=False)
    trained(dropout=0.2)
    assert torch.equal(torch.get_rng_state(), before)
    assert str(np.random.get_state(legacy=False)) == str(numpy_before)


def test_training_beats_poisson_on_events_that_excite_each_other():
    train, dev = exciting(150, 2, 30.0), exciting(40, 3, 30.0)
    floor = fit(Poisson(train.vocabulary), train, dev).best
    result = fit(small_model(train, dim=16), train, dev, options(epochs=8, batch=8))
    assert result.best > floor + 0.2
    assert result.records[-1]["train"] > result.records[0]["train"] + 0.1
    assert result.best == max(dev for _, dev in scores(result.records))


def test_training_descends_the_likelihood_of_all_events_however_batches_are_formed():
    """One type, sparse and dense sequences in batches of their own: the rate must be that of all events, not a mean over batches."""
    rows = [(np.linspace(0.5, 9.5, 3).tolist(), [0] * 3)] * 8 + [(np.linspace(0.2, 9.8, 60).tolist(), [0] * 60)] * 8
    data = event_data(rows, types=1)
    model = small_model(data, dim=2)
    model.prepare(data)
    with torch.no_grad():  # nothing of the history reaches the intensity: a Poisson process with one rate
        model.w.zero_()
    for parameter in model.parameters():
        parameter.requires_grad_(parameter is model.w_constant)
    fit(model, data, None, options(epochs=40, batch=8, lr=0.05, cool=0, patience=0, integral="quadrature", points=2))
    rate = float(model.named_arrays()["intensity.a.tau"]) * math.log1p(math.exp(float(model.w_constant.detach())))
    assert rate == pytest.approx((8 * 3 + 8 * 60) / 160.0, rel=0.05)


def given_dev_scores(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> None:
    left = iter(values)
    monkeypatch.setattr(likelihood_task, "mean_log_likelihood", lambda *_, **more: next(left))


def test_the_model_is_left_with_its_best_parameters(monkeypatch: pytest.MonkeyPatch):
    given_dev_scores(monkeypatch, [-2.0, -1.0, -3.0, -2.0, -2.0, -1.0])
    result, until_the_best = trained(epochs=4), trained(epochs=2)
    assert result.best_epoch == 2 and result.best == -1.0
    assert same_tensors(result.model.state_dict(), until_the_best.model.state_dict())
    assert not result.model.training


def test_the_best_dev_score_is_that_of_the_model_that_is_left():
    result = trained(epochs=4)
    assert mean_log_likelihood(result.model, DEV, options().dev_points) == pytest.approx(result.best, abs=1e-6)


def test_training_stops_after_patience_epochs_without_a_better_dev_score(monkeypatch: pytest.MonkeyPatch):
    given_dev_scores(monkeypatch, [-2.0, -1.5, -1.5, -1.7, -1.6, 0.0])
    result = trained(epochs=6, patience=3, cool=0)
    assert len(result.records) == 5 and result.best_epoch == 2 and result.best == -1.5


def test_without_patience_training_goes_on_to_the_last_epoch(monkeypatch: pytest.MonkeyPatch):
    given_dev_scores(monkeypatch, [-1.0, -2.0, -2.0, -2.0])
    assert len(trained(epochs=4, patience=0).records) == 4


def test_the_learning_rate_is_halved_after_cool_epochs_without_a_better_score(monkeypatch: pytest.MonkeyPatch):
    given_dev_scores(monkeypatch, [-1.0, -2.0, -2.0, -2.0, -2.0, -0.5, -2.0])
    result = trained(epochs=7, patience=0, cool=2, lr=0.008)
    assert [record["lr"] for record in result.records] == [0.008, 0.008, 0.008, 0.004, 0.004, 0.002, 0.002]


def test_without_cooling_the_learning_rate_stays(monkeypatch: pytest.MonkeyPatch):
    given_dev_scores(monkeypatch, [-1.0, -2.0, -2.0, -2.0])
    assert {record["lr"] for record in trained(epochs=4, patience=0, cool=0).records} == {0.005}


def test_without_dev_data_the_train_score_is_what_is_judged():
    result = fit(small_model(TRAIN), TRAIN, None, options())
    assert result.best == max(record["train"] for record in result.records)
    assert all(record["dev"] is None for record in result.records)


def test_a_loss_that_is_not_a_number_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch):
    step = training.Stepper.__call__
    monkeypatch.setattr(training.Stepper, "__call__", lambda *args, **more: step(*args) * float("nan"))
    with pytest.raises(ForetellError, match=r"the loss is nan in epoch 1; lower train\.lr \(now 0\.005\)"):
        trained()


def test_a_dev_score_that_is_not_a_number_is_an_error(monkeypatch: pytest.MonkeyPatch):
    given_dev_scores(monkeypatch, [float("nan")])
    with pytest.raises(ForetellError, match="not a number in epoch 1"):
        trained()


def test_a_run_of_steps_so_large_that_numbers_overflow_is_an_error():
    with pytest.raises(ForetellError, match=r"the loss is (nan|inf) in epoch|not a number in epoch"):
        trained(lr=1e30, clip=0.0, epochs=20, patience=0, cool=0)


@pytest.mark.parametrize("c", [60.0, 1.0 / 86400.0])
def test_training_on_rescaled_data_gives_the_same_curve_up_to_the_units(c: float):
    def curve(factor: float) -> np.ndarray:
        train, dev = in_unit(TRAIN, factor), in_unit(DEV, factor)
        model = small_model(train, layers=2, dtype=torch.float64)
        found = fit(model, train, dev, options(dtype="float64", pseudo_count=0.5, decay=0.1))
        return np.array(scores(found.records))

    plain = curve(1.0)
    assert np.ptp(plain[:, 0]) > 1e-3, "it learned nothing"
    np.testing.assert_allclose(curve(c), plain - math.log(c), rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("kind", [Poisson, Hawkes])
def test_direct_fits_on_rescaled_data_give_the_same_score_up_to_the_units(kind: type[Poisson | Hawkes]):
    plain = fit(kind(TRAIN.vocabulary), TRAIN, DEV).best
    moved = fit(kind(TRAIN.vocabulary), in_unit(TRAIN, 60.0), in_unit(DEV, 60.0)).best
    assert moved == pytest.approx(plain - math.log(60.0), abs=1e-9)


def test_single_options_may_be_given_by_name_and_are_checked():
    assert len(fit(small_model(TRAIN), TRAIN, DEV, options(), epochs=1).records) == 1
    with pytest.raises(ForetellError, match=r"unknown key `train\.epoch`; did you mean `epochs`"):
        fit(small_model(TRAIN), TRAIN, DEV, epoch=1)
    with pytest.raises(ForetellError, match=r"train\.lr = -1\.0"):
        fit(small_model(TRAIN), TRAIN, DEV, lr=-1.0)


def test_data_without_events_or_of_another_vocabulary_is_refused():
    with pytest.raises(ForetellError, match="there is no event to learn from"):
        fit(small_model(TRAIN), event_data([([], [])], types=2), None)
    with pytest.raises(ForetellError, match="not those of the model"):
        fit(small_model(TRAIN), event_data([([1.0], [2])]), None)
    with pytest.raises(ForetellError, match="not those of the model"):
        fit(small_model(TRAIN), TRAIN, event_data([([1.0], [2])]))


def test_a_second_fit_continues_from_the_first_and_keeps_its_units():
    model = small_model(TRAIN)
    first = fit(model, TRAIN, DEV, options(epochs=5, lr=0.02))
    scale, wave = model.time_scale, model.time.m
    second = fit(model, TRAIN, DEV, options(epochs=1, lr=1e-6))
    assert second.records[0]["train"] > first.records[0]["train"]
    fit(model, in_unit(TRAIN, 1.5), in_unit(DEV, 1.5), options(epochs=1))
    assert model.time_scale == scale and model.time.m == wave


@pytest.mark.parametrize("window", ["all", "events-2-to-I"])
@pytest.mark.parametrize("origin", ["window", "first-event"])
def test_scored_events_are_counted_as_the_batches_count_them(window: Any, origin: Any):
    from foretell.batches.batch import make_batch

    data = event_data([([0.0, 1.0, 2.0], [0, 1, 0]), ([0.0], [1])], types=2, origin=origin)
    assert sum_scored(data, np.arange(2), window) == int(make_batch(data, [0, 1], window=window).scored.sum())


def test_a_direct_fit_stops_when_asked():
    with pytest.raises(TrainingInterrupt):
        fit(Hawkes(TRAIN.vocabulary), TRAIN, DEV, stop=lambda: True)


@pytest.mark.parametrize("name", ["quantum", "cuda:99", "meta", ""])
def test_a_device_that_cannot_be_used_is_refused(name: str):
    with pytest.raises(ForetellError, match="cannot be used here"):
        choose_device(name)


def test_the_mean_of_no_sequences_is_zero_events_and_no_failure():
    nothing = EventData([], TRAIN.vocabulary)
    assert mean_log_likelihood(Poisson(TRAIN.vocabulary), nothing, 1) == 0.0


def test_parameters_that_only_dev_gives_rise_to_exist_before_training_starts():
    """A name first met while dev is scored would otherwise take the place of tensors that the optimiser holds."""
    program = Program.from_text(
        ":- event(e).\nitem(a). item(b).\ne(X) :- item(X), seen(X).\nseen(X) <- bos, item(X).\nseen(X) <- e(X) :: w(X).\n"
    )
    data = EventData([EventSequence(np.array([1.0, 2.0]), np.array([0, 0]), 3.0, "t")], Vocabulary(("e(a)", "e(b)")))
    dev = EventData([EventSequence(np.array([1.0]), np.array([1]), 2.0, "d")], data.vocabulary)
    model = ANDTT(program, data.vocabulary, dim=2, layers=1)
    model.prepare(data)
    held: list[dict[str, torch.nn.Parameter]] = []
    fit(model, data, dev, epochs=2, on_step=lambda epoch, done, of: held.append(dict(model.named_parameters())))
    assert any("w(b)" in name for name in model.named_arrays())
    assert all(model.get_parameter(name) is tensor for one in held for name, tensor in one.items())
