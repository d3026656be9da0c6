"""Models that follow the calendar against their slow twins, in float64: values within 1e-9, gradients within 1e-8."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from foretell.batches.batch import Queries
from foretell.data import EventData
from foretell.data.calendar import Calendar
from foretell.models.base import IntensityModel
from foretell.objective.loglik import log_likelihood, stratified, training_loss
from foretell.reference import likelihood
from foretell.reference.events import before_time
from foretell.reference.likelihood import Point
from tests.calendar_samples import CALENDAR, YEARLY, dated, dated_data, slow_calendar, with_calendar
from tests.covariate_samples import data_with_covariates, known_history, with_covariates
from tests.models.test_covariates_twin import KINDS, Kind
from tests.models.test_covariates_twin import slow_of as slow_with_covariates
from tests.samples import as_history

VALUES, GRADIENTS = 1e-9, 1e-8


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def slow_of(kind: Kind, model: IntensityModel, data: EventData, row: int) -> Any:
    """The twin that knows when one sequence started, and its covariates where the model has some."""
    made = kind.twin_of(model) if model.covariates is None else slow_with_covariates(kind, model, data, row)
    known = slow_calendar(model, row)
    if hasattr(made, "encoder"):
        return replace(made, encoder=replace(made.encoder, calendar=known))
    return replace(made, calendar=known)


def assert_same(fast: torch.Tensor, slow: torch.Tensor, model: IntensityModel) -> None:
    torch.testing.assert_close(fast, slow, rtol=VALUES, atol=VALUES)
    parameters = dict(model.named_parameters())
    weight = torch.linspace(0.5, 1.5, fast.numel(), dtype=torch.float64)
    losses = [(one.flatten() * weight).sum() for one in (fast, slow)]
    found = [torch.autograd.grad(loss, list(parameters.values()), allow_unused=True) for loss in losses]
    for name, *pair in zip(parameters, *found, strict=True):
        zeros = torch.zeros_like(parameters[name])
        one, other = (zeros if gradient is None else gradient for gradient in pair)
        torch.testing.assert_close(one, other, rtol=GRADIENTS, atol=GRADIENTS, msg=lambda text, n=name: f"{n}: {text}")


def slow_log_likelihood(kind: Kind, model: IntensityModel, data: EventData, points: Any) -> torch.Tensor:
    gap, slow = points.gap.expand_as(points.weights), []
    for row in range(len(data)):
        columns = points.queries.times[row], gap[row], points.weights[row]
        every = zip(*(column.tolist() for column in columns), strict=True)
        seen = [Point(time, place, weight) for time, place, weight in every if weight > 0.0]
        own = slow_of(kind, model, data, row)
        history = as_history(data, row) if model.covariates is None else known_history(data, row)
        slow.append(likelihood.log_likelihood(own.intensity, own.types, history, seen, 0))
    return torch.stack(slow)


@pytest.mark.parametrize("calendar", [CALENDAR, YEARLY], ids=["weeks", "years"])
def test_log_likelihood_and_its_gradients_agree_with_the_twin(kind: Kind, calendar: Calendar):
    model, data = with_calendar(kind.build(), calendar), dated_data(2, (4, 0, 6, 1))
    batch = model.collator.batch(data, range(len(data)), width=8)  # with padding in every sequence
    points = stratified(batch, 2, torch.Generator().manual_seed(3))
    fast = log_likelihood(model, batch, points).log_likelihood()
    assert_same(fast, slow_log_likelihood(kind, model, data, points), model)


def test_a_calendar_and_covariates_go_together(kind: Kind):
    model, data = with_calendar(with_covariates(kind.build())), dated(data_with_covariates(6, (3, 5)))
    batch = model.collator.batch(data, range(len(data)))
    points = stratified(batch, 2, torch.Generator().manual_seed(3))
    fast = log_likelihood(model, batch, points).log_likelihood()
    assert_same(fast, slow_log_likelihood(kind, model, data, points), model)


def test_a_step_descends_what_is_scored(kind: Kind):
    model, data = with_calendar(kind.build()), dated_data(7, (5, 3))
    batch = model.collator.batch(data, range(len(data)))
    points = stratified(batch, 2, torch.Generator().manual_seed(3))
    loss = training_loss(model, batch, points).objective
    scored = -log_likelihood(model, batch, points).log_likelihood().sum()
    assert_same(loss[None], scored[None], model)


def test_intensities_at_any_time_and_their_gradients_agree_with_the_twin(kind: Kind):
    model, data = with_calendar(kind.build()), dated_data(5, (5, 0, 3), ties=True)
    batch = model.collator.batch(data, range(len(data)))
    times = torch.rand(len(data), 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 10.0
    times[:, 0] = batch.times[:, 0]  # a query on an event's own time does not see it
    fast = model.intensities(model.state(model.encode(batch), Queries.at_times(batch, times)))
    slow = [
        own.intensity(type, time, before_time(as_history(data, row), time))
        for row in range(len(data))
        for own in [slow_of(kind, model, data, row)]
        for time in times[row].tolist()
        for type in own.types
    ]
    assert_same(fast, torch.stack(slow).view_as(fast), model)


def test_a_fresh_calendar_changes_nothing(kind: Kind):
    data = dated_data(8, (4, 2))
    plain, model = kind.build(), with_calendar(kind.build(), spread=0.0)
    batches = [one.collator.batch(data, [0, 1]) for one in (plain, model)]
    points = stratified(batches[0], 2, torch.Generator().manual_seed(3))
    found = [
        log_likelihood(one, batch, points).log_likelihood() for one, batch in zip((plain, model), batches, strict=True)
    ]
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def test_the_unit_of_time_does_not_matter(kind: Kind):
    """The same log in other units, at the same dates: the same calendar."""
    data, model = dated_data(9, (6,)), with_calendar(kind.build())
    assert model.calendar is not None
    other = with_calendar(kind.build(), Calendar(CALENDAR.zone, CALENDAR.seconds_per_unit / 2.0))
    assert other.calendar is not None
    own = model.collator.batch(data, [0])
    starts = own.starts
    assert starts is not None
    torch.testing.assert_close(
        model.calendar.of_queries(starts, own.times), other.calendar.of_queries(starts, 2.0 * own.times)
    )


def test_dates_that_are_missing_are_a_message(kind: Kind):
    from foretell.errors import ForetellError
    from tests.samples import random_data

    model = with_calendar(kind.build())
    with pytest.raises(ForetellError, match=r"sequence '0': the model follows the calendar.*calendar = false"):
        model.intensity(random_data(1, (3,))[0], np.array([1.0]))
