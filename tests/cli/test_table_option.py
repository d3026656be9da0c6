"""`--table user=new.csv`: other rows for a run, and for a program and data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.invoking import fine, foretell, refused

SHOP = ':- table(user, "users.csv").\n:- event(buy, 2).\n:- embed(user, 2).\nitem(milk). item(tea).\nbuy(U, I) :- user(U), item(I).\n'


def write_events(path: Path, *events: str) -> Path:
    line = {"id": "s", "times": [float(place + 1) for place in range(len(events))], "events": events, "t_end": 9.0}
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "shop.ndtt").write_text(SHOP, encoding="utf-8")
    (tmp_path / "users.csv").write_text("name\nu1\nu2\n", encoding="utf-8")
    (tmp_path / "new.csv").write_text("name\nu2\nu9\nu9\n", encoding="utf-8")
    write_events(tmp_path / "train.jsonl", "buy(u1,milk)", "buy(u2,tea)")
    write_events(tmp_path / "test.jsonl", "buy(u9,milk)", "buy(u2,tea)")
    return tmp_path


@pytest.fixture
def run(shop: Path) -> Path:
    asked = ("--program", shop / "shop.ndtt", "--epochs", 1, "--dim", 2, "--quiet")
    fine("train", "--data", shop / "train.jsonl", "--run", shop / "run", *asked)
    return shop / "run"


def test_a_run_has_other_rows_which_are_counted_and_said(run: Path, shop: Path) -> None:
    table, test = f"user={shop / 'new.csv'}", shop / "test.jsonl"
    assert "buy(u9,milk)" in refused("evaluate", run, test)
    found = fine("evaluate", run, test, "--no-times", "--table", table)
    said = f"user: 2 rows from {shop / 'new.csv'}, 1 of them not in training\n"
    assert said in found.err and "1 row is there already and is dropped" in found.err
    assert "the intensities of 1 event depend on 1 parameter group that training never met" in found.out
    assert "`user(u9)`" in refused("evaluate", run, test, "--table", table, "--unseen", "error")
    for command, *more in (("predict", test, "--json"), ("intensity", test, "--at", "1.5", "--json")):
        found = fine(command, run, *more, "--table", table)
        assert said in found.err and "u9" in found.out and "u1" not in found.out, command
    assert "buy(u9,tea)" in fine("explain", run, test, "--at", "1.5", "--event", "buy(u9,tea)", "--table", table).out
    drawn = fine("sample", run, "--horizon", "50", "--n", "50", "--table", table, "--json")
    assert said in drawn.err and "buy(u9," in drawn.out and "buy(u1," not in drawn.out
    assert "buy(u1," in fine("sample", run, "--horizon", "50", "--n", "50", "--json").out


def test_a_replay_has_other_rows(shop: Path) -> None:
    table, test = f"user={shop / 'new.csv'}", shop / "test.jsonl"
    found = fine("replay", shop / "shop.ndtt", test, "--json", "--no-cache", "--table", table)
    assert f"user: 2 rows from {shop / 'new.csv'}, 1 of them not in the program's own\n" in found.err
    assert "user(u9)" in found.json[0]["states"][0]["facts"] and "user(u1)" not in found.json[0]["states"][0]["facts"]
    assert "new.csv" in fine("why", shop / "shop.ndtt", test, "user(u9)", "--table", table).err
    assert "2 vectors" in fine("plan", shop / "shop.ndtt", test, "--table", table).out


def test_what_cannot_be_meant_is_refused(run: Path, shop: Path) -> None:
    test, good = shop / "test.jsonl", f"user={shop / 'new.csv'}"
    (shop / "wide.csv").write_text("name,age\nu9,old\n", encoding="utf-8")
    (shop / "new.txt").write_text("name\nu9\n", encoding="utf-8")
    wrong = {
        f"usr={shop / 'new.csv'}": "did you mean `user`",
        f"user={shop / 'wide.csv'}": "takes 1",
        f"user={shop / 'gone.csv'}": "no such file",
        f"user={shop / 'new.txt'}": ".csv and .parquet",
        f"user={shop}": ".csv and .parquet",
        "user": "--table",
    }
    for table, part in wrong.items():
        found = foretell("evaluate", run, test, "--table", table)
        assert (found.code, found.out) == (1, "") and part in found.err and "Traceback" not in found.err, table
    assert "already" in refused("evaluate", run, test, "--table", good, "--table", good)
    fine("train", "--data", shop / "train.jsonl", "--model", "poisson", "--run", shop / "other", "--quiet")
    assert "no rules and no tables" in refused("evaluate", shop / "other", shop / "train.jsonl", "--table", good)
