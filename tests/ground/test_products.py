"""Events kept as products: the same facts and proofs as with rows, on random programs and by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretell.errors import DataError
from foretell.ground.engine import Engine, GroundingError, ReplayLimits
from foretell.ground.explain import why
from foretell.ground.product_rows import ListingError, listed
from foretell.ground.timeline import Timeline
from foretell.lang.products import product_rules
from foretell.lang.program import Program
from tests.ground.random_products import random_products
from tests.ground.random_programs import random_case
from tests.ground.timelines import names_at, proofs_at, timeline_of

WATCH = """
:- event(watch). :- exogenous(release). :- exogenous(retire). :- exogenous(join).
user(ann; bob; cid). program(news; film).
watch(U,P) :- user(U), program(P), not seen(U,P).
program(P) <- release(P).
!program(P) <- retire(P).
user(U) <- join(U).
seen(U,P) <- watch(U,P).
"""


def pair(text: str, events: list[str]) -> tuple[Timeline, Timeline]:
    """With products, and with rows."""
    program = Program.from_text(text)
    made = [timeline_of(replace(program, products=way), events) for way in ("always", "never")]
    return made[0], made[1]


def check_alike(found: Timeline, expected: Timeline) -> None:
    full = listed(found)
    assert full.events.shape == expected.events.shape
    assert found.possible_events.tolist() == expected.possible_events.tolist()
    for state in range(expected.states):
        assert names_at(full, state) == names_at(expected, state)
        assert sorted(proofs_at(full, state)) == sorted(proofs_at(expected, state))


SEEDS = range(150)


def sided(program: Program, events: list[str]) -> tuple[Timeline, Timeline]:
    made = [timeline_of(replace(program, products=way), events) for way in ("always", "never")]
    return made[0], made[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_listed_products_are_the_rows_of_random_programs(seed):
    check_alike(*sided(*random_products(seed)))


@pytest.mark.parametrize("seed", range(40))
def test_programs_with_all_else_have_the_same_facts(seed):
    case = random_case(seed, numbers=seed % 2 == 1)
    check_alike(*sided(case.program, case.events))


def test_random_programs_have_products():
    found = [product_rules(random_products(seed)[0])[0] for seed in SEEDS]
    assert sum(map(bool, found)) >= 100
    assert sum(any(one.blockers for one in rules) for rules in found) >= 20
    assert sum(len(rules) > 1 and len({one.rule.head.functor for one in rules}) < len(rules) for rules in found) >= 30


def test_parts_and_blockers_change_with_time():
    events = ["watch(ann,news)", "release(quiz)", "watch(bob,quiz)", "join(dan)", "retire(film)", "watch(dan,news)"]
    found, expected = pair(WATCH, events)
    assert found.grounding.products and not expected.grounding.products
    assert not any(key[0] == found.grounding.products[0].functor for key in _facts(found, 3))
    check_alike(found, expected)


def _facts(timeline: Timeline, state: int) -> list[tuple[int, ...]]:
    return [timeline.grounding.keys[fact] for fact in timeline.facts_at(state)]


def test_an_event_that_a_product_rules_out_is_an_error_with_its_reason():
    program = replace(Program.from_text(WATCH), products="always")
    with pytest.raises(DataError, match="watch\\(ann,news\\)") as raised:
        timeline_of(program, ["watch(ann,news)", "watch(ann,news)"])
    assert "`not seen(ann,news)` fails" in str(raised.value)


@pytest.mark.parametrize("fact", ["watch(ann,film)", "watch(ann,news)", "watch(zoe,news)", "watch(bob,quiz)"])
def test_why_says_what_it_says_of_rows(fact):
    found, expected = pair(WATCH, ["watch(ann,news)", "release(quiz)"])
    for state in range(expected.states):
        assert why(found, fact, state).to_json() == why(expected, fact, state).to_json()


def test_the_engine_never_lists_them():
    users, items = ";".join(f"u{i}" for i in range(300)), ";".join(f"p{i}" for i in range(300))
    text = f":- event(watch). user({users}). program({items}). watch(U,P) :- user(U), program(P), U != P."
    program = Program.from_text(text)
    engine = Engine(program)
    assert len(engine.instances) < 2000 and len(engine.keys) < 2000
    timeline = timeline_of(program, ["watch(u1,p2)", "watch(u299,p299)"])
    assert timeline.possible_events.all()
    with pytest.raises(ListingError, match="90,000"):
        listed(timeline, most=50_000)


def test_few_events_are_kept_as_rows_unless_asked():
    program = Program.from_text(WATCH)
    assert not timeline_of(program, []).grounding.products


REFUSED = {
    "watch(U,P) :- user(U), program(P), likes(U,Q), Q != P.": "joins its parts by a variable that is not in the head",
    "watch(U,P) :- user(U), program(P), count(likes(U,P)) < 2.": "counts across its parts",
    "watch(U,P) :- user(U), program(P) :: w(U,P).": "of several parts",
    "watch(U,P) :- user(U), program(P), U = ann.": "equality",
    "watch(U,P) :- user(U), program(P). busy(U) :- watch(U,P).": "another rule asks for `watch`",
    "watch(U,P) :- user(U), program(P). user(P) <- watch(U,P) for 3.": "the program has additions that expire",
}


@pytest.mark.parametrize("rule", REFUSED)
def test_what_does_not_qualify_is_kept_as_rows_and_says_why(rule):
    text = f":- event(watch). user(ann;bob). program(news;film). likes(ann,news). {rule}"
    found, refused = product_rules(Program.from_text(text))
    assert not found
    assert [REFUSED[rule] in one for one in refused.values()] == [True]
    check_alike(*pair(text, ["watch(ann,film)"]))


TOO_MANY = {
    "hot(P) :- watch(u1,P).": "another rule asks for `watch`",
    "seen(U,P) <- watch(U,P) for 3.": "the program has additions that expire",
}


@pytest.mark.parametrize("rule", TOO_MANY)
def test_too_many_rows_say_why_they_are_no_product(rule):
    users, items = ";".join(f"u{i}" for i in range(300)), ";".join(f"p{i}" for i in range(300))
    text = f":- event(watch). user({users}). program({items}). watch(U,P) :- user(U), program(P). {rule}"
    with pytest.raises(GroundingError, match=TOO_MANY[rule]):
        Engine(Program.from_text(text), ReplayLimits(instances=10_000))
