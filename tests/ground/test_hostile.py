"""Damaged programs and event files give an answer or a message, never a traceback and never a hang."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from foretell.data import load_file
from foretell.errors import ForetellError
from foretell.ground.engine import ReplayLimits
from foretell.ground.explain import why
from foretell.ground.replay import replay
from foretell.lang.program import Program
from tests.ground.mutations import mutated
from tests.ground.random_programs import random_case

LIMITS = ReplayLimits(5_000, 50_000)
LONGEST = 20.0  # seconds for one case: far more than any takes, so that a busy machine is no failure
QUICK, ALL, BLOCK = 400, 10_000, 200

FORUM = """% a forum
:- event(message, 8).
:- event(join). :- exogenous(create). :- exogenous(destroy).
:- embed(member, 0). :- key(forum, 4).
empl(eve). empl('Bob B') :: person. content(joke). content(12).
forum(T) <- create(T).
forum(T) : b <- message(P,T,C), empl(P) :: post(C).
!forum(T) <- destroy(T).
message(P,T,C) :- empl(P), forum(T), content(C), member(P,T), not muted(P, _).
join(P,T) :- empl(P), forum(T), not member(P,T).
member(P,T) <- join(P,T).
reach(P,Q) :- member(P,T), member(Q,T), P != Q.
reach(P,R) :- reach(P,Q), reach(Q,R), X = P.
muted(P, 1) <- destroy(T), member(P,T).
"""
EVENTS = (
    '{"id": "g1", "times": [1.0, 2.0, 3.5, 3.5], "events": ["create(sales)", "join(eve, sales)", "message(eve,sales,joke)", '
    '"destroy(sales)"], "t_end": 10.0}\n{"times": [0.5], "events": ["create(it)"], "t_end": null}\n'
)


def _survives(program_text: str, events_text: str, folder: Path, draw: random.Random) -> None:
    """Whatever happens is the user's mistake, told in words."""
    start = time.monotonic()
    path = folder / "events.jsonl"
    path.write_bytes(events_text.encode("utf-8", "surrogatepass"))
    try:
        program = Program.from_text(program_text, folder=folder, undeclared=draw.choice(["error", "exogenous"]))
        data = load_file(path)
        done = replay(program, data, impossible=draw.choice(["error", "skip", "exogenous"]), limits=LIMITS)
        for timeline in done.timelines[:2]:
            for fact in timeline.facts_at(timeline.states - 1)[:5]:
                assert why(timeline, timeline.grounding.text(fact), timeline.states - 1).holds
    except ForetellError as error:
        assert str(error)
        assert len(str(error)) < 100_000, "a message is for reading"
    assert time.monotonic() - start < LONGEST


def _block(block: int, folder: Path) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        draw = random.Random(seed)
        program, events = FORUM, EVENTS
        if seed % 3 == 0:
            program = random_case(seed % 50).text
        if seed % 4 != 3:
            program = mutated(program, draw)
        if seed % 4 != 0:
            events = mutated(events, draw)
        _survives(program, events, folder, draw)


def test_the_undamaged_program_and_file_replay(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(EVENTS)
    assert len(replay(Program.from_text(FORUM), load_file(path)).timelines) == 2


@pytest.mark.parametrize("block", range(QUICK // BLOCK))
def test_damaged_input_gives_an_error_or_an_answer(block: int, tmp_path: Path) -> None:
    _block(block, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(QUICK // BLOCK, ALL // BLOCK))
def test_ten_thousand_damaged_inputs_give_an_error_or_an_answer(block: int, tmp_path: Path) -> None:
    _block(block, tmp_path)


@pytest.mark.parametrize(
    ("refused", "program"),
    [
        (True, "e(a,b). e(b,c). e(c,d). p :- " + ", ".join(f"e(A{i},B{i})" for i in range(40)) + "."),
        (True, "".join(f"n({i}). " for i in range(60)) + "p(A,B,C,D) :- n(A), n(B), n(C), n(D)."),
        (False, "".join(f"n({i}). " for i in range(60)) + "p :- n(A), n(B), n(C), n(D), n(E), A = 1, E != E."),
        (
            True,
            "d(0). d(1). p("
            + ",".join(f"X{i}" for i in range(30))
            + ") :- "
            + ", ".join(f"d(X{i})" for i in range(30))
            + ".",
        ),
    ],
)
def test_exponential_joins_end_with_a_message_or_an_answer(refused: bool, program: str) -> None:
    start = time.monotonic()
    checked = Program.from_text(program, undeclared="exogenous")
    if refused:
        with pytest.raises(ForetellError, match="instantiations"):
            replay(checked, _nothing())
    else:
        replay(checked, _nothing())
    assert time.monotonic() - start < 90


def _nothing():
    from tests.ground.timelines import event_data

    return event_data(["x"])
