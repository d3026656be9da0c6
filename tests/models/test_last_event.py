"""THP and SAHP beyond their equations: what they start from, their units, dropout, shapes of intensities, and options that are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from foretell.batches.batch import Queries, make_batch
from foretell.data import EventSequence
from foretell.data.synthetic import PoissonProcess, simulate
from foretell.errors import ForetellError
from foretell.models.last_event.last_event import LastEventModel
from foretell.models.last_event.sahp import SAHP
from foretell.models.last_event.thp import THP
from foretell.models.parameters import load_parameters, parameters_json
from foretell.models.pytree import tensors_of, with_tensors
from foretell.models.units import starting_rates
from foretell.objective.loglik import log_likelihood, quadrature, stratified, training_loss
from tests.samples import event_data, random_data, random_rows, randomise

DATA = random_data(71, [6, 0, 11, 2])


@pytest.fixture(params=[THP, SAHP], ids=lambda cls: cls.title)
def cls(request: pytest.FixtureRequest) -> type[LastEventModel]:
    return request.param


def once(kind: int) -> EventSequence:
    return EventSequence(np.array([1.0]), np.array([kind], dtype=np.int32), 20.0, "once")


def test_before_the_first_event_a_prepared_model_has_the_rates_of_poisson(cls: type[LastEventModel]):
    data = simulate(PoissonProcess((0.5, 0.2, 0.1)), 40, 20.0, 4)
    model = cls(data.vocabulary, dim=16, dtype=torch.float64)
    model.prepare(data)
    nothing_yet = EventSequence(np.empty(0), np.empty(0, dtype=np.int32), 20.0, "empty")
    for time in (0.0, 1.0, 19.0):
        rows = model.intensity(nothing_yet, [time])[0]
        np.testing.assert_allclose(rows, starting_rates(data), rtol=1e-9)
    after = model.intensity(once(1), [1.5])[0] / starting_rates(data)
    assert bool(((after > 0.5) & (after < 2.0)).all())


@pytest.mark.parametrize("c", [1000.0, 1.0 / 60.0])
def test_prepared_on_rescaled_data_a_model_differs_by_log_c_an_event(cls: type[LastEventModel], c: float):
    rows = random_rows(101, [6, 0, 11])
    values = []
    for unit in (1.0, c):
        data = event_data([([unit * t for t in times], types) for times, types in rows], t_end=10.0 * unit)
        model = cls(data.vocabulary, dim=8, heads=2, dtype=torch.float64)
        model.prepare(data)
        batch = make_batch(data, range(3))
        terms = log_likelihood(model, batch, quadrature(batch, 4)).log_likelihood()
        values.append(terms + batch.scored * math.log(unit))
    torch.testing.assert_close(values[1], values[0], rtol=1e-7, atol=1e-7)


def test_dropout_repeats_from_its_generator_and_is_off_in_evaluation(cls: type[LastEventModel]):
    model, batch = cls(DATA.vocabulary, dim=8, dropout=0.5), make_batch(DATA, range(4))

    def value() -> torch.Tensor:
        return model.encode(batch).embedding.detach()

    model.noise = torch.Generator().manual_seed(1)
    first, second = value(), value()
    assert not torch.equal(first, second)
    model.noise = torch.Generator().manual_seed(1)
    assert torch.equal(value(), first)
    model.eval()
    without = cls(DATA.vocabulary, dim=8)
    assert torch.equal(value(), without.encode(batch).embedding)


def test_the_same_points_give_the_same_whether_they_lie_gap_by_gap_or_not(cls: type[LastEventModel]):
    """What training does at once for all points of a gap, and what it does where there are only states."""
    model = randomise(cls(DATA.vocabulary, dim=4, dtype=torch.float64), seed=5)
    batch = make_batch(DATA, range(4))
    points = stratified(batch, 3, torch.Generator().manual_seed(1))
    history = model.encode(batch)
    at_once = model.ends_and_inside(history, batch, points.queries, True)
    assert at_once is not None
    seen = points.gap.expand_as(points.queries.times)
    loose = Queries.seeing(points.queries.times, seen)
    assert model.ends_and_inside(history, batch, loose, True) is None
    state = model.state(history, loose)
    ends = model.log_intensity(model.state(history, Queries.of_events(batch)), batch.types)
    assert at_once.log_sum_inside is not None
    for fast, slow in (
        (at_once.total_inside.flatten(1), model.total(state)),
        (at_once.log_sum_inside.flatten(1), model.log_intensities(state).sum(-1)),
        (at_once.log_at_end, ends),
    ):
        torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)


def test_a_history_taken_apart_and_put_together_gives_the_same_gradients(cls: type[LastEventModel]):
    model = randomise(cls(DATA.vocabulary, dim=4, dtype=torch.float64), seed=6)
    batch = make_batch(DATA, range(4))
    points = quadrature(batch, 2)
    whole = torch.autograd.grad(training_loss(model, batch, points).objective, list(model.parameters()))
    history = model.encode(batch)
    tensors = tensors_of(history)
    assert all(tensor.shape[:2] == (4, 12) for tensor in tensors)
    parts = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
    training_loss(model, batch, points, history=with_tensors(history, parts)).objective.backward()
    learned = [(tensor, part.grad) for tensor, part in zip(tensors, parts, strict=True) if tensor.requires_grad]
    torch.autograd.backward([tensor for tensor, _ in learned], [grad for _, grad in learned])
    for found, expected in zip((parameter.grad for parameter in model.parameters()), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_between_events_each_intensity_only_rises_or_only_falls(cls: type[LastEventModel]):
    model = randomise(cls(DATA.vocabulary, dim=4, dtype=torch.float64), seed=7)
    steps = np.diff(model.intensity(once(2), np.linspace(1.01, 20.0, 400)), axis=0)
    assert bool(((steps >= 0.0).all(0) | (steps <= 0.0).all(0)).all())
    assert bool((steps != 0.0).any(0).all())


def test_late_in_time_thp_changes_slowly_and_sahp_does_not():
    """The paper's remark on why THP fits times poorly."""
    changes = {}
    for cls in (THP, SAHP):
        model = randomise(cls(DATA.vocabulary, dim=4, dtype=torch.float64), seed=8)
        for s in (1.0, 1000.0):
            past = EventSequence(np.array([s]), np.array([1], dtype=np.int32), 2.0 * s + 5.0, "late")
            rates = model.intensity(past, [s + 1e-9, s + 1.0])
            changes[cls, s] = float(np.abs(np.log(rates[1] / rates[0])).max())
    assert changes[THP, 1000.0] < 0.01 * changes[THP, 1.0]
    assert changes[SAHP, 1000.0] > 0.1 * changes[SAHP, 1.0]


def test_parameters_go_to_a_model_in_another_unit_and_are_the_same_process(cls: type[LastEventModel]):
    model = randomise(cls(DATA.vocabulary, dim=4, heads=2, dtype=torch.float64), seed=9)
    model.time.set_range(0.1, 10.0)
    model.time_scale = 1.7
    other = cls(DATA.vocabulary, dim=4, heads=2, dtype=torch.float64)
    other.time_scale = 0.3
    if isinstance(other, THP):
        other.elapsed_scale = 7.0
    load_parameters(other, parameters_json(model), "here")
    batch = make_batch(DATA, range(4))
    points = quadrature(batch, 3)
    values = [log_likelihood(one, batch, points).log_likelihood() for one in (model, other)]
    torch.testing.assert_close(values[1], values[0], rtol=1e-12, atol=1e-12)


def test_thp_counts_elapsed_times_in_their_usual_size():
    """So that a first gap, which is long beside `m`, does not drown the gradients of everything else."""
    data = event_data([([2.0, 3.0], [0, 1])], t_end=6.0)
    model = THP(data.vocabulary, dim=4, shortest_wave=0.01)
    model.prepare(data)
    ratios = [(2.0 - 0.0) / 0.01, (3.0 - 2.0) / 2.0, (6.0 - 3.0) / 3.0]
    assert model.elapsed_scale == pytest.approx(float(np.sqrt(np.mean(np.square(ratios)))))
    given = event_data([([0.0, 2.0], [0, 1])], t_end=4.0, origin="first-event")
    model.prepare(given)
    assert model.elapsed_scale == pytest.approx(float(np.sqrt((200.0**2 + 1.0) / 2.0)))
    in_formula = parameters_json(model)["parameters"]["intensity.a.w"][1]
    with torch.no_grad():
        model.w_elapsed[0] = model.elapsed_scale
    assert in_formula == 0.0
    assert parameters_json(model)["parameters"]["intensity.a.w"][1] == pytest.approx(1.0 / model.time_scale)


@pytest.mark.parametrize("name", ["tau", "nu"])
def test_a_scale_that_is_not_above_0_is_refused(name: str):
    model = SAHP(DATA.vocabulary, dim=4)
    table = parameters_json(model)
    table["parameters"][f"intensity.b.{name}"] = 0.0
    with pytest.raises(ForetellError, match=rf"intensity\.b\.{name} = 0"):
        load_parameters(model, table, "here")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dim": 0}, "dim = 0"),
        ({"layers": 0}, "layers = 0"),
        ({"heads": 3}, "heads = 3: expected a divisor of dim = 8"),
        ({"heads": 0}, "heads = 0"),
        ({"feed_forward": -1}, "feed_forward = -1"),
        ({"dropout": 1.0}, "dropout = 1.0"),
    ],
    ids=str,
)
def test_sizes_that_make_no_model_are_refused(cls: type[LastEventModel], options: dict[str, Any], said: str):
    with pytest.raises(ForetellError, match=said):
        cls(DATA.vocabulary, **{"dim": 8, **options})


def test_a_type_may_be_called_bos(cls: type[LastEventModel]):
    from foretell.data import Vocabulary

    model = cls(Vocabulary(("bos", "a")), dim=4)
    assert {"bos", "embed.bos", "embed.a"} <= set(model.named_arrays())
