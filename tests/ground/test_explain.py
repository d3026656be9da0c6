"""Why a fact holds, and why not: trees that end at additions and facts, and conditions that really fail."""

from __future__ import annotations

import pytest

from foretell.errors import ForetellError
from foretell.ground.explain import WhyAnswer, why
from tests.ground.random_programs import random_case
from tests.ground.timelines import names_at, timeline_of

FORUM = """
:- event(message). :- exogenous(create). :- exogenous(destroy). :- exogenous(join).
empl(eve). empl(bob).
forum(T) <- create(T).
!forum(T) <- destroy(T).
member(P,T) <- join(P,T), empl(P), forum(T).
message(P,T) :- empl(P), forum(T), member(P,T), not muted(P).
muted(bob) <- destroy(_).
pair(P,Q) :- member(P,T), member(Q,T), P != Q.
"""
EVENTS = ["create(sales)", "join(eve,sales)", "join(zoe,sales)", "destroy(sales)"]


def _reasons(fact: str, state: int) -> str:
    explained = why(timeline_of(FORUM, EVENTS), fact, state)
    assert not explained.holds
    return "\n".join(explained.lines())


def test_a_true_fact_is_traced_to_additions_and_facts() -> None:
    explained = why(timeline_of(FORUM, EVENTS), "message(eve, sales)", 4)
    text = "\n".join(explained.lines())
    for part in ("deduced by rule4", "a fact of the program: empl(eve)", "added by event 1 at 1: create(sales)"):
        assert part in text
    assert "added by event 2 at 2: join(eve,sales) with empl(eve), forum(sales)" in text


def test_a_fact_that_is_added_and_deduced_shows_both_in_full() -> None:
    program = ":- exogenous(watch).\ntag(news,current).\ntopic(T) :- tag(_,T).\ntopic(T) <- watch(C), tag(C,T).\n"
    text = "\n".join(why(timeline_of(program, ["watch(news)"]), "topic(current)", 2).lines())
    assert "added by event 1" in text and "a fact of the program: tag(news,current)" in text and "see above" not in text


def test_a_removed_fact_says_when_it_was_added_and_removed() -> None:
    assert "added by event 1 at 1 and removed by event 4, `destroy(sales)` at 4 (rule2)" in _reasons("forum(sales)", 5)


def test_the_first_condition_that_fails_is_named_in_every_rule() -> None:
    assert "`forum(sales)` is not true" in _reasons("message(eve,sales)", 5)
    assert "`member(bob,sales)` is not true" in _reasons("message(bob,sales)", 3)
    assert "`P != Q` fails: both are eve" in _reasons("pair(eve,eve)", 4)
    assert "at event 3, time 3, `join(zoe,sales)`: `empl(zoe)` is not true" in _reasons("member(zoe,sales)", 5)
    assert "no event `join(bob,it)` has happened" in _reasons("member(bob,it)", 5)


def test_values_that_equalities_pass_on_are_used() -> None:
    program = ":- exogenous(e).\ng(a). k(a).\nh :- g(X), Y = X, not k(Y).\nj <- e(X), Y = X, Y != a.\n"
    timeline = timeline_of(program, ["e(a)"])
    assert "`not k(a)` fails: `k(a)` is true" in str(why(timeline, "h", 2))
    assert "`Y != a` fails" in str(why(timeline, "j", 2))


def test_a_fact_that_was_removed_and_not_added_again_says_both() -> None:
    program = ":- exogenous(e). :- exogenous(x). :- exogenous(y).\nok <- bos.\n!ok <- y.\ng <- e, ok.\n!g <- x.\n"
    text = str(why(timeline_of(program, ["e", "x", "y", "e"]), "g", 5))
    assert "removed by event 2" in text and "at event 4, time 4, `e`: `ok` is not true" in text


def test_a_misspelt_value_and_an_exogenous_event_are_told() -> None:
    assert "did you mean `sales`?" in _reasons("forum(slaes)", 5)
    timeline = timeline_of(FORUM, EVENTS)
    assert "is exogenous" in str(why(timeline, "create(sales)", 5)) and "last at 1" in str(
        why(timeline, "create(sales)", 5)
    )


@pytest.mark.parametrize("state", [-1, 6, 2.5])
def test_a_state_that_does_not_exist_is_refused(state) -> None:
    with pytest.raises(ForetellError, match="there are 6, 0 to 5"):
        why(timeline_of(FORUM, EVENTS), "forum(sales)", state)


def test_a_fact_that_nothing_can_make_true_is_told_apart() -> None:
    assert "no fact, table or rule" in _reasons("empl(zoe)", 2)


@pytest.mark.parametrize("fact", ["mesage(a,b)", "empl(a,b)", "empl(", "empl(X)"])
def test_nonsense_is_refused(fact: str) -> None:
    with pytest.raises(ForetellError):
        why(timeline_of(FORUM, EVENTS), fact, 1)


def test_proofs_that_go_round_in_circles_are_not_given_as_reasons() -> None:
    program = """
    :- exogenous(link).
    edge(X,Y) <- link(X,Y).
    reach(X,Y) :- edge(X,Y).
    reach(X,Z) :- reach(X,Y), reach(Y,Z).
    """
    timeline = timeline_of(program, ["link(a,b)", "link(b,a)", "link(b,c)"])
    for name in names_at(timeline, 4):
        assert _is_grounded(why(timeline, name, 4))


def _is_grounded(explained: WhyAnswer) -> bool:
    """Every fact of the tree can be reached from additions and facts of the program by the proofs that are shown."""
    known: set[str] = set()
    before = -1
    while len(known) > before:
        before = len(known)
        for node in explained.because.values():
            if node.additions or any(known.issuperset(proof.body) for proof in node.proofs):
                known.add(node.fact)
    return known == set(explained.because) and explained.fact in known


def test_a_long_proof_is_told_without_python_s_stack() -> None:
    chain = "".join(f"next({i},{i + 1}). " for i in range(3000))
    timeline = timeline_of(f":- exogenous(e).\n{chain}\nat(0) <- e.\nat(Y) :- at(X), next(X,Y).\n", ["e"])
    explained = why(timeline, "at(3000)", 2)
    assert "lines more" in explained.lines()[-1]
    assert len(explained.to_json()["because"]) == 6001


@pytest.mark.parametrize("seed", range(60))
def test_every_fact_of_a_random_program_is_explained(seed: int) -> None:
    case = random_case(seed)
    timeline = timeline_of(case.program, case.events)
    grounding = timeline.grounding
    for state in (1, timeline.states // 2, timeline.states - 1):
        true = set(timeline.facts_at(state))
        for fact in range(len(grounding.keys)):
            if grounding.functors[grounding.keys[fact][0]] not in case.program.functors:
                continue
            explained = why(timeline, grounding.text(fact), state)
            assert explained.holds == (fact in true)
            if explained.holds:
                assert _is_grounded(explained), (seed, grounding.text(fact))
            else:
                reasons = [reason for failure in explained.failures for reason in failure.reasons]
                assert all(reason and "all its conditions hold" not in reason for reason in reasons), (seed, reasons)
                assert all("another state" not in reason for reason in reasons), (seed, reasons, case.text)
