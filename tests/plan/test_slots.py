"""Which facts are looked at, when, how often, and in which order."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.errors import ForetellError
from foretell.plan.slots import SequenceSlots
from tests.plan.plans import level_of, names, slots_of
from tests.plan.rich_programs import rich_case

CHAIN = """
:- event(say).
person(a). person(b).
mood(X) :- person(X), weather.
weather.
weather <- say(_).
say(X) :- mood(X), person(X).
unasked(X) :- person(X), mood(X).
"""


def test_a_needed_fact_brings_all_that_its_proofs_need_and_nothing_else():
    _, slots = slots_of(CHAIN, [], [1])
    assert names(slots) == ["mood(a)", "mood(b)", "person(a)", "person(b)", "say(a)", "say(b)", "weather"]


def test_a_fact_comes_after_all_it_is_deduced_from():
    _, slots = slots_of(CHAIN, ["say(a)"], [1, 2])
    assert [level_of(slots, fact) for fact in ("person(a)", "weather", "mood(a)", "say(a)")] == [{0}, {0}, {1}, {2}]


def test_a_level_is_the_longest_way_down():
    text = ":- event(e).\na. b :- a. c :- b. d :- a. e :- d, c. e :- a.\n"
    _, slots = slots_of(text, [], [1])
    assert [level_of(slots, fact) for fact in "abcde"] == [{0}, {1}, {2}, {1}, {3}]


def test_facts_that_never_change_have_one_slot_whenever_they_are_looked_at():
    _, slots = slots_of(CHAIN, ["say(a)", "say(b)"], [1, 1, 2, 3])
    found = names(slots)
    assert found.count("person(a)") == found.count("person(b)") == 1
    # at four queries, and where it happened itself
    assert found.count("say(a)") == found.count("say(b)") == 4 + 1
    assert found.count("weather") == 4 + 2


def test_what_is_deduced_by_negation_of_what_changes_has_a_slot_at_every_point():
    text = ":- event(e). :- embed(on, 0).\nq. p :- q, not on. on <- e. e :- p. e :- q.\n"
    timeline, slots = slots_of(text, ["e"], [1, 2])
    assert names(slots).count("q") == 1
    by_state = [names(slots, state).count("p") for state in (1, 2)]
    assert by_state == [2, 0]  # the query and the event before it; afterwards it is not true
    assert timeline.states == 3


def test_conditions_of_additions_are_looked_at_just_before_their_event():
    text = ":- event(e). :- exogenous(x).\ne. seen(X) <- x(X). e <- x(X), seen(X).\n"
    timeline, slots = slots_of(text, ["x(a)", "x(b)", "x(a)"], [4])
    assert names(slots, 3) == ["seen(a)"]  # the third event is the first that finds a condition true
    assert names(slots, 4) == ["e"]
    event = slots.addition_event[
        [timeline.grounding.text(timeline.grounding.head[one]) == "e" for one in slots.addition_instance]
    ]
    assert event.tolist() == [3]


def test_an_exogenous_event_that_is_no_fact_has_no_slot():
    _, slots = slots_of(":- event(e). :- exogenous(x).\ne. e <- x.\n", ["x"], [2])
    assert "x" not in names(slots)
    assert slots.addition_body.tolist() == [-1]


def test_an_event_that_is_not_scored_is_marked():
    _, slots = slots_of(":- event(e). :- exogenous(x).\ne. x :- e. e <- x.\n", ["x", "e"], [])
    assert (slots.happened_slot >= 0).tolist() == [False, True]


def test_facts_without_embeddings_are_not_looked_into():
    _, slots = slots_of(":- event(e, 0).\nq. p :- q. e :- p.\n", ["e"], [1, 2])
    assert set(names(slots)) == {"e"}
    assert not len(slots.proof_instance)


def ranges(slots: SequenceSlots) -> list[list[tuple[int, int]]]:
    """What each slot attends to: (instantiation, event) by range."""
    found: list[list[tuple[int, int]]] = [[] for _ in slots.slot_fact]
    for slot, low, high in zip(slots.ask_slot, slots.ask_low, slots.ask_high, strict=True):
        found[slot] += zip(
            slots.addition_instance[low:high].tolist(), slots.addition_event[low:high].tolist(), strict=True
        )
    return [sorted(one) for one in found]


@pytest.mark.parametrize("seed", range(25))
def test_a_slot_attends_to_the_additions_in_force_and_each_range_is_of_one_rule_and_fact(seed: int):
    case = rich_case(seed)
    try:
        timeline, slots = slots_of(case.text, case.sequences[0][0], [1, 3, 3, 5])
    except ForetellError as error:
        assert "needs itself" in str(error)
        return
    heads = np.asarray(timeline.grounding.head)
    for slot, found in enumerate(ranges(slots)):
        fact, state = int(slots.slot_fact[slot]), int(slots.point_state[slots.slot_point[slot]])
        in_force = [(one, event) for one, event, _ in timeline.additions_at(state).tolist() if heads[one] == fact]
        assert found == (sorted(in_force) if slots.slot_dim[slot] else [])
    for low, high in zip(slots.ask_low, slots.ask_high, strict=True):
        instances = slots.addition_instance[low:high]
        assert len({(timeline.grounding.rule[one], timeline.grounding.head[one]) for one in instances.tolist()}) == 1


def test_an_exponents_name_does_not_cut_a_range_and_a_matrix_name_does():
    text = ":- event(g). :- exogenous(e).\ng.\ng : b(X) <- e(X,Y) :: w(Y).\n"
    _, slots = slots_of(text, ["e(a,a)", "e(b,b)", "e(b,a)", "e(a,b)"], [5])
    at_query = [high - low for slot, low, high in zip(slots.ask_slot, slots.ask_low, slots.ask_high, strict=True)]
    assert at_query == [2, 2]
    events = [slots.addition_event[low:high].tolist() for low, high in zip(slots.ask_low, slots.ask_high, strict=True)]
    assert sorted(events) == [[1, 3], [2, 4]]


def test_removal_ends_a_range_and_a_later_addition_opens_one():
    text = ":- event(g). :- exogenous(on). :- exogenous(off).\ng. g <- on. !g <- off.\n"
    events = ["on", "on", "off", "on", "off"]
    _, slots = slots_of(text, events, [1, 2, 3, 4, 5, 6])
    seen = {
        int(slots.point_state[slots.slot_point[slot]]): slots.addition_event[low:high].tolist()
        for slot, low, high in zip(slots.ask_slot, slots.ask_low, slots.ask_high, strict=True)
    }
    assert seen == {2: [1], 3: [1, 2], 5: [4]}


def test_queries_keep_the_order_in_which_they_were_asked():
    _, slots = slots_of(CHAIN, ["say(a)", "say(b)"], [3, 1, 2, 1])
    assert slots.point_state[slots.query_point].tolist() == [3, 1, 2, 1]
    assert len(set(slots.query_point.tolist())) == 4
    states = slots.point_state[slots.slot_point[slots.possible_slot]]
    assert (states == slots.point_state[slots.query_point[slots.possible_query]]).all()


def test_a_sequence_without_events_and_one_without_questions_have_slots():
    _, empty = slots_of(CHAIN, [], [])
    assert not len(empty.slot_fact)
    _, unasked = slots_of(CHAIN, ["say(a)"], [])
    assert set(names(unasked)) >= {"say(a)", "mood(a)", "weather"}
    assert "say(b)" not in names(unasked)


CIRCLE = ":- event(e).\nq. a :- q. a :- b. b :- a. e :- b. other.\n"


def test_a_cycle_of_proofs_names_rules_places_facts_and_time():
    with pytest.raises(ForetellError) as found:
        slots_of(CIRCLE, [], [1])
    first, *steps, hint = str(found.value).splitlines()
    assert "needs itself before the first event: proofs through facts with embeddings must not be cyclic" in first
    assert sorted(steps) == [
        "  a is deduced from b (rule2, <program>:2:12)",
        "  b is deduced from a (rule3, <program>:2:20)",
    ]
    assert hint.startswith("  hint: give one of them no embedding, as in `:- embed(")


def test_the_earliest_cycle_is_told():
    text = ":- event(e). :- exogenous(on). :- embed(on, 0). :- embed(up, 0).\nq. up <- on. a :- q. a :- b, up. b :- a. e :- b.\n"
    with pytest.raises(ForetellError, match=r"needs itself after event 2 \(`on`\)"):
        slots_of(text, ["e", "on", "e", "on"], [1, 2, 3, 4, 5])


def test_a_cycle_beside_thousands_of_other_slots_is_found_at_once():
    facts = " ".join(f"p({number})." for number in range(3000))
    with pytest.raises(ForetellError, match="needs itself"):
        slots_of(f":- event(e).\n{facts}\nr(X) :- p(X). e :- r(X). e :- a. a :- b. b :- a. a.\n", [], [1])
