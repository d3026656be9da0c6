"""The slow S2-NDTT by hand: what a state starts from, how it moves, and what is deduced has to do with it."""

from __future__ import annotations

import cmath
import math

import pytest
import torch

from foretell.lang.program import Program
from foretell.reference import ndtt
from foretell.reference.s2ndtt import Settings

# `q` is deduced from `p`, and added by `g` and by `h`.
TEXT = ":- event(g, 1). :- event(h, 1). :- embed(p, 1). :- embed(q, 1).\np. q :- p.\ng :- q. h :- q.\nq <- g. q <- h.\n"
PROGRAM = Program.from_text(TEXT, dim=1)
SETTINGS = Settings(dim=1, time_scale=2.0, layers=1, states=1)
DEDUCED = 0.5 * math.tanh(0.3) + 0.1  # for `q`


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def parameters() -> dict[str, torch.Tensor]:
    found = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in wanted().items()}
    found |= {name: torch.ones((), dtype=torch.float64) for name in found if name.endswith((".beta", ".tau"))}
    found["deduce.p.W"] = numbers(0.3).view(1, 1)
    found["deduce.rule1.W"] = numbers(0.1, 0.5).view(1, 2)
    found["add.rule4.G"][:, 0] = numbers(0.7, -0.2, 0.4)
    found["add.rule5.G"][:, 0] = numbers(0.7, -0.2, -1.0)  # the same jump, and a smaller step
    found |= {"state.q.1.decay": numbers(0.8), "state.q.1.frequency": numbers(1.5), "state.q.1.step_bias": numbers(0.2)}
    found |= {"state.q.1.B": numbers(0.6, 0.3).view(1, 1, 2), "state.q.1.C": numbers(0.9, -0.4).view(1, 1, 2)}
    return found


def wanted() -> dict[str, tuple[int, ...]]:
    return ndtt.wanted(PROGRAM, SETTINGS, ["g", "h"])


def embedding(events: list[str], times: list[float], at: float) -> float:
    return float(ndtt.embedding(PROGRAM, SETTINGS, parameters(), events, times, ("q",), at, len(events)))


def turned(step: float, elapsed: float) -> complex:
    return cmath.exp(complex(-0.8, 1.5) * math.log1p(math.exp(0.2 + step)) * elapsed / 2.0)


def read(x: complex) -> float:
    return math.tanh(DEDUCED + 2.0 * (complex(0.9, -0.4) * x).real)


def test_a_fact_that_was_never_added_has_what_is_deduced():
    assert embedding([], [], 3.0) == pytest.approx(math.tanh(DEDUCED), abs=1e-14)


def test_a_state_starts_at_its_first_jump_and_takes_in_what_is_deduced_from_then_on():
    jump, pushed = complex(0.7, -0.2), complex(0.6, 0.3) * DEDUCED
    g = turned(0.4, 1.3)
    assert embedding(["g"], [1.0], 2.3) == pytest.approx(read(g * jump + (g - 1.0) * pushed), abs=1e-14)
    again = turned(0.4, 0.5)
    x = again * (g * jump + (g - 1.0) * pushed + jump) + (again - 1.0) * pushed
    assert embedding(["g", "g"], [1.0, 2.3], 2.8) == pytest.approx(read(x), abs=1e-14)


def test_a_state_relaxes_to_what_is_deduced():
    assert embedding(["g"], [1.0], 1e3) == pytest.approx(read(-complex(0.6, 0.3) * DEDUCED), abs=1e-12)


def test_an_addition_says_how_fast_the_state_moves():
    jump, pushed = complex(0.7, -0.2), complex(0.6, 0.3) * DEDUCED
    slow = turned(-1.0, 1.3)
    assert embedding(["h"], [1.0], 2.3) == pytest.approx(read(slow * jump + (slow - 1.0) * pushed), abs=1e-14)


def test_parameters_of_states_are_a_functors_own():
    assert {name for name in wanted() if name.startswith("state.")} == {
        f"state.q.1.{name}" for name in ("decay", "frequency", "B", "C", "step_bias")
    }
