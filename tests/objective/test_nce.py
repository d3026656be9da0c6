"""Noise-contrastive estimation: its slow twin, its stationary point at the truth, and its limit of many streams."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.batches.batch import make_batch
from foretell.data import EventData, EventSequence
from foretell.data.synthetic import HawkesProcess as SyntheticHawkes
from foretell.data.synthetic import simulate
from foretell.models.attention.anhp import ANHP
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.objective.loglik import log_likelihood, quadrature
from foretell.objective.nce import contrast
from foretell.objective.noise import NoiseProcess
from foretell.objective.noise_parts import Noise, Profile, TimedNoise
from foretell.reference.hawkes import SlowHawkes
from foretell.reference.nce import NoiseEvent, objective
from foretell.reference.timed import SlowTimed
from tests.models.twin import twin_of
from tests.samples import as_history, event_data, random_rows, randomise

CPU = torch.device("cpu")
Z = 5.5  # with 120 groups a false alarm in 2e-7 of cases


def hawkes_noise(types: int, decays: int = 2, seed: int = 3) -> Hawkes:
    process = randomise(Hawkes(types, decays=decays), seed)
    with torch.no_grad():
        for parameter in process.parameters():
            parameter.abs_().add_(0.05)
    return process


def slow(process: Hawkes | Poisson, names: tuple[str, ...]) -> SlowHawkes:
    if isinstance(process, Poisson):
        rates = dict(zip(names, process.log_rate.exp().tolist(), strict=True))
        return SlowHawkes(rates, {(e, f): [0.0] for e in names for f in names}, [1.0])
    alpha = {(e, f): process.alpha[i, j].tolist() for i, e in enumerate(names) for j, f in enumerate(names)}
    return SlowHawkes(dict(zip(names, process.mu.tolist(), strict=True)), alpha, process.beta.tolist())


def timed_noise(types: int, seed: int = 21) -> TimedNoise:
    """Step functions with as many steps as marks have numbers, some without rate; the first of a return has one."""
    random, profiles = np.random.default_rng(seed), []
    for _ in range(2):
        steps = []
        for mark in range(types):
            rates = random.exponential(0.8, mark + 4) * (random.random(mark + 4) < 0.7)
            rates[0] = 0.3
            steps.append((np.array([0.0, *np.sort(random.uniform(0.0, 8.0, mark + 3))]), rates))
        profiles.append(Profile.from_steps(steps))
    hawkes = hawkes_noise(types)
    with torch.no_grad():
        hawkes.alpha.mul_(0.2)
    return TimedNoise(hawkes, *profiles)


def slow_timed(process: TimedNoise, names: tuple[str, ...]) -> SlowTimed:
    def pairs(profile: Profile) -> dict[str, list[tuple[float, float]]]:
        found = zip(names, profile.edges.tolist(), profile.rate.tolist(), strict=True)
        return {name: list(zip(edges, rates, strict=True)) for name, edges, rates in found}

    return SlowTimed(slow(process.hawkes, names), pairs(process.since_start), pairs(process.since_own))


def some_noise(kind: str, types: int, seed: int) -> Noise:
    if kind == "timed":
        return timed_noise(types, seed)
    return hawkes_noise(types, seed=seed) if kind == "hawkes" else randomise(Poisson(types), seed)


@pytest.mark.parametrize("kind", ["poisson", "hawkes", "timed"])
@pytest.mark.parametrize("origin", ["window", "first-event"])
@pytest.mark.parametrize("streams", [1, 3])
def test_the_objective_and_its_gradient_are_those_of_the_slow_twin(kind: str, origin, streams: int):
    rows = random_rows(41, [4, 0, 7, 1], types=3, t_end=10.0, ties=True)
    if origin == "first-event":
        rows = [([0.0, *times], [0, *kinds]) for times, kinds in rows]
    data = event_data(rows, types=3, origin=origin)
    model = randomise(ANHP(data.vocabulary, dim=3, layers=2, bos=True, dtype=torch.float64), 42)
    model.time.set_range(0.2, 10.0)
    process = some_noise(kind, 3, seed=3)
    batch = make_batch(data, range(4))
    noise = NoiseProcess(process, CPU).draw(batch, streams, torch.Generator().manual_seed(7))
    assert noise.drawn > 20
    found = -contrast(model, batch, noise)
    names = data.vocabulary.names
    twin, rate = twin_of(model), slow_timed(process, names) if isinstance(process, TimedNoise) else slow(process, names)
    wanted = torch.zeros((), dtype=torch.float64)
    for row in range(4):
        drawn = [
            NoiseEvent(data.vocabulary.names[kind], time, gap)
            for kind, time, gap, valid in zip(
                *(one[row].tolist() for one in (noise.chosen, noise.times, noise.seen, noise.valid)), strict=True
            )
            if valid
        ]
        first = 1 if origin == "first-event" else 0
        wanted = wanted + objective(twin.intensity, rate.intensity, as_history(data, row), drawn, streams, first)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-10)
    parameters = list(model.parameters())
    ours = torch.autograd.grad(found, parameters, allow_unused=True)
    theirs = torch.autograd.grad(wanted, parameters, allow_unused=True)
    for one, two in zip(ours, theirs, strict=True):
        both = [torch.zeros(()) if part is None else part for part in (one, two)]
        torch.testing.assert_close(both[0], both[1], rtol=1e-8, atol=1e-10)


def test_events_that_are_only_history_are_seen_and_not_contrasted():
    times, types = np.array([1.0, 2.0, 3.0]), np.array([0, 1, 0], dtype=np.int32)
    marked = EventSequence(times, types, 5.0, "0", unscored=np.array([False, True, False]))
    data = EventData([marked], event_data([((), ())], types=2).vocabulary, "window", "marked")
    process = hawkes_noise(2)
    model = hawkes_noise(2, seed=8)
    batch = make_batch(data, [0])
    noise = NoiseProcess(process, CPU).draw(batch, 1, torch.Generator().manual_seed(1))
    found = contrast(model, batch, replace(noise, valid=torch.zeros_like(noise.valid))).item()  # of real events alone
    ours, theirs = slow(model, ("a", "b")), slow(process, ("a", "b"))
    history = as_history(EventData([EventSequence(times, types, 5.0, "0")], data.vocabulary), 0)
    wanted = 0.0
    for place in (0, 2):
        lam, q = (one.intensity("a", float(times[place]), history[:place]) for one in (ours, theirs))
        wanted -= np.log(lam / (lam + q))
    assert found == pytest.approx(wanted, rel=1e-12)


TRUTH = SyntheticHawkes(np.array([0.4, 0.2]), np.array([[0.6, 0.1], [0.3, 0.5]]), np.array([1.5]))


def true_model() -> Hawkes:
    """The process that the data below come from, as a model whose gradient can be taken."""
    model = Hawkes(2, decays=1)
    with torch.no_grad():
        model.mu.copy_(torch.tensor([0.4, 0.2]))
        model.alpha.copy_(torch.from_numpy(TRUTH.alpha).reshape(2, 2, 1))
        model.beta.copy_(torch.tensor([1.5]))
    return model


def gradients(model: Hawkes, data: EventData, process: Noise, streams: int) -> torch.Tensor:
    """[groups of sequences, parameters], with one draw of noise for each."""
    noise_process, found = NoiseProcess(process, CPU), []
    generator = torch.Generator().manual_seed(11)
    for first in range(0, len(data), 5):
        batch = make_batch(data, range(first, first + 5))
        loss = contrast(model, batch, noise_process.draw(batch, streams, generator))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        found.append(torch.cat([one.flatten() for one in gradients]))
    return torch.stack(found)


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("kind", ["poisson", "hawkes", "timed"])
def test_at_the_true_parameters_the_gradient_is_zero_on_average(kind: str, streams: int):
    """Whatever the noise, and however few its streams."""
    data = simulate(TRUTH, 600, 6.0, seed=5)
    process = some_noise(kind, 2, seed=9)
    model = true_model()
    found = gradients(model, data, process, streams)
    assert (found.mean(0).abs() <= Z * found.std(0) / len(found) ** 0.5).all()
    with torch.no_grad():  # elsewhere it is not: the test can fail
        model.mu.mul_(1.5)
    moved = gradients(model, data, process, streams)
    assert (moved.mean(0).abs() > Z * moved.std(0) / len(moved) ** 0.5).any()


def test_with_many_streams_the_gradient_is_that_of_the_likelihood():
    data = simulate(TRUTH, 3, 6.0, seed=6)
    model, process = hawkes_noise(2, decays=1, seed=12), hawkes_noise(2, seed=13)
    batch = make_batch(data, range(3))
    parameters = list(model.parameters())
    exact = torch.autograd.grad(-log_likelihood(model, batch, quadrature(batch, 12)).log_likelihood().sum(), parameters)
    wanted = torch.cat([one.flatten() for one in exact])

    def off(streams: int) -> float:
        noise = NoiseProcess(process, CPU).draw(batch, streams, torch.Generator().manual_seed(1))
        found = torch.autograd.grad(contrast(model, batch, noise), parameters)
        return float((torch.cat([one.flatten() for one in found]) - wanted).norm() / wanted.norm())

    distances = [off(streams) for streams in (3, 100, 5_000)]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.02
