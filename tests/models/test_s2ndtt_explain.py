"""What additions have left in the states of an S2-NDTT: parts that add up to the model's own intensity, and are what would be missing."""

from __future__ import annotations

import math

import pytest
import torch

from foretell.errors import ForetellError
from foretell.evaluate.explain import explain
from foretell.models.rules.andtt_explain import take_apart
from foretell.models.rules.s2ndtt_explain import look_into_states
from tests.models.small_programs import small_s2ndtt
from tests.plan.rich_programs import rich_case


@pytest.mark.parametrize("seed", range(24))
def test_what_is_taken_apart_is_the_models_own_intensity(seed: int):
    case = rich_case(seed)
    model, history = case.s2ndtt(), case.data[0]
    at = history.t_end
    try:
        expected = model.possible_intensities(history, [at])[0]
    except ForetellError as error:
        assert "needs itself" in str(error)
        return
    look = look_into_states(model, history, at)
    for name, rate in list(expected.items())[:3]:
        functor, _, arguments = name.partition("(")
        number = look.timeline.grounding.find(functor, tuple(arguments.rstrip(")").split(",")) if arguments else ())
        assert number is not None
        assert take_apart(model, look, number).log_intensity == pytest.approx(math.log(rate), rel=1e-8, abs=1e-8)


TEXT = """
:- event(g, 2). :- exogenous(e, 0). :- exogenous(f, 0). :- embed(q, 2). :- embed(p, 0).
p(a). p(b). q.
g :- q.
q <- e.
q <- f, p(X).
"""


def test_an_effect_is_what_the_log_intensity_loses_without_the_jumps_of_a_rule():
    """With one layer, and where no jump depends on a state, that is the same as never having jumped."""
    model, data = small_s2ndtt(TEXT, ["e", "f", "e", "f", "f"], layers=1, states=2)
    history, at = data[0], data[0].t_end
    found = explain(model, history, at, "g")
    (of_q,) = [fact for fact in found.facts if fact.fact == "q"]
    added = {one.rule: one for one in of_q.contributions if one.kind == "add"}
    log = math.log(found.intensity)
    arrays = {name: array.clone() for name, array in model.named_arrays().items()}
    assert len(added) == 2
    for rule, one in added.items():
        without = {name: array.clone() for name, array in arrays.items()}
        without[f"add.{rule}.G"][:4] = 0.0  # real and imaginary parts of its jumps
        model.load_named_arrays(without)
        lost = log - math.log(model.possible_intensities(history, [at])[0]["g"])
        assert one.effect == pytest.approx(lost, rel=1e-9, abs=1e-12)
        (layer,) = one.attention
        assert sum(event.weight for event in layer.additions) == pytest.approx(1.0)
    model.load_named_arrays(arrays)
    by_f = added[max(added)].attention[0].additions
    assert {event.event for event in by_f} == {"f"}
    assert len(by_f) == 6  # of three events, for two values of X each


def test_before_any_addition_there_is_nothing_but_what_is_deduced():
    model, data = small_s2ndtt(TEXT, ["e"], layers=1, states=2)
    found = explain(model, data[0], 0.1, "g")
    assert all(one.kind != "add" for fact in found.facts for one in fact.contributions)
    assert torch.tensor(found.intensity) > 0.0
