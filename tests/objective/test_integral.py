"""The three estimates of the integral: exact or unbiased, on what counts and on nothing else.

Statistical tests are seeded. With another seed, each would fail for a correct estimator with a probability below 1e-5:
five standard errors are allowed, and the two-sided normal tail beyond them is 6e-7.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from foretell.batches.batch import Batch, make_batch
from foretell.data import Origin
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.objective.loglik import (
    Points,
    gauss_legendre,
    integral_terms,
    log_likelihood,
    quadrature,
    stratified,
    uniform,
)
from foretell.options import Window
from tests.samples import event_data, random_data, randomise

REPEATS, STANDARD_ERRORS = 4000, 5.0


def hawkes() -> Hawkes:
    model = randomise(Hawkes(3, decays=2), seed=71)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    return model


def integrals(model: IntensityModel, batch: Batch, points: Points) -> Tensor:
    return integral_terms(model, model.encode(batch), batch, points).sum(1)


def exact(model: IntensityModel, batch: Batch) -> Tensor:
    value = model.exact_integral(model.encode(batch), batch)
    assert value is not None
    return (value * batch.gap_counts).sum(1)


def repeated(batch: Batch, count: int) -> Batch:
    """The same sequence many times over, so that one call makes many estimates."""
    return Batch(*(tensor.expand(count, *tensor.shape[1:]).contiguous() for tensor in batch.tensors()))


@pytest.mark.parametrize("window", ["all", "events-2-to-I"])
@pytest.mark.parametrize(
    "estimate", ["stratified 1", "stratified 3", "log 1", "log 2", "log 5", "uniform 1", "uniform 8"]
)
@torch.no_grad()
def test_draws_are_unbiased(estimate: str, window: Window):
    rule, count = estimate.split()[0], int(estimate.split()[1])
    model = hawkes()
    one = make_batch(random_data(72, [6]), [0], window=window)
    many = repeated(one, REPEATS)
    generator = torch.Generator().manual_seed(73)
    points = {
        "stratified": lambda: stratified(many, count, generator),
        "log": lambda: stratified(many, count, generator, short=0.01),
        "uniform": lambda: uniform(many, torch.full((REPEATS,), count), generator),
    }[rule]()
    values = integrals(model, many, points)
    error = float(values.mean() - exact(model, one)[0])
    assert abs(error) < STANDARD_ERRORS * float(values.std()) / math.sqrt(REPEATS)


@torch.no_grad()
def test_stratified_draws_are_unbiased_in_every_gap():
    model = hawkes()
    one = make_batch(random_data(74, [5]), [0])
    many = repeated(one, REPEATS)
    values = log_likelihood(model, many, stratified(many, 2, torch.Generator().manual_seed(75))).gap_integral
    expected = log_likelihood(model, one, None).gap_integral[0]
    error = (values.mean(0) - expected).abs()
    allowed = STANDARD_ERRORS * values.std(0) / math.sqrt(REPEATS) + 1e-12  # before the first event nothing varies
    assert bool((error < allowed).all())


@torch.no_grad()
def test_stratified_draws_vary_less_than_as_many_uniform_ones():
    model, many = hawkes(), repeated(make_batch(random_data(76, [9]), [0]), 500)
    generator = torch.Generator().manual_seed(77)
    by_gap = integrals(model, many, stratified(many, 2, generator))
    anywhere = integrals(model, many, uniform(many, torch.full((500,), 20), generator))
    assert float(by_gap.std()) < 0.5 * float(anywhere.std())


def bursts() -> Hawkes:
    """Every event is followed by another half, within a millionth of a unit of time."""
    model = Hawkes(1, decays=1)
    with torch.no_grad():
        model.mu.fill_(0.1)
        model.beta.fill_(1e6)
        model.alpha.fill_(0.5e6)
    return model


@torch.no_grad()
def test_draws_over_the_logarithm_see_an_intensity_that_is_high_for_a_moment():
    one = make_batch(event_data([([1.0, 4.0], [0, 0])], types=1), [0])
    many = repeated(one, 2000)
    evenly, sharply = (
        integrals(bursts(), many, stratified(many, 4, torch.Generator().manual_seed(80), short=short))
        for short in (None, 1e-7)
    )
    expected = float(exact(bursts(), one)[0])
    assert expected == pytest.approx(2.0)
    assert float((evenly - expected).abs().median()) > 0.9  # one event in two is not seen at all
    assert float(sharply.std()) < 1.0 and float(sharply.mean()) == pytest.approx(expected, rel=0.05)


@torch.no_grad()
def test_quadrature_over_the_logarithm_settles_where_plain_quadrature_does_not():
    batch = make_batch(event_data([([1.0, 4.0], [0, 0])], types=1), [0])
    expected = exact(bursts(), batch)
    torch.testing.assert_close(integrals(bursts(), batch, quadrature(batch, 40, 1e-7)), expected, rtol=1e-6, atol=0.0)
    assert float((integrals(bursts(), batch, quadrature(batch, 40)) - expected).abs()[0]) > 0.9


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_gauss_legendre_integrates_polynomials_of_degree_2n_minus_1(nodes: int):
    place, weight = gauss_legendre(nodes, torch.device("cpu"))
    for degree in range(2 * nodes):
        assert float((weight * place**degree).sum()) == pytest.approx(1.0 / (degree + 1), rel=1e-13)
    assert float((weight * place ** (2 * nodes)).sum()) != pytest.approx(1.0 / (2 * nodes + 1), rel=1e-6)


def test_one_node_is_exact_for_a_poisson_process():
    data = random_data(78, [4, 0, 7])
    model, batch = randomise(Poisson(3), seed=79), make_batch(data, range(3))
    torch.testing.assert_close(integrals(model, batch, quadrature(batch, 1)), exact(model, batch), rtol=1e-13, atol=0.0)


@torch.no_grad()
def test_quadrature_converges_to_the_closed_form_of_a_hawkes_process():
    model, batch = hawkes(), make_batch(random_data(80, [4, 0, 7]), range(3))
    errors = [
        float((integrals(model, batch, quadrature(batch, n)) - exact(model, batch)).abs().max()) for n in (1, 4, 20)
    ]
    assert errors[0] > 10.0 * errors[1] > 1e-6
    assert errors[2] < 1e-11


SEQUENCE = ([0.0, 1.0, 4.0], [0, 1, 0])  # on [0, 6]; gaps of length 0, 1, 3 and 2


@pytest.mark.parametrize(
    ("origin", "window", "events", "time"),
    [
        ("window", "all", [0, 1, 2], 6.0),
        ("first-event", "all", [1, 2], 6.0),
        ("window", "events-2-to-I", [1, 2], 4.0),
        ("first-event", "events-2-to-I", [1, 2], 4.0),
    ],
)
@pytest.mark.parametrize("rule", ["exact", "quadrature", "stratified", "uniform"])
@torch.no_grad()
def test_origin_and_window_count_what_they_should(
    origin: Origin, window: Window, events: list[int], time: float, rule: str
):
    """With rates 2 and 3 the integral is 5 times the time that counts, wherever it is looked at."""
    model = Poisson(2)
    model.log_rate.copy_(torch.tensor([2.0, 3.0], dtype=torch.float64).log())
    # a longer one beside it, so that there is padding
    rows = [SEQUENCE, ([0.0, 1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1, 0])]
    batch = make_batch(event_data(rows, types=2, t_end=6.0, origin=origin), [0, 1], window=window)
    points = {
        "exact": None,
        "quadrature": quadrature(batch, 2),
        "stratified": stratified(batch, 2, torch.Generator().manual_seed(81)),
        "uniform": uniform(batch, torch.tensor([5, 7]), torch.Generator().manual_seed(82)),
    }[rule]
    terms = log_likelihood(model, batch, points)
    log_rates = [math.log([2.0, 3.0][SEQUENCE[1][i]]) for i in events]
    assert batch.scored[0] == len(events)
    assert float(terms.event_log[0].sum()) == pytest.approx(sum(log_rates), rel=1e-13)
    assert float(terms.gap_integral[0].sum()) == pytest.approx(5.0 * time, rel=1e-13)
    assert float(terms.log_likelihood()[0]) == pytest.approx(sum(log_rates) - 5.0 * time, rel=1e-13)


def test_the_time_before_the_first_event_and_the_tail_both_count():
    batch = make_batch(event_data([([1.0, 4.0], [0, 1])], t_end=6.0), [0])
    assert batch.gap_length.tolist() == [[1.0, 3.0, 2.0]]
    later = make_batch(event_data([([1.0, 4.0], [0, 1])], t_end=6.0), [0], window="events-2-to-I")
    assert later.gap_length.tolist() == [[0.0, 3.0, 0.0]]


@pytest.mark.parametrize("window", ["all", "events-2-to-I"])
def test_a_sequence_without_events_counts_its_time_alone(window: Window):
    batch = make_batch(event_data([([], []), ([1.0], [0])], t_end=6.0), [0, 1], window=window)
    expected = [6.0, 6.0] if window == "all" else [0.0, 0.0]
    assert batch.gap_length.sum(1).tolist() == expected
    for points in (
        quadrature(batch, 2),
        stratified(batch, 2, torch.Generator().manual_seed(83)),
        uniform(batch, torch.tensor([3, 3]), torch.Generator().manual_seed(84)),
    ):
        torch.testing.assert_close(points.weights.sum(1), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("rule", ["stratified", "uniform"])
def test_draws_are_fresh_at_every_call_and_the_same_from_one_seed(rule: str):
    batch = make_batch(random_data(85, [4, 2]), [0, 1])

    def draw(generator: torch.Generator) -> Tensor:
        if rule == "uniform":
            return uniform(batch, torch.tensor([5, 3]), generator).queries.times
        return stratified(batch, 2, generator).queries.times

    generator = torch.Generator().manual_seed(86)
    first, second = draw(generator), draw(generator)
    # only in gaps that are padding, of length 0, must a draw be where it was
    same = (first == second).sum(1).tolist()
    assert same == ([0, 2 * 2] if rule == "stratified" else [0, 0])
    assert torch.equal(draw(torch.Generator().manual_seed(86)), first)


def test_every_point_lies_in_its_gap_and_sees_the_events_before_it():
    batch = make_batch(random_data(87, [6, 0, 3], ties=True), range(3))
    generator = torch.Generator().manual_seed(88)
    anywhere = uniform(batch, torch.tensor([9, 9, 9]), generator)
    for points in (stratified(batch, 3, generator), quadrature(batch, 3), anywhere):
        times = points.queries.times
        gap = points.gap.expand_as(times)
        seen = points.queries.seen().expand_as(times)
        counted = points.weights > 0.0
        assert torch.equal(seen, gap)
        assert bool((times >= batch.gap_start.gather(1, gap))[counted].all())
        assert bool((times <= batch.gap_end.gather(1, gap))[counted].all())
        assert bool((gap <= batch.lengths[:, None])[counted].all())


def test_stratified_draws_fall_one_into_each_part_of_a_gap():
    batch = make_batch(event_data([([4.0], [0])], t_end=8.0), [0])
    times = stratified(batch, 4, torch.Generator().manual_seed(89)).queries.times[0]
    assert times.floor().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_the_global_random_state_is_not_touched():
    batch = make_batch(random_data(90, [4]), [0])
    state = torch.get_rng_state()
    stratified(batch, 2, torch.Generator().manual_seed(1))
    uniform(batch, torch.tensor([4]), torch.Generator().manual_seed(1))
    quadrature(batch, 3)
    assert torch.equal(torch.get_rng_state(), state)
