"""The fast models of rules against their slow twins: batches, integrals, circles, and what is written and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.build import load_model, save_model
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.objective.loglik import quadrature, training_loss, uniform
from tests.ground.timelines import event_data
from tests.models.rule_twin import (
    assert_close,
    assert_same_gradients,
    attached_arrays,
    by_quadrature,
    check_intensities,
    check_loss,
    slow_loss,
)
from tests.models.small_programs import ROUND, SMALL, small_andtt, small_ndtt, small_s2ndtt
from tests.plan.rich_programs import RichCase, rich_case


@dataclass(frozen=True)
class Kind:
    model: type[ANDTT] | type[NDTT] | type[S2NDTT]
    of_case: Callable[[RichCase], RuleModel]
    small: Callable[..., tuple[RuleModel, EventData]]


KINDS = [
    Kind(ANDTT, RichCase.model, small_andtt),
    Kind(NDTT, RichCase.ndtt, small_ndtt),
    Kind(S2NDTT, RichCase.s2ndtt, small_s2ndtt),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.model.__name__)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.mark.parametrize("rule", ["uniform", "quadrature"])
def test_every_integral_agrees_with_the_twin(kind: Kind, rule: str):
    model, data = kind.small(SMALL["one event removes and adds"][0], ["g", "on", "on"], ["on"], [])
    batch = model.collator.batch(data, range(3), width=5)
    drawn = uniform(batch, torch.tensor([4, 2, 3]), torch.Generator().manual_seed(5))
    points = drawn if rule == "uniform" else quadrature(batch, 3)
    fast, slow = training_loss(model, batch, points).objective, slow_loss(model, data, batch, points)
    assert_close(fast, slow, rule)
    assert_same_gradients(fast, slow, model, rule)


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_in_which_sequences_repeat_is_each_of_them_alone(kind: Kind, seed: int):
    case = rich_case(seed)
    model, data = kind.of_case(case), case.data
    order = [2, 0, 1, 0]
    try:
        together = by_quadrature(model, data, order, width=len(data[0]) + 4)
    except ForetellError as error:
        assert "needs itself" in str(error)
        return
    for row, index in enumerate(order):
        alone = by_quadrature(model, data, [index])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-12, atol=1e-12)


def test_a_cycle_through_facts_without_embeddings_is_no_error(kind: Kind):
    model, data = kind.small(f":- embed(near, 0).\n{ROUND}", ["link(b,a)", "e", "link(a,a)"])
    check_intensities(model, data, 1)
    check_loss(model, data, 2)


# --- in and out --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(0, 30, 3))
def test_named_arrays_written_back_change_nothing(kind: Kind, seed: int):
    model = kind.of_case(rich_case(seed))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    arrays = {name: array.clone() for name, array in model.named_arrays().items()}
    attached = attached_arrays(model)
    assert arrays.keys() == attached.keys()
    assert all(torch.equal(array, attached[name]) for name, array in arrays.items())
    model.load_named_arrays(arrays)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_a_saved_model_answers_the_same(kind: Kind, seed: int, tmp_path: Path):
    case = rich_case(seed)
    model, data = kind.of_case(case), case.data
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert isinstance(again, kind.model)
    shapes, kept = ({name: tuple(array.shape) for name, array in one.named_arrays().items()} for one in (again, model))
    assert shapes == kept
    try:
        expected = by_quadrature(model, data, range(len(data)))
    except ForetellError:
        return
    assert torch.equal(by_quadrature(again, data, range(len(data))), expected)


def test_it_does_not_matter_when_a_name_is_met(kind: Kind):
    text = ":- event(g). :- exogenous(e).\ng.\ng <- e(X) :: w(X).\n"
    data = event_data(["e(a)", "g", "e(b)"], ["e(c)", "g"])
    first, second = (
        kind.model(Program.from_text(text, dim=2), data.vocabulary, dim=2, seed=5, dtype=torch.float64)
        for _ in range(2)
    )
    for index in (1, 0):
        first.intensity(data[index], [5.0])
    second.ground(data)
    one, two = first.named_arrays(), second.named_arrays()
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    values = [by_quadrature(model, data, range(len(data))) for model in (first, second)]
    torch.testing.assert_close(*values, rtol=1e-12, atol=1e-12)
