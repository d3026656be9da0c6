"""Down-sampling of possible events: J of K at every query, uniformly, with weights that make sums unbiased, and no work for the others."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from foretell.errors import ForetellError
from foretell.ground.timeline import Timeline
from foretell.lang.program import Program
from foretell.plan.parameters import DimensionLayout
from foretell.plan.possible_by_state import PossibleByState, numbers_below
from foretell.plan.slots import SequenceSlots, sequence_slots
from tests.ground.timelines import replay_of
from tests.plan.plans import DIM, names
from tests.plan.rich_programs import rich_case

FALSE_ALARM = 1e-6  # of each statistical test below, all its comparisons together

# Two events are always possible; of the others, each while its thing is open.
SHOP = """
:- event(look). :- event(buy). :- exogenous(open). :- exogenous(shut).
shelf(a). shelf(b).
look(X) :- shelf(X).
on(X) <- open(X).
!on(X) <- shut(X).
buy(X) :- on(X).
look(X) <- buy(X), shelf(X).
"""
OPENINGS = [*(f"open({x})" for x in "abcdefg"), "shut(c)", "shut(a)", "open(h)", "open(c)", "shut(g)"]


def shop() -> tuple[Timeline, DimensionLayout]:
    program = Program.from_text(SHOP, dim=DIM)
    return replay_of(program, OPENINGS).timelines[0], DimensionLayout(program, DIM)


def possible_in(timeline: Timeline, state: int) -> set[int]:
    return {fact for fact in timeline.facts_at(state) if timeline.grounding.is_event(fact)}


def kept_at(slots: SequenceSlots) -> list[tuple[int, ...]]:
    """Facts of the possible events of each query, in order."""
    found: list[list[int]] = [[] for _ in slots.query_point]
    for slot, query in zip(slots.possible_slot.tolist(), slots.possible_query.tolist(), strict=True):
        found[query].append(int(slots.slot_fact[slot]))
    return [tuple(sorted(one)) for one in found]


def test_every_set_of_j_events_is_as_likely_as_any_other_in_every_state():
    """Which gives every event the probability J/K and every pair J(J−1)/K(K−1); a chi-square test of all sets, state by state."""
    timeline, layout = shop()
    keep, draws = 3, 4000
    tested = [state for state in range(1, timeline.states) if len(possible_in(timeline, state)) > keep]
    assert len({len(possible_in(timeline, state)) for state in tested}) > 3
    states = np.repeat(tested, draws)
    found = kept_at(sequence_slots(timeline, layout, states, keep, np.random.default_rng(1)))
    for state in tested:
        counts = Counter(one for one, own in zip(found, states, strict=True) if own == state)
        sets = list(itertools.combinations(sorted(possible_in(timeline, state)), keep))
        assert set(counts) <= set(sets)
        p = stats.chisquare([counts[one] for one in sets]).pvalue
        assert p > FALSE_ALARM / len(tested), (state, p)


def test_events_and_pairs_are_kept_as_often_as_they_should_be_where_there_are_many():
    timeline, layout = shop()
    state = timeline.states - 1
    events = sorted(possible_in(timeline, state))
    draws = 30_000
    for keep in (2, 5, len(events) - 1):
        slots = sequence_slots(timeline, layout, np.full(draws, state), keep, np.random.default_rng(keep))
        kept = np.zeros((draws, len(events)))
        kept[slots.possible_query, np.searchsorted(events, slots.slot_fact[slots.possible_slot])] = 1
        both = kept.T @ kept
        k, j = len(events), keep
        limit = stats.norm.isf(FALSE_ALARM / 2 / k**2 / 3)
        for one, other in itertools.product(range(k), repeat=2):
            chance = j / k if one == other else j * (j - 1) / (k * (k - 1))
            spread = np.sqrt(draws * chance * (1 - chance))
            assert abs(both[one, other] - draws * chance) <= limit * spread, (keep, one, other)


class EveryDraw:
    """In place of a generator: every outcome of all draws once."""

    def __init__(self, count: int, keep: int) -> None:
        ranges = [range(count - keep + place + 1) for place in range(keep)]
        self.all = np.asarray(list(itertools.product(*ranges)), dtype=np.int64).T

    def integers(self, low, high, endpoint):
        assert low == 0 and endpoint and (self.all <= high).all()
        return self.all.copy()


@pytest.mark.parametrize(("count", "keep"), [(2, 1), (5, 2), (5, 4), (6, 3), (7, 3)])
def test_over_all_outcomes_of_the_draws_every_set_comes_up_equally_often(count: int, keep: int):
    every = EveryDraw(count, keep)
    drawn = numbers_below(np.full(every.all.shape[1], count), keep, every)  # type: ignore[arg-type]
    counts = Counter(tuple(sorted(one)) for one in drawn.T.tolist())
    assert set(counts) == set(itertools.combinations(range(count), keep))
    assert len(set(counts.values())) == 1


def test_the_expectation_of_a_weighted_sum_over_the_kept_is_the_sum_over_all_exactly():
    timeline, layout = shop()
    keep = 3
    for state in (5, 9, timeline.states - 1):
        events = possible_in(timeline, state)
        every = EveryDraw(len(events), keep)
        queries = every.all.shape[1]
        slots = sequence_slots(timeline, layout, np.full(queries, state), keep, every)  # type: ignore[arg-type]
        value = {fact: 1 + fact**3 for fact in events}  # whole numbers: sums are exact, and so is their comparison
        sums = Counter(slots.slot_fact[slots.possible_slot].tolist())
        total = sum(value[fact] * times for fact, times in sums.items()) * len(events)
        assert total == sum(value.values()) * queries * keep
        assert (slots.possible_weight == len(events) / keep).all()


def test_weights_at_a_query_add_up_to_the_number_of_possible_events():
    timeline, layout = shop()
    states = np.arange(timeline.states)[::-1]
    for keep in range(1, 11):
        slots = sequence_slots(timeline, layout, states, keep, np.random.default_rng(keep))
        counts = [len(possible_in(timeline, state)) for state in states.tolist()]
        summed = np.bincount(slots.possible_query, slots.possible_weight, minlength=len(states))
        np.testing.assert_allclose(summed, counts, rtol=1e-14)
        assert [len(one) for one in kept_at(slots)] == [min(count, keep) for count in counts]


def same(one: SequenceSlots, other: SequenceSlots) -> bool:
    own, its = vars(one), vars(other)
    own, its = ({**each, "proof_body": np.stack(each["proof_body"])} for each in (own, its))
    assert own.pop("history").grounding is its.pop("history").grounding
    return all(own[name] is its[name] or np.array_equal(own[name], its[name]) for name in own)


def test_where_no_more_are_possible_than_are_kept_nothing_is_drawn():
    timeline, layout = shop()
    states = np.asarray([4, 1, 13, 7, 7])
    full = sequence_slots(timeline, layout, states)
    most = max(len(possible_in(timeline, state)) for state in states.tolist())
    assert same(full, sequence_slots(timeline, layout, states, 100, np.random.default_rng(0)))
    assert same(full, sequence_slots(timeline, layout, states, most, np.random.default_rng(0)))
    assert (full.possible_weight == 1.0).all()


def by_place(slots: SequenceSlots) -> dict[tuple[int, int], object]:
    """All there is to say about each slot, without numbers of slots and rows."""
    name = list(zip(slots.slot_fact.tolist(), slots.slot_point.tolist(), strict=True))
    bodies: dict[int, list[object]] = {}
    for row, place, slot in zip(*(one.tolist() for one in slots.proof_body), strict=True):
        bodies.setdefault(row, []).append((place, name[slot]))
    about: dict[tuple[int, int], list[object]] = {one: [] for one in name}
    for row, (slot, instance) in enumerate(zip(slots.proof_slot.tolist(), slots.proof_instance.tolist(), strict=True)):
        about[name[slot]].append(("proof", instance, sorted(bodies.get(row, []), key=repr)))
    for slot, low, high in zip(slots.ask_slot.tolist(), slots.ask_low, slots.ask_high, strict=True):
        about[name[slot]].append(("attends", int(low), int(high)))
    for slot, level in enumerate(slots.slot_level.tolist()):
        about[name[slot]].append(("level", level))
    return {one: sorted(found, key=repr) for one, found in about.items()}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_kept_has_the_same_slots_as_without_down_sampling_and_the_past_all_of_its_own(seed: int):
    case = rich_case(seed)
    layout = DimensionLayout(case.program, case.settings.dim)
    timeline = replay_of(case.program, case.sequences[0][0]).timelines[0]
    states = np.repeat(np.arange(1, timeline.states), 2)
    try:
        full = sequence_slots(timeline, layout, states)
    except ForetellError as error:
        assert "needs itself" in str(error)
        return
    kept = sequence_slots(timeline, layout, states, 2, np.random.default_rng(seed))
    known = by_place(full)
    assert all(known[place] == about for place, about in by_place(kept).items())
    for one, all_of_it in zip(kept_at(kept), kept_at(full), strict=True):
        assert len(set(one)) == len(one) == min(2, len(all_of_it))
        assert set(one) <= set(all_of_it)
    for slots in (kept, full):
        assert ((slots.happened_slot >= 0) == timeline.possible_events).all()
    scored = full.happened_slot >= 0
    for array in (lambda s: s.slot_fact, lambda s: s.slot_point):
        assert (array(kept)[kept.happened_slot[scored]] == array(full)[full.happened_slot[scored]]).all()
    for name in ("addition_instance", "addition_event", "addition_r", "addition_start", "point_state", "event_point"):
        assert (getattr(kept, name) == getattr(full, name)).all()


def test_facts_that_only_events_left_out_would_need_have_no_slots():
    program = Program.from_text(":- event(e).\nq(a). q(b). q(c). p(X) :- q(X). e(X) :- p(X).\n", dim=DIM)
    timeline = replay_of(program, []).timelines[0]
    slots = sequence_slots(timeline, DimensionLayout(program, DIM), np.asarray([1]), 1, np.random.default_rng(0))
    (event,) = [name for name in names(slots) if name.startswith("e")]
    assert names(slots) == sorted([event, event.replace("e", "p"), event.replace("e", "q")])


def test_draws_are_fresh_at_every_call_and_the_same_from_the_same_seed():
    timeline, layout = shop()
    states = np.full(50, timeline.states - 1)
    rng = np.random.default_rng(7)
    first, second = (sequence_slots(timeline, layout, states, 2, rng) for _ in range(2))
    again = sequence_slots(timeline, layout, states, 2, np.random.default_rng(7))
    assert same(first, again)
    assert kept_at(first) != kept_at(second)


def test_queries_of_one_call_are_drawn_independently():
    """Pairs of neighbouring queries: every pair of events is as likely as any other."""
    timeline, layout = shop()
    state, draws = timeline.states - 1, 40_000
    found = kept_at(sequence_slots(timeline, layout, np.full(draws, state), 1, np.random.default_rng(3)))
    events = sorted(possible_in(timeline, state))
    counts = Counter(zip(found[::2], found[1::2], strict=True))
    observed = [counts[(one,), (other,)] for one in events for other in events]
    assert sum(observed) == draws // 2
    assert stats.chisquare(observed).pvalue > FALSE_ALARM


@pytest.mark.parametrize("seed", range(20))
def test_the_cells_of_a_state_hold_each_event_that_is_possible_in_it_once(seed: int):
    rng = np.random.default_rng(seed)
    states, rows = 12, []
    for fact in range(rng.integers(0, 15)):
        cuts = np.sort(rng.choice(states + 1, size=2 * rng.integers(0, 4), replace=False))
        rows += [(100 + fact, start, stop) for start, stop in cuts.reshape(-1, 2).tolist()]
    fact, start, stop = np.asarray(rows, dtype=np.int64).reshape(-1, 3)[rng.permutation(len(rows))].T
    always = np.arange(rng.integers(0, 3))
    cells = PossibleByState(always, fact, start, stop, states)
    for state in range(states):
        expected = sorted([*always.tolist(), *fact[(start <= state) & (state < stop)].tolist()])
        assert cells.count[state] == len(expected)
        found = cells.events(np.arange(len(expected)), np.full(len(expected), state))
        assert sorted(found.tolist()) == expected


@pytest.mark.parametrize(
    ("keep", "rng", "found"),
    [
        (0, np.random.default_rng(0), "keep = 0: expected"),
        (2.0, np.random.default_rng(0), "1 or more"),
        (2, None, "give rng"),
    ],
)
def test_a_wrong_number_to_keep_or_no_generator_is_told(keep: int, rng: np.random.Generator | None, found: str):
    timeline, layout = shop()
    with pytest.raises(ForetellError, match=found):
        sequence_slots(timeline, layout, np.asarray([1]), keep, rng)


@pytest.mark.parametrize("rule", ["e(X) :- thing(X).", "e(X) :- thing(X), on."])
def test_memory_follows_the_events_that_are_kept_and_not_those_that_are_possible(rule: str):
    facts = " ".join(f"thing({number})." for number in range(4000))
    program = Program.from_text(
        f":- event(e). :- exogenous(go). :- embed(on, 0).\n{facts}\n{rule}\non <- go.\n", dim=DIM
    )
    timeline = replay_of(program, ["go", *("e(7)" for _ in range(900))]).timelines[0]
    layout, states = DimensionLayout(program, DIM), np.arange(2, 902)
    tracemalloc.start()
    slots = sequence_slots(timeline, layout, states, 4, np.random.default_rng(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(slots.possible_slot) == 4 * len(states)
    assert peak < 12e6  # one number for each possible event at each query would be 29e6 bytes
