"""Models of rules that follow the calendar against their slow twins: values within 1e-10, gradients within 1e-8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from foretell.data import EventData
from foretell.data.calendar import Calendar
from foretell.errors import ForetellError
from foretell.models.build import load_model, save_model
from foretell.models.rules.rule_model import RuleModel
from tests.calendar_samples import CALENDAR, YEARLY, dated, with_calendar
from tests.models.rule_twin import agrees, attached_arrays, by_quadrature
from tests.plan.rich_programs import RichCase, rich_case

KINDS: list[Callable[[RichCase], RuleModel]] = [RichCase.model, RichCase.ndtt, RichCase.s2ndtt]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def of_case(request: pytest.FixtureRequest) -> Callable[[RichCase], RuleModel]:
    return request.param


def dated_case(case: RichCase) -> RichCase:
    """Its sequences start at dates: the first goes over a change of the clock."""
    return replace(case, dates=dated)


@pytest.mark.parametrize(
    ("calendar", "expiry"), [(CALENDAR, False), (YEARLY, True)], ids=["weeks", "years, with expiry"]
)
def test_random_programs_agree_with_the_twin(
    of_case: Callable[[RichCase], RuleModel], expiry: bool, calendar: Calendar
):
    check_programs(of_case, range(6), expiry, calendar)


@pytest.mark.slow
@pytest.mark.parametrize("expiry", [False, True])
@pytest.mark.parametrize("block", range(1, 10))
def test_many_random_programs_agree_with_the_twin(of_case: Callable[[RichCase], RuleModel], expiry: bool, block: int):
    check_programs(of_case, range(6 * block, 6 * block + 6), expiry, YEARLY)


def check_programs(of_case: Callable[[RichCase], RuleModel], seeds: range, expiry: bool, calendar: Calendar) -> None:
    """At least half have no proof that needs itself."""
    cases = {seed: dated_case(rich_case(seed, expiry)) for seed in seeds}
    compared = sum(
        agrees(with_calendar(of_case(case), calendar, spread=0.3), case, seed) for seed, case in cases.items()
    )
    assert compared >= len(seeds) // 2


@pytest.mark.parametrize("seed", range(0, 20, 4))
def test_a_fresh_calendar_changes_nothing(of_case: Callable[[RichCase], RuleModel], seed: int):
    case = dated_case(rich_case(seed))
    plain, fresh = of_case(case), with_calendar(of_case(case), spread=0.0)
    try:
        expected = by_quadrature(plain, case.data, range(3))
    except ForetellError as error:
        assert "needs itself" in str(error)
        return
    torch.testing.assert_close(by_quadrature(fresh, case.data, range(3)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(0, 20, 4))
def test_a_batch_in_which_sequences_repeat_is_each_of_them_alone(of_case: Callable[[RichCase], RuleModel], seed: int):
    """The same events at other dates have other intensities, though they share a timeline."""
    case = dated_case(rich_case(seed))
    model, data = with_calendar(of_case(case), spread=0.3), case.data
    later = replace(data[0], id="later", start=data[2].start)
    data = EventData([*data, later], data.vocabulary, clock=data.clock)
    try:
        together = by_quadrature(model, data, [3, 0, 2, 0, 1], width=len(data[0]) + 2)
    except ForetellError as error:
        assert "needs itself" in str(error)
        return
    alone = torch.cat([by_quadrature(model, data, [index]) for index in (3, 0, 2, 0, 1)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(0, 12, 3))
def test_saved_models_and_named_arrays_keep_the_calendar(
    of_case: Callable[[RichCase], RuleModel], seed: int, tmp_path: Path
):
    model = with_calendar(of_case(dated_case(rich_case(seed))), YEARLY, spread=0.3)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert isinstance(again, RuleModel) and again.followed == YEARLY
    arrays, kept = again.named_arrays(), model.named_arrays()
    assert arrays.keys() == kept.keys() == attached_arrays(model).keys()
    assert all(torch.equal(arrays[name], kept[name]) for name in kept)
    shown = [name for name in kept if "calendar" in name]
    assert any(name.startswith("intensity.") for name in shown)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    model.load_named_arrays({name: array.clone() for name, array in kept.items()})
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name], rtol=1e-14, atol=1e-14)


def test_dates_that_are_missing_are_a_message(of_case: Callable[[RichCase], RuleModel]):
    case = rich_case(3)
    model = with_calendar(of_case(case))
    with pytest.raises(ForetellError, match=r"sequence '0': the model follows the calendar.*calendar = false"):
        model.intensity(case.data[0], np.array([1.0]))
