"""Walks of an A-NDTT: the model's own intensities, also after events that were added one by one, under bounds that hold."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.data import EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.andtt import ANDTT
from foretell.reference.database import is_possible, states
from foretell.sampling.andtt_walks import ANDTTWalks
from tests.plan.rich_programs import RichCase, rich_case
from tests.samples import randomise
from tests.sampling.told import AHEAD, CYCLIC, POOLED, TALK, CyclesAreRefusedByBoth, Told, exceeded, sampled, wandered


def told(
    text: str, names: Sequence[str] = (), times: Sequence[float] = (), dim: int = 3, spread: float = 0.6, **options: int
) -> Told:
    model = ANDTT(Program.from_text(text, dim=dim), Vocabulary(()), dim=dim, layers=2, dtype=torch.float64, **options)
    model.time.set_range(0.5, 20.0)
    model.widen(dict.fromkeys(names))
    return Told(_weighty(model, names, times, spread), names, times)


def _weighty(model: ANDTT, names: Sequence[str], times: Sequence[float], spread: float) -> ANDTT:
    """Random weights, also for all that the history gives rise to."""
    types = np.asarray([model.vocabulary.find(name) for name in names], dtype=np.int32)
    model.possible_intensities(EventSequence(np.asarray(times, dtype=np.float64), types, 1e6), [1e3])
    return randomise(model, 1, spread)


def of_case(case: RichCase, seen: int) -> Told:
    events, times, _ = case.sequences[0]
    return Told(case.model(), events[:seen], times[:seen])


@pytest.mark.parametrize("seed", sorted(set(range(24)) - CYCLIC))
def test_intensities_are_those_of_the_model_also_after_sampled_events(seed: int):
    case = rich_case(seed)
    for seen in {0, len(case.sequences[0][0])}:
        sampled(of_case(case, seen), 3, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24, 150))
def test_intensities_are_those_of_the_model_in_many_more_programs(seed: int):
    case = rich_case(seed)
    for seen in {0, len(case.sequences[0][0]) // 2, len(case.sequences[0][0])}:
        try:
            one = of_case(case, seen)
            one.model.possible_intensities(one.history, [one.last + 1.0])
        except ForetellError as error:
            assert "needs itself" in str(error)
            continue
        with CyclesAreRefusedByBoth(one):
            sampled(one, 5, seed)


def test_walks_side_by_side_are_as_each_alone():
    case = rich_case(1)
    model, (events, times, _) = case.model(), case.sequences[0]
    starts = list(range(len(events) + 1))
    history = Told(model, events, times).history
    together = ANDTTWalks.start(model, [history] * len(starts), starts)
    at = torch.rand(len(starts), 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3.0 + times[-1]
    end = at + 0.3
    rates, bounds = together.intensities(at), together.bounds(at, end)
    for walk, seen in enumerate(starts):
        alone = ANDTTWalks.start(model, [history], [seen])
        own = alone.intensities(at[walk : walk + 1])[0]
        torch.testing.assert_close(rates[walk, :, : own.shape[1]], own, rtol=1e-12, atol=0.0)
        assert not rates[walk, :, own.shape[1] :].any()
        upper = alone.bounds(at[walk : walk + 1], end[walk : walk + 1]).upper[0]
        torch.testing.assert_close(bounds.upper[walk], upper, rtol=1e-12, atol=0.0)


def test_copies_go_on_separately():
    one = told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    before = one.rates(one.last + AHEAD)
    copies = one.walks.taken(torch.tensor([0, 0, 0]))
    names = [copies.name(0, choice) for choice in range(before.shape[1])]
    assert names == ["hush", "say(ann)", "say(bob)"]
    copies.append(torch.tensor([1.5, 1.5, 2.5], dtype=torch.float64), torch.tensor([0, 1, 1]))
    assert torch.equal(one.rates(one.last + AHEAD), before)
    for walk, (name, time) in enumerate([("hush", 1.5), ("say(ann)", 1.5), ("say(ann)", 2.5)]):
        other = Told(one.model, [*one.names, name], [*one.times, time])
        found = copies.intensities(torch.from_numpy(np.stack([other.last + AHEAD] * 3)))[walk]
        wanted = other.rates(other.last + AHEAD)
        torch.testing.assert_close(found[:, : wanted.shape[1]], wanted, rtol=1e-9, atol=0.0)


def test_copies_of_one_walk_are_asked_at_times_of_their_own():
    one = told(TALK, ["say(ann)"], [0.5])
    copies = one.walks.taken(torch.tensor([0, 0]))
    at = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    torch.testing.assert_close(
        copies.intensities(at).flatten(0, 1), one.rates(at.flatten().numpy()), rtol=1e-12, atol=0.0
    )


def test_an_event_that_removes_and_adds_a_fact_leaves_just_this_addition():
    one = told(TALK, ["say(ann)", "say(bob)", "rain"], [0.5, 0.7, 1.0])
    (past,) = [by_r for by_r in one.walks.walks[0].past.values() if len(by_r) == 3]
    assert sorted(len(rows) for rows in past.values()) == [1, 1, 2]  # of bos, of rain, of what was said
    one.append("hush", 1.2)
    left = [sorted(len(rows) for rows in by_r.values()) for by_r in one.walks.walks[0].past.values()]
    assert left == [[1], [1]]  # of mood and of quiet
    one.agrees()
    one.append("say(bob)", 1.2)
    one.append("hush", 1.3)
    one.agrees()


def test_a_fact_that_is_not_true_any_more_is_not_possible_any_more():
    one = told(TALK, ["say(ann)"], [0.5])
    one.append("hush", 0.9)
    assert [one.walks.name(0, choice) for choice in range(one.agrees())] == ["say(ann)", "say(bob)"]


def test_an_exogenous_event_that_is_no_fact_adds_with_zeros_for_its_embedding():
    assert told(TALK, ["rain", "rain"], [0.1, 0.1]).agrees() == 2


def test_nothing_has_happened_yet():
    one = told(TALK)
    one.agrees()
    one.append("say(bob)", 0.0)
    one.agrees()


def test_events_without_embeddings_have_constant_intensities():
    one = told(":- event(tick, 0). :- event(tock, 0).\ntick.\n:- embed(wound, 0).\nwound <- tick.\ntock :- wound.\n")
    assert one.agrees() == 1
    one.append("tick", 0.5)
    assert one.agrees() == 2
    bounds = one.walks.bounds(torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[900.0]], dtype=torch.float64))
    assert float(bounds.upper) == pytest.approx(float(one.rates([1.0]).sum()), rel=1e-8)


def test_a_program_in_which_nothing_is_possible_has_no_choices_and_a_bound_of_nothing():
    one = told(
        ":- event(boom). :- exogenous(spark).\nfuse(a).\n:- embed(lit, 0).\nlit <- spark.\nboom :- lit, fuse(a).\n"
    )
    assert one.rates([1.0]).shape == (1, 0)
    assert float(one.walks.bounds(torch.zeros(1, 1).double(), torch.ones(1, 1).double()).upper) == 0.0


@pytest.mark.parametrize("beta", [1.0, 1.3, 4.0])
def test_pools_have_the_exponents_of_the_model(beta: float):
    one = told(POOLED, ["go(a)", "go(b)", "go(a)"], [0.3, 0.4, 0.9])
    with torch.no_grad():
        one.model.network.stacks["beta_beta"].fill_(beta - 1.0)
    one = Told(one.model, one.names, one.times)
    sampled(one, 3, seed=0)
    exceeded(one.walks, one.last, widths=(0.1, 1.0))


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
    assert "send(a,b)" not in [one.walks.name(0, choice) for choice in range(one.agrees())]


CYCLE = """
:- event(turn). :- event(other).
:- embed(on, 0).
turn. other.
on <- turn.
a :- on, b.
b :- on, a.
b :- other.
other :- a.
"""


def test_embeddings_that_come_to_need_one_another_are_refused_as_by_the_model():
    one = told(CYCLE)
    one.append("turn", 1.0)
    with pytest.raises(ForetellError) as walked:
        one.rates([2.0])
    with pytest.raises(ForetellError) as asked:
        one.model.possible_intensities(one.history, [2.0])
    assert "other" in str(walked.value) and "other" in str(asked.value)


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
        name = one.walks.name(0, choice)
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
    walks = ANDTTWalks.start(model, [history], [3])
    names = [walks.name(0, choice) for choice in range(walks.intensities(torch.ones(1, 1).double()).shape[2])]
    walks.append(torch.tensor([1.0]).double(), torch.tensor([names.index("meet(ann,bob)")]))
    found = walks.intensities(torch.full((1, 1), 2.0).double())[0, 0]
    assert model.state_dict().keys() == kept.keys()
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert next(model.parameters()).dtype == torch.float32
    model.widen(["meet(ann,bob)"])
    longer = EventSequence(np.asarray([0.1, 0.2, 0.3, 1.0]), np.asarray([0, 1, 2, 3], dtype=np.int32), 3.0)
    (wanted,) = model.possible_intensities(longer, [2.0])
    names = [walks.name(0, choice) for choice in range(len(found))]
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
    walks = ANDTTWalks.start(one.model, [one.history], [len(one.names)])
    exceeded(walks, one.last, widths=(1e-6, 0.02, 0.1, 0.5, 3.0, 100.0))


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
    walks = ANDTTWalks.start(one.model, [one.history], [len(one.names)])
    exceeded(walks, one.last, widths=(0.01, 0.05, 0.2, 1.0, 5.0), times=2000)


@pytest.mark.parametrize(
    "options", [{}, {"layer_norm": True}, {"feed_forward": 4}, {"layer_norm": True, "feed_forward": 4}]
)
def test_bounds_are_close_on_windows_as_long_as_the_shortest_wave(options: dict[str, int]):
    names = ["say(ann)", "rain", "hush", "say(bob)", "say(bob)", "rain"]
    one = told(TALK, names, [0.5, 1.0, 1.5, 1.5, 3.0, 4.0], dim=6, spread=0.3, **options)
    one.agrees()
    shortest = one.model.time.m
    assert max(exceeded(one.walks, one.last, widths=(shortest / 4.0, shortest / 2.0, shortest))) <= 1.05


def test_windows_that_are_much_too_long_still_have_finite_bounds():
    one = told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    bounds = one.walks.bounds(torch.full((1, 1), 1.0).double(), torch.full((1, 1), 1e7).double())
    assert bool(bounds.upper.isfinite().all())


def test_a_first_window_is_as_long_as_the_shortest_wave():
    assert told(TALK).walks.width == pytest.approx(1.0)


def test_a_walk_that_does_not_go_on_stays_as_it_is():
    one = told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    walks = one.walks.taken(torch.tensor([0, 0]))
    at = torch.from_numpy(np.stack([3.0 + AHEAD] * 2))
    before = walks.intensities(at)
    walks.append(torch.tensor([2.0, 2.0], dtype=torch.float64), torch.tensor([-1, 0]))
    after = walks.intensities(at)
    assert torch.equal(after[0], before[0])
    other = Told(one.model, [*one.names, "hush"], [*one.times, 2.0])
    torch.testing.assert_close(after[1, :, :2], other.rates(3.0 + AHEAD), rtol=1e-9, atol=0.0)
    assert not after[1, :, 2:].any()


def test_walks_of_one_model_in_several_threads_do_not_get_in_one_another_s_way():
    one = told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    history, seeds = one.history, range(8)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: wandered(one.model, history, seed), seeds))
    for seed, found in zip(seeds, together, strict=True):
        alone = wandered(told(TALK, ["say(ann)", "rain"], [0.5, 1.0]).model, history, seed)
        assert [name for name, _ in found] == [name for name, _ in alone]
        assert [rates for _, rates in found] == [pytest.approx(rates, rel=1e-9) for _, rates in alone]


def test_a_walk_is_worked_out_once_however_often_it_is_asked(monkeypatch: pytest.MonkeyPatch):
    one = told(TALK, ["say(ann)"], [0.5])
    asked: list[int] = []
    made = ANDTTWalks._ask
    monkeypatch.setattr(ANDTTWalks, "_ask", lambda self, kinds: asked.append(1) or made(self, kinds))
    for _ in range(3):
        one.rates([1.0])
    assert len(asked) == 1


def test_the_history_is_not_that_of_the_events_that_are_not_seen():
    one = told(TALK, ["say(ann)", "rain", "hush"], [0.5, 1.0, 2.0])
    fewer = ANDTTWalks.start(one.model, [one.history], [2])
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


@pytest.mark.gpu
def test_walks_are_the_same_on_a_gpu():
    one = told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    there = ANDTTWalks.start(copy.deepcopy(one.model).cuda(), [one.history], [2])
    at = torch.from_numpy(one.last + AHEAD)[None]
    for _ in range(3):
        torch.testing.assert_close(there.intensities(at.cuda()).cpu(), one.walks.intensities(at), rtol=1e-9, atol=0.0)
        upper = there.bounds(at.cuda(), at.cuda() + 0.2).upper.cpu()
        torch.testing.assert_close(upper, one.walks.bounds(at, at + 0.2).upper, rtol=1e-7, atol=0.0)
        for walks, when in ((one.walks, at), (there, at.cuda())):
            walks.append(when[:, 1], torch.zeros(1, dtype=torch.int64, device=when.device))
        at = at + 0.5
