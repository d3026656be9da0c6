"""Models of rules that follow the calendar are taken apart with it: parts add up to the model's own intensity."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch

from foretell.errors import ForetellError
from foretell.evaluate.explain import Explanation, explain, look_at
from foretell.models.rules.andtt_explain import take_apart
from foretell.models.rules.rule_model import RuleModel
from foretell.terms import split
from tests.calendar_samples import YEARLY, with_calendar
from tests.models.test_rules_calendar_twin import KINDS, dated_case
from tests.plan.rich_programs import rich_case


@pytest.mark.parametrize("kind", range(3), ids=["andtt", "ndtt", "s2ndtt"])
@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_what_is_taken_apart_is_the_models_own_intensity(kind: int, seed: int):
    case = dated_case(rich_case(seed))
    model, history = with_calendar(KINDS[kind](case), YEARLY, spread=0.3), case.data[0]
    at, expected = history.t_end, {}
    with contextlib.suppress(ForetellError):  # of a proof that needs itself
        expected = model.possible_intensities(history, [at])[0]
    if not expected:
        pytest.skip("nothing has an intensity")
    look = look_at(model, history, at)  # pyright: ignore[reportArgumentType]
    if kind == 1:  # the cells of an NDTT are what was put into them
        for rest in look.rest.values():
            torch.testing.assert_close(rest, torch.zeros_like(rest), rtol=0.0, atol=1e-9)
    for name, rate in list(expected.items())[:3]:
        number = look.timeline.grounding.find(*split(name))
        assert number is not None
        anatomy = take_apart(model, look, number)
        assert anatomy.log_intensity == pytest.approx(math.log(rate), rel=1e-8, abs=1e-8)
        assert anatomy.calendar == pytest.approx(_by_turning(model, look.waves, rate, history, at, name), abs=1e-8)


def _by_turning(model: RuleModel, waves: torch.Tensor | None, rate: float, history, at: float, name: str) -> float:
    """What the logarithm of the intensity loses where no weight of an intensity turns."""
    assert waves is not None and model.clock is not None
    kept = [one.detach().clone() for one in model.clock.heads]
    with torch.no_grad():
        for one in model.clock.heads:
            one.zero_()
        without = model.possible_intensities(history, [at])[0][name]
        for one, before in zip(model.clock.heads, kept, strict=True):
            one.copy_(before)
    return math.log(rate / without)


def test_an_explanation_tells_of_the_calendar():
    case = dated_case(rich_case(0))
    model, history = with_calendar(KINDS[0](case), spread=0.3), case.data[0]
    found = explain(model, history, history.t_end)
    assert isinstance(found, Explanation) and found.calendar is not None
    assert found.to_json()["calendar"] == found.calendar
