"""Models of rules whose additions expire against their slow twins, on random programs and on small ones: values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from foretell.batches.batch import Queries
from foretell.data import EventData
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.objective.loglik import log_likelihood, quadrature
from tests.asking import state_at
from tests.ground.test_expiry import data_of
from tests.models.rule_twin import BLOCK, check_block, check_intensities, check_loss
from tests.plan.rich_programs import RichCase, rich_case
from tests.samples import randomise_rules

QUICK, ALL = 20, 300
MAKE = {"andtt": RichCase.model, "ndtt": RichCase.ndtt, "s2ndtt": RichCase.s2ndtt}
SMALL = """:- event(buy, 2). :- event(look, 1). :- exogenous(login). :- exogenous(logout). :- embed(session, 2). :- embed(user, 1).
user(u; v).
buy(U) :- session(U).
look(U) :- user(U).
session(U) <- login(U) for 2.
session(U) <- look(U), session(U) for 1.5 :: w.
session(U) <- buy(U) for 4.
!session(U) <- logout(U).
"""
EVENTS = ["login(u)", "look(u)", "login(v)", "buy(v)", "look(u)", "logout(v)", "look(v)", "login(u)", "buy(u)"]
TIMES = [0.5, 1.5, 1.5, 2.0, 3.0, 4.0, 5.5, 6.0, 8.0]  # the session of u ends at 3, and buy(u) happens at its very end


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("block", range(QUICK // BLOCK))
def test_intensities_loss_and_gradients_with_expiry_are_those_of_the_twin(kind: str, block: int) -> None:
    check_block(MAKE[kind], block, expiry=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("block", range(QUICK // BLOCK, ALL // BLOCK))
def test_all_random_programs_with_expiry_are_those_of_the_twin(kind: str, block: int) -> None:
    check_block(MAKE[kind], block, expiry=True)


def test_the_random_programs_expire() -> None:
    cases = [rich_case(seed, True) for seed in range(QUICK)]
    assert sum(" for " in case.text for case in cases) > QUICK // 2
    assert (
        sum(case.model().histories.timeline(case.vocabulary, case.data[0])[1].is_expiry.any() for case in cases)
        > QUICK // 3
    )


def small(kind: type[RuleModel], t_end: float = 11.0) -> tuple[RuleModel, EventData]:
    """With random parameters."""
    data = data_of((EVENTS, TIMES, t_end), (EVENTS[:3], TIMES[:3], t_end), ([], [], 1.0))
    make: Callable[..., RuleModel] = kind
    plain = {"intensity_scales": 0, "intensity_shape": 0}
    model = make(Program.from_text(SMALL, dim=2), data.vocabulary, dim=2, dtype=torch.float64, **plain)
    model.ground(data)
    model.time_scale = 0.8
    return randomise_rules(model, 8), data


@pytest.mark.parametrize("kind", [ANDTT, NDTT, S2NDTT])
def test_a_small_program_with_expiry_agrees_with_the_twin(kind: type[RuleModel]) -> None:
    model, data = small(kind)
    check_intensities(model, data, 1)
    check_loss(model, data, 2)


@pytest.mark.parametrize("kind", [ANDTT, NDTT, S2NDTT])
def test_gaps_are_cut_where_additions_end_so_that_quadrature_settles(kind: type[RuleModel]) -> None:
    model, data = small(kind)
    batch = model.collator.batch(data, range(len(data)), unscored=model.unscored)
    few, many = (log_likelihood(model, batch, quadrature(batch, nodes)).log_likelihood() for nodes in (12, 24))
    torch.testing.assert_close(few, many, rtol=1e-7, atol=1e-7)
    assert float(batch.gap_length[0].sum()) == pytest.approx(11.0)
    assert int(batch.scored.sum()) == 6 and batch.times.shape[1] > len(EVENTS)


@pytest.mark.parametrize("kind", [ANDTT, NDTT, S2NDTT])
def test_an_event_at_the_very_end_sees_the_addition_and_a_later_one_does_not(kind: type[RuleModel]) -> None:
    data = data_of((["login(u)"], [1.0], 9.0))
    made: Callable[..., RuleModel] = kind
    model = made(Program.from_text(SMALL, dim=2), data.vocabulary, dim=2, dtype=torch.float64)
    model.ground(data)
    names = [sorted(one) for one in model.possible_intensities(data[0], [1.0, 1.5, 3.0, 3.0000001, 20.0])]
    with_buy = ["buy(u)", "look(u)", "look(v)"]
    assert names == [["look(u)", "look(v)"], with_buy, with_buy, ["look(u)", "look(v)"], ["look(u)", "look(v)"]]


def test_queries_of_one_batch_and_alone_are_the_same() -> None:
    model, data = small(ANDTT)
    times = torch.tensor([[0.2, 2.9, 3.0, 3.1, 9.9]] * len(data), dtype=torch.float64)
    batch = model.collator.batch(data, range(len(data)), width=13)
    together = model.intensities(state_at(model, batch, Queries.at_times(batch, times.clamp(max=batch.t_end[:, None]))))
    for row, one in enumerate(data):
        alone = model.intensity(one, times[row].clamp(max=one.t_end).numpy())
        torch.testing.assert_close(together[row].detach(), torch.from_numpy(alone))
