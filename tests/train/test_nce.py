"""Training by noise-contrastive estimation: steps, counts, runs that are resumed, and options that contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foretell.batches.batch import make_batch
from foretell.data import EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.last_event.sahp import SAHP
from foretell.models.last_event.thp import THP
from foretell.models.recurrent.nhp import NHP
from foretell.objective.nce import NoiseSource
from foretell.train import executor as executing
from foretell.train.config import ConfigError, make_config
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.likelihood_task import integral_cost, mean_log_likelihood
from foretell.train.noise import NoiseKind, fit_noise, noise_of_run
from foretell.train.run import RunFolder
from foretell.train.step import PieceLimits, StepOptions, Stepper
from tests.objective.test_noise import POSSIBLE, SHOPPING, shop
from tests.samples import event_data, random_data, random_rows, randomise
from tests.train.small import exciting, options, same_tensors, small_model
from tests.train.test_resume import StopAfter, new_run, same_run, without_seconds

TRAIN, DEV = exciting(24, 0), exciting(8, 1)
DATA = random_data(5, [3, 9, 0, 14, 6, 1, 11])
BATCH = make_batch(DATA, range(7))


def stepper(**changes: Any) -> Stepper:
    model = randomise(small_model(DATA, layers=2, dtype=torch.float64), seed=6)
    model.time.set_range(0.1, 10.0)
    return Stepper(model, 1e-3, StepOptions(**changes), NoiseSource(model, fit_noise(model, DATA, None, "hawkes"), 3))


def gradients(one: Stepper, number: int = 0) -> list[torch.Tensor]:
    one(BATCH, number)
    return [parameter.grad.clone() for parameter in one.parameters if parameter.grad is not None]


@pytest.mark.parametrize("piece", [1, 90])
def test_a_batch_in_pieces_gives_the_gradient_of_the_whole(piece: int):
    whole, cut = (stepper(piece=size, clip=0.0, pseudo_rate=0.2) for size in (10**6, piece))
    for one, two in zip(gradients(whole), gradients(cut), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-10, atol=1e-12)


def test_queries_in_pieces_over_one_encoded_history_give_the_gradient_of_the_whole(monkeypatch: pytest.MonkeyPatch):
    whole = gradients(stepper(clip=0.0))
    monkeypatch.setattr(Stepper, "_limits", lambda self, batch: PieceLimits(10**6, 60))
    for one, two in zip(whole, gradients(stepper(clip=0.0)), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-10, atol=1e-12)


def test_threads_change_no_number(monkeypatch: pytest.MonkeyPatch):
    alone, together = stepper(piece=60), stepper(piece=60)
    alone.executor.threads, together.executor.threads = 1, 2
    monkeypatch.setattr(executing, "SIDE_BY_SIDE", 0)
    for one, two in zip(gradients(alone), gradients(together), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-12, atol=1e-14)


def test_a_step_draws_its_own_noise_and_draws_it_again_when_it_is_repeated():
    one = stepper()
    one.adam.set_lr(0.0)
    losses = [float(one(BATCH, number)) for number in (0, 1, 2, 0)]
    assert losses[0] == losses[3] and len(set(losses)) == 3


@pytest.mark.parametrize("noise", ["poisson", "hawkes", "timed"])
@pytest.mark.parametrize("asked", [1, 4, 7])
def test_stopping_anywhere_and_resuming_changes_nothing(asked: int, noise: str, tmp_path: Path):
    chosen = options(epochs=3, cool=1, objective="nce", noise=noise)
    undisturbed, disturbed = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    expected = fit(small_model(TRAIN), TRAIN, DEV, chosen, run=undisturbed)
    with pytest.raises(TrainingInterrupt):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=disturbed, stop=StopAfter(asked))
    found = fit(small_model(TRAIN), TRAIN, DEV, chosen, run=disturbed, resume=True)
    assert without_seconds(found.records) == without_seconds(expected.records)
    assert same_tensors(found.model.state_dict(), expected.model.state_dict())
    assert same_run(undisturbed.path, disturbed.path)
    assert (undisturbed.path / "noise.safetensors").read_bytes() == (disturbed.path / "noise.safetensors").read_bytes()


def test_a_resumed_run_takes_the_noise_it_began_with_and_no_other(tmp_path: Path):
    run, chosen = new_run(tmp_path / "run"), options(epochs=3, objective="nce")
    with pytest.raises(TrainingInterrupt):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=run, stop=StopAfter(2))
    run.save_noise(Poisson(7))
    with pytest.raises(ForetellError, match="noise process is not one of the model"):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=run, resume=True)


@pytest.mark.parametrize("other", ["poisson", "hawkes"])
def test_timed_noise_is_no_other_and_a_damaged_file_is_named(other: NoiseKind, tmp_path: Path):
    run, chosen = new_run(tmp_path / "run"), options(epochs=3, objective="nce", noise="timed")
    with pytest.raises(TrainingInterrupt):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=run, stop=StopAfter(2))
    kept = (run.path / "noise.safetensors").read_bytes()
    run.save_noise(fit_noise(small_model(TRAIN), TRAIN, DEV, other))
    with pytest.raises(ForetellError, match="noise process is not one of the model"):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=run, resume=True)
    (run.path / "noise.safetensors").write_bytes(kept[:-8])
    with pytest.raises(ForetellError, match=r"noise.safetensors: not a foretell model"):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=run, resume=True)
    (run.path / "noise.safetensors").write_bytes(kept)
    with pytest.raises(ForetellError, match="noise process is not one of the model"):
        noise_of_run(small_model(TRAIN), TRAIN, DEV, other, run, resume=True)
    assert len(fit(small_model(TRAIN), TRAIN, DEV, chosen, run=run, resume=True).records) == 3


@pytest.mark.parametrize("make", [NHP, THP, SAHP])
def test_every_neural_model_learns_from_noise(make: type[IntensityModel]):
    model = make(TRAIN.vocabulary, dim=4)  # pyright: ignore[reportCallIssue]
    result = fit(model, TRAIN, DEV, options(epochs=12, lr=0.02, objective="nce"))
    floor = Poisson(TRAIN.vocabulary)
    floor.fit_closed_form(TRAIN)
    assert result.best > mean_log_likelihood(floor, DEV, 1) + 0.02


def test_the_score_is_the_likelihood_and_not_what_was_descended():
    result = fit(small_model(TRAIN), TRAIN, DEV, options(epochs=2, objective="nce"))
    assert result.best == pytest.approx(mean_log_likelihood(result.model, DEV, options().dev_points), abs=1e-6)
    assert all(record["train"] is None and record["nce"] < 0.0 for record in result.records)


def test_without_dev_data_the_likelihood_of_train_is_judged():
    result = fit(small_model(TRAIN), TRAIN, None, options(epochs=2, objective="nce"))
    assert result.best == pytest.approx(mean_log_likelihood(result.model, TRAIN, options().dev_points), abs=1e-6)


def test_what_is_looked_at_is_counted():
    events, gaps = TRAIN.event_count, TRAIN.event_count + len(TRAIN)
    by_integral = fit(small_model(TRAIN), TRAIN, DEV, options(epochs=2, points=3)).records
    assert by_integral[0]["epoch_states"] == by_integral[0]["states"] == events + 3 * gaps
    assert by_integral[1]["states"] == 2 * (events + 3 * gaps)
    assert by_integral[1]["intensities"] == 2 * (events + 2 * 3 * gaps)  # of two types
    records = fit(small_model(TRAIN), TRAIN, DEV, options(epochs=2, objective="nce", noise_streams=4)).records
    rates = (TRAIN.type_counts() + 0.5) / sum(one.t_end for one in TRAIN)
    expected = 4 * rates.sum() * sum(one.t_end for one in TRAIN)
    for record in records:
        assert record["epoch_states"] == record["epoch_intensities"]
        assert abs(record["epoch_states"] - events - expected) < 5.5 * expected**0.5
    assert records[1]["states"] == records[0]["states"] + records[1]["epoch_states"]


@pytest.mark.parametrize(("window", "origin"), [("events-2-to-I", "window"), ("all", "first-event")])
@pytest.mark.parametrize("integral", ["stratified", "uniform"])
def test_only_gaps_that_count_are_counted(window: Any, origin: Any, integral: Any):
    rows = [([0.0, *times[1:]], kinds) for times, kinds in random_rows(5, [3, 9, 6])]
    data = event_data(rows, origin=origin)
    one = Stepper(small_model(data), 1e-3, StepOptions(integral=integral, points=2))
    one(make_batch(data, range(3), window=window), 0)
    chosen = options(window=window, integral=integral, points=2)
    found = integral_cost(one.model, data, np.arange(3), 15, chosen, one.uniform)
    gaps = 15 if window == "events-2-to-I" else 18
    points = 2 * (3 + 9 + 6) if integral == "uniform" else 2 * gaps
    assert found == (15 + points, 15 + 3 * points)


def test_of_rules_the_possible_events_are_counted():
    model, together = shop(), np.arange(2)
    whole = integral_cost(model, SHOPPING, together, 6, options(points=2))
    assert whole == (6 + 2 * 9, 6 + 2 * sum(map(sum, POSSIBLE)))
    some = integral_cost(model, SHOPPING, together, 6, options(points=2, downsample=4))
    assert some[1] == 6 + 2 * sum(min(one, 4) for row in POSSIBLE for one in row)


@pytest.mark.parametrize("noise", ["poisson", "hawkes", "timed"])
def test_a_model_of_rules_learns_from_noise_that_was_possible(noise: str):
    data = SHOPPING
    records = fit(shop(), data, None, options(epochs=40, lr=0.02, objective="nce", noise=noise, patience=0)).records
    assert records[-1]["train"] > records[0]["train"] + 0.05


def test_pseudo_events_hold_up_the_intensity_of_types_that_never_occur():
    data = random_data(7, [12] * 6, types=2)
    data = EventData(list(data), Vocabulary(("a", "b", "never")), "window", "sample")

    def rate_of_the_unseen(count: float) -> float:
        model = small_model(data)
        fit(model, data, None, options(epochs=30, lr=0.05, pseudo_count=count, patience=0, objective="nce"))
        return float(model.named_arrays()["intensity.never.w"][0])

    assert rate_of_the_unseen(20.0) > rate_of_the_unseen(0.0) + 0.2


@pytest.mark.parametrize("model", [Poisson, Hawkes])
def test_what_is_fitted_directly_has_no_use_for_noise(model: type[Poisson | Hawkes]):
    with pytest.raises(ForetellError, match="is fitted directly, by maximum likelihood"):
        fit(model(TRAIN.vocabulary), TRAIN, DEV, objective="nce")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise": "hawkes"}, r"train.noise = hawkes: maximum likelihood has no noise"),
        ({"noise": "timed"}, r"train.noise = timed: maximum likelihood has no noise"),
        ({"noise_streams": 2}, r"train.noise_streams = 2: maximum likelihood has no noise"),
        ({"objective": "nce", "points": 2}, r"train.points = 2: noise-contrastive estimation has no integral"),
        ({"objective": "nce", "integral": "uniform"}, r"train.integral = uniform: noise-contrastive"),
        ({"objective": "nce", "noise_streams": 0}, r"train.noise_streams = 0: expected 1 or more"),
        ({"objective": "nce", "noise": "white"}, r'train.noise = .white.: expected "poisson" or "hawkes" or "timed"'),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        make_config({"train": given})
    with pytest.raises(ConfigError, match=message):
        fit(small_model(TRAIN), TRAIN, DEV, **given)


def test_single_options_are_checked_together_with_the_others():
    chosen = options(epochs=1, objective="nce")
    assert fit(small_model(TRAIN), TRAIN, DEV, chosen, noise="hawkes").records
    with pytest.raises(ConfigError, match="no integral"):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, points=2)


def test_the_noise_is_kept_with_the_run(tmp_path: Path):
    run = new_run(tmp_path / "run")
    fit(small_model(TRAIN), TRAIN, DEV, options(epochs=1, objective="nce", noise="hawkes"), run=run)
    kept = RunFolder.open(run.path).noise()
    assert isinstance(kept, Hawkes) and kept.vocabulary == TRAIN.vocabulary
    run.discard()
    assert not run.path.exists()
