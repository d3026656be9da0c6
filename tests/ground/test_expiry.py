"""Additions that end by themselves: the engine against recomputation and clingo, and what a timeline says about them."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.data import EventData, EventSequence
from foretell.data.clock import Clock
from foretell.errors import DataError, ForetellError
from foretell.ground.explain import why
from foretell.ground.replay import replay
from foretell.lang.program import Program
from foretell.reference.database import EXPIRY, changes, first_state
from tests.ground.clingo_states import Steps, clingo_steps
from tests.ground.random_programs import Case, lifetimes, random_case
from tests.ground.timelines import additions_at, fact_of, names_at, proofs_at

QUICK, ALL, BLOCK = 60, 1000, 20
SESSIONS = """:- event(buy). :- exogenous(login). :- exogenous(logout).
user(u; v).
buy(U) :- session(U).
session(U) <- login(U) for 3.
!session(U) <- logout(U).
"""


def data_of(*sequences: tuple[list[str], list[float], float], clock: Clock | None = None) -> EventData:
    made = EventData.from_names([one[0] for one in sequences], [one[1] for one in sequences])
    ended = [
        EventSequence(one.times, one.types, given[2], f"s{place}")
        for place, (one, given) in enumerate(zip(made, sequences, strict=True))
    ]
    return EventData(ended, made.vocabulary, **({} if clock is None else {"clock": clock}))


def _agree(seed: int, numbers: bool = False) -> int:
    """Three sequences, so that going back to the start is tested too; how often something expired."""
    case = random_case(seed, numbers=numbers, expiry=True)
    half = len(case.events) // 2
    whole = case.events, case.times, case.t_end
    sequences = [whole, (case.events[:half], case.times[:half], case.t_end), whole]
    expired = 0
    for timeline, (events, times, t_end) in zip(
        replay(case.program, data_of(*sequences)).timelines, sequences, strict=True
    ):
        expired += _same(case, timeline, events, times, t_end)
    return expired


def _same(case: Case, timeline, events: list[str], times: list[float], t_end: float) -> int:
    program, lives = case.program, lifetimes(case.program)
    steps = Steps.of(events, times, t_end, lives)
    second = clingo_steps(program, steps)
    slow = list(changes(program, events, times, t_end, lives))
    assert timeline.times.tolist() == [one.time for one in slow[1:]], case.text
    assert timeline.is_expiry.tolist() == [one.what == EXPIRY for one in slow[1:]], case.text
    states = [first_state(program), *(one.state for one in slow)]
    step = 0  # of clingo: the state after it is that after the change, since steps between the two change nothing
    for number, state in enumerate(states):
        if number:
            change = slow[number - 1]
            while (steps.names[step] is None) != (change.what == EXPIRY) or steps.times[step] != change.time:
                assert steps.names[step] is None, "no event is passed over"
                assert second[step + 1] == second[step], "nothing ends there"
                step += 1
            step += 1
        facts = [fact_of(timeline.grounding, fact) for fact in timeline.facts_at(number)]
        assert len(facts) == len(set(facts))
        assert set(facts) == state.facts == second[step], (number, case.text)
        expected = [(one.rule, one.head, one.body, one.parameters) for one in state.proofs]
        assert sorted(proofs_at(timeline, number)) == sorted(expected), (number, case.text)
        wanted = [
            (one.rule, one.head, one.body, one.parameters, added.event)
            for added in state.additions
            for one in [added.instantiation]
        ]
        assert sorted(additions_at(timeline, number)) == sorted(wanted), (number, case.text)
    return int(timeline.is_expiry.sum())


@pytest.mark.parametrize("block", range(QUICK // BLOCK))
def test_replay_with_expiry_equals_recomputation_and_clingo_after_every_change(block: int) -> None:
    seeds = range(block * BLOCK, (block + 1) * BLOCK)
    assert sum(_agree(seed, numbers=bool(seed % 4 == 3)) for seed in seeds) > BLOCK, "something expires in most of them"


@pytest.mark.slow
@pytest.mark.parametrize("block", range(QUICK // BLOCK, ALL // BLOCK))
def test_replay_with_expiry_equals_recomputation_and_clingo_on_all_thousand_programs(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        _agree(seed, numbers=bool(seed % 4 == 3))


def test_an_event_at_the_very_end_of_an_addition_still_sees_it() -> None:
    events = ["login(u)", "buy(u)", "buy(u)"]
    [timeline] = replay(Program.from_text(SESSIONS), data_of((events, [1.0, 2.0, 4.0], 9.0))).timelines
    assert timeline.times.tolist() == [1.0, 2.0, 4.0, 4.0]
    assert timeline.is_expiry.tolist() == [False, False, False, True]
    with pytest.raises(DataError, match=r"buy\(u\)"):
        replay(Program.from_text(SESSIONS), data_of((events, [1.0, 2.0, np.nextafter(4.0, 5.0)], 9.0)))


def test_a_fact_holds_while_any_addition_lives_and_each_ends_at_its_own_time() -> None:
    data = data_of((["login(u)", "login(u)", "login(v)"], [1.0, 2.0, 2.0], 9.0))
    [timeline] = replay(Program.from_text(SESSIONS), data).timelines
    assert timeline.times.tolist() == [1.0, 2.0, 2.0, 4.0, 5.0]
    held = ["session(u)" in names_at(timeline, state) for state in range(timeline.states)]
    assert held == [False, False, True, True, True, True, False]
    assert [len(timeline.additions_at(state)) for state in range(timeline.states)] == [0, 0, 1, 2, 3, 2, 0]


def test_a_removal_ends_what_would_expire_and_a_later_addition_counts_anew() -> None:
    events = ["login(u)", "logout(u)", "login(u)"]
    [timeline] = replay(Program.from_text(SESSIONS), data_of((events, [1.0, 2.0, 3.5], 9.0))).timelines
    assert timeline.times.tolist() == [1.0, 2.0, 3.5, 6.5], "nothing happens at 4"
    assert timeline.additions[:, 2].tolist() == [2, 4]


def test_an_addition_without_end_outlives_those_that_expire() -> None:
    text = SESSIONS + ":- exogenous(stay).\nsession(U) <- stay(U).\n"
    [timeline] = replay(Program.from_text(text), data_of((["login(u)", "stay(u)"], [1.0, 2.0], 9.0))).timelines
    assert timeline.times.tolist() == [1.0, 2.0, 4.0]
    assert "session(u)" in names_at(timeline, timeline.states - 1)


def test_nothing_expires_at_or_after_the_end_of_the_sequence() -> None:
    [at_end] = replay(Program.from_text(SESSIONS), data_of((["login(u)"], [1.0], 4.0))).timelines
    [after] = replay(Program.from_text(SESSIONS), data_of((["login(u)"], [1.0], 4.5))).timelines
    assert (at_end.times.tolist(), after.times.tolist()) == ([1.0], [1.0, 4.0])


def test_units_are_those_of_the_clock() -> None:
    program = Program.from_text(SESSIONS.replace("for 3", "for 30m"))
    hours = data_of((["login(u)"], [1.0], 4.0), clock=Clock.of_unit("hours"))
    [timeline] = replay(program, hours).timelines
    assert timeline.times.tolist() == [1.0, 1.5]
    with pytest.raises(
        ForetellError, match=r"<program>:4:\d+: `for 30m` has a unit, and the data's times are plain numbers"
    ):
        replay(program, data_of((["login(u)"], [1.0], 4.0)))


def test_cached_replays_know_times_and_durations(tmp_path) -> None:
    program, events = Program.from_text(SESSIONS), ["login(u)", "login(v)"]

    def files() -> int:
        return len(list((tmp_path / "timelines").glob("*.npz")))

    def ends(times: list[float], text: str = SESSIONS, t_end: float = 9.0) -> list[float]:
        [timeline] = replay(Program.from_text(text), data_of((events, times, t_end)), cache=tmp_path).timelines
        return timeline.times[timeline.is_expiry].tolist()

    assert ends([1.0, 2.0]) == [4.0, 5.0]
    assert (ends([1.0, 2.0]), files()) == ([4.0, 5.0], 1), "read again"
    assert (ends([1.0, 2.5]), files()) == ([4.0, 5.5], 2)
    assert (ends([1.0, 2.5], t_end=5.0), files()) == ([4.0], 3)
    assert (ends([1.0, 2.5], SESSIONS.replace("for 3", "for 2")), files()) == ([3.0, 4.5], 4)
    assert program.digest != Program.from_text(SESSIONS.replace("for 3", "for 2")).digest


def test_workers_give_the_numbers_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.ground.replay.CHUNK_EVENTS", 2)
    some = [(["login(u)", "buy(u)"], [1.0, 2.0], 9.0), (["login(v)", "login(u)"], [0.5, 0.5], 9.0)]
    one, two = (replay(Program.from_text(SESSIONS), data_of(*some), workers=workers).timelines for workers in (1, 2))
    for left, right in zip(one, two, strict=True):
        for name in ("times", "events", "holds", "proofs", "additions", "is_expiry"):
            assert np.array_equal(getattr(left, name), getattr(right, name)), name


def test_why_says_when_a_fact_expired() -> None:
    [timeline] = replay(Program.from_text(SESSIONS), data_of((["login(u)"], [1.0], 9.0))).timelines
    told = str(why(timeline, "session(u)", timeline.states - 1))
    assert "it was added by event 1 at 1 and expired at 4" in told
    alive = why(timeline, "session(u)", 2)
    assert "until 4" in str(alive)
    assert alive.to_json()["because"][0]["additions"][0]["until"] == 4.0
