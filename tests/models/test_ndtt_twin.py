"""The fast NDTT and S2-NDTT against their twins, on random programs and on small ones that each show one thing: values and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.rules.s2ndtt import S2NDTT
from tests.ground.timelines import event_data
from tests.models.rule_twin import (
    BLOCK,
    check_block,
    check_intensities,
    check_loss,
    slow_intensities,
)
from tests.models.small_programs import ROUND, SMALL, small_s2ndtt
from tests.models.small_programs import small_ndtt as small
from tests.plan.rich_programs import RichCase

QUICK, ALL = 40, 300
RANDOM = pytest.mark.parametrize("make", [RichCase.ndtt, RichCase.s2ndtt], ids=["NDTT", "S2-NDTT"])
BOTH = pytest.mark.parametrize("make", [small, small_s2ndtt], ids=["NDTT", "S2-NDTT"])


@RANDOM
@pytest.mark.parametrize("block", range(QUICK // BLOCK))
def test_intensities_loss_and_gradients_of_random_programs_are_those_of_the_twin(block: int, make: Any):
    check_block(make, block)


@pytest.mark.slow
@RANDOM
@pytest.mark.parametrize("block", range(QUICK // BLOCK, ALL // BLOCK))
def test_intensities_loss_and_gradients_of_all_random_programs_are_those_of_the_twin(block: int, make: Any):
    check_block(make, block)


# --- small programs, each for one thing --------------------------------------------------------------------------------

CELLS = {
    **SMALL,
    "one event has several proposals for one cell, by one rule and by several": (
        ":- event(g). :- embed(p, 2). :- embed(q, 3).\np(a). p(b). p(c). q.\ng :- q.\n"
        "q <- g, p(X).\nq <- g.\nq : b(X) <- g, p(X) :: v(X).\n",
        ["g", "g", "g"],
    ),
    "a cell is moved by embeddings of other cells": (
        ":- event(g). :- event(h). :- embed(p, 2). :- embed(q, 3).\np. q. g :- p. h :- q, p.\np <- g, q. q <- h, p. q <- g. p <- h.\n",
        ["g", "h", "h", "g", "g", "h"],
    ),
    "a removed fact that is deduced goes on without its cell": (
        ":- event(g). :- event(off). :- embed(q, 2).\nq. off. g :- q.\nq <- g. !q <- off.\n",
        ["g", "g", "off", "g", "off", "off", "g"],
    ),
    "`bos` moves cells": (
        ":- event(g). :- embed(p, 2). :- embed(q, 1).\np(a). p(b). g :- q(X).\nq(X) <- bos, p(X). q(X) <- g, q(X). q(c) <- bos.\n",
        ["g", "g"],
    ),
    "exogenous events that are no facts propose from zeros": (
        ":- event(g). :- exogenous(e, 2).\ng.\ng <- e, g.\n",
        ["e", "g", "e"],
    ),
}


@BOTH
@pytest.mark.parametrize("what", CELLS)
def test_small_programs_agree_with_the_twin(what: str, make: Any):
    text, *sequences = CELLS[what]
    model, data = make(text, *sequences, [], sequences[0][:1])
    check_intensities(model, data, 1)
    check_loss(model, data, 2)


@BOTH
@pytest.mark.parametrize("what", CELLS)
def test_every_name_stands_for_one_parameter(what: str, make: Any):
    model, _ = make(CELLS[what][0], *CELLS[what][1:])
    numbers = sum(array.numel() for array in model.named_arrays().values())
    assert numbers == sum(parameter.numel() for parameter in model.parameters())


def test_gates_that_change_nothing_have_decays_that_count_the_same():
    model, data = small(
        CELLS["one event has several proposals for one cell, by one rule and by several"][0], ["g", "g"]
    )
    with torch.no_grad():
        for name, stack in model.network.stacks.items():
            if name.startswith("add_") and name.endswith("_G"):
                stack[:, 6:9] = 0.0  # candidates of the three coordinates of `q`: the cell stays at zero
        model.network.stacks["beta_beta"].zero_()  # a pool of zeros has a slope where it is a plain sum
    check_intensities(model, data, 1)
    check_loss(model, data, 2)


def test_an_exponents_name_on_an_addition_makes_pools():
    text = ":- event(g). :- embed(p, 1).\np(a). p(b).\ng.\ng{} <- g, p(X).\n"
    one, data = small(text.format(""), ["g", "g"])
    two, _ = small(text.format(" : b(X)"), ["g", "g"])
    names = {name for name in two.named_arrays() if name.startswith("add.b")}
    assert names == {"add.b(a).beta", "add.b(b).beta"}
    arrays = {name: array for name, array in one.named_arrays().items() if name != "add.rule1.beta"}
    two.load_named_arrays(arrays | {name: torch.tensor(3.0, dtype=torch.float64) for name in names})
    apart = two.intensity(data[0], [2.0])
    one.load_named_arrays(arrays | {"add.rule1.beta": torch.tensor(1.0, dtype=torch.float64)})
    torch.testing.assert_close(one.intensity(data[0], [2.0]), apart, rtol=1e-12, atol=1e-12)  # pools of one are sums
    one.load_named_arrays(arrays | {"add.rule1.beta": torch.tensor(3.0, dtype=torch.float64)})
    assert abs(one.intensity(data[0], [2.0]) - apart).max() > 1e-6


def test_an_embedding_that_needs_itself_is_refused_in_the_words_of_the_twin():
    model, data = small(ROUND, ["e", "link(b,b)", "e"])
    with pytest.raises(ForetellError) as fast:
        model.intensity(data[0], [2.4])
    with pytest.raises(ForetellError) as slow:
        slow_intensities(model, data, 0, 2.4)
    assert str(fast.value) == str(slow.value)
    assert "the embedding of `near(b,b)` needs itself after event 2 (`link(b,b)`)" in str(fast.value)


def test_a_fresh_s2ndtt_has_decays_over_the_time_scales_of_its_gaps():
    data = event_data(["g", "g"])
    model = S2NDTT(Program.from_text(":- event(g).\ng.\ng <- g.\n", dim=4), data.vocabulary, dim=4, states=3)
    arrays = model.named_arrays()
    decay = arrays["state.g.1.decay"]
    torch.testing.assert_close(decay, torch.tensor([0.05, math.sqrt(0.4), 8.0]), rtol=1e-6, atol=0.0)
    torch.testing.assert_close(arrays["state.g.1.frequency"], 0.5 * decay)
