"""The fast THP and SAHP against their slow twins, in float64: values within 1e-10, gradients within 1e-8."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from foretell.batches.batch import Queries, make_batch
from foretell.models.last_event.last_event import LastEventModel
from foretell.models.last_event.sahp import SAHP
from foretell.models.last_event.thp import THP
from foretell.nn import attention
from foretell.objective.loglik import log_likelihood, quadrature, stratified, uniform
from tests.models.last_event_twin import (
    CASES,
    Case,
    assert_close,
    assert_same_gradients,
    attached_arrays,
    random_cases,
    slow_intensities,
    slow_log_likelihood,
    twin_of,
)
from tests.samples import as_history, event_data


@pytest.fixture(params=[THP, SAHP], ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[LastEventModel]:
    return request.param


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sequences should still be cut into several tiles."""
    monkeypatch.setitem(attention.GAPS_A_TILE, "cpu", 3)


def test_the_public_names_are_the_parameters_that_the_twin_is_made_from(kind: type[LastEventModel], case: Case):
    model = case.model(kind)
    public, attached = model.named_arrays(), attached_arrays(model)
    assert set(public) == set(attached)
    for name, array in public.items():
        assert torch.equal(array, attached[name]), name


def test_log_likelihood_and_its_gradients_agree_with_the_twin(kind: type[LastEventModel], case: Case):
    model, data = case.model(kind), case.data()
    batch = make_batch(data, range(len(data)))
    points = stratified(batch, 2, torch.Generator().manual_seed(3))
    fast = log_likelihood(model, batch, points).log_likelihood()
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    assert_close(fast, slow)
    assert_same_gradients(fast.sum(), slow.sum(), model)


def test_event_embeddings_agree_with_the_twin(kind: type[LastEventModel], case: Case):
    model, data = case.model(kind), case.data()
    encoder = twin_of(model).encoder
    by_layer = model.embeddings(make_batch(data, range(len(data))))
    assert len(by_layer) == model.layers + 1
    for layer, fast in enumerate(by_layer):
        for row in range(len(data)):
            for index in range(len(data[row])):
                assert_close(fast[row, index], encoder.embedding(as_history(data, row), index + 1, layer))


def test_intensities_at_arbitrary_times_and_their_gradients_agree_with_the_twin(kind: type[LastEventModel], case: Case):
    model, data = case.model(kind), case.data()
    batch = make_batch(data, range(len(data)))
    times = torch.rand(len(data), 7, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 10.0
    times[:, 0] = batch.times[:, 0] if batch.times.shape[1] else 0.0  # a query on an event's own time does not see it
    times = times.flip(1)  # in no order
    fast = model.intensities(model.state(model.encode(batch), Queries.at_times(batch, times)))
    slow = slow_intensities(twin_of(model), data, times)
    assert_close(fast, slow)
    assert_same_gradients(fast.log().sum(), slow.log().sum(), model)


@pytest.mark.parametrize("rule", ["uniform", "quadrature"])
@pytest.mark.parametrize("origin", ["window", "first-event"])
def test_every_integral_and_origin_agrees_with_the_twin(kind: type[LastEventModel], rule: str, origin: Any):
    rows = [([0.0, 1.0, 1.0, 4.5], [0, 2, 1, 0]), ([0.0, 3.0], [1, 2]), ([0.0], [2])]
    data = event_data(rows, t_end=[5.0, 7.0, 2.0], origin=origin)
    model = Case("", {"heads": 2}).model(kind)
    batch = make_batch(data, range(3))
    drawn = uniform(batch, torch.tensor([4, 2, 3]), torch.Generator().manual_seed(5))
    points = drawn if rule == "uniform" else quadrature(batch, 3)
    fast = log_likelihood(model, batch, points).log_likelihood()
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    assert_close(fast, slow)
    assert_same_gradients(fast.sum(), slow.sum(), model)


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=random_cases())
def test_random_models_agree_with_the_twin(kind: type[LastEventModel], drawn: tuple[Case, int]):
    case, seed = drawn
    model, data = case.model(kind, seed), case.data(seed + 1)
    batch = make_batch(data, range(len(data)), width=max(case.lengths) + 2)
    points = stratified(batch, 1, torch.Generator().manual_seed(seed))
    fast = log_likelihood(model, batch, points).log_likelihood()
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    assert_close(fast, slow)
    assert_same_gradients(fast.sum(), slow.sum(), model)
