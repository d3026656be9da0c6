"""`foretell auto` and `ft.auto`, whole: with seconds instead of minutes, on small data."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import foretell as ft
from foretell.errors import ForetellError
from foretell.evaluate.scores import score
from foretell.reproduce.unit import UnitFolder
from foretell.search.auto import SearchListener
from foretell.search.halving import DEV_SCORES, PARTIAL, unit_folders
from foretell.train.run import RunFolder
from tests.cli.invoking import fine, finished, foretell, process, refused
from tests.train.small import folder_of

LIBRARY = Path(__file__).resolve().parents[2] / "programs" / "library.ndtt"
SECONDS = 14.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("data") / "bursts", sequences=12)


@pytest.fixture(scope="module")
def searched(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, float]:
    """A search by the command line, in this process: its folder, what it printed, and how long it took.

    On a machine so busy that no network comes to a score, it goes on with more time.
    """
    out = tmp_path_factory.mktemp("searched") / "bursts"
    spent = 0.0
    for factor in (1, 3, 9, 27):
        began = time.monotonic()
        minutes = (spent + factor * SECONDS) / 60
        found = fine("auto", data, "--minutes", minutes, "--out", out, "--jobs", 1, "--json", "--quiet").json
        if {"hawkes", "anhp"} <= {one["candidate"] for one in found["entries"]}:
            break
        spent = found["seconds"]
    return out, found, time.monotonic() - began


def test_the_budget_is_kept_and_every_kind_is_named(searched: tuple[Path, dict, float]):
    _, found, seconds = searched
    assert (
        found["seconds"] < 2.0 * 60 * found["minutes"] and seconds < 4.0 * 60 * found["minutes"]
    )  # machines may be busy
    tried = {one["candidate"] for one in found["entries"]}
    assert {"poisson", "hawkes", "anhp"} <= tried
    titles = {one["title"] for one in found["entries"]} | set(found["failed"]) | set(found["untried"])
    assert {"NHP", "S2P2", "RMTPP"} <= titles


def test_the_chosen_one_is_an_ordinary_run_with_the_score_that_is_told(searched: tuple[Path, dict, float]):
    out, found, _ = searched
    best = next(one for one in found["entries"] if one["candidate"] == found["chosen"])
    run = RunFolder.open(found["run"])
    assert run.model().kind == best["kind"]
    data = ft.load(run.config().data.path)
    assert data.dev is not None
    assert score(run.model(), data.dev, DEV_SCORES).evaluation.log_likelihood.value == pytest.approx(
        best["dev"]["value"]
    )
    assert best["dev"]["low"] <= best["dev"]["value"] <= best["dev"]["high"] and best["behind"] is None
    scores = fine("evaluate", found["run"], "--json", "--no-times", "--integral", "stratified", "--points", 20).json
    assert scores["log_likelihood"]["value"] == pytest.approx(found["test"]["log_likelihood"]["value"], abs=2e-3)
    assert scores["unfinished"] is None or best["state"] == "stopped"
    assert (out / "best" / "config.toml").read_text().startswith("# Chosen by `foretell auto`")


def test_no_default_model_is_better_on_dev_than_the_chosen_one(searched: tuple[Path, dict, float]):
    _, found, _ = searched
    scores = {one["candidate"]: one["dev"]["value"] for one in found["entries"]}
    plain = [scores[one["candidate"]] for one in found["entries"] if not one["variant"]]
    assert scores[found["chosen"]] >= max(plain)
    assert [one["dev"]["value"] for one in found["entries"]] == sorted(scores.values(), reverse=True)


def test_the_page_is_one_file_with_the_leaderboard_and_the_choice(searched: tuple[Path, dict, float]):
    out, found, _ = searched
    text = (out / "comparison.html").read_text()
    for one in found["entries"]:
        assert one["title"] in text
    assert "★" in text and "Content-Security-Policy" in text
    assert not re.search(r"<(script|img|iframe|link)[^>]* (src|href)=.(?!data:)", text)
    assert json.loads((out / "search.json").read_text())["chosen"] == found["chosen"]


def test_the_same_command_again_is_done_at_once_and_more_minutes_go_on(
    searched: tuple[Path, dict, float], data: Path, tmp_path: Path
):
    out, found, _ = searched
    copy = tmp_path / "bursts"
    shutil.copytree(out, copy)
    again = fine("auto", data, "--minutes", found["minutes"], "--out", copy, "--jobs", 1, "--json", "--quiet").json
    assert again["chosen"] == found["chosen"] and again["entries"][0]["dev"] == found["entries"][0]["dev"]
    before = sum(one.record() is not None for one in unit_folders(copy))
    longer = fine("auto", data, "--minutes", 2 * found["minutes"], "--out", copy, "--jobs", 1, "--json", "--quiet").json
    after = sum(one.record() is not None for one in unit_folders(copy))
    assert after > before or longer["stopped"] == "done"
    assert longer["entries"][0]["dev"]["value"] >= found["entries"][0]["dev"]["value"]
    told = refused("auto", data, "--minutes", 1, "--out", copy, "--seed", 5)
    assert "another search" in told and "train" in told


def test_interrupted_it_keeps_what_was_done_and_goes_on(data: Path, tmp_path: Path):
    out = tmp_path / "bursts"
    asked = {"stop": False}

    def told(line: str) -> None:
        asked["stop"] = asked["stop"] or line.startswith("Hawkes")

    listener = SearchListener(tell=told, stop=lambda: asked["stop"])
    found = ft.auto(data, minutes=SECONDS / 60, out=out, jobs=1, device="cpu", listener=listener)
    assert found.stopped == "interrupted" and found.test is None
    done = {one.path.name: one.record() for one in unit_folders(out) if one.record() is not None}
    assert "hawkes" in done
    whole = ft.auto(data, minutes=SECONDS / 60, out=out, jobs=1, device="cpu")
    assert whole.stopped != "interrupted" and whole.test is not None
    assert UnitFolder(out / "units" / "hawkes").record() == done["hawkes"]
    frame = whole.to_frame("pyarrow")
    assert frame.num_rows == len(whole.board.entries) and whole.model.kind == whole.board.best.kind


def test_killed_it_goes_on_where_it_was(data: Path, tmp_path: Path):
    out = tmp_path / "bursts"
    arguments = ("auto", data, "--minutes", 2.0, "--out", out, "--jobs", 2, "--json", "--device", "cpu")
    running = process(*arguments)
    until = time.monotonic() + 90.0
    while not (out / "units" / "hawkes" / "record.json").exists():
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.2)
    running.send_signal(signal.SIGKILL)
    running.wait()
    kept = (out / "units" / "hawkes" / "record.json").read_text()
    spent = json.loads((out / "budget.json").read_text())["spent"]
    assert spent > 0.0
    minutes = (spent + SECONDS) / 60
    found = finished(
        process("auto", data, "--minutes", minutes, "--out", out, "--jobs", 2, "--json", "--device", "cpu")
    )
    assert json.loads(found.out)["chosen"] and (out / "units" / "hawkes" / "record.json").read_text() == kept


def test_a_fit_that_the_clock_stops_is_on_the_board(data: Path, tmp_path: Path):
    """With little time the rules' own candidate does not come to its end, and what it had reached counts."""
    out = tmp_path / "bursts"
    found = ft.auto(data, minutes=SECONDS / 60, out=out, jobs=1, device="cpu", settings={"train": {"epochs": 10_000}})
    entry = next(one for one in found.board.entries if one.candidate == "anhp")
    assert 0 < entry.epochs < 10_000 and entry.state in ("shorter", "stopped")
    folder = UnitFolder(out / "units" / "anhp-3")
    assert (folder.record() or folder.read(PARTIAL) or {})["wanted"] == 10_000


def test_a_loaded_data_set_is_searched_too_and_test_can_be_left_alone(data: Path, tmp_path: Path):
    loaded = ft.load(data)
    found = ft.auto(loaded, minutes=8.0 / 60, out=tmp_path / "out", jobs=1, device="cpu", test=False)
    assert found.test is None and found.run.config().data.path == str((tmp_path / "out" / "data").resolve())
    assert np.isfinite(found.board.best.dev.value)


def test_models_of_a_program_are_searched(tmp_path: Path):
    out, log = tmp_path / "out", tmp_path / "log.jsonl"
    log.write_text((LIBRARY.with_suffix("") / "example.jsonl").read_text().replace('["borrow', '["opened", "borrow', 1))
    log.write_text(log.read_text().replace("[1.0,", "[0.5, 1.0,", 1))
    assert "opened" in refused("auto", log, "--program", LIBRARY, "--out", out)
    told = foretell(
        "auto",
        log,
        "--program",
        LIBRARY,
        "--undeclared",
        "exogenous",
        "--minutes",
        0.4,
        "--out",
        out,
        "--jobs",
        1,
        "--json",
    )
    assert told.code == 0, told.err
    assert {"s2ndtt"} <= {one["candidate"] for one in told.json["entries"]} and RunFolder.open(out / "best").config()
    assert 'undeclared = "exogenous"' in (out / "best" / "config.toml").read_text()


def test_mistakes_are_a_message_and_leave_nothing(data: Path, tmp_path: Path):
    assert "--minutes" in refused("auto", data, "--minutes", 0, "--out", tmp_path / "a")
    assert "--jobs" in refused("auto", data, "--minutes", 0.1, "--jobs", 0, "--out", tmp_path / "b")
    assert "nothing to search" in refused("auto")
    assert "give a program" in refused("auto", data, "--undeclared", "exogenous", "--out", tmp_path / "c")
    assert foretell("auto", tmp_path / "nowhere", "--out", tmp_path / "c").code == 1
    few = replace(ft.load(data), dev=None, test=None)
    assert few.train is not None
    few = replace(few, train=few.train.select([0]))
    with pytest.raises(ForetellError, match="unknown key"):
        ft.auto(few, out=tmp_path / "d", minute=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    assert "something else" in refused("auto", data, "--out", tmp_path / "full")
    assert (
        not (tmp_path / "a").exists()
        and not (tmp_path / "b").exists()
        and not (tmp_path / "c").exists()
        and not (tmp_path / "d").exists()
    )
