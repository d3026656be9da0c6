"""The slow NDTT, against numbers worked out by hand and the laws of docs/explanation/rivals.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from foretell.lang.program import Program
from foretell.reference.ndtt import (
    Cell,
    Settings,
    cells,
    embedding,
    harmonic_mean,
    intensities,
    log_likelihood,
    wanted,
)
from foretell.reference.ruled import pool
from tests.reference.parameters import drawn, softplus

ONE = Settings(dim=1)


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def numbers(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- by hand ---------------------------------------------------------------------------------------------------------

WEATHER = """
:- event(act, 1).
:- exogenous(rain, 2).
:- embed(hot, 1).
hot.
act.
act <- act.
act <- rain, hot.
"""
GATES = [[0.1, 0.2], [0.3, -0.4], [0.9, 0.6], [-0.7, 0.8], [0.5, 1.0], [0.2, -0.3]]  # of rule1: [1; act]
# Of rule2, [1; rain; hot]: `rain` is no true fact, so that zeros meet the nines.
RAIN_GATES = [
    [0.4, 9, 9, 0.1],
    [-0.2, 9, 9, 0.3],
    [-1.1, 9, 9, 0.5],
    [0.6, 9, 9, -0.4],
    [0.8, 9, 9, 0.2],
    [-0.5, 9, 9, 0.7],
]
WEATHER_PARAMETERS = {
    "deduce.hot.W": numbers([[0.6]]),
    "deduce.act.W": numbers([[-0.4]]),
    "add.rule1.G": numbers(GATES),
    "add.rule1.beta": numbers(2.0),
    "add.rule2.G": numbers(RAIN_GATES),
    "add.rule2.beta": numbers(3.0),
    "intensity.act.w": numbers([0.2, 1.3]),
    "intensity.act.tau": numbers(0.9),
}


class ByHand:
    """The cell of `act`, step by step, in plain floats."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.c = self.target = self.decay = self.since = 0.0

    def cell(self, t: float) -> float:
        return self.target + (self.c - self.target) * math.exp(-self.decay * (t - self.since) / self.scale)

    def emb(self, t: float) -> float:
        return math.tanh(-0.4 + self.cell(t))

    def update(self, s: float, sums: Sequence[float]) -> None:
        """Of one instantiation alone: the proposal is the new cell, and its decay the new decay."""
        i, f, z, i_target, f_target, decay = sums
        now = self.cell(s)
        self.c = sigmoid(f) * now + sigmoid(i) * math.tanh(z)
        self.target = sigmoid(f_target) * self.target + sigmoid(i_target) * math.tanh(z)
        self.decay, self.since = softplus(decay), s

    def act(self, s: float) -> None:
        self.update(s, [a + b * self.emb(s) for a, b in GATES])

    def rain(self, s: float) -> None:
        self.update(s, [row[0] + row[3] * math.tanh(0.6) for row in RAIN_GATES])

    def rate(self, t: float) -> float:
        return softplus(0.2 + 1.3 * self.emb(t), 0.9)


@pytest.mark.parametrize("scale", [1.0, 2.5])
@pytest.mark.parametrize("second", [2.5, 1.0])
def test_cells_of_a_true_event_and_of_an_exogenous_one_that_is_no_fact_by_hand(scale: float, second: float):
    by_hand = ByHand(scale)
    by_hand.act(1.0)
    by_hand.rain(second)
    by_hand.act(3.0)
    found = intensities(
        Program.from_text(WEATHER),
        Settings(dim=1, time_scale=scale),
        WEATHER_PARAMETERS,
        ["act", "rain", "act"],
        [1.0, second, 3.0],
        at=4.0,
    )
    assert float(found["act",]) == pytest.approx(by_hand.rate(4.0), rel=1e-13)


def test_events_at_one_time_update_in_the_order_of_the_file():
    program = Program.from_text(WEATHER)
    one, other = ByHand(), ByHand()
    one.act(1.0)
    one.rain(1.0)
    other.rain(1.0)
    other.act(1.0)
    for names, by_hand in ((["act", "rain"], one), (["rain", "act"], other)):
        found = intensities(program, ONE, WEATHER_PARAMETERS, names, [1.0, 1.0], at=1.5)["act",]
        assert float(found) == pytest.approx(by_hand.rate(1.5), rel=1e-13)
    assert one.rate(1.5) != pytest.approx(other.rate(1.5), rel=1e-6)


def test_the_likelihood_scores_declared_events_alone_and_each_gap_sees_its_own_past():
    events, times = ["act", "rain"], [1.0, 2.5]
    points = [[(0.25, 0.5), (1.0, 0.5)], [(1.0, 0.75), (2.5, 0.75)], [(2.5, 1.0), (3.5, 0.25)]]
    by_hand = ByHand()
    expected = math.log(by_hand.rate(1.0)) - 0.5 * (by_hand.rate(0.25) + by_hand.rate(1.0))
    by_hand.act(1.0)
    expected -= 0.75 * (by_hand.rate(1.0) + by_hand.rate(2.5))
    by_hand.rain(2.5)
    expected -= by_hand.rate(2.5) + 0.25 * by_hand.rate(3.5)
    found = log_likelihood(Program.from_text(WEATHER), ONE, WEATHER_PARAMETERS, events, times, 4.0, points)
    assert float(found) == pytest.approx(expected, rel=1e-13)


CROWD = """
:- event(e, 0).
:- embed(p, 1).
:- event(h, 1).
e(a).
p(x). p(y). p(z).
h.
h <- e(X), p(Y).
h <- e(X).
"""


def crowd(beta: float) -> dict[str, Tensor]:
    parameters = drawn(wanted(Program.from_text(CROWD), ONE, ["e(a)"]), seed=5)
    return parameters | {"add.rule1.beta": numbers(beta)}


@pytest.mark.parametrize("beta", [1.0, 1.7, 6.0])
def test_differences_are_pooled_within_a_rule_and_summed_over_rules_by_hand(beta: float):
    """Two events, so that the second finds a cell that is neither new nor at rest."""
    program, parameters = Program.from_text(CROWD), crowd(beta)
    people = [math.tanh(float(parameters[f"deduce.p({one}).W"])) for one in "xyz"]
    c = target = decay = since = 0.0
    for s in (0.5, 2.0):
        now = target + (c - target) * math.exp(-decay * (s - since))
        proposals: list[tuple[float, float, float]] = []
        by_rule = [("rule1", [[1.0, one] for one in people]), ("rule2", [[1.0]])]
        new_c, new_target = now, target
        for rule, columns in by_rule:
            own = []
            for column in columns:
                i, f, z, i2, f2, d = (parameters[f"add.{rule}.G"] @ numbers(column)).tolist()
                z = math.tanh(z)
                own.append(
                    (
                        sigmoid(f) * now + sigmoid(i) * z - now,
                        sigmoid(f2) * target + sigmoid(i2) * z - target,
                        softplus(d),
                    )
                )
            exponent = parameters[f"add.{rule}.beta"]
            new_c += float(pool([numbers(one[0]) for one in own], exponent))
            new_target += float(pool([numbers(one[1]) for one in own], exponent))
            proposals += own
        weights = [abs(now - target) + abs(one[0]) + abs(one[1]) for one in proposals]
        decay = sum(weights) / sum(w / one[2] for w, one in zip(weights, proposals, strict=True))
        c, target, since = new_c, new_target, s
    found = cells(program, ONE, parameters, ["e(a)", "e(a)"], [0.5, 2.0], seen=2)["h",]
    assert [float(one) for one in (found.c, found.target, found.decay)] == pytest.approx([c, target, decay], rel=1e-12)
    assert found.since == 2.0


def test_a_decay_is_the_harmonic_mean_with_equal_weights_where_all_are_zero():
    values, weights = [numbers([2.0, 2.0]), numbers([6.0, 6.0])], [numbers([0.0, 1.0]), numbers([0.0, 0.0])]
    assert harmonic_mean(values, weights).tolist() == pytest.approx([3.0, 2.0], rel=1e-15)


def test_bos_updates_at_time_zero_and_has_no_embedding():
    program = Program.from_text(":- event(e, 1).\n:- embed(g, 1).\ng.\ne <- bos, g.\n")
    parameters = drawn(wanted(program, ONE, []))
    assert parameters["add.rule1.G"].shape == (6, 2)
    i, _, z, i2, _, decay = (
        parameters["add.rule1.G"] @ torch.cat([numbers([1.0]), torch.tanh(parameters["deduce.g.W"][0])])
    ).tolist()
    c, target = sigmoid(i) * math.tanh(z), sigmoid(i2) * math.tanh(z)
    expected = math.tanh(target + (c - target) * math.exp(-3.0 * softplus(decay)))
    found = embedding(program, ONE, parameters, [], [], ("e",), 3.0, seen=0)
    assert float(found) == pytest.approx(expected, rel=1e-13)


def test_the_fact_itself_is_embedded_as_it_was_just_before_the_event():
    """`h <- e, h`: at the second event the input is the cell that the first one left, decayed until then."""
    program = Program.from_text(":- event(e, 0).\n:- event(h, 1).\ne.\nh.\nh <- e, h.\n")
    parameters = drawn(wanted(program, ONE, ["e"]), seed=2)
    before = embedding(program, ONE, parameters, ["e"], [1.0], ("h",), 2.0, seen=1)
    old = cells(program, ONE, parameters, ["e"], [1.0], seen=1)["h",]
    gates = parameters["add.rule1.G"] @ torch.cat([numbers([1.0]), before])
    now = float(old.target + (old.c - old.target) * torch.exp(-old.decay))
    found = cells(program, ONE, parameters, ["e", "e"], [1.0, 2.0], seen=2)["h",]
    i, f, z = gates[:3].tolist()
    assert float(found.c) == pytest.approx(sigmoid(f) * now + sigmoid(i) * math.tanh(z), rel=1e-13)


# --- what is shared and what is separate -------------------------------------------------------------------------------


def moved(rules: str, names: Sequence[str], exponents: Sequence[str]) -> float:
    """How far the new cell of `g` moves in units of one proposal, after `e(a)` that fires for `p(1)` and `p(2)`; β is 2."""
    program = Program.from_text(f":- exogenous(e, 0).\n:- event(g, 1).\n:- embed(p, 0).\np(1).\np(2).\ng.\n{rules}\n")
    shapes = wanted(program, ONE, ["e(a)"])
    assert {name for name in shapes if name.endswith("G")} == {f"add.{name}.G" for name in names}
    assert {name for name in shapes if name.startswith("add") and name.endswith("beta")} == {
        f"add.{name}.beta" for name in exponents
    }
    parameters = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    for name in names:
        parameters[f"add.{name}.G"][2] = math.atanh(0.2)  # the input gate is open by half
    for name in exponents:
        parameters[f"add.{name}.beta"] = numbers(2.0)
    return float(cells(program, ONE, parameters, ["e(a)"], [1.0], seen=1)["g",].c) / 0.1


def test_instantiations_of_one_rule_are_in_one_pool():
    assert moved("g <- e(X), p(Y).", ["rule1"], ["rule1"]) == pytest.approx(math.sqrt(2.0))


def test_values_in_a_matrix_name_make_separate_pools_with_one_exponent():
    assert moved("g <- e(X), p(Y) :: w(Y).", ["w(1)", "w(2)"], ["rule1"]) == pytest.approx(2.0)


def test_values_in_an_exponents_name_make_separate_pools_with_one_matrix():
    assert moved("g : b(Y) <- e(X), p(Y).", ["rule1"], ["b(1)", "b(2)"]) == pytest.approx(2.0)


def test_rules_that_share_a_matrix_and_an_exponent_keep_their_own_pools():
    assert moved("g : b <- e(X), p(1) :: w.\ng : b <- e(X), p(2) :: w.", ["w"], ["b"]) == pytest.approx(2.0)


def test_a_deduction_and_an_addition_with_one_name_share_nothing():
    program = Program.from_text(":- event(e, 1).\n:- embed(g, 1).\ng.\ne : b :- g :: w.\ne : b <- e :: w.\n")
    assert set(wanted(program, ONE, ["e"])) == {
        "deduce.g.W",
        "deduce.w.W",
        "deduce.b.beta",
        "add.w.G",
        "add.b.beta",
        "intensity.e.w",
        "intensity.e.tau",
    }


def test_every_parameter_has_the_shape_that_its_name_promises():
    program = Program.from_text(
        ":- event(talk, 3).\n:- embed(who, 2).\n:- embed(mood, 4).\n:- exogenous(rain, 1).\n:- exogenous(never).\n"
        "who(x).\nmood.\ntalk(X) :- who(X), mood.\nmood <- talk(X), who(X) :: said(X).\nmood <- rain.\n!mood <- rain.\n"
        "mood <- never.\n"
    )
    assert wanted(program, Settings(dim=7), ["talk(x)", "rain"]) == {
        "add.rule2.beta": (),
        "add.rule3.G": (24, 2),
        "add.rule3.beta": (),
        "add.said(x).G": (24, 6),
        "deduce.who(x).W": (2, 1),
        "deduce.mood.W": (4, 1),
        "deduce.rule1.W": (3, 7),
        "deduce.rule1.beta": (),
        "intensity.talk.tau": (),
        "intensity.talk.w": (4,),
    }


# --- the database through time -----------------------------------------------------------------------------------------

SWITCH = """
:- event(act, 2).
:- exogenous(on, 2).
:- exogenous(off, 0).
:- exogenous(again, 0).
act.
act <- on.
act <- again.
!act <- off.
!act <- again.
"""


def test_removal_destroys_the_cell_and_leaves_what_is_deduced():
    program, settings = Program.from_text(SWITCH), Settings(dim=2)
    parameters = drawn(wanted(program, settings, ["on", "off", "again"]) | wanted(program, settings, ["on", "on"]))

    def rate(events: list[str], times: list[float]) -> float:
        return float(intensities(program, settings, parameters, events, times, 4.0)["act",])

    assert rate(["on", "off"], [1.0, 2.0]) == rate([], [])
    assert cells(program, settings, parameters, ["on", "off"], [1.0, 2.0], seen=2) == {}
    assert rate(["on", "off", "on"], [1.0, 2.0, 3.0]) == rate(["on"], [3.0])
    assert rate(["on", "on"], [1.0, 3.0]) != rate(["on"], [3.0])


def test_an_event_that_removes_and_adds_starts_the_cell_anew():
    program, settings = Program.from_text(SWITCH), Settings(dim=2)
    parameters = drawn(wanted(program, settings, ["on", "again"]))
    seen = [
        cells(program, settings, parameters, events, times, len(events))["act",]
        for events, times in ((["on", "on", "again"], [1.0, 1.5, 3.0]), (["again"], [3.0]))
    ]
    assert _same(*seen)


def _same(one: Cell, other: Cell) -> bool:
    return one.since == other.since and all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in ("c", "target", "decay")
    )


def test_a_cell_drifts_from_its_value_to_its_target():
    program, settings = Program.from_text(SWITCH), Settings(dim=2)
    parameters = drawn(wanted(program, settings, ["on"]))
    cell = cells(program, settings, parameters, ["on"], [1.0], seen=1)["act",]
    own = parameters["deduce.act.W"][:, 0]
    for time, inside in ((1.0, cell.c), (1e6, cell.target)):
        found = embedding(program, settings, parameters, ["on"], [1.0], ("act",), time, seen=1)
        torch.testing.assert_close(found, torch.tanh(own + inside), rtol=1e-13, atol=0.0)


def test_units_of_time_go_with_the_scale():
    """Times and scale ten times as large: the same embeddings, and so the same intensities for the same `w` and `τ`."""
    program = Program.from_text(WEATHER)
    events, times = ["act", "rain", "act"], [1.0, 2.5, 3.0]
    one = intensities(program, ONE, WEATHER_PARAMETERS, events, times, 4.0)["act",]
    other = intensities(
        program, Settings(dim=1, time_scale=10.0), WEATHER_PARAMETERS, events, [10.0 * time for time in times], 40.0
    )["act",]
    assert float(one) == pytest.approx(float(other), rel=1e-13)


def test_a_true_exogenous_fact_is_embedded_like_any_other_and_a_false_one_as_zeros():
    program = Program.from_text(":- event(e, 1).\n:- exogenous(x, 2).\ne.\nx(a).\ne <- x(I).\n")
    parameters = drawn(wanted(program, ONE, ["x(a)"]))
    true, false = (embedding(program, ONE, parameters, [], [], ("x", one), 1.0, seen=0) for one in ("a", "b"))
    assert torch.equal(true, torch.tanh(parameters["deduce.x(a).W"][:, 0]))
    assert torch.equal(false, torch.zeros(2, dtype=torch.float64))
    by_true, by_false = (intensities(program, ONE, parameters, [event], [1.0], 2.0)["e",] for event in ("x(a)", "x(b)"))
    assert by_true != by_false


def test_events_without_embeddings_have_a_constant_intensity():
    program = Program.from_text(":- embed(_, 0).\n:- event(e, 0).\n:- exogenous(x, 0).\ng.\ne :- g.\ng <- x, g.\n")
    shapes = wanted(program, ONE, ["x"])
    assert shapes["deduce.g.W"] == (0, 1) and shapes["add.rule2.G"] == (0, 1) and shapes["intensity.e.w"] == (1,)
    parameters = drawn(shapes)
    expected = softplus(float(parameters["intensity.e.w"]), float(parameters["intensity.e.tau"]))
    assert float(intensities(program, ONE, parameters, ["x"], [1.0], 2.0)["e",]) == pytest.approx(expected, rel=1e-14)
