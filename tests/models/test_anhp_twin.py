"""The fast A-NHP against its slow twin, in float64: values within 1e-10, gradients within 1e-8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from foretell.batches.batch import Queries, make_batch
from foretell.data import EventData, Vocabulary
from foretell.models.attention.anhp import ANHP, FOLD_BELOW
from foretell.nn import attention
from foretell.objective.loglik import log_likelihood, quadrature, stratified, uniform
from foretell.reference.anhp import SlowANHP
from foretell.reference.events import before_time
from tests.models.twin import attached_arrays, slow_log_likelihood, twin_of
from tests.samples import NAMES, PLAIN, as_history, event_data, random_data, randomise, with_hawkes_part

VALUES, GRADIENTS = 1e-10, 1e-8
# Below FOLD_BELOW·DIM events Q is folded into the keys at every layer, from there on at the first layer alone.
DIM, SHORT, LONG = 4, (4, 0, 6, 1), (13, 3, 9)


TIMED: dict[str, Any] = {"head_decay": True, "elapsed": 3, "periods": 2, "intensity_scales": 4}
PERIODS = (0.7, 0.0, 2.3)  # as many as there is room for; 0 is none


@dataclass(frozen=True)
class Case:
    name: str
    options: dict[str, Any]
    lengths: tuple[int, ...] = SHORT
    types: int = 3
    ties: bool = False
    dim: int = DIM
    layers: int = 2

    def model(self, seed: int = 1) -> ANHP:
        options = {**PLAIN, "dim": self.dim, "layers": self.layers, **self.options}
        model = randomise(ANHP(Vocabulary(NAMES[: self.types]), **options, dtype=torch.float64), seed)
        model.time.set_range(0.13, 11.0)
        model.time_scale = 1.7
        for scales in (model.elapsed, model.scales):
            scales.set_range(0.21, 5.3)
        model.elapsed.set_periods(PERIODS[: model.elapsed.most])
        return with_hawkes_part(model, seed + 1)

    def data(self, seed: int = 2) -> EventData:
        return random_data(seed, self.lengths, types=self.types, ties=self.ties)


SOME_EDGES = [("a", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "b"), ("c", "c")]
SAME_SIGHT = [("a", "a"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "b")]

CASES = [
    Case("one coarse type", {}),
    Case("one layer", {}, layers=1),
    Case("three layers", {}, layers=3),
    Case("each type itself", {"coarse": "none"}),
    Case("a coarse type for two types", {"coarse": {"a": "x", "b": "y", "c": "x"}}),
    Case("as many coarse types as types, in another order", {"coarse": {"a": "z", "b": "y", "c": "x"}}),
    Case("one coarse type by name", {"coarse": {"a": "all", "b": "all", "c": "all"}}),
    Case("two heads", {"heads": 2}),
    Case("three heads, each type itself, three layers", {"heads": 3, "coarse": "none"}, layers=3),
    Case("edges", {"edges": SOME_EDGES}),
    Case("edges and two heads each", {"edges": SOME_EDGES, "heads": 2}),
    Case("edges and coarse types", {"edges": SAME_SIGHT, "coarse": {"a": "x", "b": "x", "c": "y"}}),
    Case("edges, coarse types, bos", {"edges": SAME_SIGHT, "coarse": {"a": "x", "b": "x", "c": "y"}, "bos": True}),
    Case("edges into one type alone", {"edges": [("a", "b")], "bos": True}),
    Case("no edges at all", {"edges": []}),
    Case("bos", {"bos": True}),
    Case("layer norm", {"layer_norm": True}),
    Case("feed-forward", {"feed_forward": 5}),
    Case("all options", {"layer_norm": True, "feed_forward": 4, "bos": True, "heads": 2, "coarse": "none"}),
    Case("odd time_dim", {"time_dim": 5}),
    Case("time_dim 1", {"time_dim": 1}),
    Case("even time_dim below dim", {"time_dim": 2}),
    Case("ties", {}, ties=True, lengths=(9, 6)),
    Case("ties with edges and bos", {"edges": SOME_EDGES, "bos": True}, ties=True, lengths=(9, 6)),
    Case("long", {}, lengths=LONG, layers=3),
    Case("long with heads and bos", {"heads": 2, "bos": True}, lengths=LONG),
    Case("long with edges", {"edges": SOME_EDGES, "layer_norm": True}, lengths=LONG),
    Case("empty sequences only", {"bos": True}, lengths=(0, 0)),
    Case("one event", {}, lengths=(1,)),
    Case("one type", {"coarse": "none"}, types=1),
    Case("split heads", {"heads": 2, "head_size": "split"}),
    Case("split heads that decay", {"heads": 2, "head_size": "split", "head_decay": True}),
    Case("a head that decays", {"head_decay": True}, lengths=LONG),
    Case(
        "edges and split heads that decay", {"edges": SOME_EDGES, "heads": 2, "head_size": "split", "head_decay": True}
    ),
    Case("elapsed time", {"elapsed": 3}),
    Case("elapsed time and bos", {"elapsed": 1, "bos": True}),
    Case("periods of elapsed time", {"elapsed": 2, "periods": 3}),
    Case("a mixture of time scales", {"intensity_scales": 3}),
    Case("a mixture for every type", {"intensity_scales": 2, "coarse": "none"}),
    Case("a mixture for two coarse types", {"intensity_scales": 2, "coarse": {"a": "x", "b": "y", "c": "x"}}),
    Case("no waves", {"time_dim": 0, "elapsed": 2, "head_decay": True}),
    Case(
        "as it is by default, with ties",
        {**TIMED, "heads": 2, "head_size": "split", "layer_norm": True, "feed_forward": 5, "activation": "gelu"},
        ties=True,
        lengths=(9, 6),
    ),
    Case("a Hawkes part", {"hawkes": 1}, ties=True, lengths=(9, 6)),
    Case("a Hawkes part beside all else", {**TIMED, "time_dim": 0, "hawkes": 3, "bos": True}, lengths=LONG),
    Case("timed, long", {**TIMED, "heads": 4, "head_size": "split", "bos": True}, lengths=LONG, layers=3),
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sequences should still be cut into several tiles."""
    monkeypatch.setitem(attention.GAPS_A_TILE, "cpu", 3)
    monkeypatch.setattr(attention, "LOOSE_ROWS", 5)


def assert_close(fast: Tensor, slow: Tensor, tolerance: float) -> None:
    assert fast.shape == slow.shape
    torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)


def gradients(loss: Tensor, model: ANHP) -> dict[str, Tensor]:
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    named = zip(model.named_parameters(), found, strict=True)
    return {name: torch.zeros_like(p) if grad is None else grad for (name, p), grad in named}


def assert_same_gradients(fast: Tensor, slow: Tensor, model: ANHP) -> None:
    of_fast, of_slow = gradients(fast, model), gradients(slow, model)
    for name in of_fast:
        torch.testing.assert_close(
            of_fast[name], of_slow[name], rtol=GRADIENTS, atol=GRADIENTS, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_the_lengths_of_the_cases_lie_on_both_sides_of_the_fold_limit():
    assert max(SHORT) + 1 < FOLD_BELOW * DIM <= max(LONG)


def test_the_public_names_are_the_parameters_that_the_twin_is_made_from(case: Case):
    model = case.model()
    public, attached = model.named_arrays(), attached_arrays(model)
    assert set(public) == set(attached)
    for name, array in public.items():
        assert torch.equal(array, attached[name]), name


def test_log_likelihood_and_its_gradients_agree_with_the_twin(case: Case):
    model, data = case.model(), case.data()
    batch = make_batch(data, range(len(data)))
    points = stratified(batch, 1, torch.Generator().manual_seed(3))
    fast = log_likelihood(model, batch, points).log_likelihood()
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    assert_close(fast, slow, VALUES)
    assert_same_gradients(fast.sum(), slow.sum(), model)


def test_event_embeddings_and_their_gradients_agree_with_the_twin(case: Case):
    model, data = case.model(), case.data()
    fast_layers = model.embeddings(make_batch(data, range(len(data))))
    assert len(fast_layers) == model.layers + 1
    twin = twin_of(model)
    pairs = [
        (fast[row, index], twin.event_embedding(as_history(data, row), index, layer))
        for layer, fast in enumerate(fast_layers)
        for row in range(len(data))
        for index in range(len(data[row]))
    ]
    for fast, slow in pairs:
        assert_close(fast, slow, VALUES)
    if pairs:
        weight = torch.linspace(-1.0, 1.0, model.dim, dtype=torch.float64)
        fast_sum = sum((fast @ weight for fast, _ in pairs), start=torch.zeros((), dtype=torch.float64))
        slow_sum = sum((slow @ weight for _, slow in pairs), start=torch.zeros((), dtype=torch.float64))
        assert_same_gradients(fast_sum, slow_sum, model)


def test_intensities_at_arbitrary_times_and_their_gradients_agree_with_the_twin(case: Case):
    model, data = case.model(), case.data()
    batch = make_batch(data, range(len(data)))
    times = torch.rand(len(data), 7, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 10.0
    times[:, 0] = batch.times[:, 0] if batch.times.shape[1] else 0.0  # a query on an event's own time does not see it
    times = times.flip(1)  # in no order
    fast = model.intensities(model.state(model.encode(batch), Queries.at_times(batch, times)))
    slow = slow_intensities(twin_of(model), data, times)
    assert_close(fast, slow, VALUES)
    assert_same_gradients(fast.log().sum(), slow.log().sum(), model)


def slow_intensities(twin: SlowANHP, data: EventData, times: Tensor) -> Tensor:
    found = []
    for row, row_times in enumerate(times.tolist()):
        sequence = as_history(data, row)
        for time in row_times:
            found += [twin.intensity(type, time, before_time(sequence, time)) for type in twin.types]
    return torch.stack(found).reshape(*times.shape, len(twin.types))


@pytest.mark.parametrize("rule", ["uniform", "quadrature"])
@pytest.mark.parametrize("origin", ["window", "first-event"])
def test_every_integral_and_origin_agrees_with_the_twin(rule: str, origin: Any):
    rows = [([0.0, 1.0, 1.0, 4.5], [0, 2, 1, 0]), ([0.0, 3.0], [1, 2]), ([0.0], [2])]
    data = event_data(rows, t_end=[5.0, 7.0, 2.0], origin=origin)
    model = Case("", {"heads": 2}).model()
    batch = make_batch(data, range(3))
    drawn = uniform(batch, torch.tensor([4, 2, 3]), torch.Generator().manual_seed(5))
    points = drawn if rule == "uniform" else quadrature(batch, 3)
    fast = log_likelihood(model, batch, points).log_likelihood()
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    assert_close(fast, slow, VALUES)
    assert_same_gradients(fast.sum(), slow.sum(), model)


def test_event_logs_and_gap_integrals_agree_with_the_twin_term_by_term():
    case = Case("", {"coarse": "none", "bos": True}, lengths=(5, 2))
    model, data = case.model(), case.data()
    batch = make_batch(data, range(2))
    points = quadrature(batch, 2)
    terms = log_likelihood(model, batch, points)
    twin = twin_of(model)
    for row in range(2):
        sequence = as_history(data, row)
        for index, event in enumerate(sequence):
            assert_close(
                terms.event_log[row, index], twin.intensity(event.type, event.time, sequence[:index]).log(), VALUES
            )
        for gap in range(len(sequence) + 1):
            inside = points.gap[0] == gap
            value = sum(
                weight * twin.intensity(type, time, sequence[:gap])
                for time, weight in zip(
                    points.queries.times[row, inside].tolist(), points.weights[row, inside].tolist(), strict=True
                )
                for type in twin.types
            )
            assert isinstance(value, Tensor)
            assert_close(terms.gap_integral[row, gap], value, VALUES)
        assert not terms.event_log[row, len(sequence) :].any()
        assert not terms.gap_integral[row, len(sequence) + 1 :].any()


@st.composite
def random_cases(draw: st.DrawFn) -> tuple[Case, int]:
    types = draw(st.integers(1, 3))
    names = list(NAMES[:types])
    options: dict[str, Any] = {
        "heads": draw(st.integers(1, 3)),
        "time_dim": draw(st.integers(1, 5)),
        "bos": draw(st.booleans()),
        "layer_norm": draw(st.booleans()),
        "feed_forward": draw(st.sampled_from([0, 3])),
        "activation": draw(st.sampled_from(["relu", "gelu"])),
        "head_decay": draw(st.booleans()),
    }
    pairs = [(e, f) for e in names for f in names]
    if draw(st.booleans()):
        options["edges"] = draw(st.lists(st.sampled_from(pairs), unique=True))
    else:
        by_name = st.fixed_dictionaries({name: st.sampled_from(["x", "y"]) for name in names})
        options["coarse"] = draw(st.one_of(st.sampled_from(["one", "none"]), by_name))
        options["elapsed"] = draw(st.sampled_from([0, 2]))
        options["intensity_scales"] = draw(st.sampled_from([0, 2]))
    lengths = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=2)))
    dim, layers = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    if dim % options["heads"] == 0 and draw(st.booleans()):
        options["head_size"] = "split"
    case = Case("random", options, lengths, types, draw(st.booleans()), dim, layers)
    return case, draw(st.integers(0, 1000))


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random_cases())
def test_random_models_agree_with_the_twin(drawn: tuple[Case, int]):
    case, seed = drawn
    model, data = case.model(seed), case.data(seed + 1)
    batch = make_batch(data, range(len(data)))
    points = stratified(batch, 1, torch.Generator().manual_seed(seed))
    fast = log_likelihood(model, batch, points).log_likelihood()
    slow = slow_log_likelihood(twin_of(model), data, batch, points)
    assert_close(fast, slow, VALUES)
    assert_same_gradients(fast.sum(), slow.sum(), model)
