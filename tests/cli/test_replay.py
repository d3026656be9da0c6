"""`foretell replay` and `foretell why`: what they print, and what they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.invoking import fine, foretell, refused

PROGRAM = """
:- event(message). :- event(join). :- exogenous(create).
empl(eve). empl(bob).
forum(T) <- create(T).
join(P,T) :- empl(P), forum(T), not member(P,T).
member(P,T) <- join(P,T).
message(P,T) :- member(P,T).
"""
EVENTS = ["create(sales)", "join(eve, sales)", "message(eve,sales)"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "forum.ndtt"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _events(path: Path, *sequences: tuple[str, list[float], list[str]]) -> Path:
    lines = [
        json.dumps({"id": name, "times": times, "events": events, "t_end": 10.0}) for name, times, events in sequences
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return _events(tmp_path / "events.jsonl", ("g1", [1.0, 2.0, 3.0], EVENTS), ("g2", [0.5], ["create(it)"]))


def test_replay_json_is_an_array_with_every_state_of_every_sequence(program: Path, data: Path) -> None:
    answer = fine("replay", program, data, "--json").json
    assert [one["sequence"] for one in answer] == ["g1", "g2"]
    states = answer[0]["states"]
    assert [(one["index"], one["after"], one["time"]) for one in states] == [
        (0, None, 0.0),
        (1, "bos", 0.0),
        (2, "create(sales)", 1.0),
        (3, "join(eve,sales)", 2.0),
        (4, "message(eve,sales)", 3.0),
    ]
    assert states[0]["facts"] == ["empl(bob)", "empl(eve)"]
    assert states[3]["possible"] == ["join(bob,sales)", "message(eve,sales)"]
    assert states[3]["facts"] == sorted(
        ["empl(bob)", "empl(eve)", "forum(sales)", "join(bob,sales)", "member(eve,sales)", "message(eve,sales)"]
    )


def test_replay_at_a_time_sees_the_events_before_it(program: Path, data: Path) -> None:
    for time, index in ((0, 1), (1.0, 1), (1.5, 2), (99, 4)):
        (state,) = fine("replay", program, data, "--json", "--at", time, "--sequence", "g1").json[0]["states"]
        assert state["index"] == index
    assert "possible: join(bob,sales), join(eve,sales)" in fine("replay", program, data, "--at", 1.5).out


def test_replay_prints_what_each_event_changed(program: Path, data: Path) -> None:
    out = fine("replay", program, data, "--sequence", "0").out
    assert "sequence g1: 3 events, 5 states" in out
    assert "after join(eve,sales) at 2: 6 facts, 2 possible events" in out
    assert "-join(eve,sales)" in out and "+member(eve,sales)" in out
    assert "g2" not in out


def test_a_second_replay_reads_the_first_one(program: Path, data: Path, own_cache: Path) -> None:
    first = fine("replay", program, data, "--json").out
    assert len(list(own_cache.rglob("*.npz"))) == 1
    assert fine("replay", program, data, "--json").out == first
    assert fine("replay", program, data, "--json", "--no-cache").out == first


def test_an_impossible_event_is_refused_with_what_fails_and_can_be_skipped(program: Path, tmp_path: Path) -> None:
    data = _events(tmp_path / "bad.jsonl", ("g", [1.0, 2.0], ["create(sales)", "message(bob,sales)"]))
    message = refused("replay", program, data)
    assert "`message(bob,sales)`" in message and "`member(bob,sales)` is not true" in message and "rule4" in message
    skipped = foretell("replay", program, data, "--impossible", "skip", "--json")
    assert skipped.code == 0 and len(skipped.json[0]["states"]) == 3
    assert "1 impossible event left out" in skipped.err
    assert len(fine("replay", program, data, "--impossible", "exogenous", "--json").json[0]["states"]) == 4


def test_undeclared_events_are_refused_or_taken_as_exogenous(program: Path, tmp_path: Path) -> None:
    data = _events(tmp_path / "odd.jsonl", ("g", [1.0], ["mesage(eve,sales)"]))
    assert "did you mean `message`?" in refused("replay", program, data)
    outcome = fine("replay", program, data, "--undeclared", "exogenous")
    assert "1 event that nothing declares" in outcome.err


def test_why_gives_a_proof_or_what_fails(program: Path, data: Path) -> None:
    proof = fine("why", program, data, "message(eve, sales)", "--at", 2.5).out
    assert "deduced by rule4" in proof and "added by event 2 at 2: join(eve,sales)" in proof
    missing = fine("why", program, data, "message(bob,sales)", "--at", 2.5).out
    assert "`member(bob,sales)` is not true" in missing
    (answer,) = fine("why", program, data, "message(bob,sales)", "--at", 2.5, "--json").json
    assert answer["holds"] is False and answer["index"] == 3 and answer["failures"][0]["rule"] == "rule4"


def test_why_is_not_stopped_by_what_goes_wrong_later(program: Path, tmp_path: Path) -> None:
    data = _events(tmp_path / "bad.jsonl", ("g", [1.0, 2.0], ["create(sales)", "message(bob,sales)"]))
    assert "`member(bob,sales)` is not true" in fine("why", program, data, "message(bob,sales)", "--at", 2.0).out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--at", "-1"], "expected a time from 0 on"),
        (["--at", "nan"], "expected a time from 0 on"),
        (["--sequence", "g9"], "no sequence 'g9'"),
        (["--split", "test"], "has no split"),
    ],
)
def test_bad_questions_are_refused(program: Path, data: Path, arguments: list[str], part: str) -> None:
    assert part in refused("replay", program, data, *arguments)


def test_missing_files_and_wrong_programs_are_refused(program: Path, data: Path, tmp_path: Path) -> None:
    assert foretell("replay", tmp_path / "none.ndtt", data).code == 1
    assert "none.jsonl" in refused("replay", program, tmp_path / "none.jsonl")
    program.write_text("p(X) :- q.")
    outcome = foretell("replay", program, data)
    assert outcome.code == 1 and outcome.out == "" and "error[" in outcome.err


def test_replay_and_why_do_not_load_torch(program: Path, data: Path) -> None:
    code = (
        "import sys\nfrom foretell.cli.main import run\n"
        "try:\n    run()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    for arguments in (["replay", program, data, "--json"], ["why", program, data, "empl(eve)", "--at", "1"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, env=dict(os.environ)
        )
        assert done.returncode == 0, done.stderr
