"""The slow A-NDTT, against numbers worked out by hand and the laws of docs/explanation/andtt.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.reference.andtt import Settings, embedding, intensities, log_likelihood, wanted
from foretell.reference.ruled import Parameters, pool
from tests.reference.parameters import drawn, softplus

ONE = Settings(dim=1, layers=1, time_dim=1, m=2.0, M=7.0)  # the time embedding is sin(t/2)
TWO = Settings(dim=1, layers=2, time_dim=1, m=2.0, M=7.0)


def sine(time: float) -> float:
    return math.sin(time / 2.0)


def named(**values: Any) -> dict[str, Tensor]:
    """`rule1_W` and `rule2_1_K` stand for `deduce.rule1.W` and `add.rule2.1.K`."""
    return {
        f"{'add' if name.count('_') == 2 else 'deduce'}.{name.replace('_', '.')}": torch.tensor(
            value, dtype=torch.float64
        )
        for name, value in values.items()
    }


def numbers(*rows: float) -> list[Tensor]:
    return [torch.tensor([row], dtype=torch.float64) for row in rows]


def exponent(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def top(program: Program, settings: Settings, parameters: Parameters, fact: str, time: float) -> float:
    """The top layer of a one-dimensional fact without arguments, before any event."""
    return float(embedding(program, settings, parameters, [], [], (fact,), time, 0, settings.layers))


# --- by hand ---------------------------------------------------------------------------------------------------------

GREETING = """
:- event(hi, 1).
:- embed(person, 1).
person(a).
person(b).
hi(X) :- person(X).
"""


def test_deduction_and_intensity_by_hand():
    parameters = named(**{"person(a)_W": [[0.3]], "person(b)_W": [[-0.8]]}, rule1_W=[[0.2, 1.5]], rule1_beta=2.0) | {
        "intensity.hi.w": torch.tensor([0.4, 1.1], dtype=torch.float64),
        "intensity.hi.tau": torch.tensor(0.7, dtype=torch.float64),
    }
    expected = {}
    for person, vector in (("a", 0.3), ("b", -0.8)):
        layers = [math.tanh(vector), 2.0 * math.tanh(vector)]
        emb = math.tanh(0.2 + 1.5 * layers[0]) + math.tanh(0.2 + 1.5 * layers[1])
        expected["hi", person] = softplus(0.4 + 1.1 * emb, 0.7)
    found = intensities(Program.from_text(GREETING), ONE, parameters, [], [], 5.0)
    assert {event: float(rate) for event, rate in found.items()} == pytest.approx(expected, rel=1e-14)


WEATHER = """
:- event(act, 1).
:- exogenous(rain, 2).
:- embed(hot, 1).
hot.
act.
act <- act.
act <- rain, hot.
"""
WEATHER_PARAMETERS = named(
    hot_W=[[0.6]],
    act_W=[[-0.4]],
    rule1_1_V=[[0.1, 0.2, 0.3]],
    rule1_1_K=[[0.4, -0.5, 0.6]],
    rule1_1_Q=[[0.7, 0.8, 0.9]],
    rule2_1_V=[[-0.2, 0.5, 9.0, 9.0, 0.8]],
    rule2_1_K=[[1.1, -0.3, 9.0, 9.0, 0.4]],
    rule2_1_Q=[[0.5, -0.6, 0.7]],
) | {
    "intensity.act.w": torch.tensor([0.2, 1.3], dtype=torch.float64),
    "intensity.act.tau": torch.tensor(0.9, dtype=torch.float64),
}


def weather_by_hand(t: float, acted: float | None, rained: float | None) -> float:
    """The intensity of `act` after one `act` and one `rain`, or None where it did not happen."""
    base, hot = math.tanh(-0.4), math.tanh(0.6)
    inside = -0.4
    if acted is not None:
        v = 0.1 + 0.2 * sine(acted) + 0.3 * base
        k = 0.4 - 0.5 * sine(acted) + 0.6 * base
        alpha = math.exp(k * (0.7 + 0.8 * sine(t) + 0.9 * base))
        inside += alpha * v / (1.0 + alpha)
    if rained is not None:  # `rain` is no true fact: zeros meet the nines
        v = -0.2 + 0.5 * sine(rained) + 0.8 * hot
        k = 1.1 - 0.3 * sine(rained) + 0.4 * hot
        alpha = math.exp(k * (0.5 - 0.6 * sine(t) + 0.7 * base))
        inside += alpha * v / (1.0 + alpha)
    return softplus(0.2 + 1.3 * (base + math.tanh(inside)), 0.9)


def test_attention_to_a_true_event_and_to_an_exogenous_one_that_is_no_fact_by_hand():
    found = intensities(Program.from_text(WEATHER), ONE, WEATHER_PARAMETERS, ["act", "rain"], [1.0, 2.5], at=4.0)
    assert float(found[("act",)]) == pytest.approx(weather_by_hand(4.0, 1.0, 2.5), rel=1e-14)


def test_the_likelihood_scores_declared_events_alone_and_each_gap_sees_its_own_past():
    events, times = ["act", "rain", "act"], [1.0, 2.5, 3.75]
    points = [[(0.25, 0.5), (1.0, 0.5)], [(1.0, 0.75), (2.5, 0.75)], [(2.5, 1.0), (3.5, 0.25)], []]
    area = (
        0.5 * (weather_by_hand(0.25, None, None) + weather_by_hand(1.0, None, None))
        + 0.75 * (weather_by_hand(1.0, 1.0, None) + weather_by_hand(2.5, 1.0, None))
        + weather_by_hand(2.5, 1.0, 2.5)
        + 0.25 * weather_by_hand(3.5, 1.0, 2.5)
    )
    expected = math.log(weather_by_hand(1.0, None, None)) + math.log(weather_by_hand(3.75, 1.0, 2.5)) - area
    found = log_likelihood(Program.from_text(WEATHER), ONE, WEATHER_PARAMETERS, events, times, 4.0, points)
    assert float(found) == pytest.approx(expected, rel=1e-13)


CHAIN = """
:- event(e, 1).
:- embed(g, 1).
:- embed(h, 1).
e.
g.
g <- e.
h <- e, g.
"""
CHAIN_PARAMETERS = named(
    e_W=[[0.5]],
    g_W=[[-0.3]],
    rule1_1_V=[[0.9, -0.2, 0.4]],
    rule1_1_K=[[0.3, 0.6, -0.1]],
    rule1_1_Q=[[0.2, 0.4, 0.8]],
    rule2_1_V=[[0.5, 0.1, -0.7, 0.3]],
    rule2_1_K=[[0.2, 0.2, 0.6, -0.9]],
    rule2_1_Q=[[-0.4, 0.5, 0.6]],
    rule2_2_V=[[-0.3, 0.8, 0.2, 1.4]],
    rule2_2_K=[[0.7, -0.1, 0.3, 0.5]],
    rule2_2_Q=[[0.9, 0.3, -1.2]],
)


def chain_by_hand(s1: float, s2: float, t: float) -> float:
    """`emb^(2)(h,t)` after `e@s1` and `e@s2`, equation by equation."""
    e = [math.tanh(0.5), 2.0 * math.tanh(0.5)]
    # g just before s1 has nothing to attend to; just before s2 it attends to the first event
    g_first = [math.tanh(-0.3), 2.0 * math.tanh(-0.3)]
    alpha = math.exp((0.3 + 0.6 * sine(s1) - 0.1 * e[0]) * (0.2 + 0.4 * sine(s2) + 0.8 * math.tanh(-0.3)))
    attended = alpha * (0.9 - 0.2 * sine(s1) + 0.4 * e[0]) / (1.0 + alpha)
    g_second = [math.tanh(-0.3), math.tanh(-0.3) + math.tanh(-0.3 + attended)]
    h = 0.0  # nothing deduces it, so layer 0 is tanh(0)
    pairs = [(s1, g_first), (s2, g_second)]
    weights = [
        math.exp((0.2 + 0.2 * sine(s) + 0.6 * e[0] - 0.9 * g[0]) * (-0.4 + 0.5 * sine(t) + 0.6 * h)) for s, g in pairs
    ]
    values = [0.5 + 0.1 * sine(s) - 0.7 * e[0] + 0.3 * g[0] for s, g in pairs]
    h = h + math.tanh((weights[0] * values[0] + weights[1] * values[1]) / (1.0 + weights[0] + weights[1]))
    weights = [
        math.exp((0.7 - 0.1 * sine(s) + 0.3 * e[1] + 0.5 * g[1]) * (0.9 + 0.3 * sine(t) - 1.2 * h)) for s, g in pairs
    ]
    values = [-0.3 + 0.8 * sine(s) + 0.2 * e[1] + 1.4 * g[1] for s, g in pairs]
    return h + math.tanh((weights[0] * values[0] + weights[1] * values[1]) / (1.0 + weights[0] + weights[1]))


@pytest.mark.parametrize("second", [2.5, 1.0])
def test_conditions_are_embedded_as_they_were_just_before_the_event_even_at_one_time(second: float):
    program = Program.from_text(CHAIN)
    found = embedding(program, TWO, CHAIN_PARAMETERS, ["e", "e"], [1.0, second], ("h",), 3.0, seen=2, layer=2)
    assert float(found) == pytest.approx(chain_by_hand(1.0, second, 3.0), rel=1e-13)


def test_a_fact_with_additions_and_no_proofs_is_zero_at_layer_zero():
    found = embedding(Program.from_text(CHAIN), TWO, CHAIN_PARAMETERS, ["e"], [1.0], ("h",), 3.0, seen=1, layer=0)
    assert found.tolist() == [0.0]


def test_bos_adds_at_time_zero_and_has_no_embedding():
    program = Program.from_text(":- event(e, 1).\n:- embed(g, 1).\ng.\ne <- bos, g.\n")
    parameters = named(
        g_W=[[0.4]], rule1_1_V=[[0.3, 7.0, 0.5]], rule1_1_K=[[0.6, 7.0, -0.2]], rule1_1_Q=[[0.1, 0.9, 0.8]]
    )
    base = math.tanh(0.4)  # of g; sin(0) meets the sevens, and e is zero at layer 0
    alpha = math.exp((0.6 - 0.2 * base) * (0.1 + 0.9 * sine(3.0)))
    expected = math.tanh(alpha * (0.3 + 0.5 * base) / (1.0 + alpha))
    assert top(program, ONE, parameters, "e", 3.0) == pytest.approx(expected, rel=1e-14)


def test_time_components_come_in_pairs_of_one_wavelength():
    """`V` reads the time of the one event, and a query of zeros gives it the weight ½."""
    program = Program.from_text(":- event(e, 4).\n:- embed(g, 4).\ne :- g.\ng.\ng <- e.\n")
    settings = Settings(dim=4, layers=1, time_dim=4, m=2.0, M=10.0)
    parameters = {
        name: torch.zeros(shape, dtype=torch.float64) for name, shape in wanted(program, settings, ["e"]).items()
    }
    parameters["add.rule2.1.V"][:, 1:5] = torch.eye(4, dtype=torch.float64)
    found = embedding(program, settings, parameters, ["e"], [1.5], ("g",), 3.0, seen=1, layer=1)
    slow = 2.0 * math.sqrt(25.0)
    expected = [math.sin(0.75), math.cos(0.75), math.sin(1.5 / slow), math.cos(1.5 / slow)]
    assert found.tolist() == pytest.approx([math.tanh(0.5 * one) for one in expected], rel=1e-14)


def test_scores_are_divided_by_the_root_of_the_keys_length():
    program = Program.from_text(":- event(e, 1).\n:- key(e, 4).\ne.\ne <- e.\n")
    parameters = named(e_W=[[0.0]], rule1_1_V=[[1.0, 0.0, 0.0]], rule1_1_K=[[0.5, 0.0, 0.0]] * 4) | {
        "add.rule1.1.Q": torch.tensor([[0.8, 0.0, 0.0]] * 4, dtype=torch.float64)
    }
    alpha = math.exp(4 * 0.5 * 0.8 / 2.0)
    found = embedding(program, ONE, parameters, ["e"], [1.0], ("e",), 2.0, seen=1, layer=1)
    assert float(found) == pytest.approx(math.tanh(alpha / (1.0 + alpha)), rel=1e-14)


# --- pools -----------------------------------------------------------------------------------------------------------


def test_two_proofs_are_pooled_by_hand():
    program = Program.from_text(":- event(win, 1).\n:- embed(p, 1).\np(a).\np(b).\nwin :- p(X).\n")
    parameters = named(**{"p(a)_W": [[0.9]], "p(b)_W": [[-0.5]]}, rule1_W=[[0.1, 2.0]], rule1_beta=1.7)
    settings = Settings(dim=1, layers=0, time_dim=1, m=2.0, M=7.0)
    a, b = 0.1 + 2.0 * math.tanh(0.9), 0.1 + 2.0 * math.tanh(-0.5)
    assert b < 0.0 < a
    expected = math.tanh((a**1.7 - (-b) ** 1.7) ** (1.0 / 1.7))
    assert top(program, settings, parameters, "win", 3.0) == pytest.approx(expected, rel=1e-14)


def test_a_pool_with_exponent_one_is_the_sum():
    assert float(pool(numbers(0.3, -1.2, 0.5), exponent(1.0))) == pytest.approx(-0.4, rel=1e-14)


def test_a_pool_of_one_is_that_one():
    entry = torch.tensor([0.0, -3.0, 1e-200], dtype=torch.float64)
    assert torch.equal(pool([entry], exponent(5.0)), entry)


def test_a_pool_with_a_large_exponent_is_the_entry_of_largest_magnitude():
    sharp = [float(pool(numbers(0.3, -1.2, 1.1), exponent(beta))) for beta in (5.0, 50.0, 5000.0)]
    assert abs(sharp[0] + 1.2) > abs(sharp[1] + 1.2)
    assert sharp[2] == pytest.approx(-1.2, rel=1e-12)
    tiny = float(pool(numbers(3e-7, 1e-7), exponent(5000.0)))  # its powers are smaller than any float
    assert tiny == pytest.approx(3e-7, rel=1e-12)


def test_slopes_of_a_pool_are_its_finite_differences():
    entries = torch.tensor([[0.3, -1.2, 2.0], [0.5, 0.8, -0.1], [-0.4, 0.2, 0.7]], dtype=torch.float64)
    for beta in (1.0, 1.3, 4.0):
        inputs = (entries.clone().requires_grad_(), exponent(beta).requires_grad_())
        assert torch.autograd.gradcheck(lambda x, b: pool(list(x), b), inputs)


@pytest.mark.parametrize("beta", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("values", [(0.0, 0.0), (1.5, -1.5), (0.0, 0.7), (0.0, 0.7, -0.7), (1e-300, 2.0)])
def test_slopes_of_a_pool_are_finite_where_entries_are_zero_or_cancel(values: Sequence[float], beta: float):
    entries = [one.requires_grad_() for one in numbers(*values)]
    shared = exponent(beta).requires_grad_()
    value = pool(entries, shared)
    slopes = torch.autograd.grad(value.sum(), [*entries, shared])
    assert all(torch.isfinite(slope).all() for slope in slopes)
    if beta == 1.0:
        assert [float(slope) for slope in slopes[:-1]] == pytest.approx([1.0] * len(values))


def test_an_exponent_that_no_pool_uses_has_no_influence():
    program = Program.from_text(GREETING)
    parameters = drawn(wanted(program, ONE, []))
    flat, sharp = (
        intensities(program, ONE, parameters | {"deduce.rule1.beta": exponent(beta)}, [], [], 1.0)
        for beta in (1.0, 9.0)
    )
    assert all(torch.equal(flat[event], sharp[event]) for event in flat)


# --- what is shared and what is separate -------------------------------------------------------------------------------


def test_values_in_a_matrix_name_make_separate_pools_with_one_exponent():
    program = Program.from_text(":- event(win, 1).\n:- embed(p, 0).\np(a).\np('B b').\nwin :- p(X) :: w(X).\n")
    settings = Settings(dim=1, layers=0, time_dim=1, m=2.0, M=7.0)
    names = wanted(program, settings, [])
    assert {name for name in names if "w(" in name} == {"deduce.w(a).W", "deduce.w('B b').W"}
    assert {name for name in names if "beta" in name} == {"deduce.rule1.beta"}
    parameters = drawn(names)
    parameters["deduce.w(a).W"][:] = 0.3
    parameters["deduce.w('B b').W"][:] = 0.4
    parameters["deduce.rule1.beta"] = exponent(3.0)
    assert top(program, settings, parameters, "win", 1.0) == pytest.approx(math.tanh(0.7), rel=1e-14)


def test_values_in_an_exponents_name_make_separate_pools_with_one_matrix():
    program = Program.from_text(":- event(win, 1).\n:- embed(p, 0).\np(a).\np(b).\nwin : b(X) :- p(X).\n")
    settings = Settings(dim=1, layers=0, time_dim=1, m=2.0, M=7.0)
    names = wanted(program, settings, [])
    assert {name for name in names if "rule1" in name} == {"deduce.rule1.W"}
    assert {name for name in names if "beta" in name} == {"deduce.b(a).beta", "deduce.b(b).beta"}
    parameters = drawn(names)
    parameters["deduce.rule1.W"][:] = 0.3
    assert top(program, settings, parameters, "win", 1.0) == pytest.approx(math.tanh(0.6), rel=1e-14)


def heads(rules: str, names: Sequence[str]) -> float:
    """The attended part of `g` after `e(a)` and `e(b)`, with value 1 and weight 1 (a query of zeros) everywhere."""
    program = Program.from_text(f":- exogenous(e, 0).\n:- event(g, 1).\ng.\n{rules}\n")
    events, times = ["e(a)", "e(b)"], [1.0, 2.0]
    shapes = wanted(program, ONE, events)
    assert {name for name in shapes if name.endswith("V")} == {f"add.{name}.1.V" for name in names}
    parameters = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    for name in names:
        parameters[f"add.{name}.1.V"][:, 0] = 1.0
    return math.atanh(float(embedding(program, ONE, parameters, events, times, ("g",), 3.0, seen=2, layer=1)))


def test_events_of_one_rule_compete_in_one_head():
    assert heads("g <- e(X).", ["rule1"]) == pytest.approx(2 / 3)


def test_values_in_a_matrix_name_make_separate_heads():
    assert heads("g <- e(X) :: w(X).", ["w(a)", "w(b)"]) == pytest.approx(1 / 2 + 1 / 2)


def test_rules_that_share_matrices_keep_their_own_heads():
    assert heads("g <- e(a) :: w.\ng <- e(b) :: w.", ["w"]) == pytest.approx(1 / 2 + 1 / 2)


def test_an_exponents_name_makes_no_heads():
    assert heads("g : b(X) <- e(X).", ["rule1"]) == pytest.approx(2 / 3)


def test_one_event_that_adds_a_fact_in_two_ways_is_attended_twice():
    assert heads(":- embed(p, 0).\np(1).\np(2).\ng <- e(a), p(X).", ["rule1"]) == pytest.approx(2 / 3)


def test_facts_with_one_parameter_name_share_their_vector():
    program = Program.from_text(":- event(p, 1).\np(a) :: same.\np(b) :: same.\np(c).\n")
    parameters = drawn(wanted(program, ONE, []))
    found = intensities(program, ONE, parameters, [], [], 1.0)
    assert found["p", "a"] == found["p", "b"] != found["p", "c"]


def test_rows_of_a_table_have_vectors_named_after_themselves(tmp_path):
    (tmp_path / "t.csv").write_text("who,where\na,New York\nb,c\n", encoding="utf-8")
    program = Program.from_text(':- event(p, 1).\n:- table(p, "t.csv").\n', folder=tmp_path)
    shapes = wanted(program, ONE, [])
    assert shapes == {
        "deduce.p(a,'New York').W": (1, 1),
        "deduce.p(b,c).W": (1, 1),
        "intensity.p.w": (2,),
        "intensity.p.tau": (),
    }
    parameters = drawn(shapes)
    parameters["deduce.p(b,c).W"][:] = 0.3
    found = embedding(program, ONE, parameters, [], [], ("p", "b", "c"), 1.0, seen=0, layer=1)
    assert float(found) == pytest.approx(2.0 * math.tanh(0.3), rel=1e-14)


def test_every_parameter_has_the_shape_that_the_language_page_gives_it():
    program = Program.from_text(
        ":- event(talk, 3).\n:- embed(who, 2).\n:- embed(mood, 4).\n:- key(mood, 5).\n:- exogenous(rain, 1).\n:- exogenous(never).\n"
        "who(x).\nmood.\ntalk(X) :- who(X), mood.\nmood <- talk(X), who(X) :: said(X).\nmood <- rain.\n!mood <- rain.\n"
        "mood <- never.\n"
    )
    settings = Settings(dim=7, layers=2, time_dim=6, m=1.0, M=2.0)
    expected: dict[str, tuple[int, ...]] = {
        "deduce.who(x).W": (2, 1),
        "deduce.mood.W": (4, 1),
        "deduce.rule1.W": (3, 7),
        "deduce.rule1.beta": (),
        "intensity.talk.w": (4,),
        "intensity.talk.tau": (),
    }
    for layer in (1, 2):
        expected |= {f"add.said(x).{layer}.V": (4, 12), f"add.said(x).{layer}.K": (5, 12)}
        expected |= {f"add.rule3.{layer}.V": (4, 8), f"add.rule3.{layer}.K": (5, 8)}
        expected |= {f"add.{name}.{layer}.Q": (5, 11) for name in ("said(x)", "rule3")}
    assert wanted(program, settings, ["talk(x)", "rain"]) == expected


# --- the database through time -----------------------------------------------------------------------------------------

SWITCH = """
:- event(act, 2).
:- exogenous(on, 2).
:- exogenous(off, 0).
act.
act <- on.
!act <- off.
"""


def test_removal_erases_what_was_attended_to_and_leaves_what_is_deduced():
    program = Program.from_text(SWITCH)
    settings = Settings(dim=2, layers=2, time_dim=2, m=1.0, M=9.0)
    parameters = drawn(wanted(program, settings, ["on", "off"]))

    def rate(events: list[str], times: list[float]) -> float:
        return float(intensities(program, settings, parameters, events, times, 4.0)["act",])

    assert rate(["on", "off"], [1.0, 2.0]) == rate([], [])
    assert rate(["on", "off", "on"], [1.0, 2.0, 3.0]) == rate(["on"], [3.0])
    assert rate(["on", "on"], [1.0, 3.0]) != rate(["on"], [3.0])


def test_a_true_exogenous_fact_is_embedded_like_any_other_and_a_false_one_as_zeros():
    program = Program.from_text(":- event(e, 1).\n:- exogenous(x, 2).\ne.\nx(a).\ne <- x(I).\n")
    parameters = drawn(wanted(program, ONE, ["x(a)"]))
    true, false = (embedding(program, ONE, parameters, [], [], ("x", one), 1.0, seen=0, layer=1) for one in ("a", "b"))
    assert torch.equal(true, 2.0 * torch.tanh(parameters["deduce.x(a).W"][:, 0]))
    assert torch.equal(false, torch.zeros(2, dtype=torch.float64))
    by_true, by_false = (intensities(program, ONE, parameters, [event], [1.0], 2.0)["e",] for event in ("x(a)", "x(b)"))
    assert by_true != by_false


def test_undeclared_events_that_are_accepted_fire_rules_and_are_not_scored():
    text = ":- event(e, 1).\ne.\ne <- x.\n"
    accepted = Program.from_text(text, undeclared="exogenous", dim=1)
    declared = Program.from_text(":- exogenous(x).\n" + text)
    parameters = drawn(wanted(declared, ONE, ["x"]))
    assert wanted(accepted, ONE, ["x", "unheard(of)"]) == wanted(declared, ONE, ["x"])
    points = [[(0.5, 1.0)], [(1.5, 1.0)], [(2.5, 1.0)]]
    found = log_likelihood(accepted, ONE, parameters, ["x", "unheard(of)"], [1.0, 2.0], 3.0, points)
    expected = log_likelihood(declared, ONE, parameters, ["x"], [1.0], 3.0, [points[0], points[1] + points[2]])
    assert float(found) == pytest.approx(float(expected), rel=1e-14)


def test_an_event_is_possible_while_it_is_true():
    program = Program.from_text(":- event(e, 1).\n:- exogenous(on).\ne <- on.\n")
    parameters = drawn(wanted(program, ONE, ["on"]))
    assert intensities(program, ONE, parameters, ["on"], [1.0], 1.0) == {}
    assert list(intensities(program, ONE, parameters, ["on"], [1.0], 1.0, seen=1)) == [("e",)]
    assert list(intensities(program, ONE, parameters, ["on"], [1.0], 1.5)) == [("e",)]
    with pytest.raises(ForetellError, match="`e` has no embedding before the first event"):
        embedding(program, ONE, parameters, ["on"], [1.0], ("e",), 1.0, seen=0, layer=1)


def test_events_without_embeddings_have_a_constant_intensity():
    program = Program.from_text(":- embed(_, 0).\n:- event(e, 0).\n:- exogenous(x, 0).\ng.\ne :- g.\ng <- x, g.\n")
    shapes = wanted(program, TWO, ["x"])
    assert shapes["deduce.g.W"] == (0, 1) and shapes["add.rule2.2.Q"] == (0, 2) and shapes["intensity.e.w"] == (1,)
    parameters = drawn(shapes)
    expected = softplus(float(parameters["intensity.e.w"]), float(parameters["intensity.e.tau"]))
    found = intensities(program, TWO, parameters, ["x"], [1.0], 2.0)
    assert float(found["e",]) == pytest.approx(expected, rel=1e-14)


# --- cycles ----------------------------------------------------------------------------------------------------------

ROADS = """
:- event(go, 1).
:- exogenous(build, 0).
:- embed(road, 0).
road(a,b).
road(X,Y) <- build(X,Y).
path(X,Y) :- road(X,Y).
path(X,Z) :- path(X,Y), road(Y,Z).
go :- path(X,Y).
"""


def test_a_cycle_of_proofs_through_embeddings_is_an_error_that_prints_it_once_it_is_there():
    program = Program.from_text(ROADS, "roads.ndtt")
    events, times = ["build(b,a)"], [1.0]
    parameters = drawn(wanted(program, ONE, events))
    assert len(intensities(program, ONE, parameters, events, times, 1.0)) == 1
    with pytest.raises(ForetellError) as caught:
        intensities(program, ONE, parameters, events, times, 2.0)
    message = str(caught.value)
    first, *steps, hint = message.splitlines()
    assert first.startswith("roads.ndtt:8:1: the embedding of `path(") and "after event 1 (`build(b,a)`)" in first
    assert len(steps) == 2 and all(step.endswith("(rule3, roads.ndtt:8:1)") for step in steps)
    (head, body), (again, back) = (step.split(" (")[0].strip().split(" is deduced from ") for step in steps)
    assert (head, body) == (back, again) and head != body
    assert ":- embed(path, 0)." in hint


@pytest.mark.parametrize("embedded", [0, 1])
def test_a_cycle_that_passes_through_a_fact_of_dimension_zero_does_not_matter(embedded: int):
    program = Program.from_text(
        f":- event(e, 1).\n:- embed(q, {embedded}).\n:- embed(p, 1).\np.\nq :- p.\np :- q.\ne :- p.\n"
    )
    parameters = drawn(wanted(program, ONE, []))
    if embedded:
        with pytest.raises(ForetellError, match="p is deduced from q"):
            intensities(program, ONE, parameters, [], [], 1.0)
        return
    inside = float(parameters["deduce.p.W"]) + float(parameters["deduce.rule2.W"])
    found = embedding(program, ONE, parameters, [], [], ("p",), 1.0, seen=0, layer=0)
    assert float(found) == pytest.approx(math.tanh(inside), rel=1e-14)
