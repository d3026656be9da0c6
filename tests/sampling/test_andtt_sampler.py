"""Sampler of an A-NDTT: the model's own intensities, also after events that were added one by one, under bounds that hold."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.data import EventSequence
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.andtt_sampler import ANDTTSampler
from foretell.reference.database import is_possible, states
from tests.plan.rich_programs import rich_case
from tests.samples import randomise
from tests.sampling.rule_kinds import andtt_of as of_case
from tests.sampling.rule_kinds import told_andtt as told
from tests.sampling.told import AHEAD, TALK, Told, exceeded


def test_copies_of_one_sequence_are_asked_at_times_of_their_own():
    one = told(TALK, ["say(ann)"], [0.5])
    copies = one.sampler.select(torch.tensor([0, 0]))
    at = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    torch.testing.assert_close(
        copies.intensities(at).flatten(0, 1), one.rates(at.flatten().numpy()), rtol=1e-12, atol=0.0
    )


def test_an_event_that_removes_and_adds_a_fact_leaves_just_this_addition():
    one = told(TALK, ["say(ann)", "say(bob)", "rain"], [0.5, 0.7, 1.0])
    (past,) = [by_r for by_r in one.sampler.sequences[0].past.values() if len(by_r) == 3]
    assert sorted(len(rows) for rows in past.values()) == [1, 1, 2]  # of bos, of rain, of what was said
    one.append("hush", 1.2)
    left = [sorted(len(rows) for rows in by_r.values()) for by_r in one.sampler.sequences[0].past.values()]
    assert left == [[1], [1]]  # of mood and of quiet
    one.agrees()
    one.append("say(bob)", 1.2)
    one.append("hush", 1.3)
    one.agrees()


def test_a_fact_that_is_not_true_any_more_is_not_possible_any_more():
    one = told(TALK, ["say(ann)"], [0.5])
    one.append("hush", 0.9)
    assert [one.sampler.name(0, choice) for choice in range(one.agrees())] == ["say(ann)", "say(bob)"]


def test_an_exogenous_event_that_is_no_fact_adds_with_zeros_for_its_embedding():
    assert told(TALK, ["rain", "rain"], [0.1, 0.1]).agrees() == 2


def test_a_program_in_which_nothing_is_possible_has_no_choices_and_a_bound_of_nothing():
    one = told(
        ":- event(boom). :- exogenous(spark).\nfuse(a).\n:- embed(lit, 0).\nlit <- spark.\nboom :- lit, fuse(a).\n"
    )
    assert one.rates([1.0]).shape == (1, 0)
    assert float(one.sampler.bounds(torch.zeros(1, 1).double(), torch.ones(1, 1).double()).upper) == 0.0


def test_recursion_through_facts_without_embeddings_is_followed():
    one = told(
        """:- event(link). :- event(send, 3).
        :- embed(reach, 0). :- embed(edge, 0).
        node(a). node(b). node(c).
        link(X,Y) :- node(X), node(Y), not edge(X,Y), X != Y.
        edge(X,Y) <- link(X,Y).
        !edge(X,Y) <- send(X,Y), edge(X,Y).
        node(X) <- link(X,_).
        reach(X,Y) :- edge(X,Y).
        reach(X,Z) :- reach(X,Y), edge(Y,Z).
        send(X,Y) :- reach(X,Y), node(X), node(Y).
        """
    )
    for name in ("link(a,b)", "link(b,c)", "send(a,c)", "send(a,b)", "link(c,a)"):
        one.append(name, one.last + 0.2)
        one.agrees()
    assert "send(a,b)" not in [one.sampler.name(0, choice) for choice in range(one.agrees())]


@pytest.mark.parametrize("seed", [0, 2, 4, 5, 7])
def test_whatever_is_sampled_was_possible_in_the_replay(seed: int):
    case = rich_case(seed)
    one = of_case(case, 3)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(6):
        rates = one.rates([one.last + 0.1])[0]
        if not float(rates.sum()) > 0.0:
            return
        *_, state = states(case.program, one.names)
        choice = int(torch.multinomial(rates, 1, generator=draw))
        name = one.sampler.name(0, choice)
        assert is_possible(case.program, state, name)
        one.append(name, one.last + 0.1)


def test_names_that_training_never_met_get_parameters_and_the_model_stays_as_it_is():
    text = """:- event(meet). :- exogenous(come). :- embed(come, 0).
    :- embed(here, 0).
    here(X) <- come(X).
    likes(X,Y) <- meet(X,Y) :: habit(X).
    meet(X,Y) :- here(X), here(Y), X != Y :: pair(X).
    meet(X,Y) :- likes(X,Y), here(X).
    """
    model = ANDTT(Program.from_text(text, dim=3), dim=3, layers=2)
    model.widen(["come(ann)", "come(bob)", "come(cyd)"])
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    history = EventSequence(np.asarray([0.1, 0.2, 0.3]), np.asarray([0, 1, 2], dtype=np.int32), 1.0)
    sampler = ANDTTSampler.start(model, [history], [3])
    names = [sampler.name(0, choice) for choice in range(sampler.intensities(torch.ones(1, 1).double()).shape[2])]
    sampler.append(torch.tensor([1.0]).double(), torch.tensor([names.index("meet(ann,bob)")]))
    found = sampler.intensities(torch.full((1, 1), 2.0).double())[0, 0]
    assert model.state_dict().keys() == kept.keys()
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert next(model.parameters()).dtype == torch.float32
    model.widen(["meet(ann,bob)"])
    longer = EventSequence(np.asarray([0.1, 0.2, 0.3, 1.0]), np.asarray([0, 1, 2, 3], dtype=np.int32), 3.0)
    (wanted,) = model.possible_intensities(longer, [2.0])
    names = [sampler.name(0, choice) for choice in range(len(found))]
    assert dict(zip(names, found.tolist(), strict=True)) == pytest.approx(wanted, rel=1e-5)


def test_the_times_of_a_history_are_its_own_even_if_its_events_were_met_at_other_times():
    one = told(TALK, ["say(ann)", "say(bob)"], [0.5, 0.7])
    other = Told(one.model, one.names, [2.5, 3.5])
    other.agrees()
    one.agrees()


# Bounds


@pytest.mark.parametrize("spread", [0.5, 1.5, 5.0])
@pytest.mark.parametrize("seed", [0, 1, 6, 7, 9, 12, 14])
def test_no_intensity_is_above_its_bound_however_large_the_weights(seed: int, spread: float):
    case = rich_case(seed)
    one = of_case(case, len(case.sequences[0][0]))
    with torch.no_grad():
        for name, parameter in one.model.named_parameters():
            if not name.endswith("beta_beta"):
                parameter.mul_(spread)
    sampler = ANDTTSampler.start(one.model, [one.history], [len(one.names)])
    exceeded(sampler, one.last, widths=(1e-6, 0.02, 0.1, 0.5, 3.0, 100.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_no_intensity_is_above_its_bound_in_many_more_programs(seed: int):
    case = rich_case(seed)
    try:
        one = of_case(case, len(case.sequences[0][0]))
        one.model.possible_intensities(one.history, [one.last + 1.0])
    except ForetellError:
        pytest.skip("its embeddings need one another")
    with torch.no_grad():
        for name, parameter in one.model.named_parameters():
            if not name.endswith("beta_beta"):
                parameter.mul_(random.Random(seed).choice([0.5, 2.0, 4.0, 8.0]))
    sampler = ANDTTSampler.start(one.model, [one.history], [len(one.names)])
    exceeded(sampler, one.last, widths=(0.01, 0.05, 0.2, 1.0, 5.0), times=2000)


@pytest.mark.parametrize(
    "options", [{}, {"layer_norm": True}, {"feed_forward": 4}, {"layer_norm": True, "feed_forward": 4}]
)
def test_bounds_are_close_on_windows_as_long_as_the_shortest_wave(options: dict[str, int]):
    names = ["say(ann)", "rain", "hush", "say(bob)", "say(bob)", "rain"]
    one = told(TALK, names, [0.5, 1.0, 1.5, 1.5, 3.0, 4.0], dim=6, spread=0.3, **options)
    one.agrees()
    shortest = one.model.time.m
    assert max(exceeded(one.sampler, one.last, widths=(shortest / 4.0, shortest / 2.0, shortest))) <= 1.05


def test_a_first_window_is_as_long_as_the_shortest_wave():
    assert told(TALK).sampler.width == pytest.approx(1.0)


def test_a_sequence_that_does_not_go_on_stays_as_it_is():
    one = told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    sampler = one.sampler.select(torch.tensor([0, 0]))
    at = torch.from_numpy(np.stack([3.0 + AHEAD] * 2))
    before = sampler.intensities(at)
    sampler.append(torch.tensor([2.0, 2.0], dtype=torch.float64), torch.tensor([-1, 0]))
    after = sampler.intensities(at)
    # Up to the rounding of matrix products of another shape: the two are no longer evaluated together.
    torch.testing.assert_close(after[0], before[0], rtol=1e-14, atol=0.0)
    other = Told(one.model, [*one.names, "hush"], [*one.times, 2.0])
    torch.testing.assert_close(after[1, :, :2], other.rates(3.0 + AHEAD), rtol=1e-9, atol=0.0)
    assert not after[1, :, 2:].any()


def test_a_sequence_is_worked_out_once_however_often_it_is_asked(monkeypatch: pytest.MonkeyPatch):
    one = told(TALK, ["say(ann)"], [0.5])
    asked: list[int] = []
    made = ANDTTSampler._events
    monkeypatch.setattr(ANDTTSampler, "_events", lambda self, kinds: asked.append(1) or made(self, kinds))
    for _ in range(3):
        one.rates([1.0])
    assert len(asked) == 1


def test_the_history_is_not_that_of_the_events_that_are_not_seen():
    one = told(TALK, ["say(ann)", "rain", "hush"], [0.5, 1.0, 2.0])
    fewer = ANDTTSampler.start(one.model, [one.history], [2])
    cut = replace(one.history, times=one.history.times[:2], types=one.history.types[:2])
    (wanted,) = one.model.possible_intensities(cut, [5.0])
    found = fewer.intensities(torch.full((1, 1), 5.0).double())[0, 0].tolist()
    assert found == pytest.approx(list(wanted.values()), rel=1e-9)


def test_a_copy_of_the_model_is_walked_so_that_training_it_further_changes_nothing():
    one = told(TALK, ["say(ann)"], [0.5])
    before, kept = one.rates(one.last + AHEAD), copy.deepcopy(one.model.state_dict())
    randomise(one.model, 99)
    assert torch.equal(one.rates(one.last + AHEAD), before)
    assert any(not torch.equal(value, kept[name]) for name, value in one.model.state_dict().items())
