"""What the database is at each moment: the rules of docs/explanation/database.md, one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from foretell.errors import DataError
from foretell.ground.engine import EndedRows, Engine, GroundingError, ReplayLimits
from foretell.ground.timeline import NEVER
from foretell.lang.program import Program
from foretell.reference.database import states
from tests.ground.timelines import additions_at, fact_of, names_at, replay_of, timeline_of

DOOR = """
:- exogenous(push). :- exogenous(pull). :- exogenous(wipe).
open <- push.
!open <- pull.
"""


def test_added_fact_holds_from_the_next_state_until_it_is_removed() -> None:
    timeline = timeline_of(DOOR, ["push", "pull", "push"])
    assert ["open" in names_at(timeline, state) for state in range(5)] == [False, False, True, False, True]


def test_states_are_counted_from_before_bos_and_times_are_those_of_events() -> None:
    timeline = timeline_of(DOOR, ["push", "pull"])
    assert [timeline.after(state) for state in range(4)] == [None, "bos", "push", "pull"]
    assert [timeline.time_of(state) for state in range(4)] == [0.0, 0.0, 1.0, 2.0]
    assert [timeline.state_at(time) for time in (0.0, 0.5, 1.0, 1.5, 2.0, 9.0)] == [1, 1, 1, 2, 2, 3]


def test_one_event_that_removes_and_adds_leaves_the_fact_true_with_that_addition_alone() -> None:
    program = ":- exogenous(tick).\nseen(X) <- tick(X).\n!seen(X) <- tick(X).\n"
    timeline = timeline_of(program, ["tick(a)", "tick(a)", "tick(a)"])
    for state in (2, 3, 4):
        assert names_at(timeline, state) == ["seen(a)"]
        assert [event for *_, event in additions_at(timeline, state)] == [state - 1]
    assert timeline.additions[:, 1:].tolist() == [[1, 2], [2, 3], [3, NEVER]]


def test_removal_erases_additions_only_and_a_deduced_fact_stays() -> None:
    program = ":- exogenous(add). :- exogenous(wipe).\nbase.\nlit :- base.\nlit <- add.\n!lit <- wipe.\n"
    timeline = timeline_of(program, ["add", "wipe"])
    assert all("lit" in names_at(timeline, state) for state in range(4))
    assert len(additions_at(timeline, 2)) == 1
    assert additions_at(timeline, 3) == []


def test_rules_that_fire_at_an_event_see_the_database_just_before_it() -> None:
    program = ":- exogenous(e).\na <- e.\nb <- e, a.\nc <- e, not a.\n"
    timeline = timeline_of(program, ["e", "e"])
    assert names_at(timeline, 2) == ["a", "c"]
    assert names_at(timeline, 3) == ["a", "b", "c"]


def test_bos_happens_once_before_everything() -> None:
    timeline = timeline_of(":- exogenous(e).\nstart <- bos.\n!start <- e.\n", ["e"])
    assert [names_at(timeline, state) for state in range(3)] == [[], ["start"], []]


def test_all_instantiations_of_a_rule_are_kept_even_where_the_fact_is_true_already() -> None:
    program = ":- exogenous(e).\ng(a). g(b).\nh :- g(X).\nk <- e, g(X).\n"
    timeline = timeline_of(program, ["e", "e"])
    heads = [timeline.grounding.text(timeline.grounding.head[one]) for one in timeline.proofs_at(0)]
    assert heads.count("h") == 2
    assert len(additions_at(timeline, 3)) == 4


def test_each_binding_of_parameter_variables_is_a_group_of_its_own() -> None:
    program = ":- exogenous(e).\ng(a,x). g(b,x). g(b,y).\nh(Y) :- g(X,Y) :: w(X).\n"
    timeline = timeline_of(program, ["e"])
    grounding = timeline.grounding
    names = {grounding.group_name(grounding.group[one]) for one in timeline.proofs_at(1) if grounding.rule[one] == 3}
    assert names == {"rule1[X=a]", "rule1[X=b]"}


def test_additions_are_sorted_by_group_head_and_event() -> None:
    program = ":- exogenous(e).\nh(X) <- e(X,Y) :: w(Y).\n"
    timeline = timeline_of(program, ["e(b,1)", "e(a,2)", "e(b,2)", "e(a,1)", "e(b,1)"])
    grounding = timeline.grounding
    rows = [(grounding.group[one], grounding.head[one], event) for one, event, _ in timeline.additions.tolist()]
    assert rows == sorted(rows) and len(rows) == 5


def test_recursion_loses_what_only_proves_itself() -> None:
    program = """
    :- exogenous(link). :- exogenous(cut).
    edge(X,Y) <- link(X,Y).
    !edge(X,Y) <- cut(X,Y).
    reach(X,Y) :- edge(X,Y).
    reach(X,Z) :- reach(X,Y), edge(Y,Z).
    """
    timeline = timeline_of(program, ["link(a,b)", "link(b,a)", "cut(a,b)"])
    assert "reach(b,b)" in names_at(timeline, 3)
    assert names_at(timeline, 4) == ["edge(b,a)", "reach(b,a)"]


@pytest.mark.parametrize("seed", range(6))
def test_reachability_on_a_changing_graph_equals_recomputation(seed: int) -> None:
    """Long cycles come and go: what unfounded sets are about."""
    program = Program.from_text(
        """
        :- exogenous(link). :- exogenous(cut). :- exogenous(block). :- exogenous(free).
        edge(X,Y) <- link(X,Y).
        !edge(X,Y) <- cut(X,Y).
        blocked(X) <- block(X).
        !blocked(X) <- free(X).
        reach(X,Y) :- edge(X,Y), not blocked(Y).
        reach(X,Z) :- reach(X,Y), reach(Y,Z), X != Z.
        lonely(X) :- edge(X,_), not reach(X,_).
        """
    )
    draw = random.Random(seed)
    nodes = "abcde"
    events = []
    for _ in range(25):
        kind = draw.choice(["link", "link", "cut", "block", "free"])
        ends = draw.sample(nodes, 2) if kind in ("link", "cut") else [draw.choice(nodes)]
        events.append(f"{kind}({','.join(ends)})")
    timeline = timeline_of(program, events)
    for state, slow in enumerate(states(program, events)):
        assert {fact_of(timeline.grounding, fact) for fact in timeline.facts_at(state)} == slow.facts


def test_long_chains_of_deduction_need_no_python_stack() -> None:
    size = 3000
    rules = "".join(f"n{i + 1} :- n{i}.\n" for i in range(size))
    chain = "".join(f"next({i},{i + 1}). " for i in range(size))
    program = f":- exogenous(e).\n{rules}n0 <- e.\n{chain}\nat(0) <- e.\nat(Y) :- at(X), next(X,Y).\n"
    timeline = timeline_of(program, ["e"])
    assert {f"n{size}", f"at({size})"} <= set(names_at(timeline, 2))


def test_names_with_spaces_and_numbers_are_the_events_of_the_program() -> None:
    program = ":- exogenous('Nice Question'). :- exogenous(3).\na <- 'Nice Question'.\nb <- 3.\nc('New York') <- 3.\n"
    assert names_at(timeline_of(program, ["Nice Question", "3"]), 3) == ["a", "b", "c('New York')"]


# Events that the program does not allow

CLUB = """
:- event(enter). :- exogenous(ban).
guest(eve). guest(bob).
enter(P) :- guest(P), not banned(P).
banned(P) <- ban(P).
"""


def test_impossible_event_is_an_error_that_names_the_condition_that_fails() -> None:
    with pytest.raises(DataError) as caught:
        replay_of(CLUB, ["enter(eve)", "ban(bob)", "enter(bob)"])
    message = str(caught.value)
    for part in ("sequence s0", "event 3", "time 3", "`enter(bob)`", "rule1", "not banned(bob)", 'impossible="skip"'):
        assert part in message


def test_every_sequence_reports_its_first_impossible_event() -> None:
    with pytest.raises(DataError) as caught:
        replay_of(CLUB, ["enter(zoe)"], ["enter(eve)"], ["ban(eve)", "enter(eve)"])
    assert len(caught.value.problems) == 2


def test_impossible_events_are_skipped_or_kept_unscored_and_counted() -> None:
    events = ["ban(bob)", "enter(bob)", "enter(eve)"]
    skipped = replay_of(CLUB, events, impossible="skip")
    assert skipped.impossible == 1
    assert skipped.timelines[0].states == 4
    assert skipped.timelines[0].times.tolist() == [1.0, 3.0]
    kept = replay_of(CLUB, events, impossible="exogenous")
    assert kept.impossible == 1
    assert kept.timelines[0].possible_events.tolist() == [False, False, True]


def test_undeclared_events_are_errors_with_a_hint_or_exogenous_by_wish() -> None:
    with pytest.raises(DataError, match=r"did you mean `enter`"):
        replay_of(CLUB, ["entr(eve)"])
    lenient = Program.from_text(CLUB, undeclared="exogenous")
    assert replay_of(lenient, ["knock", "enter(eve)"]).undeclared == 1


def test_an_event_with_the_wrong_number_of_arguments_is_an_error() -> None:
    with pytest.raises(DataError, match="2 arguments"):
        replay_of(CLUB, ["enter(eve,bob)"])


def test_exponential_joins_are_refused_with_the_rule_that_asks_for_them() -> None:
    facts = "".join(f"n({i}). " for i in range(40))
    program = f":- exogenous(e).\n{facts}\nh(A,B,C,D,E) :- n(A), n(B), n(C), n(D), n(E), go.\ngo <- e.\n"
    with pytest.raises(GroundingError, match="rule1 "):
        replay_of(program, ["e"], limits=ReplayLimits(10_000, 100_000))


def test_empty_sequences_and_programs_replay() -> None:
    assert timeline_of(DOOR, []).states == 2
    assert names_at(timeline_of(Program.from_text("", undeclared="exogenous"), ["x"]), 2) == []


def test_possible_events_are_the_true_facts_of_event_functors() -> None:
    timeline = timeline_of(CLUB, ["ban(bob)"])
    grounding = timeline.grounding
    assert [grounding.text(fact) for fact in timeline.facts_at(2) if grounding.is_event(fact)] == ["enter(eve)"]
    rows = [(grounding.text(fact), start, stop) for fact, start, stop in timeline.possible.tolist()]
    assert sorted(rows) == [("enter(bob)", 0, 2), ("enter(eve)", 0, 3)]


def test_facts_of_one_program_do_not_leak_into_another() -> None:
    timeline_of(DOOR, ["push"])
    assert names_at(timeline_of(DOOR, []), 1) == []


# What an event costs, in facts looked at


def _steps(engine: Engine, name: str, state: int) -> int:
    """Of one event."""
    event = engine.event(name)
    before = engine.limits.steps
    fired = engine.fire(event)
    used = before - engine.steps
    engine.apply(fired, state, EndedRows())
    return used + before - engine.steps


def test_a_join_order_chosen_when_little_was_known_is_given_up(tmp_path: Path) -> None:
    """A large table, and a relation that is empty at first and then grows."""
    (tmp_path / "owner.csv").write_text("what,who\n" + "".join(f"p{i},u{i}\n" for i in range(20_000)))
    program = Program.from_text(
        ':- table(owner, "owner.csv").\n:- exogenous(login). :- exogenous(watch).\nonline(U) <- login(U).\n'
        "seen(P) <- watch(P), owner(P,U), online(U).\n",
        folder=tmp_path,
    )
    engine = Engine(program)
    engine.start()
    early = _steps(engine, "watch(p1)", 1)
    for place in range(3000):
        _steps(engine, f"login(u{place})", 2 + place)
    late = [_steps(engine, f"watch(p{place})", 5000) for place in range(10, 20)]
    assert max(late) <= early + 40, "what was logged in has nothing to do with it"


def test_losing_one_of_two_proofs_looks_at_nothing_that_rests_on_the_fact() -> None:
    size = 2000
    chain = "".join(f"next({i},{i + 1}). " for i in range(size))
    program = Program.from_text(
        f":- exogenous(on). :- exogenous(off).\n{chain}\nsrc(X) <- on(X).\n!src(X) <- off(X).\n"
        "up(0) :- src(X).\nup(Y) :- up(X), next(X,Y).\n"
    )
    engine = Engine(program)
    engine.start()
    for place, name in enumerate(["on(a)", "on(b)"]):
        _steps(engine, name, 1 + place)
    asked = []
    look = engine.founding._new_basis
    engine.founding._new_basis = lambda fact, lost: asked.append(fact) or look(fact, lost)  # pyright: ignore
    for place, name in enumerate(["off(a)", "on(a)", "off(b)", "on(b)"]):
        _steps(engine, name, 3 + place)
    assert len(asked) <= 4
    assert engine.true[engine.event(f"up({size})")]


def test_rules_with_hundreds_of_conditions_end() -> None:
    joined = ", ".join(f"l(X{i},X{i + 1})" for i in range(150))
    absent = ", ".join(f"not k(c{i})" for i in range(3000))
    unequal = ", ".join(f"X != c{i}" for i in range(5000))
    equal = ", ".join(f"Y{i} = Y{i + 1}" for i in range(5000))
    program = (
        f":- exogenous(e).\nl(X,Y) <- e(X,Y).\nk(z).\nlong(X0) :- {joined}.\nnone :- l(X,X), {absent}.\n"
        f"other(X) :- l(X,X), {unequal}.\nsame(Y0) :- l(Y0,Y0), {equal}.\n"
    )
    timeline = timeline_of(program, ["e(a,a)", "e(a,b)"])
    assert {"long(a)", "none", "other(a)", "same(a)"} <= set(names_at(timeline, 3))


def test_the_reserved_events_cannot_be_in_the_data() -> None:
    for name in ("bos", "eos", "bos(x)"):
        with pytest.raises(DataError, match="is reserved"):
            replay_of(Program.from_text(CLUB, undeclared="exogenous"), [name])
