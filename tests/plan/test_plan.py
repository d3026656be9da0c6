"""Plans: sizes, several sequences in one, and programs in which there is hardly anything to compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.batches.batch import Queries
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.objective.loglik import log_likelihood, quadrature, stratified, training_loss
from tests.asking import state_at
from tests.ground.timelines import event_data
from tests.plan.plans import plan_of
from tests.samples import randomise

TALK = """
:- event(say). :- exogenous(rain, 3).
person(a). person(b).
mood.
mood <- say(X), person(X).
mood <- rain.
say(X) :- mood, person(X).
"""


def test_the_sizes_of_a_plan_are_those_of_the_network():
    plan = plan_of(TALK, ["say(a)", "rain", "say(b)"], states=[[1, 2, 4]])
    assert plan.sizes() == {
        "points": 3 + 4,
        "slots": 2
        + 5
        + 8,  # people once; mood at three queries and two events; say(a) and say(b) at queries and once each
        "levels": 2,
        "proofs": 8,
        "additions": 3,
        "ranges attended to": 1 + 2 + 2,  # at the second query; of both rules at the third, and when say(b) happened
        "possible events": 6,
    }


def test_a_plan_of_several_sequences_is_as_large_as_those_of_each_alone():
    sequences = [["say(a)", "rain", "say(b)"], [], ["say(b)"], ["rain", "rain"]]
    together = plan_of(TALK, *sequences).sizes()
    alone = [plan_of(TALK, one).sizes() for one in sequences]
    for what in together:
        summed = sum(one[what] for one in alone)
        assert together[what] == (max(one["levels"] for one in alone) if what == "levels" else summed), what


def test_every_row_of_a_table_is_in_one_level():
    plan = plan_of(TALK, ["say(a)", "rain"], ["say(b)"])
    for table in plan.tables.values():
        edges = [(level.start, level.stop) for level in table.deduced.levels]
        assert [start for start, _ in edges] == [0, *(stop for _, stop in edges[:-1])][: len(edges)]
        assert (edges[-1][1] if edges else 0) == len(table.point)


def test_what_a_level_looks_at_lies_in_the_levels_before():
    plan = plan_of(TALK, ["say(a)", "rain", "say(b)"], ["rain"])
    looked = 0
    for table in plan.tables.values():
        for number, level in enumerate(table.deduced.levels):
            for one in level.projections:
                done = plan.tables[one.inputs.dim].deduced.levels[:number]
                assert int(one.inputs.rows.max()) < sum(below.stop - below.start for below in done)
                looked += len(one.inputs.rows)
    assert looked > 0


def test_a_dimension_that_only_an_event_without_a_fact_has_gets_an_empty_table():
    plan = plan_of(TALK, ["rain"])
    assert len(plan.tables[3].point) == 0
    looked_at = {
        row for keys in plan.tables[2].keys for part in keys.body if part.dim == 3 for row in part.rows.tolist()
    }
    assert looked_at == {0}


def made(text: str, *sequences: list[str], **options: Any) -> tuple[ANDTT, Any]:
    data = event_data(*sequences)
    model = ANDTT(
        Program.from_text(text, dim=2), data.vocabulary, **{"dim": 2, "layers": 2, "dtype": torch.float64, **options}
    )
    model.ground(data)
    return randomise(model, 4), data


NEXT_TO_NOTHING = {
    "only one event is ever possible": (":- event(e).\ne.\n", ["e", "e"]),
    "nothing is ever added": (":- event(e).\nq(a). q(b). e(X) :- q(X).\n", ["e(a)", "e(b)"]),
    "all sequences are empty": (TALK,),
    "no event is declared": (":- exogenous(x).\nq. q <- x.\n", ["x", "x"]),
    "nothing is possible yet": (":- event(e). :- exogenous(x).\ne <- x. !e <- e.\n", ["x", "e", "x"]),
    "no rules at all": (":- exogenous(x).\n", ["x"]),
    "dimension 0 everywhere": (":- embed(_, 0). :- event(e).\nq. e :- q. q <- e. e <- e, q.\n", ["e", "e"]),
    "a fact with additions and no proofs": (":- event(e).\nh <- bos. h <- e. e :- h.\n", ["e", "e"]),
    "a fact with proofs at times": (
        ":- event(e). :- exogenous(x).\ne. e :- h. h :- on. on <- x. !on <- e.\n",
        ["x", "e", "e"],
    ),
}


@pytest.mark.parametrize("what", NEXT_TO_NOTHING)
def test_programs_with_next_to_nothing_in_them_have_a_finite_likelihood_and_gradients(what: str):
    text, *sequences = NEXT_TO_NOTHING[what]
    model, data = made(text, *sequences, [], [])
    batch = model.collator.batch(data, range(len(data)), width=4 if model.types else None, unscored=model.unscored)
    loss = training_loss(model, batch, stratified(batch, 2, torch.Generator().manual_seed(1))).objective
    assert bool(loss.isfinite())
    if loss.requires_grad:
        loss.backward()
    assert all(parameter.grad is None or bool(parameter.grad.isfinite().all()) for parameter in model.parameters())
    value = log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood()
    assert value.shape == (len(data),) and bool(value.isfinite().all())
    torch.testing.assert_close(value[-1], value[-2])
    if not model.functors:
        assert not value.any()


@pytest.mark.parametrize("what", NEXT_TO_NOTHING)
def test_programs_with_next_to_nothing_in_them_answer_questions(what: str):
    text, *sequences = NEXT_TO_NOTHING[what]
    model, data = made(text, *sequences, [])
    batch = model.collator.batch(data, range(len(data)))
    times = torch.linspace(0.0, 4.0, 5, dtype=torch.float64).expand(len(data), -1)
    state = state_at(model, batch, Queries.at_times(batch, times))
    assert model.intensities(state).shape == (len(data), 5, model.types)
    assert model.total(state).shape == (len(data), 5)
    assert bool(model.total(state).isfinite().all())


def test_what_is_impossible_has_no_intensity_and_counts_for_nothing():
    model, data = made(*NEXT_TO_NOTHING["nothing is possible yet"])
    found = torch.from_numpy(model.intensity(data[0], [0.5, 1.5, 2.5, 3.5]))
    assert (found[:, model.vocabulary.names.index("e")] > 0.0).tolist() == [False, True, False, True]
    assert not found[:, model.vocabulary.names.index("x")].any()
