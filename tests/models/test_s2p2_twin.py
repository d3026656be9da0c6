"""The fast S2P2 against its slow twin, in float64: values within 1e-10, gradients within 1e-8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foretell.batches.batch import Batch, Queries, make_batch
from foretell.data import EventData, Vocabulary
from foretell.models.state_space.layer import hippo
from foretell.models.state_space.s2p2 import S2P2
from foretell.objective.loglik import Points, log_likelihood, quadrature, stratified, training_loss, uniform
from foretell.reference import likelihood
from foretell.reference.events import before_time
from foretell.reference.likelihood import Point
from foretell.reference.s2p2 import SlowS2P2
from tests.samples import NAMES, as_history, event_data, random_data, randomise

VALUES, GRADIENTS = 1e-10, 1e-8


@dataclass(frozen=True)
class Case:
    name: str
    lengths: tuple[int, ...] = (4, 0, 6, 1)
    types: int = 3
    ties: bool = False
    dim: int = 5
    layers: int = 2
    states: int = 3
    spread: float = 0.6

    def model(self, seed: int = 1) -> S2P2:
        sizes: dict[str, Any] = {"dim": self.dim, "layers": self.layers, "states": self.states}
        fresh = S2P2(Vocabulary(NAMES[: self.types]), dtype=torch.float64, **sizes)
        model = randomise(fresh, seed, self.spread)
        model.time_scale = 1.7
        return model

    def data(self, seed: int = 2) -> EventData:
        return random_data(seed, self.lengths, types=self.types, ties=self.ties)


CASES = [
    Case("a few sequences"),
    Case("one layer", layers=1),
    Case("four layers", layers=4, lengths=(3, 5)),
    Case("one state", states=1),
    Case("two dimensions", dim=2),
    Case("more states than dimensions", dim=3, states=7),
    Case("large weights", spread=1.2),
    Case("ties", ties=True, lengths=(9, 6)),
    Case("long", lengths=(24, 3, 11)),
    Case("empty sequences only", lengths=(0, 0)),
    Case("one event", lengths=(1,)),
    Case("one type", types=1),
    Case("many types", types=6, dim=2),  # more than are scored all at once
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def attached_arrays(model: S2P2) -> dict[str, Tensor]:
    """What `named_arrays` gives, but still attached to the model's parameters, so that gradients reach them."""
    names = model.vocabulary.names
    found = {f"embed.{name}": model.embedding[index] for index, name in enumerate(names)}
    renamed = {"norm.weight": "gain", "norm.bias": "bias"}
    for number, layer in enumerate(model.layer_list(), 1):
        for name, parameter in layer.named_parameters():
            if name == "log_decay":
                found[f"layer.{number}.decay"] = parameter.exp()
            else:
                found[f"layer.{number}.{renamed.get(name, name)}"] = parameter
    for index, name in enumerate(names):
        w = torch.cat([model.w_constant[index : index + 1], model.w[index]])
        found[f"intensity.{name}.w"] = w / model.time_scale
        found[f"intensity.{name}.tau"] = model.log_tau[index].exp() / model.time_scale
    return found


def twin_of(model: S2P2) -> SlowS2P2:
    return SlowS2P2(attached_arrays(model), model.vocabulary.names, model.layers, model.dim, model.time_scale)


def slow_log_likelihood(twin: SlowS2P2, data: EventData, batch: Batch, points: Points) -> Tensor:
    gap = points.gap.expand_as(points.weights)
    values = []
    for row in range(len(batch)):
        columns = points.queries.times[row], gap[row], points.weights[row]
        every = zip(*(column.tolist() for column in columns), strict=True)
        seen = [Point(time, place, weight) for time, place, weight in every if weight > 0.0]
        values.append(likelihood.log_likelihood(twin.intensity, twin.types, as_history(data, row), seen, 0))
    return torch.stack(values)


def assert_close(fast: Tensor, slow: Tensor, tolerance: float = VALUES) -> None:
    assert fast.shape == slow.shape
    torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)


def assert_same_gradients(fast: Tensor, slow: Tensor, model: S2P2) -> None:
    parameters = dict(model.named_parameters())
    found = [torch.autograd.grad(loss, list(parameters.values()), allow_unused=True) for loss in (fast, slow)]
    for name, of_fast, of_slow in zip(parameters, *found, strict=True):
        zeros = torch.zeros_like(parameters[name])
        assert_close(zeros if of_fast is None else of_fast, zeros if of_slow is None else of_slow, GRADIENTS)


def test_the_public_names_are_the_parameters_that_the_twin_is_made_from(case: Case):
    model = case.model()
    public, attached = model.named_arrays(), attached_arrays(model)
    assert set(public) == set(attached)
    for name, array in public.items():
        assert torch.equal(array, attached[name]), name


@pytest.mark.parametrize("integral", ["stratified", "uniform"])
def test_log_likelihood_and_its_gradients_agree_with_the_twin(case: Case, integral: str):
    model, data = case.model(), case.data()
    batch = make_batch(data, range(len(data)), width=max(case.lengths) + 2)  # with padding in every sequence
    random = torch.Generator().manual_seed(3)
    points = (
        stratified(batch, 2, random)
        if integral == "stratified"
        else uniform(batch, batch.lengths.clamp(min=1) * 2, random)
    )
    fast = log_likelihood(model, batch, points).log_likelihood()
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    assert_close(fast, slow)
    assert_same_gradients(fast.sum(), slow.sum(), model)


@given(
    rows=st.lists(
        st.lists(st.tuples(st.floats(0.0, 9.0), st.integers(0, 2)), max_size=9).map(sorted), min_size=1, max_size=3
    ),
    seed=st.integers(0, 1000),
    layers=st.integers(1, 3),
)
@settings(max_examples=15, deadline=None)
def test_random_models_and_sequences_agree_with_the_twin(rows: Any, seed: int, layers: int):
    model = Case("random", layers=layers).model(seed)
    data = event_data([([t for t, _ in row], [k for _, k in row]) for row in rows])
    batch = make_batch(data, range(len(data)))
    points = quadrature(batch, 2)
    fast = log_likelihood(model, batch, points).log_likelihood()
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    assert_close(fast, slow)
    assert_same_gradients(fast.sum(), slow.sum(), model)


def test_event_embeddings_agree_with_the_twin(case: Case):
    model, data = case.model(), case.data()
    twin = twin_of(model)
    found = model.embeddings(make_batch(data, range(len(data))))
    assert len(found) == case.layers + 1
    for layer, fast in enumerate(found):
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


def test_the_start_is_the_spectrum_of_hippo():
    """Of the normal part of HiPPO-LegS, written out: eigenvalues in conjugate pairs, and a basis in which a vector is found again."""
    states = 4
    size = range(states)
    normal = torch.tensor(
        [
            [
                -0.5 * (2.0 * (n > k) - 2.0 * (n < k)) * ((2 * n + 1) * (2 * k + 1)) ** 0.5 / 2.0 - 0.5 * (n == k)
                for k in size
            ]
            for n in size
        ],
        dtype=torch.complex128,
    )
    frequencies, basis = (torch.from_numpy(one) for one in hippo(states))
    torch.testing.assert_close(frequencies, -frequencies.flip(0))
    torch.testing.assert_close(normal @ basis, basis * torch.complex(torch.full_like(frequencies, -0.5), frequencies))
    vector = torch.randn(states, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(basis.dtype)
    torch.testing.assert_close(basis @ (basis.conj().T @ vector), vector)


def test_a_fresh_model_has_the_rates_of_the_data():
    data = random_data(5, (12,) * 8, types=3)
    model = S2P2(data.vocabulary, dim=8, layers=2, states=4, dtype=torch.float64)
    with torch.no_grad():
        model.w.zero_()
    model.prepare(data)
    observed = sum(one.t_end for one in data)
    assert model.intensity(data[0], [0.5])[0] == pytest.approx((data.type_counts() + 0.5) / observed)


def test_dropout_takes_its_noise_from_the_generator_and_none_in_evaluation():
    case = Case("dropout")
    model, data = case.model(), case.data()
    batch = make_batch(data, range(len(data)))
    points = quadrature(batch, 2)

    def loss(seed: int) -> float:
        model.noise = torch.Generator().manual_seed(seed)
        return float(training_loss(model, batch, points).objective.detach())

    without = loss(0)
    model.dropout = 0.4
    assert loss(1) == loss(1) != loss(2) != without
    model.eval()
    assert loss(1) == without
