"""The fast NHP against its slow twin, in float64: values within 1e-10, gradients within 1e-8."""

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
from foretell.models.recurrent.nhp import NHP
from foretell.nn.ctlstm_steps import GATES
from foretell.objective.loglik import Points, log_likelihood, quadrature, stratified, training_loss, uniform
from foretell.reference import likelihood
from foretell.reference.events import before_time
from foretell.reference.likelihood import Point
from foretell.reference.nhp import SlowNHP
from tests.samples import NAMES, as_history, event_data, random_data, randomise

VALUES, GRADIENTS = 1e-10, 1e-8


@dataclass(frozen=True)
class Case:
    name: str
    lengths: tuple[int, ...] = (4, 0, 6, 1)
    types: int = 3
    ties: bool = False
    dim: int = 4
    spread: float = 0.6

    def model(self, seed: int = 1) -> NHP:
        fresh = NHP(Vocabulary(NAMES[: self.types]), dim=self.dim, dtype=torch.float64)
        model = randomise(fresh, seed, self.spread)
        model.time_scale = 1.7
        return model

    def data(self, seed: int = 2) -> EventData:
        return random_data(seed, self.lengths, types=self.types, ties=self.ties)


CASES = [
    Case("a few sequences"),
    Case("one dimension", dim=1),
    Case("many dimensions", dim=9, lengths=(3, 5)),
    Case("large weights", spread=1.2),
    Case("ties", ties=True, lengths=(9, 6)),
    Case("long", lengths=(24, 3, 11)),
    Case("empty sequences only", lengths=(0, 0)),
    Case("one event", lengths=(1,)),
    Case("one type", types=1),
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def attached_arrays(model: NHP) -> dict[str, Tensor]:
    """What `named_arrays` gives, but still attached to the model's parameters, so that gradients reach them."""
    found = {"bos": model.bos[0]}
    for index, gate in enumerate(GATES):
        for letter, parameter in (("W", model.W), ("U", model.U), ("b", model.b)):
            found[f"cell.{gate}.{letter}"] = parameter[index]
    for index, name in enumerate(model.vocabulary.names):
        found[f"embed.{name}"] = model.embedding[index]
        w = torch.cat([model.w_constant[index : index + 1], model.w[index]])
        found[f"intensity.{name}.w"] = w / model.time_scale
        found[f"intensity.{name}.tau"] = model.log_tau[index].exp() / model.time_scale
    return found


def twin_of(model: NHP) -> SlowNHP:
    return SlowNHP(attached_arrays(model), model.vocabulary.names, dim=model.dim, scale=model.time_scale)


def slow_log_likelihood(twin: SlowNHP, data: EventData, batch: Batch, points: Points) -> Tensor:
    """Of each sequence of the batch, which holds `data` in its order: [B]."""
    gap = points.gap.expand_as(points.weights)
    first = 1 if data.origin == "first-event" else 0
    values = []
    for row in range(len(batch)):
        columns = points.queries.times[row], gap[row], points.weights[row]
        every = zip(*(column.tolist() for column in columns), strict=True)
        seen = [Point(time, place, weight) for time, place, weight in every if weight > 0.0]
        values.append(likelihood.log_likelihood(twin.intensity, twin.types, as_history(data, row), seen, first))
    return torch.stack(values)


def assert_close(fast: Tensor, slow: Tensor, tolerance: float = VALUES) -> None:
    assert fast.shape == slow.shape
    torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)


def assert_same_gradients(fast: Tensor, slow: Tensor, model: NHP) -> None:
    parameters = dict(model.named_parameters())
    found = [torch.autograd.grad(loss, list(parameters.values()), allow_unused=True) for loss in (fast, slow)]
    for name, of_fast, of_slow in zip(parameters, *found, strict=True):
        zeros = torch.zeros_like(parameters[name])
        torch.testing.assert_close(
            zeros if of_fast is None else of_fast,
            zeros if of_slow is None else of_slow,
            rtol=GRADIENTS,
            atol=GRADIENTS,
            msg=lambda text, name=name: f"{name}: {text}",
        )


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


def test_event_embeddings_and_their_gradients_agree_with_the_twin(case: Case):
    model, data = case.model(), case.data()
    twin = twin_of(model)
    fast_layers = model.embeddings(make_batch(data, range(len(data))))
    pairs = [
        (fast[row, index], twin.event_embedding(as_history(data, row), index, layer))
        for layer, fast in enumerate(fast_layers)
        for row in range(len(data))
        for index in range(len(data[row]))
    ]
    for fast, slow in pairs:
        assert_close(fast, slow)
    if pairs:
        weight = torch.linspace(-1.0, 2.0, model.dim, dtype=torch.float64)
        sums = [torch.stack([pair[side] @ weight for pair in pairs]).sum() for side in (0, 1)]
        assert_same_gradients(sums[0], sums[1], model)


def test_intensities_at_arbitrary_times_and_their_gradients_agree_with_the_twin(case: Case):
    model, data = case.model(), case.data()
    batch = make_batch(data, range(len(data)))
    times = torch.rand(len(data), 7, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 10.0
    times[:, 0] = batch.times[:, 0] if batch.times.shape[1] else 0.0  # a query on an event's own time does not see it
    times = times.flip(1)  # in no order
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


@pytest.mark.parametrize("rule", ["uniform", "quadrature"])
@pytest.mark.parametrize("origin", ["window", "first-event"])
def test_every_integral_and_origin_agrees_with_the_twin(rule: str, origin: Any):
    rows = [([0.0, 1.0, 1.0, 4.5], [0, 2, 1, 0]), ([0.0, 3.0], [1, 2]), ([0.0], [2])]
    data = event_data(rows, t_end=[5.0, 7.0, 2.0], origin=origin)
    model = Case("").model()
    batch = make_batch(data, range(3))
    drawn = uniform(batch, torch.tensor([4, 2, 3]), torch.Generator().manual_seed(5))
    points = drawn if rule == "uniform" else quadrature(batch, 3)
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    fast = log_likelihood(model, batch, points).log_likelihood()
    assert_close(fast, slow)
    assert_same_gradients(fast.sum(), slow.sum(), model)
    loss = training_loss(model, batch, points).objective
    assert_close(loss, -slow.sum())


def test_event_logs_and_gap_integrals_agree_with_the_twin_term_by_term():
    case = Case("", lengths=(5, 2))
    model, data = case.model(), case.data()
    batch = make_batch(data, range(2))
    points = quadrature(batch, 2)
    terms, twin = log_likelihood(model, batch, points), twin_of(model)
    for row in range(2):
        sequence = as_history(data, row)
        for index, event in enumerate(sequence):
            assert_close(terms.event_log[row, index], twin.intensity(event.type, event.time, sequence[:index]).log())
        for gap in range(len(sequence) + 1):
            inside = points.gap[0] == gap
            columns = points.queries.times[row, inside].tolist(), points.weights[row, inside].tolist()
            parts = [
                weight * twin.intensity(type, time, sequence[:gap])
                for time, weight in zip(*columns, strict=True)
                for type in twin.types
            ]
            assert_close(terms.gap_integral[row, gap], torch.stack(parts).sum())
        assert not terms.event_log[row, len(sequence) :].any()
        assert not terms.gap_integral[row, len(sequence) + 1 :].any()


def test_a_sequence_starts_with_bos_at_time_0_and_its_vector_is_learned():
    """Long after time 0 the first cell has settled at its target, which only the vector of bos and the gates make."""
    model = Case("").model()
    far = model.state(
        model.encode(make_batch(event_data([([], [])], t_end=1e6), [0])), Queries.by_gap(torch.full((1, 1, 1), 1e6))
    )
    enter, candidate = (model.W[GATES.index(gate)] @ model.bos[0] for gate in ("target_input", "candidate"))
    b = dict(zip(GATES, model.b, strict=True))
    target = torch.sigmoid(enter + b["target_input"]) * torch.tanh(candidate + b["candidate"])
    output = torch.sigmoid(model.W[GATES.index("output")] @ model.bos[0] + b["output"])
    assert_close(far[0, 0], output * torch.tanh(target))


cases = st.builds(
    Case,
    name=st.just("random"),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple),
    types=st.integers(1, 3),
    ties=st.booleans(),
    dim=st.integers(1, 5),
    spread=st.sampled_from([0.3, 0.6, 1.0]),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases, st.integers(0, 1000))
def test_random_models_agree_with_the_twin(case: Case, seed: int):
    model, data = case.model(seed), case.data(seed + 1)
    batch = make_batch(data, range(len(data)))
    points = stratified(batch, 1, torch.Generator().manual_seed(seed))
    fast = log_likelihood(model, batch, points).log_likelihood()
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    assert_close(fast, slow)
    assert_same_gradients(fast.sum(), slow.sum(), model)
