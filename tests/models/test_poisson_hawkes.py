"""Poisson and Hawkes: the true likelihood from true parameters, and maximum likelihood that finds them again."""

from __future__ import annotations

import gzip
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foretell as ft
from foretell.batches.batch import make_batch
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.classical import hawkes_fit
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.hawkes_fit import fit_hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.units import PSEUDO_COUNT
from foretell.objective.loglik import log_likelihood
from foretell.reference.hawkes import SlowHawkes
from tests.samples import NAMES, as_history, event_data, random_data, randomise

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def exact_log_likelihoods(model: IntensityModel, data: EventData) -> torch.Tensor:
    with torch.no_grad():
        return log_likelihood(model, make_batch(data, range(len(data))), None).log_likelihood()


def per_event(model: IntensityModel, data: EventData) -> float:
    return float(exact_log_likelihoods(model, data).sum()) / data.event_count


def hawkes(mu: list[float], alpha: list, beta: list[float]) -> Hawkes:
    model = Hawkes(len(mu), decays=len(beta))
    with torch.no_grad():
        model.mu.copy_(torch.tensor(mu))
        model.alpha.copy_(torch.tensor(alpha))
        model.beta.copy_(torch.tensor(beta))
    return model


def poisson(rates: list[float]) -> Poisson:
    model = Poisson(len(rates))
    with torch.no_grad():
        model.log_rate.copy_(torch.tensor(rates, dtype=torch.float64).log())
    return model


def slow_twin(model: Hawkes) -> SlowHawkes:
    names = NAMES[: model.types]
    return SlowHawkes(
        dict(zip(names, model.mu.tolist(), strict=True)),
        {(e, f): model.alpha[i, j].tolist() for i, e in enumerate(names) for j, f in enumerate(names)},
        model.beta.tolist(),
    )


def simulate(mu: np.ndarray, alpha: np.ndarray, beta: float, t_end: float, seed: int) -> tuple[list[float], list[int]]:
    """One sequence of a Hawkes process with one decay, by thinning: between events the intensity only falls."""
    random = np.random.default_rng(seed)
    excited, time = np.zeros(len(mu)), 0.0
    times: list[float] = []
    types: list[int] = []
    while True:
        bound = float((mu + excited).sum())
        wait = random.exponential(1.0 / bound)
        time += wait
        if time > t_end:
            return times, types
        excited = excited * math.exp(-beta * wait)
        rates = mu + excited
        if random.uniform() * bound < rates.sum():
            kind = int(random.choice(len(mu), p=rates / rates.sum()))
            times.append(time)
            types.append(kind)
            excited = excited + alpha[:, kind]


MU, ALPHA, BETA = np.array([0.5, 0.2]), np.array([[0.6, 0.1], [0.9, 0.3]]), 2.0
TRUE_MODEL = hawkes(MU.tolist(), ALPHA[:, :, None].tolist(), [BETA])


@pytest.fixture(scope="module")
def simulated() -> EventData:
    return event_data([simulate(MU, ALPHA, BETA, 100.0, seed) for seed in range(40)], types=2, t_end=100.0)


@pytest.fixture(scope="module")
def held_out() -> EventData:
    return event_data([simulate(MU, ALPHA, BETA, 100.0, seed) for seed in range(100, 140)], types=2, t_end=100.0)


# True parameters


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("synth_stationary_poisson", poisson([1.0])),
        ("synth_hawkes1", hawkes([0.2], [[[0.8]]], [1.0])),
        ("synth_hawkes2", hawkes([0.2], [[[0.4, 8.0]]], [1.0, 20.0])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_true_parameters_give_the_stored_true_likelihood(name: str, model: IntensityModel, split: str):
    path = SHARED / name / f"{split}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"../shared/data/{name} is not here")
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    sequences = [
        EventSequence(np.array(row["times"]), np.zeros(len(row["times"]), dtype=np.int32), row["t_end"], str(place))
        for place, row in enumerate(rows)
    ]
    data = EventData(sequences, Vocabulary(("0",)), "window", split)
    found = -exact_log_likelihoods(model, data)
    stored = torch.tensor([row["nll_true"] for row in rows], dtype=torch.float64)
    # Times are stored with seven decimals: at a decay of 20, half of the last one can move log λ by 1e-6 at each event.
    torch.testing.assert_close(found, stored, rtol=0.0, atol=2e-5)
    assert abs(float((found - stored).sum())) < 1e-6 * data.event_count


def test_hawkes_is_its_slow_twin():
    data = random_data(91, [7, 0, 1, 12], ties=True)
    model = randomise(Hawkes(3, decays=2), seed=92)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    expected = [slow_twin(model).log_likelihood(as_history(data, row), data[row].t_end) for row in range(len(data))]
    assert exact_log_likelihoods(model, data).tolist() == pytest.approx(expected, rel=1e-11)


def test_conditioned_on_its_first_event_hawkes_is_still_its_slow_twin():
    rows = [([0.0, 1.0, 1.5], [1, 0, 2]), ([0.0], [0])]
    data = event_data(rows, t_end=4.0, origin="first-event")
    model = hawkes([0.3, 0.2, 0.5], np.full((3, 3, 2), 0.2).tolist(), [0.7, 3.0])
    expected = [slow_twin(model).log_likelihood(as_history(data, row), 4.0, first=1) for row in range(2)]
    assert exact_log_likelihoods(model, data).tolist() == pytest.approx(expected, rel=1e-12)


def test_hawkes_that_nothing_excites_is_poisson():
    data = random_data(93, [5, 0, 8])
    quiet, constant = hawkes([0.3, 0.2, 0.5], np.zeros((3, 3, 1)).tolist(), [1.0]), poisson([0.3, 0.2, 0.5])
    torch.testing.assert_close(exact_log_likelihoods(quiet, data), exact_log_likelihoods(constant, data))


def test_rescaled_by_the_true_integral_simulated_gaps_are_unit_exponentials(simulated: EventData):
    """The simulator against the model: 5 standard errors of a unit exponential's mean, so a false alarm below 1e-6."""
    with torch.no_grad():
        batch = make_batch(simulated, range(len(simulated)))
        gaps = log_likelihood(TRUE_MODEL, batch, None).gap_integral
    whole = float(gaps.sum())
    assert abs(whole - simulated.event_count) < 5.0 * math.sqrt(simulated.event_count)


# Maximum likelihood


def test_fitted_poisson_rates_are_counts_and_a_half_over_time():
    data = event_data([([1.0, 2.0, 3.0], [0, 0, 1]), ([4.0], [0])], t_end=[5.0, 15.0])
    model = Poisson(data.vocabulary)
    model.fit_closed_form(data)
    assert model.log_rate.exp().tolist() == pytest.approx([3.5 / 20.0, 1.5 / 20.0, 0.5 / 20.0])
    assert model.fitted


def test_fitted_poisson_rates_leave_out_a_first_event_that_is_given():
    data = event_data([([0.0, 2.0], [0, 1])], t_end=4.0, origin="first-event")
    model = Poisson(data.vocabulary)
    model.fit_closed_form(data)
    assert model.log_rate.exp().tolist() == pytest.approx([0.5 / 4.0, 1.5 / 4.0, 0.5 / 4.0])


def test_fitting_hawkes_never_lowers_its_likelihood(simulated: EventData):
    """What may not fall is the likelihood with its pseudo-count of half an event of background for each type."""
    model, penalised = Hawkes(simulated.vocabulary, decays=2), []

    def note(number: int, value: float) -> None:
        penalty = PSEUDO_COUNT * float(model.mu.detach().log().sum())
        penalised.append(float(exact_log_likelihoods(model, simulated).sum()) + penalty)

    curve = fit_hawkes(model, simulated, progress=note)
    assert len(penalised) == len(curve) > 2
    assert all(later >= earlier - 1e-8 * abs(earlier) for earlier, later in pairwise(penalised))
    assert curve[-1] > curve[0]


def test_the_curve_that_comes_back_is_a_likelihood_an_event(simulated: EventData):
    model = Hawkes(simulated.vocabulary, decays=1)
    curve = fit_hawkes(model, simulated)
    assert curve[-1] == pytest.approx(per_event(model, simulated), abs=1e-4)


def test_fitting_finds_the_parameters_that_the_data_were_made_with(simulated: EventData):
    model = Hawkes(simulated.vocabulary, decays=1)
    fit_hawkes(model, simulated)
    assert model.mu.tolist() == pytest.approx(MU.tolist(), abs=0.06)
    assert model.beta.tolist() == pytest.approx([BETA], rel=0.2)
    np.testing.assert_allclose(model.alpha.detach().numpy()[:, :, 0], ALPHA, atol=0.15)


def test_a_fit_scores_within_a_hundredth_of_a_nat_of_the_truth(simulated: EventData, held_out: EventData):
    model = Hawkes(simulated.vocabulary, decays=1)
    fit_hawkes(model, simulated)
    truth = per_event(TRUE_MODEL, held_out)
    assert per_event(model, simulated) > per_event(TRUE_MODEL, simulated)
    assert abs(per_event(model, held_out) - truth) < 0.01
    floor = Poisson(simulated.vocabulary)
    floor.fit_closed_form(simulated)
    assert per_event(floor, held_out) < truth - 0.1


def test_with_dev_data_the_round_that_scores_best_on_it_is_kept(simulated: EventData, held_out: EventData):
    few = simulated.select(range(2))
    model, on_dev = Hawkes(simulated.vocabulary, decays=2), []
    fit_hawkes(model, few, held_out, progress=lambda *_: on_dev.append(per_event(model, held_out)))
    assert per_event(model, held_out) == pytest.approx(max(on_dev), rel=1e-12)


def few_of_many_types(seed: int, sequences: int, alike: float) -> EventData:
    """Bursts of ten types, `alike` of a burst of one type: far more `α` than so few events determine."""
    random = np.random.default_rng(seed)
    frequent = np.arange(1.0, 11.0) / 55.0
    rows = []
    for _ in range(sequences):
        times = np.sort(np.repeat(random.uniform(0.0, 40.0, 5), 4) + random.exponential(0.3, 20))
        burst = np.repeat(random.choice(10, 5, p=frequent), 4)
        types = np.where(random.random(20) < alike, burst, random.choice(10, 20, p=frequent)).astype(np.int32)
        rows.append(EventSequence(times, types, 50.0, str(len(rows))))
    return EventData(rows, Vocabulary.of_size(10), "window", "few")


def test_the_step_that_scores_best_on_dev_is_kept_and_it_is_not_the_last(monkeypatch: pytest.MonkeyPatch):
    few, dev, on_dev = few_of_many_types(0, 20, 0.5), few_of_many_types(1, 10, 0.5), []
    step = hawkes_fit._share_out

    def noting(model: Hawkes, *arguments: Any) -> float:
        value = step(model, *arguments)
        on_dev.append(per_event(model, dev))
        return value

    monkeypatch.setattr(hawkes_fit, "_share_out", noting)
    model = Hawkes(few.vocabulary, decays=1)
    fit_hawkes(model, few, dev, beta=torch.tensor([2.0]).double())
    best = int(np.argmax(on_dev))
    assert 0 < best < len(on_dev) - 1 and best % hawkes_fit.STEPS_A_ROUND != hawkes_fit.STEPS_A_ROUND - 1
    assert per_event(model, dev) == pytest.approx(on_dev[best], rel=1e-12)
    assert on_dev[best] > on_dev[-1] + 0.01


def test_decays_and_shrinkage_are_chosen_on_dev():
    few, dev = few_of_many_types(0, 6, 0.0), few_of_many_types(1, 10, 0.0)
    model = Hawkes(few.vocabulary)
    ft.fit(model, few, dev)
    assert model.options.decays in hawkes_fit.DECAYS and model.options.shrinkage in hawkes_fit.SHRINKAGES
    assert model.alpha.shape == (10, 10, model.options.decays) and model.fitted
    plain = Hawkes(few.vocabulary, decays=2, shrinkage=0.0)
    ft.fit(plain, few, dev)
    assert per_event(model, dev) > per_event(plain, dev) + 0.01


def test_without_dev_there_are_two_decays_and_no_shrinkage(simulated: EventData):
    model = Hawkes(simulated.vocabulary)
    ft.fit(model, simulated.select(range(3)))
    assert (model.options.decays, model.options.shrinkage) == (2, 0.0)


def test_a_shrunk_step_is_that_of_the_loops():
    data = random_data(5, [7, 4, 6])
    model = hawkes([0.2, 0.1, 0.3], [[[0.3, 0.1], [0.2, 0.4], [0.1, 0.1]]] * 3, [0.5, 3.0])
    twin = slow_twin(model)
    rows = [(as_history(data, index), data[index].t_end) for index in range(len(data))]
    for shrinkage in (0.0, 2.5):
        copy = Hawkes(data.vocabulary, decays=2)
        copy.load_state_dict(model.state_dict())
        blocks, exposure = hawkes_fit._Blocks(copy, data), hawkes_fit._exposure(data)
        hawkes_fit._share_out(copy, blocks, exposure, 1.0, shrinkage)
        for (e, f), alpha in twin.raised(rows, shrinkage).items():
            found = copy.alpha[NAMES.index(e), NAMES.index(f)].tolist()
            assert found == pytest.approx(alpha, rel=1e-10, abs=1e-14)


def test_a_part_of_many_data_is_enough_to_choose_with(
    simulated: EventData, held_out: EventData, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hawkes_fit, "ENOUGH_FLOATS", simulated.event_count)
    some = hawkes_fit._some(simulated)
    assert 0 < some.event_count < simulated.event_count
    model = Hawkes(simulated.vocabulary, decays=1, shrinkage=0.0)
    ft.fit(model, simulated, held_out)
    only_some = Hawkes(simulated.vocabulary, decays=1, shrinkage=0.0)
    ft.fit(only_some, some, held_out)
    assert per_event(model, simulated) > per_event(only_some, simulated)
    assert per_event(model, held_out) > per_event(TRUE_MODEL, held_out) - 0.01


def test_a_type_that_never_happens_gets_a_small_rate_and_no_infinite_loss(simulated: EventData):
    rows = [(row.times.tolist(), row.types.tolist()) for row in simulated.select(range(3))]
    data = event_data(rows, types=3, t_end=100.0)
    model = Hawkes(data.vocabulary, decays=1)
    fit_hawkes(model, data)
    assert float(model.mu.detach()[2]) == pytest.approx(PSEUDO_COUNT / 300.0)
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    surprise = event_data([([1.0, 2.0], [2, 0])], types=3, t_end=3.0)
    assert math.isfinite(per_event(model, surprise))


def test_data_kept_in_blocks_or_made_again_give_the_same_fit(simulated: EventData, monkeypatch: pytest.MonkeyPatch):
    few = simulated.select(range(4))
    monkeypatch.setattr(hawkes_fit, "ROUNDS", 4)
    kept, again = Hawkes(few.vocabulary), Hawkes(few.vocabulary)
    fit_hawkes(kept, few)
    monkeypatch.setattr(hawkes_fit, "KEPT_FLOATS", 0)
    monkeypatch.setattr(hawkes_fit, "BLOCK_FLOATS", 1000)
    fit_hawkes(again, few)
    for name, value in kept.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["mu.a", "beta", "alpha.b"])
def test_named_arrays_that_are_no_hawkes_process_are_refused(name: str):
    model = Hawkes(Vocabulary(("a", "b")))
    arrays = {key: array.clone() for key, array in model.named_arrays().items()}
    arrays[name] = -torch.ones_like(arrays[name])
    with pytest.raises(ForetellError, match=name):
        model.load_named_arrays(arrays)


def test_hawkes_without_decays_is_refused():
    with pytest.raises(ForetellError, match="decays = 0"):
        Hawkes(2, decays=0)
