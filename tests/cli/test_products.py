"""Commands on a program whose possible events are too many to be named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.invoking import fine, refused

PROGRAM = """
:- event(watch, 2). :- embed(user, 2). :- embed(item, 2).
:- table(user, "users.csv").
:- table(item, "items.csv").
watch(U,P) :- user(U), item(P), not seen(U,P).
seen(U,P) <- watch(U,P).
:- embed(seen, 0).
"""


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    for name, letter in (("users", "u"), ("items", "p")):
        (tmp_path / f"{name}.csv").write_text("name\n" + "".join(f"{letter}{one}\n" for one in range(70)))
    program, events = tmp_path / "watch.ndtt", tmp_path / "events.csv"
    program.write_text(PROGRAM)
    events.write_text('sequence,time,event\n0,1,"watch(u1,p2)"\n0,2,"watch(u69,p0)"\n')
    return program, events


def test_replay_counts_what_it_does_not_name(case):
    told = fine("replay", *case).out
    assert "4,900 possible events" in told.replace("4900", "4,900")
    assert "4898 possible events" in told.replace(",", "")
    at = fine("replay", *case, "--at", "1.5").out
    assert "4,899 of watch" in at and "watch(u3,p3)" not in at
    state = json.loads(fine("replay", *case, "--at", "1.5", "--json").out)[0]["states"][0]
    assert state["possible_counts"] == {"watch": 4899} and state["possible"] == []


def test_replay_names_all_of_them_if_asked(case):
    state = json.loads(fine("replay", *case, "--all", "--at", "1.5", "--json").out)[0]["states"][0]
    assert len(state["possible"]) == 4899 and "watch(u1,p2)" not in state["possible"]
    assert "possible_counts" not in state


def test_why_answers_for_one_of_them(case):
    program, events = case
    told = fine("why", program, events, "watch(u3,p3)", "--at", "1.5").out
    assert "rule1" in told and "user(u3)" in told
    assert "`not seen(u1,p2)` fails" in fine("why", program, events, "watch(u1,p2)", "--at", "1.5").out


def test_plan_draws_some_of_them_and_says_so(case):
    done = fine("plan", *case, "--dim", "2")
    assert "rule1 (user(U) × item(P))" in done.err
    assert "150 possible events" in done.out


def test_an_event_that_was_taken_out_is_refused(case):
    program, events = case
    events.write_text('sequence,time,event\n0,1,"watch(u1,p2)"\n0,2,"watch(u1,p2)"\n')
    assert "`not seen(u1,p2)` fails" in refused("replay", program, events)
