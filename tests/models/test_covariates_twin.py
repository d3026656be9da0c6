"""Models with covariates against their slow twins, in float64: values within 1e-10, gradients within 1e-8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foretell.batches.batch import Queries
from foretell.data import EventData
from foretell.data.covariates import CategoryColumn, CovariateEncoding
from foretell.models import covariates
from foretell.models.base import IntensityModel
from foretell.models.last_event.sahp import SAHP
from foretell.models.last_event.thp import THP
from foretell.objective.loglik import log_likelihood, quadrature, stratified, training_loss
from foretell.reference import likelihood
from foretell.reference.covariates import SlowCovariates
from foretell.reference.events import before_time
from foretell.reference.likelihood import Point
from tests.covariate_samples import (
    ENCODING,
    EVENTS_ALONE,
    STATIC_ALONE,
    data_with_covariates,
    known_history,
    static_values,
    with_covariates,
)
from tests.models import last_event_twin, test_anhp_twin, test_nhp_twin, test_rmtpp_twin, test_s2p2_twin, twin

VALUES, GRADIENTS = 1e-10, 1e-8


@dataclass(frozen=True)
class Kind:
    name: str
    build: Callable[[], Any]
    twin_of: Callable[[Any], Any]


def _anhp(**options: Any) -> Callable[[], Any]:
    return lambda: test_anhp_twin.Case("", options).model()


def _last_event(cls: Any) -> Callable[[], Any]:
    return lambda: last_event_twin.Case("", {"heads": 2}).model(cls)


KINDS = [
    Kind("NHP", lambda: test_nhp_twin.Case("").model(), test_nhp_twin.twin_of),
    Kind("RMTPP", lambda: test_rmtpp_twin.Case("").model(), test_rmtpp_twin.twin_of),
    Kind("S2P2", lambda: test_s2p2_twin.Case("").model(), test_s2p2_twin.twin_of),
    Kind("THP", _last_event(THP), last_event_twin.twin_of),
    Kind("SAHP", _last_event(SAHP), last_event_twin.twin_of),
    Kind("A-NHP", _anhp(), twin.twin_of),
    Kind("A-NHP, bos", _anhp(bos=True, heads=2), twin.twin_of),
    Kind("A-NHP, timed", _anhp(**test_anhp_twin.TIMED, heads=2, head_size="split", bos=True), twin.twin_of),
    Kind("A-NHP, sublayers", _anhp(layer_norm=True, feed_forward=3, coarse="none"), twin.twin_of),
    Kind("A-NHP, edges", _anhp(edges=test_anhp_twin.SOME_EDGES), twin.twin_of),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def slow_of(kind: Kind, model: IntensityModel, data: EventData, row: int) -> Any:
    """The twin that knows one sequence's covariates."""
    inputs = model.covariates
    assert inputs is not None
    made = kind.twin_of(model)
    both = (*inputs.encoding.events, *inputs.encoding.static)
    columns = {one.name: one.categories if isinstance(one, CategoryColumn) else (one.mean, one.scale) for one in both}
    dim: Any = model.dim  # pyright: ignore[reportAttributeAccessIssue]
    known = SlowCovariates(inputs.named_arrays(), dim, columns, static_values(data, row, inputs.encoding))
    if hasattr(made, "encoder"):
        return replace(made, encoder=replace(made.encoder, covariates=known))
    return replace(made, covariates=known)


def histories(model: IntensityModel, data: EventData) -> list[Any]:
    assert model.covariates is not None
    return [known_history(data, row, model.covariates.encoding) for row in range(len(data))]


def assert_same(fast: Tensor, slow: Tensor, model: IntensityModel) -> None:
    torch.testing.assert_close(fast, slow, rtol=VALUES, atol=VALUES)
    parameters = dict(model.named_parameters())
    weight = torch.linspace(0.5, 1.5, fast.numel(), dtype=torch.float64)
    losses = [(one.flatten() * weight).sum() for one in (fast, slow)]
    found = [torch.autograd.grad(loss, list(parameters.values()), allow_unused=True) for loss in losses]
    for name, *pair in zip(parameters, *found, strict=True):
        zeros = torch.zeros_like(parameters[name])
        one, other = (zeros if gradient is None else gradient for gradient in pair)
        torch.testing.assert_close(one, other, rtol=GRADIENTS, atol=GRADIENTS, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("encoding", [ENCODING, EVENTS_ALONE, STATIC_ALONE], ids=["both", "events", "static"])
def test_log_likelihood_and_its_gradients_agree_with_the_twin(kind: Kind, encoding: CovariateEncoding):
    model, data = with_covariates(kind.build(), encoding), data_with_covariates(2, (4, 0, 6, 1))
    batch = model.collator.batch(data, range(len(data)), width=8)  # with padding in every sequence
    points = stratified(batch, 2, torch.Generator().manual_seed(3))
    fast = log_likelihood(model, batch, points).log_likelihood()
    gap, slow = points.gap.expand_as(points.weights), []
    for row, history in enumerate(histories(model, data)):
        columns = points.queries.times[row], gap[row], points.weights[row]
        every = zip(*(column.tolist() for column in columns), strict=True)
        seen = [Point(time, place, weight) for time, place, weight in every if weight > 0.0]
        own = slow_of(kind, model, data, row)
        slow.append(likelihood.log_likelihood(own.intensity, own.types, history, seen, 0))
    assert_same(fast, torch.stack(slow), model)


def test_intensities_at_any_time_and_their_gradients_agree_with_the_twin(kind: Kind):
    model, data = with_covariates(kind.build()), data_with_covariates(5, (5, 0, 3), ties=True)
    batch = model.collator.batch(data, range(len(data)))
    times = torch.rand(len(data), 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 10.0
    times[:, 0] = batch.times[:, 0]  # a query on an event's own time does not see it
    fast = model.intensities(model.state(model.encode(batch), Queries.at_times(batch, times)))
    slow = [
        own.intensity(type, time, before_time(history, time))
        for row, history in enumerate(histories(model, data))
        for own in [slow_of(kind, model, data, row)]
        for time in times[row].tolist()
        for type in own.types
    ]
    assert_same(fast.log(), torch.stack(slow).reshape(fast.shape).log(), model)


def test_the_loss_of_training_is_that_of_the_likelihood(kind: Kind):
    """Also where a model takes a shorter way to it."""
    model, data = with_covariates(kind.build()), data_with_covariates(6, (5, 2, 7))
    batch = model.collator.batch(data, range(len(data)))
    points = quadrature(batch, 3)
    whole = log_likelihood(model, batch, points).log_likelihood().sum()
    assert_same(training_loss(model, batch, points).objective[None], -whole[None], model)


def test_many_categories_are_looked_up_and_say_the_same(kind: Kind, monkeypatch: pytest.MonkeyPatch):
    model, data = with_covariates(kind.build()), data_with_covariates(6, (5, 2, 7))
    batch = model.collator.batch(data, range(len(data)))
    few = log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood()
    monkeypatch.setattr(covariates, "MOST_ONE_HOT", 0)
    assert_same(log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood(), few, model)


def test_vectors_start_at_0_and_change_nothing(kind: Kind):
    model, data = kind.build(), data_with_covariates(6, (5, 2))
    plain = kind.build()
    with_covariates(model)
    assert model.covariates is not None
    for parameter in model.covariates.parameters():
        parameter.data.zero_()
    batches = [one.collator.batch(data, range(2)) for one in (model, plain)]
    found = [
        log_likelihood(one, batch, quadrature(batch, 2)).log_likelihood()
        for one, batch in zip((model, plain), batches, strict=True)
    ]
    torch.testing.assert_close(found[0], found[1], rtol=1e-13, atol=1e-13)


def test_an_event_is_not_expected_by_its_own_covariates(kind: Kind):
    """Other values of the last event change nothing before it, and something after it."""
    model, data = with_covariates(kind.build()), data_with_covariates(8, (6,))
    other = data_with_covariates(8, (6,))
    own = data[0].attributes
    changed = other[0].attributes
    assert own is not None and changed is not None
    amounts = changed.table.of_events["amount"].values
    amounts[-1] = 1.75 if amounts[-1] != 1.75 else -1.75
    last = float(data[0].times[-1])
    times = [0.3 * last, 0.9 * last, last, last + 0.2]
    before, after = (model.intensity(one[0], times) for one in (data, other))
    assert (before[:3] == after[:3]).all()
    assert not (before[3] == after[3]).all()  # with edges some types do not look there


def test_events_have_the_embeddings_of_the_twin(kind: Kind):
    model, data = with_covariates(kind.build()), data_with_covariates(9, (4, 2))
    embed: Any = model
    layers = embed.embeddings(model.collator.batch(data, range(2)))
    own = slow_of(kind, model, data, 0)
    if not hasattr(own, "event_embedding"):
        history = histories(model, data)[0]
        slow = own.encoder.embedding(history, 3, own.encoder.layers)
        return torch.testing.assert_close(layers[-1][0, 2], slow, rtol=VALUES, atol=VALUES)
    for row, history in enumerate(histories(model, data)):
        own = slow_of(kind, model, data, row)
        for index in range(len(history)):
            for layer, fast in enumerate(layers):
                slow = own.event_embedding(history, index, layer)
                torch.testing.assert_close(fast[row, index], slow, rtol=VALUES, atol=VALUES)
    return None


def test_parameters_have_names_and_are_loaded_by_them(kind: Kind):
    model, data = with_covariates(kind.build()), data_with_covariates(9, (4, 2))
    other = with_covariates(kind.build(), seed=99)
    names = model.named_arrays()
    assert {"covariate.amount.w", "covariate.amount.missing", "covariate.channel.is.web"} <= set(names)
    assert {"static.event.age.w", "static.query.region.other"} <= set(names)
    other.load_named_arrays({name: one.clone() for name, one in names.items()})
    times = [0.5, 3.0, 9.0]
    np.testing.assert_allclose(model.intensity(data[0], times), other.intensity(data[0], times), rtol=1e-12)
