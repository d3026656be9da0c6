"""Events that training never met, and events that are not predicted: what a run of rules does with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.invoking import fine, refused

CHAT = """
:- event(say). :- exogenous(arrive).
here(P) <- arrive(P).
here(P) <- say(P).
say(P) :- here(P).
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "chat.ndtt").write_text(CHAT, encoding="utf-8")
    write(tmp_path / "chat.jsonl", [["arrive(ann)", "say(ann)", "say(ann)", "arrive(bob)", "say(bob)"]] * 4)
    options = ("--dim", 2, "--layers", 1, "--epochs", 2, "--quiet")
    fine(
        "train",
        "--program",
        tmp_path / "chat.ndtt",
        "--data",
        tmp_path / "chat.jsonl",
        "--out",
        tmp_path / "run",
        *options,
    )
    return tmp_path / "run"


def write(path: Path, sequences: list[list[str]]) -> None:
    rows = [
        {"id": f"s{place}", "times": [0.5 + one for one in range(len(events))], "events": events, "t_end": 9.0}
        for place, events in enumerate(sequences)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_floors_are_scored_on_the_events_that_the_model_predicts(run: Path):
    scores = fine("evaluate", run, "--floors", "--no-times", "--json").json
    assert scores["events"] == 12
    assert {floor["model"]: floor["events"] for floor in scores["floors"]} == {"Poisson": 12, "Hawkes": 12}


def test_names_that_training_never_met_are_fine_where_rules_say_what_they_mean(run: Path, tmp_path: Path):
    write(tmp_path / "new.jsonl", [["arrive(zoe)", "say(zoe)", "say(zoe)"]])
    asked = (run, tmp_path / "new.jsonl")
    scores = fine("evaluate", *asked, "--floors", "--no-times", "--json").json
    assert scores["events"] == 2 and scores["log_likelihood"]["value"] < 0
    found = fine("intensity", *asked, "--at", "1.0", "--json").json
    assert set(found[0]["queries"][0]["intensities"]) == {"say(zoe)"}
    assert "say(zoe)" in json.dumps(fine("explain", *asked, "--at", "3.2", "--json").json)


def test_an_event_that_the_program_does_not_declare_is_told(run: Path, tmp_path: Path):
    write(tmp_path / "odd.jsonl", [["arrive(zoe)", "shout(zoe)"]])
    assert "shout(zoe)" in refused("evaluate", run, tmp_path / "odd.jsonl")
