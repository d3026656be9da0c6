"""The slow models of rules, A-NDTT and NDTT: what holds for both, whatever they keep of the past."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.reference import andtt, ndtt
from tests.ground.random_programs import random_case
from tests.reference.parameters import drawn


@dataclass(frozen=True)
class Slow:
    name: str
    model: Any  # the module
    one: Any  # its settings, in one dimension
    two: Any  # and in two
    embedding: Any  # of the top layer
    unequal: str  # a condition of the program of talk
    idle: frozenset[str]  # what then has no slope


BOTH = [
    Slow(
        "A-NDTT",
        andtt,
        andtt.Settings(dim=1, layers=1, time_dim=1, m=2.0, M=7.0),
        andtt.Settings(dim=2, layers=2, time_dim=3, m=0.3, M=8.0),
        partial(andtt.embedding, layer=1),
        ", X != Y",
        frozenset({"deduce.rule1.beta"}),  # nobody says anything for two reasons
    ),
    Slow(
        "NDTT",
        ndtt,
        ndtt.Settings(dim=1),
        ndtt.Settings(dim=2, time_scale=0.7),
        ndtt.embedding,
        "",
        frozenset({"deduce.rule1.beta", "add.rule5.beta"}),  # nor does it rain twice
    ),
]


@pytest.fixture(params=BOTH, ids=lambda slow: slow.name)
def slow(request: pytest.FixtureRequest) -> Slow:
    return request.param


def test_an_impossible_event_fires_rules_and_is_not_scored(slow: Slow):
    program = Program.from_text(":- event(e, 1).\n:- exogenous(on).\ne <- on.\ne <- e.\n")
    parameters = drawn(slow.model.wanted(program, slow.one, ["e"]))
    found = slow.model.log_likelihood(program, slow.one, parameters, ["e"], [1.0], 2.0, [[(0.5, 1.0)], [(1.5, 1.0)]])
    assert float(found) == -float(slow.model.intensities(program, slow.one, parameters, ["e"], [1.0], 1.5)["e",])
    with pytest.raises(ForetellError, match="`e` has no embedding before the first event"):
        slow.embedding(program, slow.one, parameters, ["on"], [1.0], ("e",), 1.0, seen=0)


def test_a_fact_that_is_deduced_from_itself_is_a_cycle(slow: Slow):
    program = Program.from_text(":- event(e, 1).\ne.\ne :- e.\n")
    parameters = drawn(slow.model.wanted(program, slow.one, []))
    with pytest.raises(ForetellError, match=r"e is deduced from e \(rule1"):
        slow.model.intensities(program, slow.one, parameters, [], [], 1.0)


def test_slopes_of_the_likelihood_are_its_finite_differences(slow: Slow):
    program = Program.from_text(
        ":- event(say, 2).\n:- embed(who, 1).\n:- exogenous(rain, 1).\nwho(a).\nwho(b).\nsay(X) :- who(X), mood.\n"
        f"mood :- who(X).\nmood <- say(X), who(Y){slow.unequal} :: w(X).\n!mood <- rain.\nmood <- rain.\n"
    )
    events, times = ["say(a)", "rain", "say(b)", "say(b)"], [0.5, 1.0, 1.0, 2.5]
    points = [[(0.2, 0.5)], [(0.7, 0.5)], [], [(1.5, 1.0), (2.4, 0.5)], [(3.0, 1.5)]]
    start = drawn(slow.model.wanted(program, slow.two, events), 3)

    def value(*tensors: Tensor) -> Tensor:
        parameters = dict(zip(start, tensors, strict=True))
        return slow.model.log_likelihood(program, slow.two, parameters, events, times, 4.0, points)

    assert torch.autograd.gradcheck(value, tuple(one.requires_grad_() for one in start.values()), fast_mode=True)
    slopes = torch.autograd.grad(value(*start.values()), list(start.values()), allow_unused=True)
    idle = {name for name, slope in zip(start, slopes, strict=True) if slope is None or not slope.any()}
    assert idle == slow.idle


def random_likelihood(slow: Slow, seed: int) -> tuple[Tensor, list[Tensor]]:
    """The value on a random program with random parameters, and its slopes."""
    case = random_case(seed, length=5)
    times = [0.5 * (index + index % 2) for index in range(len(case.events))]  # 0, 1, 1, 2, 2, …: with ties
    t_end = len(case.events) / 2 + 1.0
    points = [[((a + b) / 2, b - a)] if b > a else [] for a, b in pairwise([0.0, *times, t_end])]
    start = drawn(slow.model.wanted(case.program, slow.two, case.events), seed)
    parameters = {name: one.requires_grad_() for name, one in start.items()}
    value = slow.model.log_likelihood(case.program, slow.two, parameters, case.events, times, t_end, points)
    if not value.requires_grad:  # nothing was ever possible
        return value, []
    slopes = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    return value, [slope for slope in slopes if slope is not None]


def test_random_programs_have_a_finite_likelihood_with_finite_slopes_or_a_cycle(slow: Slow):
    ran = cyclic = seed = 0
    while ran < 30:
        try:
            value, slopes = random_likelihood(slow, seed)
        except ForetellError as error:
            assert "needs itself" in str(error), seed
            cyclic += 1
        else:
            assert torch.isfinite(value) and all(torch.isfinite(slope).all() for slope in slopes), seed
            ran += bool(slopes)
        seed += 1
    assert 0 < cyclic < seed / 2


def test_what_happens_later_changes_nothing(slow: Slow):
    checked = 0
    for seed in range(8):
        case = random_case(seed)
        times = [float(index) for index in range(len(case.events))]
        parameters = drawn(slow.model.wanted(case.program, slow.two, case.events), seed)
        half, asked = len(times) // 2, len(times) // 2 - 0.5
        try:
            whole = slow.model.intensities(case.program, slow.two, parameters, case.events, times, asked)
        except ForetellError:
            continue
        part = slow.model.intensities(case.program, slow.two, parameters, case.events[:half], times[:half], asked)
        assert whole == part
        checked += bool(whole)
    assert checked >= 3
