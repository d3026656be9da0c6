"""`--unseen`: values that training never met, where parameters of rules are named after values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.invoking import fine, refused

SHOP = (
    ":- event(buy, 3).\n:- exogenous(arrive, 0).\n:- embed(user, 2).\nitem(milk). item(tea).\n"
    "user(U) <- arrive(U).\nbuy(U, I) :- user(U), item(I) :: w(U).\n"
)


def write_events(path: Path, *users: str) -> Path:
    events = [name for user in users for name in (f"arrive({user})", f"buy({user},milk)", f"buy({user},tea)")]
    line = {"id": "s", "times": [0.5 * place for place in range(1, len(events) + 1)], "events": events, "t_end": 9.0}
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "shop.ndtt").write_text(SHOP, encoding="utf-8")
    train, made = write_events(tmp_path / "train.jsonl", "u1", "u2"), tmp_path / "run"
    fine(
        "train",
        "--data",
        train,
        "--program",
        tmp_path / "shop.ndtt",
        "--out",
        made,
        "--epochs",
        1,
        "--dim",
        2,
        "--quiet",
    )
    return made


def test_an_evaluation_says_how_many_groups_and_events_and_error_refuses(run: Path, tmp_path: Path) -> None:
    test = write_events(tmp_path / "test.jsonl", "u1", "u9")
    said = "the intensities of 2 events depend on 1 parameter group that training never met"
    assert said in fine("evaluate", run, test, "--no-times").out
    found = fine("evaluate", run, test, "--no-times", "--json").json
    assert (found["unseen_groups"], found["unseen_group_events"]) == (1, 2)
    message = refused("evaluate", run, test, "--unseen", "error")
    assert "1 parameter group that training never met: `w(u9)`" in message and "--unseen=error" in message
    known = write_events(tmp_path / "known.jsonl", "u2", "u1")
    assert "never met" not in fine("evaluate", run, known, "--no-times", "--unseen", "error").out


def test_other_commands_say_it_on_stderr_and_take_the_mean(run: Path, tmp_path: Path) -> None:
    test = write_events(tmp_path / "test.jsonl", "u1", "u9")
    asked = "intensity", run, test, "--at", "8.0", "--json"
    first, second = fine(*asked), fine(*asked)
    assert first.json == second.json and "1 parameter group that training never met" in first.err
    for command in (asked, ("predict", run, test), ("sample", run, "--history", test, "--horizon", 1)):
        assert "`w(u9)`" in refused(*command, "--unseen", "error")


def test_events_that_nothing_declares_are_taken_where_that_is_asked_for(run: Path, tmp_path: Path) -> None:
    test = write_events(tmp_path / "test.jsonl", "u1")
    test.write_text(test.read_text().replace("buy(u1,tea)", "look(u1)"), encoding="utf-8")
    asked = ("evaluate", run, test, "--no-times"), ("intensity", run, test, "--at", "8.0")
    for command in (*asked, ("predict", run, test), ("explain", run, test, "--at", "8.0")):
        assert "look(u1)" in refused(*command)
        assert "1 event that nothing declares" in fine(*command, "--undeclared", "exogenous").err


def test_a_training_and_a_search_take_them_and_a_run_keeps_the_choice(run: Path, tmp_path: Path) -> None:
    log = write_events(tmp_path / "log.jsonl", "u1", "u2")
    log.write_text(log.read_text().replace("buy(u1,tea)", "look(u1)"), encoding="utf-8")
    sizes = '[train]\nepochs = 1\n[model]\nkind = "ndtt"\ndim = 2\n'
    config = tmp_path / "c.toml"
    config.write_text(f'[data]\npath = "{log}"\n{sizes}program = "{tmp_path / "shop.ndtt"}"\n', encoding="utf-8")
    asked = ("train", config, "--out", tmp_path / "other", "--no-floors", "--quiet")
    assert "look(u1)" in refused(*asked)
    fine(*asked, "--undeclared", "exogenous")
    assert "1 event that nothing declares" not in fine("evaluate", tmp_path / "other", log, "--no-times").err
    for model in ((), ("--model", "nhp")):
        assert "--undeclared is" in refused("train", "--data", log, *model, "--undeclared", "exogenous")


def test_the_limit_of_instantiations_holds_in_every_command(run: Path, tmp_path: Path) -> None:
    wide = tmp_path / "wide.ndtt"
    wide.write_text("p(1..60).\n:- event(buy).\nbuy(A) :- p(A), p(B), p(C), p(D).\n", encoding="utf-8")
    said = refused("params", "--program", wide, "--limit", "0.001")
    assert "rule1" in said and "about 12,960,000" in said and "not tried" in said and "--limit raises" in said
    test = write_events(tmp_path / "test.jsonl", "u1", "u2")
    assert "too many instantiations" in refused("evaluate", run, test, "--no-times", "--limit", "0.000001")
    assert "too many" in refused(
        "train", "--data", test, "--program", wide, "--limit", "0.001", "--out", tmp_path / "x"
    )


def test_groups_that_a_file_of_parameters_lacks_are_the_mean_of_those_it_has(tmp_path: Path) -> None:
    (tmp_path / "shop.ndtt").write_text(SHOP + "user(u1). user(u2).\n", encoding="utf-8")
    rules, made = tmp_path / "shop.ndtt", tmp_path / "p.json"
    fine("params", "--program", rules, "--dim", 2, "--preset", "paper", "--out", made)
    test = write_events(tmp_path / "test.jsonl", "u1", "u9")
    asked = "intensity", test, "--program", rules, "--at", "8.0", "--json", "--params"
    found = fine(*asked, made)
    assert f"1 parameter group that {made} lacks" in found.err
    assert "`w(u9)`" in refused(*asked, made, "--unseen", "error")
    written = json.loads(made.read_text())
    known = [one for name, one in written["parameters"].items() if name.startswith("deduce.w(")]
    written["parameters"]["deduce.w(u9).W"] = np.mean(known, axis=0).tolist()
    (tmp_path / "whole.json").write_text(json.dumps(written), encoding="utf-8")
    whole = fine(*asked, tmp_path / "whole.json")
    assert "lacks" not in whole.err
    rates = [one.json[0]["queries"][0]["intensities"] for one in (found, whole)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-12) and "buy(u9,tea)" in rates[0]
