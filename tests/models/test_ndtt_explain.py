"""What additions have left in the cells of an NDTT: parts that add up to the model's own intensity, and are what would be missing."""

from __future__ import annotations

import math

import pytest
import torch

from foretell.errors import ForetellError
from foretell.evaluate.explain import Explanation, explain
from foretell.models.rules.andtt_explain import take_apart
from foretell.models.rules.ndtt_explain import look_into_cells
from foretell.terms import split
from tests.models.small_programs import small_ndtt
from tests.plan.rich_programs import rich_case


@pytest.mark.parametrize("seed", range(24))
def test_what_is_taken_apart_is_the_models_own_intensity_and_adds_up_to_its_cells(seed: int):
    case = rich_case(seed)
    model, history = case.ndtt(), case.data[0]
    at = history.t_end
    try:
        expected = model.possible_intensities(history, [at])[0]
    except ForetellError as error:
        assert "needs itself" in str(error)
        return
    look = look_into_cells(model, history, at)
    for rest in look.rest.values():
        torch.testing.assert_close(rest, torch.zeros_like(rest), rtol=0.0, atol=1e-9)
    for name, rate in list(expected.items())[:3]:
        number = look.timeline.grounding.find(*split(name))
        assert number is not None
        assert take_apart(model, look, number).log_intensity == pytest.approx(math.log(rate), rel=1e-8, abs=1e-8)


TEXT = """
:- event(g, 2). :- exogenous(e, 0). :- exogenous(f, 0). :- embed(q, 2). :- embed(p, 0).
p(a). p(b). q.
g :- q.
q <- e.
q <- f, p(X).
"""


def test_an_effect_is_what_the_log_intensity_loses_without_what_a_rule_puts_into_cells():
    """Where all decays are one, and no proposal depends on a cell, that is a candidate of zero."""
    model, data = small_ndtt(TEXT, ["e", "f", "e", "f", "f"])
    history, at = data[0], data[0].t_end
    arrays = {name: array.clone() for name, array in model.named_arrays().items()}
    gates = [name for name in arrays if name.startswith("add.") and name.endswith(".G")]
    for name in gates:
        arrays[name][10:] = 0.3
    model.load_named_arrays(arrays)
    found = explain(model, history, at, "g")
    assert isinstance(found, Explanation)
    (of_q,) = [fact for fact in found.facts if fact.fact == "q"]
    added = {one.rule: one for one in of_q.contributions if one.kind == "add"}
    assert {f"add.{rule}.G" for rule in added} == set(gates) and len(gates) == 2
    for rule, one in added.items():
        without = {name: array.clone() for name, array in arrays.items()}
        without[f"add.{rule}.G"][4:6] = 0.0  # its candidates
        model.load_named_arrays(without)
        lost = math.log(found.intensity) - math.log(model.possible_intensities(history, [at])[0]["g"])
        assert abs(lost) > 1e-6 and one.effect == pytest.approx(lost, rel=1e-9, abs=1e-12)
        (layer,) = one.attention
        assert sum(event.weight for event in layer.additions) == pytest.approx(1.0)
    by_f = added[max(added)].attention[0].additions
    assert {event.event for event in by_f} == {"f"} and len(by_f) == 6  # three events, two values of X each
