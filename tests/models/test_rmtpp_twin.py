"""The fast RMTPP against its slow twin, in float64: values within 1e-10, gradients within 1e-8."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Queries, make_batch
from foretell.data import EventData, Vocabulary
from foretell.models.recurrent.rmtpp import RMTPP, growth, inverse_growth
from foretell.objective.loglik import Points, log_likelihood, quadrature, stratified, training_loss
from foretell.reference import likelihood
from foretell.reference.events import before_time
from foretell.reference.likelihood import Point
from foretell.reference.rmtpp import SlowRMTPP
from foretell.train.fit import fit
from tests.samples import NAMES, as_history, random_data, randomise

VALUES, GRADIENTS = 1e-10, 1e-8


@dataclass(frozen=True)
class Case:
    name: str
    lengths: tuple[int, ...] = (4, 0, 6, 1)
    types: int = 3
    ties: bool = False
    dim: int = 4
    slope: float | None = None  # a random one

    def model(self) -> RMTPP:
        fresh = RMTPP(Vocabulary(NAMES[: self.types]), dim=self.dim, dtype=torch.float64)
        model = randomise(fresh, seed=1, spread=0.6)
        model.time_scale = 1.7
        if self.slope is not None:
            with torch.no_grad():
                model.slope.fill_(self.slope)
        return model

    def data(self) -> EventData:
        return random_data(2, self.lengths, types=self.types, ties=self.ties)


CASES = [
    Case("a few sequences"),
    Case("one dimension", dim=1),
    Case("many dimensions", dim=9, lengths=(3, 5)),
    Case("ties", ties=True, lengths=(9, 6)),
    Case("long", lengths=(24, 3, 11)),
    Case("empty sequences only", lengths=(0, 0)),
    Case("one type", types=1),
    Case("rising", slope=0.8),
    Case("falling", slope=-2.0),
    Case("hardly rising", slope=1e-9),
    Case("constant", slope=0.0),
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def attached_arrays(model: RMTPP) -> dict[str, Tensor]:
    """What `named_arrays` gives, but still attached to the model's parameters, so that gradients reach them."""
    scale = model.time_scale
    found = {f"embed.{name}": model.embedding[index] for index, name in enumerate(model.vocabulary.names)}
    found |= {"bos": model.embedding[-1], "cell.W": model.W[:, :-1], "cell.gap": model.W[:, -1] / scale}
    found |= {"cell.U": model.U, "cell.b": model.b, "time.v": model.v, "time.w": model.slope / scale}
    found["time.b"] = model.level - math.log(scale)
    for index, name in enumerate(model.vocabulary.names):
        found[f"type.{name}.w"] = torch.cat([model.c[index : index + 1], model.V[index]])
    return found


def twin_of(model: RMTPP) -> SlowRMTPP:
    return SlowRMTPP(attached_arrays(model), model.vocabulary.names)


def slow_log_likelihood(twin: SlowRMTPP, data: EventData, batch: Batch, points: Points) -> Tensor:
    gap = points.gap.expand_as(points.weights)
    values = []
    for row in range(len(batch)):
        columns = points.queries.times[row], gap[row], points.weights[row]
        every = zip(*(column.tolist() for column in columns), strict=True)
        seen = [Point(time, place, weight) for time, place, weight in every if weight > 0.0]
        values.append(likelihood.log_likelihood(twin.intensity, twin.types, as_history(data, row), seen, 0))
    return torch.stack(values)


def slow_exact(twin: SlowRMTPP, data: EventData) -> Tensor:
    """Of all sequences, with the integral in closed form."""
    value = torch.zeros((), dtype=torch.float64)
    for row in range(len(data)):
        history = as_history(data, row)
        for place, event in enumerate(history):
            value = value + torch.log(twin.intensity(event.type, event.time, history[:place]))
            value = value - twin.integral(history[:place], event.time)
        value = value - twin.integral(history, data[row].t_end)
    return value


def assert_close(fast: Tensor, slow: Tensor, tolerance: float = VALUES) -> None:
    assert fast.shape == slow.shape
    torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)


def assert_same_gradients(fast: Tensor, slow: Tensor, model: RMTPP, tolerance: float = GRADIENTS) -> None:
    parameters = dict(model.named_parameters())
    found = [torch.autograd.grad(loss, list(parameters.values()), allow_unused=True) for loss in (fast, slow)]
    for name, of_fast, of_slow in zip(parameters, *found, strict=True):
        zeros = torch.zeros_like(parameters[name])
        assert_close(zeros if of_fast is None else of_fast, zeros if of_slow is None else of_slow, tolerance)


def test_the_public_names_are_the_parameters_that_the_twin_is_made_from(case: Case):
    model = case.model()
    public, attached = model.named_arrays(), attached_arrays(model)
    assert set(public) == set(attached)
    for name, array in public.items():
        assert torch.equal(array, attached[name]), name


def test_log_likelihood_and_its_gradients_agree_with_the_twin(case: Case):
    model, data = case.model(), case.data()
    batch = make_batch(data, range(len(data)), width=max(case.lengths) + 2)  # with padding in every sequence
    points = stratified(batch, 2, torch.Generator().manual_seed(3))
    fast = log_likelihood(model, batch, points).log_likelihood()
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    assert_close(fast, slow)
    assert_same_gradients(fast.sum(), slow.sum(), model)


def test_the_closed_form_and_its_gradients_agree_with_the_twin(case: Case):
    if case.slope == 1e-9:
        pytest.skip("the twin's difference of two intensities is rounded; quadrature covers this case")
    model, data = case.model(), case.data()
    batch = make_batch(data, range(len(data)), width=max(case.lengths) + 2)
    fast, slow = -training_loss(model, batch, None).objective, slow_exact(twin_of(model), data)
    assert_close(fast, slow)
    if case.slope != 0.0:  # there the twin's derivative by the slope is another formula's
        assert_same_gradients(fast, slow, model)


def test_the_closed_form_and_its_gradients_are_those_of_fine_quadrature(case: Case):
    model, data = case.model(), case.data()
    batch = make_batch(data, range(len(data)))
    fine = training_loss(model, batch, quadrature(batch, 40)).objective
    exact = training_loss(model, batch, None).objective
    assert_close(exact, fine)
    assert_same_gradients(exact, fine, model)


def test_event_embeddings_agree_with_the_twin(case: Case):
    model, data = case.model(), case.data()
    twin = twin_of(model)
    for layer, fast in enumerate(model.embeddings(make_batch(data, range(len(data))))):
        for row in range(len(data)):
            for index in range(len(data[row])):
                assert_close(fast[row, index], twin.event_embedding(as_history(data, row), index, layer))


def test_intensities_at_arbitrary_times_and_their_gradients_agree_with_the_twin(case: Case):
    model, data = case.model(), case.data()
    batch = make_batch(data, range(len(data)))
    times = torch.rand(len(data), 7, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 10.0
    fast = model.intensities(model.state(model.encode(batch), Queries.at_times(batch, times)))
    twin = twin_of(model)
    slow = torch.stack(
        [
            twin.intensity(type, time, before_time(as_history(data, row), time))
            for row, row_times in enumerate(times.tolist())
            for time in row_times
            for type in twin.types
        ]
    ).reshape(fast.shape)
    assert_close(fast, slow)
    assert_same_gradients(fast.log().sum(), slow.log().sum(), model)


def test_quotients_near_zero_are_exact_on_both_sides_of_their_series():
    x = torch.tensor([-50.0, -1e-2, -9.99e-3, -1e-7, 0.0, 1e-300, 3e-5, 9.99e-3, 1.01e-2, 2.0], dtype=torch.float64)
    expected = [1.0 if one == 0.0 else math.expm1(one) / one for one in x.tolist()]
    torch.testing.assert_close(growth(x), torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=0.0)
    above = x.clamp(min=-0.9)
    expected = [1.0 if one == 0.0 else math.log1p(one) / one for one in above.tolist()]
    torch.testing.assert_close(inverse_growth(above), torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=0.0)
    assert torch.autograd.gradcheck(growth, x[1:].clone().requires_grad_())


def test_training_takes_the_closed_form_and_lowers_the_loss():
    data = random_data(5, (12,) * 8, types=3)
    model = RMTPP(data.vocabulary, dim=8)
    found = fit(model, data, epochs=8, lr=2e-2, patience=0)
    assert found.records[-1]["train"] > found.records[0]["train"] + 0.05
    assert found.records[0]["states"] == data.event_count  # the events alone: no integration points


def test_the_starting_model_has_the_rates_of_the_data():
    data = random_data(5, (12,) * 8, types=3)
    model = RMTPP(data.vocabulary, dim=8, dtype=torch.float64)
    with torch.no_grad():
        model.v.zero_()
        model.V.zero_()
    model.prepare(data)
    found = model.intensity(data[0], [0.5])[0]
    observed = sum(one.t_end for one in data)
    expected = (data.type_counts() + 0.5) / observed
    assert found == pytest.approx(expected)
