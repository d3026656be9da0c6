"""Intensities, totals, logarithms, integrals, units and precisions of every model agree with each other."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from foretell.batches.batch import Queries
from foretell.data import EventData, Origin
from foretell.models.base import IntensityModel
from foretell.models.capabilities import exact_integral_of
from foretell.nn.time import TimeEmbedding
from foretell.objective.loglik import log_likelihood, quadrature, training_loss
from tests.asking import state_at
from tests.calendar_samples import dated
from tests.contract.members import Member
from tests.samples import event_data, random_data, random_rows

DATA = dated(random_data(41, [6, 0, 11, 2]))
EVERYTHING = range(len(DATA))


def likelihood(model: IntensityModel, data: EventData) -> torch.Tensor:
    batch = model.collator.batch(data, range(len(data)))
    return log_likelihood(model, batch, quadrature(batch, 4)).log_likelihood()


def test_log_intensity_total_and_intensities_say_the_same(model: IntensityModel):
    batch = model.collator.batch(DATA, EVERYTHING)
    state = state_at(model, batch, Queries.of_events(batch))
    intensities = model.intensities(state)
    assert intensities.shape == (*batch.times.shape, 3)
    is_event = torch.arange(batch.times.shape[1])[None] < batch.lengths[:, None]
    assert bool((intensities[is_event] > 0.0).all())
    of_types = intensities.gather(-1, batch.types.unsqueeze(-1)).squeeze(-1).log()
    torch.testing.assert_close(model.log_intensity(state, batch.types), of_types, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model.total(state), intensities.sum(-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model.log_intensities(state), intensities.log(), rtol=1e-12, atol=1e-12)


def test_states_can_be_sliced(model: IntensityModel):
    batch = model.collator.batch(DATA, EVERYTHING)
    state = state_at(model, batch, Queries.of_events(batch))
    torch.testing.assert_close(model.intensities(state[1:3, 2:5]), model.intensities(state)[1:3, 2:5])
    torch.testing.assert_close(model.total(state[:, :1]), model.total(state)[:, :1])


def test_a_closed_form_integral_is_that_of_fine_quadrature(model: IntensityModel):
    batch = model.collator.batch(DATA, EVERYTHING)
    closed = exact_integral_of(model)
    if closed is None:
        pytest.skip("this model's integral has no closed form")
    exact = closed.exact_integral(model.encode(batch), batch)
    assert exact.shape == batch.gap_counts.shape
    fine = log_likelihood(model, batch, quadrature(batch, 40)).gap_integral
    torch.testing.assert_close(exact * batch.gap_counts, fine, rtol=1e-12, atol=1e-12)


def test_the_training_loss_is_minus_the_log_likelihood(model: IntensityModel):
    batch = model.collator.batch(DATA, EVERYTHING)
    points = quadrature(batch, 4)
    expected = -log_likelihood(model, batch, points).log_likelihood().sum()
    loss = training_loss(model, batch, points)
    torch.testing.assert_close(loss.objective, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(loss.negative_log_likelihood, expected, rtol=1e-12, atol=1e-12)
    if exact_integral_of(model) is not None:
        expected = -log_likelihood(model, batch, None).log_likelihood().sum()
        torch.testing.assert_close(training_loss(model, batch, None).objective, expected, rtol=1e-12, atol=1e-12)


def test_pseudo_events_are_added_to_what_is_descended_and_not_to_the_likelihood(model: IntensityModel):
    batch = model.collator.batch(DATA, EVERYTHING)
    points = quadrature(batch, 4)
    loss = training_loss(model, batch, points, pseudo_rate=0.25)
    intensities = model.intensities(state_at(model, batch, points.queries))
    counts = points.weights > 0.0
    added = -0.25 * (intensities.log().sum(-1)[counts] * points.weights[counts]).sum()
    plain = training_loss(model, batch, points).objective
    torch.testing.assert_close(loss.negative_log_likelihood, plain, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(loss.objective, plain + added, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("c", [1000.0, 1.0 / 7.0, 86400.0])
@pytest.mark.parametrize("origin", ["window", "first-event"])
def test_in_another_unit_the_log_likelihood_shifts_by_log_c_an_event(member: Member, c: float, origin: Origin):
    rows = [([0.0, *times], [1, *types]) for times, types in random_rows(42, [6, 0, 11])]
    there = [([c * t for t in times], types) for times, types in rows]
    here = dated(event_data(rows, t_end=10.0, origin=origin))
    there = dated(event_data(there, t_end=10.0 * c, origin=origin))
    restated = member.build()
    member.restate(restated, c)
    scored = restated.collator.batch(here, range(3)).scored.double()
    assert scored.tolist() == ([7, 1, 12] if origin == "window" else [6, 0, 11])
    expected = likelihood(member.build(), here) - scored * math.log(c)
    torch.testing.assert_close(likelihood(restated, there), expected, rtol=1e-10, atol=1e-10)


def test_float32_agrees_with_float64(model: IntensityModel):
    rough = copy.deepcopy(model).float()
    assert rough.dtype == torch.float32
    batch = model.collator.batch(DATA, EVERYTHING)
    times = torch.linspace(0.0, 10.0, 17, dtype=torch.float64).expand(len(DATA), -1).contiguous()
    found = []
    for one in (rough, model):
        history = one.encode(batch)
        events = one.log_intensity(state_at(one, batch, Queries.of_events(batch), history), batch.types)
        queries = one.intensities(state_at(one, batch, Queries.at_times(batch, times), history))
        found.append((events.double(), queries.double(), likelihood(one, DATA)))
    for low, high in zip(*found, strict=True):
        torch.testing.assert_close(low, high, rtol=1e-4, atol=1e-4)


def test_at_the_size_of_a_unix_timestamp_milliseconds_are_told_apart_in_float32(member: Member):
    if not member.remembers:
        pytest.skip("this model has no memory")
    model = member.build().float()
    for part in model.modules():
        if isinstance(part, TimeEmbedding):
            part.set_range(0.001, 2e9)
    now = 1_700_000_000.0
    batch = model.collator.batch(dated(event_data([([now, now + 0.001, now + 0.5], [0, 1, 2])], t_end=now + 1.0)), [0])
    times = now + 0.6 + 0.001 * torch.arange(5, dtype=torch.float64)[None]
    state = state_at(model, batch, Queries.at_times(batch, times))
    told = model.intensities(state)[0] if member.moves_late else state[0]
    assert bool((told.diff(dim=0).abs().amax(-1) > 0.0).all())
